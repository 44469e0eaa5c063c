"""Bulk-synchronous reads: at staleness 0 a read at clock c holds exactly what all have added before c, nothing newer.

Bounded staleness would allow newer deltas. But a step at staleness 0 shall be the step of one process on the joined
batch, also for a worker that reads late in its clock, when the others have pushed the next one and wait.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from fixtures import Past, background, blocked, in_database
from remote import Remote, eventually

import ssp_redis
from ssp_redis import Job, Worker

#: Worker i adds i + 1 everywhere at every clock, and reads now and then; what is wrong comes back.
_STEPS = """
rng, wrong = np.random.default_rng(i), []
everybody = workers * (workers + 1) // 2
for clock in worker.clocks(clocks):
    added = 0
    for turn in range(rng.integers(1, 4)):
        if rng.random() < 0.3:
            time.sleep(rng.choice([0.0005, 0.003, 0.03]))  # programs are uneven
        value = table.get(rows=rows) if sparse or rng.random() < 0.3 else table.get()
        if not (value == clock * everybody + added).all():
            wrong.append((clock, float(value.min()), float(value.max()), clock * everybody + added))
        if turn == 0 and i != lazy:
            table.inc(np.full((len(rows), *table.shape[1:]), i + 1), rows=rows)
            added = i + 1
    if i == lazy:
        table.inc(np.full((len(rows), *table.shape[1:]), i + 1), rows=rows)
