"""ssp-redis at staleness 0 beside the least that workers in Python must do: the same commands and sums, nothing else.

    python benchmarks/bare.py -n 2,4,8 --size 40KiB

In a clock each process pushes its delta and counts itself in one transaction, waits on a channel for the last one, gets
the deltas of the others and adds them up. Names and clocks are taken for granted: nobody may die, join, be late for
more than a clock or change anything, nothing is checked, and no value survives. So the ratio is what all that costs.
It is of small tables: large ones would be shared out.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

import numpy as np
import redis
from peers import WARM, compare

from ssp_redis.bench.crew import Inexact, Seat, together
from ssp_redis.bench.load import Load
from ssp_redis.connection import command
from ssp_redis.server import EmbeddedServer

_COUNT = """
if redis.call('HINCRBY', KEYS[1], ARGV[1], 1) == tonumber(ARGV[2]) then
  redis.call('PUBLISH', KEYS[2], ARGV[1])
end
return redis.status_reply('OK')
"""
#: A slot is written over when everybody has read what was in it.
_SLOTS = 2


class Line:
    """A connection without any comfort."""

    def __init__(self, url: str, timeout: float) -> None:
        pool = redis.ConnectionPool.from_url(url, socket_timeout=timeout, protocol=2)
        self._connection = pool.make_connection()
        self._connection.connect()  # type: ignore[no-untyped-call]
        self.socket: socket.socket = getattr(self._connection, "_sock")  # noqa: B009 - redis-py has no public name

    def expect(self, words: bytes) -> None:
        """Read so many bytes, which must be these."""
        found = bytearray(len(words))
        self.fill([memoryview(found)])
        if found != words:
            raise Inexact(f"{bytes(found)!r} in the place of {words!r}")

    def fill(self, targets: Sequence[memoryview]) -> None:
        """Read into memory until it is full."""
        left = list(targets)
        while left:
            got = self.socket.recvmsg_into(left)[0]
            if not got:
                raise ConnectionError("the server has closed the connection")
            while left and got >= left[0].nbytes:
                got -= left.pop(0).nbytes
            if got:
                left[0] = left[0][got:]


def work(seat: Seat, url: str, nbytes: int, clocks: int) -> tuple[float, str]:
    """One process: seconds a clock, digest of the parameters."""
    load = Load(seat.rank, seat.count, nbytes)
    value, incoming = load.first(), np.empty(nbytes // 4, np.float32)
    commands, channel = Line(url, seat.timeout), Line(url, seat.timeout)
    channel.socket.sendall(command("SUBSCRIBE", "ready"))
    channel.expect(b"*3\r\n$9\r\nsubscribe\r\n$5\r\nready\r\n:1\r\n")
    with redis.Redis.from_url(url) as client:
        script = client.script_load(_COUNT)
    multi, execute = command("MULTI"), command("EXEC")
    before = b"$%d\r\n" % nbytes
    first, last = memoryview(bytearray(len(before))), memoryview(bytearray(2))
    arriving = [first, memoryview(incoming).cast("B"), last]

    def turns(begin: int, end: int) -> None:
        nonlocal value
        for clock in range(begin, end):
            load.check(value, clock, 0)
            slot = clock % _SLOTS
            head = b"*3\r\n$3\r\nSET\r\n$3\r\n%d:%d\r\n%b" % (seat.rank, slot, before)
            count = command("EVALSHA", script, 2, "came", "ready", clock, seat.count)
            delta = load.delta(clock)
            commands.socket.sendmsg([multi + head, memoryview(delta).cast("B"), b"\r\n" + count + execute])
            commands.expect(b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+OK\r\n")
            said = b"%d" % clock
            channel.expect(b"*3\r\n$7\r\nmessage\r\n$5\r\nready\r\n$%d\r\n%b\r\n" % (len(said), said))
            others = [rank for rank in range(seat.count) if rank != seat.rank]
            commands.socket.sendall(b"".join(command("GET", f"{rank}:{slot}") for rank in others))
            fresh = value.copy()
            for rank in range(seat.count):  # in one order, for the same bits
                if rank == seat.rank:
                    fresh += delta
                    continue
                commands.fill(arriving)
                fresh += incoming
            value = fresh

    turns(0, WARM)
    seat.meet()
    begun = time.perf_counter()
    turns(WARM, WARM + clocks)
    seconds = (time.perf_counter() - begun) / clocks
    seat.meet()
    return seconds, load.verify(value, WARM + clocks)


def peer(workers: int, nbytes: int, clocks: int, timeout: float) -> float:
    """Seconds a clock, of the slowest process."""
    with EmbeddedServer() as server:
        found = together(work, workers, timeout, server.url, nbytes, clocks)
    if len({digest for _, digest in found}) > 1:
        raise Inexact("the processes hold different parameters")
    return max(seconds for seconds, _ in found)


if __name__ == "__main__":
    compare("bare", __doc__ or "", peer)
