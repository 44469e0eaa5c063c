"""Sums are exact: whole numbers added by many, thousands of times, come out as if one had added them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fixtures import background
from remote import Remote

import ssp_redis
from ssp_redis import Job, Worker

_ADDER = """
rng = np.random.default_rng(seed)
total = np.zeros(table.shape)
incs = 0
for clock in worker.clocks(clocks):
    for _ in range(rng.integers(0, 4)):
        kind = rng.integers(3)
        if kind == 0:
            delta = rng.integers(-9, 10, table.shape).astype(table.dtype)
            table.inc(delta)
            total += delta
        else:
            count = int(rng.integers(0, 2 * table.shape[0]))
            rows = rng.integers(0, table.shape[0], count)
            delta = rng.integers(-9, 10, (count, *table.shape[1:])).astype(table.dtype)
            table.inc(delta, rows=rows if kind == 1 else rows.tolist())
            np.add.at(total, rows, delta)
        incs += 1
    if reads and rng.random() < 0.3:
        table.get()
"""


@pytest.mark.parametrize(
    ("dtype", "shape", "staleness", "clocks"),
    [
        ("float32", (7,), 0, 300),  # 28 bytes: in tags
        ("int64", (2, 2, 2), math.inf, 300),
        ("float32", (40, 2), 0, 300),  # 320 bytes: in slots
        ("float64", (6, 2, 3), 3, 300),
        ("float32", (40, 700), math.inf, 200),  # 110 KiB: by SET
        ("float64", (64, 4096), 2, 40),  # 2 MiB: a share for each
    ],
)
def test_sums_of_concurrent_incs(
    remote: Callable[..., Remote], url: str, job: str, dtype: str, shape: tuple[int, ...], staleness: float, clocks: int
) -> None:
    """Seen by each worker, by a newcomer and from outside; one worker only reads, one only adds."""
    children = [remote() for _ in range(3)]
    init = np.full(shape, 100, dtype)
    reader = background(ssp_redis.join, url, job=job, worker=3, workers=4, staleness=staleness, timeout=30)
    for i, child in enumerate(children):
        child.start(
            "worker = ssp_redis.join(url, job=job, worker=i, workers=4, staleness=staleness, timeout=30)\n"
            "table = worker.table('w', init)\n" + _ADDER + "(incs, total)",
            url=url,
            job=job,
            i=i,
            staleness=staleness,
            init=init,
            seed=i,
            clocks=clocks,
            reads=i != 1,
        )
    with reader.result(30) as worker:
        table = worker.table("w", init)
        for _ in worker.clocks(clocks):
            assert table.get().shape == shape
        results = [child.result(60) for child in children]
        expected = init + sum(total for _, total in results)
        assert sum(incs for incs, _ in results) > 2 * clocks
        assert (Job(url, job).table("w").get() == expected).all()
        with ssp_redis.join(url, job=job, worker="new", timeout=10) as newcomer:
            value = newcomer.table("w").get()
            assert value.dtype == dtype
            assert (value == expected).all()
        # whoever hears of the newcomer renews its view: all is committed, so all is in it
        worker.advance()
        assert (table.get() == expected).all()
        for child in children:
            assert (child.do("worker.advance(); table.get()") == expected).all()


def test_several_tables_in_one_tick(join: Callable[..., Worker], url: str, job: str) -> None:
    first, second = (background(join, i, workers=2, staleness=1) for i in range(2))
    workers = [first.result(20), second.result(20)]
    shapes: dict[str, Any] = {"scalar": (), "one": (1,), "vector": (1000,), "cube": (3, 4, 5), "wide": (2, 30_000)}
    rng = np.random.default_rng(7)
    expected = {name: np.zeros(shape, "float32" if name == "cube" else "float64") for name, shape in shapes.items()}

    def run(worker: Worker, deltas: list[dict[str, Any]]) -> None:
        tables = {name: worker.table(name, np.zeros_like(value)) for name, value in expected.items()}
        for clock in worker.clocks(len(deltas)):
            for name, delta in deltas[clock].items():
                tables[name].inc(delta)

    plans = []
    for _ in workers:
        plan = []
        for _ in range(120):
            names = rng.choice(sorted(shapes), rng.integers(0, 6), replace=False)
            plan.append({name: rng.integers(-5, 6, shapes[name]).astype(expected[name].dtype) for name in names})
        plans.append(plan)
        for deltas in plan:
            for name, delta in deltas.items():
                expected[name] += delta
    for future in [background(run, worker, plan) for worker, plan in zip(workers, plans, strict=True)]:
        future.result(60)
    for name, value in expected.items():
        assert (Job(url, job).table(name).get() == value).all(), name
    assert {table.name: table.shape for table in Job(url, job).tables()} == shapes


def test_duplicate_rows_add_up(join: Callable[..., Worker]) -> None:
    table = join(0).table("w", np.zeros((3, 2)))
    table.get()
    table.inc(np.array([[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]]), rows=[1, 1, 0])
    expected = [[100.0, 200.0], [11.0, 22.0], [0.0, 0.0]]
    assert table.get().tolist() == expected
    assert table.get(rows=[2, 0, 0]).tolist() == [expected[2], expected[0], expected[0]]
    assert table.get(rows=[]).shape == (0, 2)
    table.inc(np.zeros((0, 2)), rows=[])


def test_what_is_read_and_given_belongs_to_the_caller(join: Callable[..., Worker]) -> None:
    worker = join(0)
    table = worker.table("w", np.zeros(3))
    value = table.get()
    value += 7
    rows = table.get(rows=[0, 1])
    rows += 7
    delta = np.ones(3)
    table.inc(delta)
    delta += 7
    assert table.get().tolist() == [1, 1, 1]
    worker.tick()
    assert table.get().tolist() == [1, 1, 1]


@pytest.mark.parametrize("size", [2, 100])
def test_read_my_writes_at_every_stage(join: Callable[..., Worker], url: str, job: str, size: int) -> None:
    worker = join(0, staleness=3)
    join(1, staleness=3)
    table = worker.table("w", np.zeros(size))
    for clock in range(3):
        assert table.get().tolist() == [2 * clock] * size
        table.inc(np.ones(size))
        assert table.get().tolist() == [2 * clock + 1] * size
        table.inc(np.ones(size))
        worker.tick(timeout=5)
    # not committed yet: nobody else's business
    table.inc(np.ones(size))
    assert table.get().tolist() == [7] * size
    assert Job(url, job).table("w").get().tolist() == [6] * size


@pytest.mark.parametrize("shape", [(2,), (100,), (100, 300)])
def test_own_deltas_that_others_have_folded_count_once(
    together: Callable[..., list[Worker]], shape: tuple[int, ...]
) -> None:
    """Who reads for the first time after long: all its own may be in a base, and no tag of its own in the log."""
    quiet, busy = together(2, staleness=math.inf)
    mine, theirs = quiet.table("w", np.zeros(shape)), busy.table("w", np.zeros(shape))
    for _ in range(2):
        mine.inc(np.ones(shape))
        quiet.tick()
    for _ in range(300):
        theirs.inc(np.full(shape, 10.0))
        busy.tick()
        theirs.get()
    assert (mine.get() == 3002).all()
    mine.inc(np.ones(shape))
    assert (mine.get() == 3003).all()


def test_reads_within_the_bound_are_free(join: Callable[..., Worker]) -> None:
    first, second = (background(join, i, workers=2, staleness=6, refresh=6) for i in range(2))
    fast, slow = first.result(20), second.result(20)
    table, other = fast.table("w", np.zeros(1000)), slow.table("w", np.zeros(1000))
    for _ in range(3):
        other.inc(np.ones(1000))
        slow.tick(timeout=5)
    table.get()
    before = fast.stats()
    for _ in range(100):
        table.get()
        table.get(rows=[3, 4])
        table.inc(np.ones(1000))
    after = fast.stats()
    assert (after["bytes_in"], after["bytes_out"]) == (before["bytes_in"], before["bytes_out"])
    reads = []
    for _ in range(5):
        fast.tick(timeout=5)
        before = fast.stats()
        table.get()
        reads.append(fast.stats()["bytes_in"] == before["bytes_in"])
    assert reads == [True] * 5, "the min was 3 when the view was taken: it serves up to clock 9"


@pytest.mark.parametrize("size", [1, 100])
def test_leaving_commits_and_an_exception_drops_the_open_clock(
    join: Callable[..., Worker], url: str, job: str, size: int
) -> None:
    with join(0) as worker:
        worker.table("w", np.zeros(size)).inc(np.ones(size))
    assert Job(url, job).table("w").get().tolist() == [1] * size
    with pytest.raises(KeyError), join(0) as worker:
        worker.table("w").inc(np.ones(size))
        worker.tick()
        worker.table("w").inc(np.full(size, 50.0))
        raise KeyError("half a step")
    assert Job(url, job).table("w").get().tolist() == [2] * size
    worker = join(0)
    worker.table("w").inc(np.full(size, 50.0))
    worker.leave(commit=False)
    assert Job(url, job).table("w").get().tolist() == [2] * size


@pytest.mark.parametrize(
    ("there", "given"),
    [
        (np.float32([1e8, 3e38, -3e38, 0.1, -0.0]), np.float32([0.1, -3e38, 3e38, 1e8, 0.3])),
        (np.float64([1e20, 1.7e308]), np.float64([1.5, -1.7e308])),
        (np.float16([1000, 0.1]), np.float16([1, 60000])),
        (np.int64([2**62, -5]), np.int64([-(2**62), 2**63 - 1])),
        (np.array(3e38, np.float32), np.array(-3e38, np.float32)),
        (np.array(2**62), np.array(-(2**62))),
    ],
)
def test_what_is_loaded_is_there_to_the_last_bit(
    join: Callable[..., Worker], url: str, job: str, there: Any, given: Any
) -> None:
    """Whatever was there, and for half types also what is not seen of it."""
    table = join(0).table("w", there)
    table.inc(np.full(there.shape, 0.2 if there.dtype.kind == "f" else 7, table.spare().dtype))
    table._owner.tick()
    Job(url, job).load({"w": given})
    assert Job(url, job).table("w").get().tobytes() == given.tobytes()
    table.inc(np.ones(there.shape, given.dtype))  # nothing is left beneath the surface
    table._owner.tick()
    assert Job(url, job).table("w").get().tolist() == (given + given.dtype.type(1)).tolist()


def test_loading_from_outside(join: Callable[..., Worker], url: str, job: str) -> None:
    worker = join(0)
    table = worker.table("w", np.zeros((2, 2), "float32"))
    table.inc(np.ones((2, 2), "float32"))
    worker.tick()
    with Job(url, job) as seen:
        seen.load({"w": np.full((2, 2), 5.0, "float32"), "new": np.arange(3.0)})
        assert seen.table("w").get().tolist() == [[5, 5], [5, 5]]
        assert seen.table("new").get().tolist() == [0, 1, 2]
        table.inc(np.ones((2, 2), "float32"))
        worker.tick(timeout=5)
        assert seen.table("w").get().tolist() == [[6, 6], [6, 6]]
        assert table.get().tolist() == [[6, 6], [6, 6]]
