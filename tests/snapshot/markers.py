"""Jobs whose tables tell the clocks: at every clock, a worker adds 1 to its own row of every table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fixtures import background
from remote import Remote, eventually

from ssp_redis import Job, JobStatus
from ssp_redis.snapshot.state import Snapshot

#: Small and by transaction, of three blocks a share, of a half type and of whole numbers, both in tags, and of more
#: whole numbers. Eight rows: so many workers.
TABLES: dict[str, tuple[tuple[int, ...], str]] = {
    "small": ((8, 7), "float32"),
    "large": ((8, 100_000), "float64"),
    "half": ((8,), "float16"),
    "count": ((8,), "int64"),
    "whole": ((8, 2, 3), "int64"),
}

_WORK = """
import random
with ssp_redis.join(url, job=job, worker=i, timeout=60, **settings) as worker:
    entered = worker.clock
    tables = [worker.table(name, np.zeros(shape, dtype)) for name, (shape, dtype) in tables.items()]
    for clock in worker.clocks(clocks):
        for table in tables:
            delta = np.zeros(table.shape, table.dtype)
            delta[i] = 1
            table.inc(delta)
        time.sleep(random.random() * pause)
entered, worker.clock
"""


def begin(
    remote: Callable[..., Remote],
    url: str,
    job: str,
    count: int,
    clocks: int = 10**6,
    tables: dict[str, Any] = TABLES,
    pause: float = 0.01,
    **settings: Any,
) -> list[Remote]:
    """Start workers 0 … n − 1, each in a process of its own; their result is (clock entered, clock reached)."""
    children = [remote() for _ in range(count)]
    for i, child in enumerate(children):
        child.start(_WORK, url=url, job=job, i=i, settings=settings, tables=tables, clocks=clocks, pause=pause)
    return children


def under_way(job: Job, clock: int = 3) -> None:
    """Wait until every member is beyond that clock."""

    def running() -> bool:
        if not job.exists():
            return False
        standing = job.status()
        return standing.started and standing.min_clock >= clock

    eventually(running, f"min clock {clock}", 60)


def left_behind(url: str, job: str, children: list[Remote], path: Path) -> Snapshot:
    """A snapshot of a job in the middle of its work, which then is stopped, and its workers gone."""
    with Job(url, job) as seen:
        under_way(seen)
        taken = seen.snapshot(path)
        seen.stop()
    for child in children:
        child.result(60)
    return taken


def mended(url: str, path: Path, work: Callable[[str, int, int], None]) -> JobStatus:
    """The jobs ``straight``, of 30 clocks in one go, and ``mended``, which had a snapshot restored after 13 of them.

    Args:
        work: (job, worker, clocks): be one of the two workers of a reproducible run.
    """

    def both(job: str, clocks: int) -> None:
        for future in [background(work, job, worker, clocks) for worker in range(2)]:
            future.result(60)

    both("straight", 30)
    both("broken", 13)
    Job(url, "broken").snapshot(path)
    standing = Job(url, "mended").restore(path)
    both("mended", 30)
    return standing


def check(taken: Snapshot, entered: dict[str, int] | None = None) -> None:
    """Every table holds exactly the deltas that the clocks say."""
    for name, table in taken.tables.items():
        expected = np.zeros(len(table))
        for worker, clock in taken.clocks.items():
            if worker.isdecimal():
                expected[int(worker)] = clock - (entered or {}).get(worker, 0)
        rows = table.reshape(len(table), -1)
        assert (rows == expected[:, None]).all(), f"{name} holds {rows[:, 0]}, the clocks are {taken.clocks}"
