"""ssp-redis at staleness 0 beside torch.distributed's all-reduce over gloo: the same table, processes and checks.

    pip install torch          # CPU is enough
    python benchmarks/gloo.py -n 2,4,8 --size 40KiB,4MiB

A clock of gloo is one all-reduce of the delta and its addition to the parameters, which every process keeps. There is
no server in between, and no process may leave, come late or be slow: that is what it is compared for.
"""

from __future__ import annotations

import datetime
import importlib.util
import os
import tempfile
import time

import numpy as np
from peers import WARM, compare, missing

from ssp_redis.bench.crew import Inexact, Seat, together
from ssp_redis.bench.load import Load


def work(seat: Seat, nbytes: int, clocks: int, meeting: str) -> tuple[float, str]:
    """One process: seconds a clock, digest of the parameters."""
    # without a name it looks for the host's, which need not resolve
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=seat.rank,
        world_size=seat.count,
        timeout=datetime.timedelta(seconds=seat.timeout),
    )
    load = Load(seat.rank, seat.count, nbytes)
    value = load.first()
    summed = torch.empty(len(value), dtype=torch.float32)
    view = summed.numpy()

    def turns(first: int, last: int) -> None:
        for clock in range(first, last):
            load.check(value, clock, 0)
            view[:] = load.delta(clock)
            dist.all_reduce(summed)
            np.add(value, view, out=value)

    turns(0, WARM)
    seat.meet()
    begun = time.perf_counter()
    turns(WARM, WARM + clocks)
    seconds = (time.perf_counter() - begun) / clocks
    seat.meet()
    digest = load.verify(value, WARM + clocks)
    dist.destroy_process_group()
    return seconds, digest


def peer(workers: int, nbytes: int, clocks: int, timeout: float) -> float:
    """Seconds a clock, of the slowest process."""
    with tempfile.TemporaryDirectory() as folder:
        found = together(work, workers, timeout, nbytes, clocks, os.path.join(folder, "meeting"))
    if len({digest for _, digest in found}) > 1:
        raise Inexact("the processes hold different parameters")
    return max(seconds for seconds, _ in found)


if __name__ == "__main__":
    if importlib.util.find_spec("torch") is None:
        raise missing("torch")
    compare("gloo", __doc__ or "", peer)
