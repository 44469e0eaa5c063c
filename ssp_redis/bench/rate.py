"""How many clocks a second the smallest job does: two floats, every clock read, pushed and ticked, none of them merged.

The task is ``linreg``. Its limit, before and after: the same processes calling a bare script as fast as they can.
"""

from __future__ import annotations

import time
from typing import Any, TypedDict

import numpy as np

from ..job import Job
from ..table import Table
from ..tasks.linreg import LinReg
from ..worker import Worker, join
from .crew import Inexact, Seat, together
from .samples import median
from .scene import Scene

_BARE = "return redis.call('HINCRBY', KEYS[1], ARGV[1], 1)"
_LEASE = 30.0
#: Clocks, of those measured, of the limit; and before the measurement.
_PART, _WARM = 2, 50


class Rate(TypedDict):
    """Result of :func:`measure`; rates are of all workers together, medians over the rounds."""

    workers: int
    staleness: int | None
    clocks: int
    clocks_per_second: float
    least: float
    most: float
    #: Bare scripts a second by the same processes.
    scripts_per_second: float


def measure(scene: Scene, *, rounds: int, workers: int, staleness: int | None, clocks: int, timeout: float) -> Rate:
    """``clocks`` of each worker in each round."""
    rates, scripts = [], []
    for _ in range(rounds):
        with scene.job() as job:
            found = together(_work, workers, timeout, scene, job, staleness, clocks)
            _check(scene, job, sum(share["sum"] for share in found))
        begun, ended = min(share["begun"] for share in found), max(share["ended"] for share in found)
        rates.append(workers * clocks / (ended - begun))
        scripts.append(sum(sum(share["scripts"]) / len(share["scripts"]) for share in found))
    return {
        "workers": workers,
        "staleness": staleness,
        "clocks": clocks,
        "clocks_per_second": round(median(rates)),
        "least": round(min(rates)),
        "most": round(max(rates)),
        "scripts_per_second": round(median(scripts)),
    }


def _check(scene: Scene, job: str, expected: Any) -> None:
    with Job(scene.url, job) as seen:
        value = seen.table("w").get()
    # the order of the additions is the log's, another than here; a delta too many or too few is far larger
    if not np.allclose(value, expected, rtol=1e-9, atol=1e-9):
        raise Inexact(f"the table holds {value.tolist()}, the deltas add up to {expected.tolist()}")


class _Summing:
    """A table that remembers what was added to it."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.get = table.get
        self.weight = self.bias = 0.0

    def inc(self, delta: Any) -> None:
        self.weight += delta[0]
        self.bias += delta[1]
        self._table.inc(delta)


class _Recording:
    """A worker as the task sees it, whose table remembers."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.id = worker.id
        self.members = worker.members

    def table(self, name: str, init: Any) -> _Summing:
        self.made = _Summing(self._worker.table(name, init))
        return self.made


def _work(seat: Seat, scene: Scene, job: str, staleness: int | None, clocks: int) -> dict[str, Any]:
    wire = scene.connect()
    sha = wire.call("SCRIPT", "LOAD", _BARE)
    key = f"ssp:{{{job}}}:bare:{seat.rank}"
    scripts = []

    def limit() -> None:
        seat.meet()
        count = max(1, clocks // _PART)
        begun = time.perf_counter()
        for _ in range(count):
            wire.call("EVALSHA", sha, 1, key, "w")
        scripts.append(count / (time.perf_counter() - begun))
        seat.meet()

    limit()
    place: dict[str, Any] = {"worker": seat.rank, "workers": seat.count, "staleness": staleness}
    with join(scene.url, job=job, lease=_LEASE, timeout=seat.timeout, **place) as worker:
        task, record = LinReg(), _Recording(worker)
        task.load()
        task.setup(record, _WARM + clocks)  # type: ignore[arg-type]
        for clock in worker.clocks(_WARM):
            task.step(clock)
        seat.meet()
        known = worker.stats()["ticks"]
        begun = time.monotonic()
        for clock in worker.clocks(_WARM + clocks):
            task.step(clock)
        ended = time.monotonic()
        ticks = int(worker.stats()["ticks"]) - int(known)
        if ticks != clocks:
            raise Inexact(f"{clocks} clocks were {ticks} ticks")
        seat.meet()
    limit()
    wire.close()
    total = np.array([record.made.weight, record.made.bias])
    return {"begun": begun, "ended": ended, "scripts": scripts, "sum": total}