wrong
"""


@pytest.mark.parametrize(
    ("kind", "shape", "workers", "clocks"),
    [
        ("dense", (7,), 3, 150),  # 28 bytes: in tags
        ("dense", (40, 2), 3, 150),  # 320 bytes: in slots
        ("dense", (40, 700), 6, 40),  # 110 KiB: who completes the clock sums
        ("dense", (64, 4096), 3, 40),  # 1 MiB: a share for each
        ("dense", (64, 4096), 2, 40),
        ("sparse", (100, 3), 3, 100),
        ("sparse", (50, 4096), 3, 40),
    ],
)
def test_a_read_is_of_its_clock(
    remote: Callable[..., Remote], url: str, job: str, kind: str, shape: tuple[int, ...], workers: int, clocks: int
) -> None:
    children = [remote() for _ in range(workers)]
    table = "table('w', np.zeros(shape, 'f4'))" if kind == "dense" else "sparse_table('w', shape)"
    for i, child in enumerate(children):
        child.start(
            "worker = ssp_redis.join(url, job=job, worker=i, workers=workers, timeout=30)\n"
            f"table = worker.{table}\n{_STEPS}",
            url=url,
            job=job,
            i=i,
            workers=workers,
            shape=shape,
            clocks=clocks,
            sparse=kind == "sparse",
            rows=list(range(shape[0])),
            lazy=workers - 1,
        )
    for child in children:
        assert child.result(90) == []
    with Job(url, job) as outside:
        value = outside.table("w").get(**({"rows": range(shape[0])} if kind == "sparse" else {}))
        assert (value == clocks * workers * (workers + 1) // 2).all()


@pytest.mark.parametrize("shape", [(2,), (40, 2), (64, 4096)])
def test_who_opens_a_table_late(together: Callable[..., list[Worker]], shape: tuple[int, ...]) -> None:
    """The others have added to it and wait, and have folded while they wait."""
    workers = together(3, staleness=0)
    for clock in range(4):
        waiting = []
        for worker in workers[1:]:
            table = worker.table(f"w{clock}", np.zeros(shape, np.float32))
            assert (table.get() == 0).all()
            table.inc(np.ones(shape, np.float32))
            worker.advance()
            waiting.append(background(worker.wait, 20))
        assert all(blocked(future) for future in waiting)
        table = workers[0].table(f"w{clock}", np.zeros(shape, np.float32))
        assert (table.get() == 0).all()
        workers[0].tick(20)
        for future in waiting:
            future.result(20)
        for worker in workers:
            assert (worker.table(f"w{clock}").get() == 2).all()


def test_who_has_no_copy_begins_with_the_base_before(
    together: Callable[..., list[Worker]], join: Callable[..., Worker], client: redis.Redis
) -> None:
    """While one is late the others publish what they have of the clock; who comes late all the same finds its clock."""
    workers = together(4, staleness=0)
    ones = np.ones((64, 4096), np.float32)
    for clock in range(6):
        waiting = []
        for worker in workers[1:]:
            table = worker.table("w", np.zeros_like(ones))
            assert (table.get() == 3 * clock).all()
            table.inc(ones)
            worker.advance()
            waiting.append(background(worker.wait, 20))
        workers[0].advance()
        for future in (*waiting, background(workers[0].wait, 20)):
            future.result(20)
    waiting = []
    for worker in workers[1:]:
        table = worker.table("w")
        assert (table.get() == 18).all()
        table.inc(ones)
        end = worker.advance()
        waiting.append(background(worker.wait, 20))
    assert end == 7
    [bases] = [key for key in client.keys("*:bases") if workers[0].job in key.decode()]
    [log] = [key for key in client.keys("*:log") if workers[0].job in key.decode()]
    config = log.replace(b":log", b":config")

    def early() -> bool:
        length = int(client.hget(config, "off")) + client.llen(log)
        return all(int(base.split(b":")[0]) == length for base in client.hvals(bases))

    eventually(early, "every share's base has the part of the clock that is there")
    assert (workers[0].table("w").get() == 18).all()
    back = join(0)
    assert back.clock == 6
    assert (back.table("w").get() == 18).all()
    back.tick(20)
    for future in waiting:
        future.result(20)
    for worker in (back, *workers[1:]):
        assert (worker.table("w").get() == 21).all()


def test_staleness_lowered_to_0(together: Callable[..., list[Worker]], url: str, job: str) -> None:
    """Who was ahead is waited for; then reads are of their clock again."""
    slow, fast = together(2, staleness=3)
    ones = np.ones((64, 4096), np.float32)
    tables = [worker.table("w", np.zeros_like(ones)) for worker in (slow, fast)]
    for _ in range(3):
        tables[1].get()
        tables[1].inc(ones)
        fast.tick(20)
    with Job(url, job) as outside:
        outside.set_staleness(0)
    ahead = background(fast.barrier, 20)
    for clock in range(3):
        value = tables[0].get()
        assert (value == value[0, 0]).all()
        assert clock <= value[0, 0] <= 3 + clock
        tables[0].inc(ones)
        slow.tick(20)
    ahead.result(20)
    for worker, table in zip((slow, fast), tables, strict=True):
        assert (table.get() == 6).all()
        table.inc(ones)
        worker.advance()
    for worker, table in zip((slow, fast), tables, strict=True):
        worker.wait(20)
        assert (table.get() == 8).all()


def test_who_joins_after_staleness_was_lowered_to_0_behind_the_bases(
    together: Callable[..., list[Worker]], join: Callable[..., Worker], url: str, job: str
) -> None:
    """Bases went on beyond its clock, twice, and the deltas before them are overwritten."""
    workers = together(3, staleness=3, lease=60.0)
    ones = np.ones((64, 4096), np.float32)
    tables = [worker.table("w", np.zeros_like(ones)) for worker in workers]
    total = 0

    def step(number: int) -> None:
        nonlocal total
        tables[number].inc(ones)
        workers[number].tick(20)
        tables[number].get()
        total += 1

    for _ in range(4):
        for number in range(3):
            step(number)
    for _ in range(3):  # so that rings go round, and bases go on
        step(1)
        step(2)
    workers[1].leave()
    with Job(url, job) as outside:
        outside.set_staleness(0)
    value = join(3, workers=3, lease=60.0).table("w").get()
    assert 3 * workers[0].clock <= value.min() and value.max() <= total


def test_jobs_of_one_name_in_two_databases_do_not_mix(join: Callable[..., Worker], url: str, job: str) -> None:
    """Announcements carry tiny deltas, and channels know no databases."""
    clocks = 40

    def run(database: int, number: int) -> list[float]:
        with join(number, workers=2, url=in_database(url, database)) as worker:
            table = worker.table("w", np.zeros(3))
            seen = []
            for _ in worker.clocks(clocks):
                seen.append(table.get()[0])
                table.inc(np.full(3, 10.0**database))
            return seen

    runs = {(database, number): background(run, database, number) for database in (0, 1) for number in (0, 1)}
    for (database, _), future in runs.items():
        assert future.result(60) == [2 * clock * 10.0**database for clock in range(clocks)]
    for database in (0, 1):
        with Job(in_database(url, database), job) as outside:
            assert outside.table("w").get().tolist() == [2 * clocks * 10.0**database] * 3
            outside.delete()


@pytest.mark.parametrize("shape", [(2,), (40, 2), (64, 4096)])
def test_clocks_that_are_flushed_as_one(
    join: Callable[..., Worker], url: str, job: str, shape: tuple[int, ...]
) -> None:
    """Where staleness is lowered to 0, a tick beyond the own clock may hold what the own clock must have."""
    joining = background(join, 0, workers=2, staleness=2, flush_every=3)
    slow = join(1, workers=2, staleness=2)
    fast = joining.result(20)
    ones = np.ones(shape, np.float32)
    tables = [worker.table("w", np.zeros_like(ones)) for worker in (slow, fast)]
    for _ in range(2):
        tables[1].inc(ones)
        fast.tick(20)
    with Job(url, job) as outside:
        outside.set_staleness(0)
    tables[0].get()
    slow.advance()
    tables[1].inc(ones)
    fast.advance()  # its clocks 0, 1 and 2 as one
    for clock in (1, 2, 3):
        slow.wait(20)
        assert slow.clock == clock
        assert (tables[0].get() == 3).all()
        slow.advance()


def test_what_is_pushed_again_after_a_rollback(new_server: Callable[..., Any], tmp_path: Path) -> None:
    """It rides on a tick of a later clock."""
    past = Past(new_server, tmp_path)
    futures = [background(ssp_redis.join, past.url, job="j", worker=i, workers=2, timeout=20) for i in (0, 1)]
    first, second = (future.result(20) for future in futures)
    tables = [worker.table("w", np.zeros(5000)) for worker in (first, second)]

    def step() -> None:
        for worker, table in zip((first, second), tables, strict=True):
            table.inc(np.full(5000, 1 + 99 * (worker is second)))
            worker.advance()
        for worker in (first, second):
            worker.wait(20)

    step()
    past.remember()
    step()
    past.return_to_it()
    assert len(first.members) == len(second.members) == 2  # both hear of it
    tables[0].inc(np.full(5000, 10))
    first.advance()
    assert first.clock == 3
    assert tables[1].get()[0] in (202, 212)  # both of the first's old deltas; the newest rides along
    for worker in (first, second):
        worker.detach()
