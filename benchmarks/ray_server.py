"""ssp-redis at staleness 0 beside a parameter server made of a Ray actor: the same table, workers and checks.

    pip install ray
    python benchmarks/ray_server.py -n 4 --size 40KiB,4MiB

It is Ray's own example, synchronous: an actor holds the parameters; in every clock each worker, an actor too, is given
them, returns its delta, and the server adds all of them up.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
from peers import WARM, compare, missing

from ssp_redis.bench.load import Load

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

try:
    import ray
except ModuleNotFoundError:
    raise missing("ray") from None


@ray.remote(num_cpus=0)
class Server:
    """Holds the parameters."""

    def __init__(self, count: int, nbytes: int) -> None:
        self.load = Load(0, count, nbytes)
        self.value = self.load.first()

    def apply(self, *deltas: Any) -> Any:
        """Add all of a clock, and return the parameters."""
        for delta in deltas:
            np.add(self.value, delta, out=self.value)
        return self.value

    def verify(self, clocks: int) -> str:
        """Are they exact?"""
        return self.load.verify(self.value, clocks)


@ray.remote(num_cpus=0)
class Computer:
    """A worker."""

    def __init__(self, me: int, count: int, nbytes: int) -> None:
        self.load = Load(me, count, nbytes)

    def step(self, clock: int, value: Any) -> Any:
        """Look at the parameters, return a delta."""
        self.load.check(value, clock, 0)
        return self.load.delta(clock)


def peer(workers: int, nbytes: int, clocks: int, timeout: float) -> float:
    """Seconds a clock."""
    server = Server.remote(workers, nbytes)
    computers = [Computer.remote(me, workers, nbytes) for me in range(workers)]
    value = server.apply.remote()

    def turns(value: Any, first: int, last: int) -> Any:
        for clock in range(first, last):
            value = server.apply.remote(*[computer.step.remote(clock, value) for computer in computers])
            ray.wait([value], timeout=timeout)
        return value

    value = turns(value, 0, WARM)
    ray.get(value, timeout=timeout)
    begun = time.perf_counter()
    value = turns(value, WARM, WARM + clocks)
    ray.get(value, timeout=timeout)
    seconds = (time.perf_counter() - begun) / clocks
    ray.get(server.verify.remote(WARM + clocks), timeout=timeout)
    for actor in (server, *computers):
        ray.kill(actor)
    return seconds


if __name__ == "__main__":
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        compare("ray", __doc__ or "", peer)
    finally:
        ray.shutdown()
