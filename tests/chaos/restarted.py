"""A job whose server is killed in the middle and comes back: with all that it had logged, or without the log's end.

At each clock a worker adds to one of three tables, whose deltas are in tags, in slots and of rows. Each delta leaves a
mark of its own, so that what is missing, twice or out of order shows; and each read is compared with what it must hold.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from remote import Remote, eventually

from ssp_redis import Job, Loss
from ssp_redis.server import EmbeddedServer

from .stage import log_parts

Delta = tuple[int, int]
TABLES = ("tag", "slot", "row")
WORKERS, CLOCKS = 4, 360
#: Marks of a worker in each table, and how many of them an element of the first one has room for.
_MARKS, _BITS = CLOCKS // len(TABLES), 60
_BEGIN = """
from tests.chaos import restarted
worker = ssp_redis.join(url, job="r", worker=i, workers=restarted.WORKERS, staleness=staleness)
tables = restarted.tables(worker)
"""


class Told(NamedTuple):
    """What a worker has to say at the end."""

    #: When it began each clock.
    turns: list[float]
    #: (worker, clock) of the deltas that a read had to hold, and did not.
    missed: set[Delta]
    losses: list[Loss]


class Restart(NamedTuple):
    """What a restart came to."""

    #: Seconds from the start of the server until it answered, until anybody had ticked, and until everybody had.
    up: float
    first: float
    last: float
    #: Deltas that the server had forgotten: pushed again, and lost.
    again: int
    lost: int
    #: Bytes that were cut off.
    cut: int
    #: Did the log end within a command?
    torn: bool


def tables(worker: Any) -> list[Any]:
    """The tables of a worker."""
    return [
        worker.table("tag", np.zeros((WORKERS, _MARKS // _BITS), np.int64)),
        worker.table("slot", np.zeros((WORKERS, _MARKS), np.int64)),
        worker.sparse_table("row", (WORKERS * _MARKS, 2), np.int64),
    ]


def work(worker: Any, tables: list[Any]) -> Told:
    """One worker's part of the job."""
    turns: list[float] = []
    missed: set[Delta] = set()
    with worker:
        for clock in worker.clocks(CLOCKS):
            turns.append(time.monotonic())
            table = tables[clock % len(TABLES)]
            _add(table, int(worker.id), clock // len(TABLES))
            missed |= _missed(_marks(table), int(worker.id), clock, worker.staleness)
    return Told(turns, missed, worker.losses)


def _add(table: Any, worker: int, place: int) -> None:
    if table.name == "row":
        table.inc(np.ones((1, 2), np.int64), rows=[worker * _MARKS + place])
        return
    delta = np.zeros(table.shape, np.int64)
    if table.name == "tag":
        delta[worker, place // _BITS] = 1 << place % _BITS
    else:
        delta[worker, place] = 1
    table.inc(delta)


def _marks(table: Any) -> NDArray[np.int64]:
    """How often a table holds each delta: (worker, place). In one of bits, a delta that is there twice is the next."""
    value: NDArray[np.int64] = table.get(range(table.shape[0])) if table.name == "row" else table.get()
    if table.name == "tag":
        assert (value >> _BITS == 0).all(), value
        return (value[..., None] >> np.arange(_BITS) & 1).reshape(WORKERS, _MARKS)
    if table.name == "row":
        assert (value[:, 0] == value[:, 1]).all(), value
        return value[:, 0].reshape(WORKERS, _MARKS)
    return value


def _missed(seen: NDArray[np.int64], worker: int, clock: int, staleness: float) -> set[Delta]:
    """What a read lacks: of what the bound promises, of its own, and of what came before something that it has."""
    assert (seen <= 1).all(), seen
    clocks = clock % len(TABLES) + len(TABLES) * np.arange(_MARKS)
    need = np.maximum(np.where(seen, clocks, -1).max(axis=1), clock - staleness - 1)
    need[worker] = clock
    lacks = np.argwhere((seen == 0) & (clocks <= need[:, None]))
    return {(int(other), int(clocks[place])) for other, place in lacks}


def play(seed: int, cut: bool) -> Restart:
    """Run the job, kill its server at some clock, cut off the end of its log or not, start it, and check the end."""
    rng = random.Random(f"restarted {seed}")
    staleness = rng.choice((0, 3, 10))
    with contextlib.ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        args = ["--appendfsync", "always"]
        server = stack.enter_context(EmbeddedServer(appendonly=True, directory=data, tcp=True, args=args))
        children = [stack.enter_context(Remote()) for _ in range(WORKERS)]
        for i, child in enumerate(children):
            child.start(_BEGIN, url=server.url, i=i, staleness=staleness)
        for child in children:
            child.result()
        job = stack.enter_context(Job(server.url, "r"))
        made = log_parts(data)[-1].stat().st_size  # to forget the tables is to lose the state
        for child in children:
            child.start("restarted.work(worker, tables)")
        clock = rng.randrange(CLOCKS // 5, CLOCKS * 3 // 5)
        eventually(lambda: job.status().min_clock >= clock, f"clock {clock}", 60)
        os.kill(server.pid, signal.SIGKILL)
        assert server.wait_exit(10)
        size = log_parts(data)[-1].stat().st_size
        gone = int((size - made) ** rng.uniform(0.4, 1)) if cut else 0
        os.truncate(log_parts(data)[-1], size - gone)
        begun = time.monotonic()
        server.start()
        up = time.monotonic() - begun
        told = [child.result(60) for child in children]
        again, lost = _check(job, told)
        assert cut or not (again or lost), [one.losses for one in told]
        # what is written down at once is a tick of before the kill
        ticked = [min(turn for turn in one.turns if turn > begun + up / 2) - begun for one in told]
        return Restart(up, min(ticked), max(ticked), again, lost, gone, "ncating the AOF" in server.log())


def _check(job: Job, told: list[Told]) -> tuple[int, int]:
    """Everybody is done, and the tables hold all but what is named as lost. Deltas pushed again, and lost."""
    status = job.status()
    assert not status.members, status
    assert [(gone.clock, gone.why) for gone in status.departed] == [(CLOCKS, "done")] * WORKERS, status
    # of others a worker names what it knows; here all are there to speak for themselves
    named = [
        ((i, clock), loss.repushed)
        for i, one in enumerate(told)
        for loss in one.losses
        if loss.worker == str(i)
        for clock in range(loss.first, loss.last + 1)
    ]
    lost = {delta for delta, repushed in named if not repushed}
    assert len(dict(named)) == len(named), named
    for kind, name in enumerate(TABLES):
        marks = _marks(job.table(name))
        expected = np.ones_like(marks)
        for worker, clock in lost:
            if clock % len(TABLES) == kind:
                expected[worker, clock // len(TABLES)] = 0
        assert (marks == expected).all(), (name, np.argwhere(marks != expected).tolist(), named)
    missed = set().union(*(one.missed for one in told)) - set(dict(named))
    assert not missed, (missed, named)
    return len(named) - len(lost), len(lost)
