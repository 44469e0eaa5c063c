"""ssp-redis at staleness 0 beside processes that SET the table's bytes over TCP, as one value, and GET them back.

    python benchmarks/blob.py -n 2,4,8 --size 4MiB

This is how a program comes to a parameter store by itself: one key, the server's port; nobody waits for anybody, and
nothing is added up. ``ssp-redis bench dense`` does the same over the connection that the table uses, which is a unix
socket where that is to be had.
"""

from __future__ import annotations

from peers import WARM, compare

from ssp_redis.bench.crew import Seat, together
from ssp_redis.bench.limits import Passive, pace
from ssp_redis.server import EmbeddedServer


def work(seat: Seat, url: str, nbytes: int, clocks: int) -> float:
    """One process: seconds of a SET and a GET."""
    passive = Passive(url, f"blob:{seat.rank}", nbytes, seat.timeout)
    pace(passive.blob, WARM)
    seat.meet()
    seconds = pace(passive.blob, clocks)
    seat.meet()
    passive.check()
    passive.close()
    return seconds


def peer(workers: int, nbytes: int, clocks: int, timeout: float) -> float:
    """Seconds of a SET and a GET, of the slowest process."""
    with EmbeddedServer(tcp=True) as server:
        return max(together(work, workers, timeout, server.url, nbytes, clocks))


if __name__ == "__main__":
    compare("blob", __doc__ or "", peer)
