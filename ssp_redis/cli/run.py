"""One worker at work on a task: join, set up, step and tick until the end, leave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ssp_redis import Job, Worker, join
from ssp_redis.cli.report import Reporter
from ssp_redis.cli.straggle import Drag, Straggle
from ssp_redis.errors import JobStopped
from ssp_redis.tasks import Task

#: Share of the newest loss in the smoothed one: about the last 50 clocks count.
_NEWEST = 0.02


def run_task(
    task: Task,
    place: dict[str, Any],
    clocks: int | None,
    rules: list[Straggle],
    reporter: Reporter,
    timeout: float | None = None,
) -> int:
    """Work as one worker until clock ``clocks`` (the task's own number when None), which is returned.

    ``place`` is what :func:`ssp_redis.join` takes. The reporter's account says at the end how it went.
    """
    task.load()
    with join(**place, timeout=timeout) as worker:
        reporter.joined(worker)
        if clocks is None:
            # By the start quorum, which is the same for every worker, early or late.
            with Job(place.get("url"), worker.job) as job:
                clocks = task.clocks(job.status().workers)
        if worker.clock >= clocks:
            reporter.ended("nothing")
            worker.leave("done")
            return clocks
        task.setup(worker, clocks)
        drag = Drag(rules, worker.id, lambda: float(worker.stats()["wait_seconds"]))
        pause = drag.pause if drag else None
        account, step, loss = reporter.account, task.step, None
        for clock in worker.clocks(clocks) if timeout is None else _clocks(worker, clocks, timeout):
            newest = step(clock)
            if newest is not None:
                loss = account.loss = newest if loss is None else loss + _NEWEST * (newest - loss)
            if pause is not None:
                pause()
        done = worker.clock >= clocks
        reporter.ended("done" if done else "stopped")
        worker.leave("done" if done else "left")
    return clocks


def _clocks(worker: Worker, count: int, timeout: float) -> Iterator[int]:
    """:meth:`Worker.clocks` with a limit to every wait."""
    while worker.clock < count and not worker.stopped:
        yield worker.clock
        try:
            worker.tick(timeout)
        except JobStopped:
            return
