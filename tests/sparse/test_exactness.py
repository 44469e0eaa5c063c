"""Sums are exact: rows that many add to, overlapping and repeated, come out as if one had added them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import pytest
import redis
from fixtures import background
from remote import Remote

import ssp_redis
from ssp_redis import Job, SparseTable, Worker
from ssp_redis.store.sparse import folding, view

_HEIGHT = 3000
_ADDER = """
rng = np.random.default_rng(seed)
total = np.zeros(table.shape)
for clock in worker.clocks(clocks):
    for _ in range(rng.integers(0, 4)):
        # some rows are hot, and come several times in one call
        rows = np.concatenate([rng.integers(0, 30, rng.integers(0, most)), rng.integers(0, len(total), most)])
        delta = rng.integers(-9, 10, (len(rows), *table.shape[1:])).astype(table.dtype)
        table.inc(delta, rows if rng.random() < 0.5 else rows.tolist())
        np.add.at(total, rows, delta)
    if reads and rng.random() < 0.5:
        table.get(rng.integers(0, len(total), 40))
"""


@pytest.mark.parametrize(
    ("dtype", "width", "staleness", "most", "clocks"),
    [
        ("float32", (4,), 0, 20, 200),
        ("float64", (2, 3), 3, 20, 200),
        ("int64", (), math.inf, 30, 200),
        ("float32", (64,), 2, 600, 60),  # by SET
        ("float16", (4,), 0, 20, 40),
    ],
)
def test_sums_of_concurrent_incs(
    remote: Callable[..., Remote],
    url: str,
    job: str,
    dtype: str,
    width: tuple[int, ...],
    staleness: float,
    most: int,
    clocks: int,
) -> None:
    """Seen by each worker, by a newcomer and from outside; one worker only reads, one only adds."""
    children = [remote() for _ in range(3)]
    shape = (_HEIGHT, *width)
    reader = background(ssp_redis.join, url, job=job, worker=3, workers=4, staleness=staleness, timeout=30)
    for i, child in enumerate(children):
        child.start(
            "worker = ssp_redis.join(url, job=job, worker=i, workers=4, staleness=staleness, timeout=30)\n"
            "table = worker.sparse_table('w', shape, dtype)\n" + _ADDER + "total",
            url=url,
            job=job,
            i=i,
            staleness=staleness,
            shape=shape,
            dtype=dtype,
            seed=i,
            most=most,
            clocks=clocks,
            reads=i != 1,
        )
    every = range(_HEIGHT)
    with reader.result(30) as worker:
        table = worker.sparse_table("w", shape, dtype)
        for clock in worker.clocks(clocks):
            assert table.get([clock, 0, clock]).shape == (3, *width)
        expected = sum(child.result(60) for child in children)
        assert np.abs(expected).max() > 50
        assert (Job(url, job).table("w").get() == expected).all()
        assert (Job(url, job).table("w").get([7, 7, 2999]) == expected[[7, 7, 2999]]).all()
        with ssp_redis.join(url, job=job, worker="new", timeout=10) as newcomer:
            value = newcomer.sparse_table("w").get(every)
            assert value.dtype == dtype
            assert (value == expected).all()
        # whoever hears of the newcomer renews its view: all is committed, so all is in it
        worker.advance()
        assert (table.get(every) == expected).all()
        for child in children:
            assert (child.do("worker.advance(); table.get(range(len(total)))") == expected).all()


def test_duplicate_rows_add_up(join: Callable[..., Worker]) -> None:
    worker = join(0)
    table = worker.sparse_table("w", (10, 2))
    table.inc(np.array([[1, 2], [10, 20], [100, 200]], np.float32), [1, 1, 0])
    table.inc(np.array([[1000, 0]], np.float32), [1])
    expected = [[100, 200], [1011, 22], [0, 0], [1011, 22]]
    assert table.get([0, 1, 2, 1]).tolist() == expected
    worker.tick()
    assert table.get([0, 1, 2, 1]).tolist() == expected
    assert table.get([]).shape == (0, 2)
    table.inc(np.zeros((0, 2), np.float32), [])


def test_what_is_read_and_given_belongs_to_the_caller(join: Callable[..., Worker]) -> None:
    table = join(0).sparse_table("w", (10, 2))
    delta = np.ones((1, 2), np.float32)
    table.inc(delta, [3])
    delta[:] = 9
    value = table.get([3])
    value[:] = 9
    assert table.get([3]).tolist() == [[1, 1]]


def fill(workers: list[Worker], tables: list[SparseTable], clocks: int) -> np.ndarray:
    """Each adds random rows at every clock, one after the other in one thread."""
    rng = np.random.default_rng(5)
    total = np.zeros(tables[0].shape)
    for _ in range(clocks):
        for worker, table in zip(workers, tables, strict=True):
            rows = rng.integers(0, len(total), 40)
            delta = rng.integers(-9, 10, (40, *table.shape[1:])).astype(table.dtype)
            table.inc(delta, rows)
            np.add.at(total, rows, delta)
            worker.advance()
    for worker in workers:
        worker.advance()  # a read at this clock sees what was there before it
    return total


def test_one_that_never_reads_and_one_that_has_not_opened_it(
    together: Callable[..., list[Worker]], url: str, job: str
) -> None:
    """A ring has few slots: who only pushes folds when it has to, and also the shares of one who does not know it."""
    pushing, _idle = together(2, staleness=math.inf)
    table = pushing.sparse_table("w", (500, 4))
    total = fill([pushing], [table], 100)
    assert (Job(url, job).table("w").get() == total).all()
    pushing.tick()
    assert (table.get(range(500)) == total).all()


def test_when_a_cache_is_full_it_begins_anew(
    together: Callable[..., list[Worker]], url: str, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "_CACHE", 1)
    monkeypatch.setattr(folding, "_HEAVY", 2000)
    workers = together(2, staleness=math.inf)
    tables = [worker.sparse_table("w", (5000, 4)) for worker in workers]
    total = np.zeros((5000, 4))
    for _ in range(20):
        total += fill(workers, tables, 5)
        for table in tables:
            rows = np.random.default_rng().integers(0, 5000, 900)
            assert (table.get(rows) == total[rows]).all()
    assert workers[0]._tables().sparse["w"].cache.lives > 2
    assert (Job(url, job).table("w").get() == total).all()


def test_owners_come_and_go(join: Callable[..., Worker], url: str, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an owner knows of its share is of use only while nobody else folds it."""
    monkeypatch.setattr(folding, "_HEAVY", 2000)
    first = join(0, staleness=math.inf)
    total = np.zeros((800, 4))
    workers, tables = [first], [first.sparse_table("w", (800, 4))]
    for turn in range(8):
        total += fill(workers, tables, 10)
        for table in tables:
            assert (table.get(range(800)) == total).all()
        if turn % 2 == 0:
            workers.append(join(f"w{turn}"))
            tables.append(workers[-1].sparse_table("w", (800, 4)))
        else:
            workers.pop(0).leave()
            tables.pop(0)
    assert (Job(url, job).table("w").get() == total).all()


