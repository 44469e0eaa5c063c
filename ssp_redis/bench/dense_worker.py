"""One worker of a measurement of dense tables, in a process of its own: the limit, its clocks, and the limit again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..job import Job
from ..worker import Worker, join
from .counters import net_bytes
from .crew import Inexact, Seat
from .limits import Passive, pace
from .load import Load
from .scene import Scene

#: Clocks before the measurement, so that rings, bases and memory are in use as they will be.
WARM = 4
_LEASE = 30.0


@dataclass(frozen=True)
class Cell:
    """One combination to measure."""

    workers: int
    nbytes: int
    #: None: unbounded.
    staleness: int | None
    flush_every: int
    clocks: int
    #: Seconds of pause in every clock, and how many times as long worker 0's is.
    compute: float = 0.0
    slowest: float = 1.0

    def rounded(self, clocks: int) -> int:
        """So many clocks or a few more, so that the last one is flushed."""
        return self.flush_every * math.ceil(clocks / self.flush_every)


def work(seat: Seat, scene: Scene, job: str, cell: Cell) -> dict[str, Any]:
    """What a process of the crew does; times in seconds a clock."""
    nap = cell.compute * (cell.slowest if seat.rank == 0 else 1.0)
    passive = Passive(scene.url, f"ssp:{{{job}}}:limit:{seat.rank}", cell.nbytes, seat.timeout)
    result: dict[str, Any] = {"blob": [], "blocks": []}

    def limits() -> None:
        for way in ("blob", "blocks"):
            exchange = getattr(passive, way)

            def turn(exchange: Callable[[], None] = exchange) -> None:
                if nap:
                    time.sleep(nap)
                exchange()

            exchange()
            seat.meet()
            result[way].append(pace(turn, max(3, cell.clocks // 2)))
            seat.meet()
            passive.check()

    limits()
    with join(
        scene.url,
        job=job,
        worker=seat.rank,
        workers=seat.count,
        staleness=cell.staleness,
        flush_every=cell.flush_every,
        lease=_LEASE,
        timeout=seat.timeout,
    ) as worker:
        _train(seat, scene, worker, cell, nap, result)
    limits()
    passive.close()
    return result


def _train(seat: Seat, scene: Scene, worker: Worker, cell: Cell, nap: float, result: dict[str, Any]) -> None:
    load = Load(seat.rank, seat.count, cell.nbytes)
    table = worker.table("w", load.first())
    bound, limit = cell.staleness, seat.timeout

    def turns(count: int) -> None:
        for clock in range(worker.clock, worker.clock + count):
            load.check(table.get(copy=False), clock, bound)
            if nap:
                time.sleep(nap)
            if cell.flush_every == 1:
                load.fill(table.spare(), clock)
                table.inc_spare()
            else:
                table.inc(load.delta(clock))  # what is lent may hold a sum of several
            worker.tick()  # whoever started this process ends it if it takes too long

    def net() -> tuple[int, int] | None:
        """What has gone through the server so far; nobody else is at work meanwhile."""
        seat.meet()
        found = net_bytes(wire) if wire is not None else None
        seat.meet()
        return found

    wire = scene.connect() if seat.rank == 0 else None
    warm, clocks = cell.rounded(WARM), cell.rounded(cell.clocks)
    turns(warm)
    known = worker.stats()
    result["before"] = net()
    begun = time.perf_counter()
    turns(clocks)
    result["clock"] = (time.perf_counter() - begun) / clocks
    result["after"] = net()
    spent = worker.stats()
    for name in ("wait", "push", "pull"):
        result[name] = (float(spent[f"{name}_seconds"]) - float(known[f"{name}_seconds"])) / clocks
    if wire is not None:
        wire.close()

    # so many clocks later every read holds whatever was added up to now; where nothing bounds it, after a barrier
    for _ in range(0 if bound is None else bound + 1):
        worker.tick(limit)
        value = table.get()
    if bound is None:
        worker.barrier(limit)
        value = table.get()
    result["digest"] = load.verify(value, warm + clocks)
    if seat.rank == 0:
        with Job(scene.url, worker.job) as job:
            if load.verify(job.table("w").get(), warm + clocks) != result["digest"]:
                raise Inexact("base and log give other bits than a worker's copy")