def test_bits_do_not_depend_on_speeds(new_job: Callable[[], str], url: str) -> None:
    """reproducible=True: summed in the order (clock, worker)."""
    results = []
    for seed in range(2):

        def run(i: int, job: str, seed: int = seed) -> np.ndarray:
            with ssp_redis.join(url, job=job, worker=i, workers=3, reproducible=True, timeout=20) as worker:
                table = worker.sparse_table("w", (50, 4), initializer="normal", seed=1)
                rng, speed = np.random.default_rng(i), np.random.default_rng((seed, i))
                for _ in worker.clocks(40):
                    table.inc(rng.normal(size=(20, 4)).astype(np.float32), rng.integers(0, 50, 20))
                    if speed.random() < 0.3:
                        table.get(speed.integers(0, 50, 10))
                        time.sleep(speed.random() * 0.01)
                return table.get(range(50))

        job = new_job()
        values = [future.result(40) for future in [background(run, i, job) for i in range(3)]]
        assert all((value == values[0]).all() for value in values)
        results.append(Job(url, job).table("w").get())
    assert (results[0] == results[1]).all()
    assert (results[0] == values[0]).all()


def test_a_fold_before_the_tick_is_no_read_after_it(join: Callable[..., Worker]) -> None:
    """Whoever has no free slot folds while the others are a clock ahead: what it knows then lacks their last clock."""
    late, early = background(join, 0, workers=2, reproducible=True), join(1, workers=2, reproducible=True)
    workers = [late.result(10), early]
    tables = [worker.sparse_table("w", (6, 2)) for worker in workers]
    rng, total = np.random.default_rng(1), 0
    for clock in range(1, 200):
        if clock % 2:  # its slots last longer, so it never folds
            tables[1].inc(np.ones((1, 2), np.float32), [0])
        workers[1].advance()
        tables[0].inc(np.ones((1, 2), np.float32), [0])
        workers[0].advance()
        workers[1].wait(10)
        total += 1 + clock % 2
        if rng.random() < 0.2:  # who reads at every clock folds in time
            assert [table.get([0])[0, 0] for table in tables] == [total, total]


def test_dense_and_sparse_in_one_tick(together: Callable[..., list[Worker]], url: str, job: str) -> None:
    workers = together(2, staleness=1)
    sparse = [worker.sparse_table("s", (1000, 40)) for worker in workers]
    tiny = [worker.table("c", np.zeros(5)) for worker in workers]
    small = [worker.table("d", np.zeros(100)) for worker in workers]
    large = [worker.table("e", np.zeros((100, 300))) for worker in workers]
    rng = np.random.default_rng(3)
    expected = {"s": np.zeros((1000, 40)), "c": np.zeros(5), "d": np.zeros(100), "e": np.zeros((100, 300))}
    for clock in range(60):
        for i, worker in enumerate(workers):
            if rng.random() < 0.7:
                rows = rng.integers(0, 1000, rng.choice([3, 900]))
                sparse[i].inc(np.ones((len(rows), 40), np.float32), rows)
                np.add.at(expected["s"], rows, 1.0)
            for tables, name in ((tiny, "c"), (small, "d"), (large, "e")):
                if rng.random() < 0.4:
                    tables[i].inc(np.full(tables[i].shape, float(clock)))
                    expected[name] += clock
            worker.advance()
    for name, value in expected.items():
        assert (Job(url, job).table(name).get() == value).all()


def test_a_job_leaves_only_what_it_is_worth(
    together: Callable[..., list[Worker]], client: redis.Redis, url: str, job: str
) -> None:
    workers = together(3, staleness=math.inf)
    tables = [worker.sparse_table("w", (90_000, 64)) for worker in workers]
    for _ in range(6):
        for worker, table in zip(workers, tables, strict=True):
            table.inc(np.ones((9000, 64), np.float32), np.arange(9000))  # 2.3 MiB: three pieces
            worker.advance()
            table.get([1])
    for worker in workers:
        worker.leave()
    keys = sorted(key.decode() for key in client.scan_iter(match=f"ssp:{{{job}}}:*"))
    assert [key for key in keys if ":d:" in key or ":x:" in key] == []
    # names of rings that were swept of late may stand for a while, and go with the rest
    assert all(client.ttl(key) > 0 for key in keys if key.endswith(":rings"))
    assert len([key for key in keys if ":r:" in key]) == 3
    assert all(client.ttl(key) > 0 for key in keys), "a job without members expires, all of it"
    assert (Job(url, job).table("w").get([0, 8999, 9000])[:, 0] == [18, 18, 0]).all()


def test_another_run_takes_it_away(join: Callable[..., Worker], client: redis.Redis, job: str) -> None:
    with join(0, run="a") as worker:
        worker.sparse_table("w", (100, 4)).inc(np.ones((2, 4), np.float32), [1, 2])
    with join(0, run="b") as worker:
        assert worker.sparse_table("w", (70, 4)).get([1]).tolist() == [[0] * 4]
    assert len(list(client.scan_iter(match=f"ssp:{{{job}}}:*:r:*"))) == 1
