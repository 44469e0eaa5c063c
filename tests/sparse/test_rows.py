"""Rows are made when they are touched, the same for everyone; what makes no sense is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import redis
from fixtures import background

from ssp_redis import Job, JobSparseTable, NonFinite, SSPError, TableMismatch, UsageError, Worker
from ssp_redis.store.sparse import initial

_EVERY = {"initializer": "normal", "seed": 3, "scale": 0.01}
#: Of seed 42 and scale 0.5.
_NORMAL = [
    [-0.2017476765934839, 0.8516643638213232, -0.017111659607337976],
    [-0.7478807622750807, 0.22954570598836568, -0.74729647199473],
    [0.022590169449368994, 0.6775940601070252, 0.03161545864068706],
]
_UNIFORM = [
    [-0.15670807790132651, 0.4557467261317436, -0.013650463718331396],
    [-0.432642106796664, 0.17691573882165224, -0.43248965762185015],
    [0.018018216492087014, 0.4123211851938584, 0.025208686267331082],
]


def test_a_row_begins_the_same_whoever_touches_it_first(
    together: Callable[..., list[Worker]], join: Callable[..., Worker], url: str, job: str
) -> None:
    first, second = together(2, staleness=3)
    tables = [worker.sparse_table("w", (10**9, 6), **_EVERY) for worker in (first, second)]  # type: ignore[arg-type]
    rows = [0, 7, 10**9 - 1, 123_456_789]
    begin = tables[0].get(rows)
    assert begin.std() == pytest.approx(0.01, rel=0.5)
    assert (tables[1].get(rows[::-1])[::-1] == begin).all()
    tables[1].inc(np.ones((1, 6), np.float32), [7])
    second.advance()
    first.advance()
    expected = begin.copy()
    expected[1] += 1
    first.advance()
    newcomer = join("new")
    for value in (tables[0].get(rows), newcomer.sparse_table("w").get(rows), Job(url, job).table("w").get(rows)):
        assert (value == expected).all()


def test_a_row_that_is_only_read_is_not_stored(join: Callable[..., Worker], client: redis.Redis, job: str) -> None:
    worker = join(0)
    table = worker.sparse_table("w", (10**6, 6), **_EVERY)  # type: ignore[arg-type]
    table.get(range(5000))
    table.inc(np.ones((3, 6), np.float32), [5, 9, 5])
    worker.tick()
    table.get(range(5000))
    worker.leave()
    [key] = client.scan_iter(match=f"ssp:{{{job}}}:*:r:*")
    assert client.hlen(key) == 2 + 1, "two rows, and the header"


def test_from_outside_some_rows_or_all_that_are_no_more_than_fit(
    join: Callable[..., Worker], url: str, job: str
) -> None:
    worker = join(0)
    worker.table("dense", np.arange(12.0).reshape(6, 2))
    small = worker.sparse_table("small", (1000, 3), "float64")
    huge = worker.sparse_table("huge", (10**9, 4))
    small.inc(np.ones((1, 3)), [7])
    huge.inc(np.ones((1, 4), np.float32), [7])
    worker.tick()
    with Job(url, job) as seen:
        assert isinstance(seen.table("small"), JobSparseTable)
        assert seen.table("small").get().sum() == 3
        assert seen.table("huge").get(rows=[8, 7]).tolist() == [[0] * 4, [1] * 4]
        with pytest.raises(UsageError, match=r"its 1,000,000,000 rows would take 14.9 GiB: .* get\(rows="):
            seen.table("huge").get()
        # the same words for a dense one
        assert seen.table("dense").get(rows=[5, 0, 5]).tolist() == [[10, 11], [0, 1], [10, 11]]
        with pytest.raises(UsageError, match="there is no row 6"):
            seen.table("dense").get(rows=[6])


def test_the_values_stay_what_they_are() -> None:
    """A stored table holds sums on top of these: they may never change."""
    rows = np.array([0, 1, 10**12])
    normal = initial.rows("normal", 42, 0.5, rows, 3, "float64")
    uniform = initial.rows("uniform", 42, 0.5, rows, 3, "float64")
    assert normal.tolist() == _NORMAL
    assert uniform.tolist() == _UNIFORM
    assert (initial.rows("normal", 42, 0.5, rows, 3, "float32") == normal.astype("float32")).all()
    assert not initial.rows("zeros", 42, 0.5, rows, 3, "float32").any()


def test_the_values_are_distributed_as_said() -> None:
    from statistics import NormalDist

    rows = np.arange(20_000)
    normal = initial.rows("normal", 1, 2.0, rows, 32, "float64")
    assert abs(normal.mean()) < 0.01
    assert normal.std() == pytest.approx(2.0, rel=0.005)
    edges = np.array([NormalDist(0, 2).inv_cdf(p) for p in np.arange(1, 20) / 20])
    counts = np.bincount(np.searchsorted(edges, normal.reshape(-1)), minlength=20)
    assert np.abs(counts / normal.size - 0.05).max() < 0.002
    assert np.abs(np.corrcoef(normal.T) - np.eye(32)).max() < 0.05
    p = np.concatenate([np.linspace(1e-9, 1 - 1e-9, 10_001), 10.0 ** -np.arange(1, 16)])
    exact = np.array([NormalDist().inv_cdf(x) for x in p])
    assert np.abs(initial.quantile(p) - exact).max() < 2e-6
    uniform = initial.rows("uniform", 1, 0.5, rows, 32, "float64")
    assert -0.5 <= uniform.min() < -0.4999 < 0.4999 < uniform.max() < 0.5
    other = initial.rows("uniform", 2, 0.5, rows, 32, "float64")
    assert abs(np.corrcoef(uniform.reshape(-1), other.reshape(-1))[0, 1]) < 0.01


def test_all_say_the_same_of_a_table(together: Callable[..., list[Worker]]) -> None:
    first, second = together(2)
    first.sparse_table("w", (100, 4), initializer="uniform", seed=1, scale=0.1)
    first.table("dense", np.zeros(3))
    second.sparse_table("w", [100, 4], "float32", "uniform", seed=1, scale=0.1)
    second.sparse_table("w")
    for worker in (first, second):
        for wrong in (
            {"shape": (101, 4)},
            {"dtype": "float64"},
            {"initializer": "normal"},
            {"seed": 2},
            {"scale": 0.1000001},
        ):
            words: dict[str, Any] = {"shape": (100, 4), "initializer": "uniform", "seed": 1, "scale": 0.1} | wrong
            with pytest.raises(
                TableMismatch, match=r"table w is float32 of shape \(100, 4\), uniform \(seed 1, scale 0"
            ):
                worker.sparse_table("w", **words)
        with pytest.raises(TableMismatch, match="table w is sparse"):
            worker.table("w")
        with pytest.raises(TableMismatch, match="table w is sparse"):
            worker.table("w", np.zeros((100, 4), np.float32))
        for shape in ((3, 1), None):
            with pytest.raises(TableMismatch, match=r"table dense is dense.*: use it as table\('dense'\)"):
                worker.sparse_table("dense", shape)
        with pytest.raises(TableMismatch, match="no sparse table other"):
            worker.sparse_table("other")


def test_made_by_all_at_once_it_is_made_once(together: Callable[..., list[Worker]]) -> None:
    workers = together(4, staleness=1)
    for turn in range(10):
        futures = [background(worker.sparse_table, f"w{turn}", (50, 2)) for worker in workers]
        for future in futures:
            future.result(10).inc(np.ones((1, 2), np.float32), [turn])
    for worker in workers:
        worker.advance()
    for worker in workers:
        worker.wait()
        worker.advance()
        assert all((worker.sparse_table(f"w{turn}").get([turn]) == 4).all() for turn in range(10))


@pytest.mark.parametrize(
    "wrong",
    [
        {"shape": ()},
        {"shape": (0, 4)},
        {"shape": (4, 0)},
        {"shape": (1 << 63, 4)},
        {"dtype": "complex64"},
        {"dtype": "bool"},
        {"initializer": "ones"},
        {"initializer": "normal", "dtype": "int64"},
        {"seed": -1},
        {"seed": 1 << 63},
        {"scale": float("nan")},
        {"name": "a b"},
    ],
    ids=str,
)
def test_what_makes_no_table(join: Callable[..., Worker], client: redis.Redis, job: str, wrong: dict[str, Any]) -> None:
    worker = join(0)
    with pytest.raises(UsageError):
        worker.sparse_table(**({"name": "w", "shape": (10, 4)} | wrong))
    assert not client.keys(f"ssp:{{{job}}}:*:tables")


def test_what_makes_no_delta(join: Callable[..., Worker]) -> None:
    worker = join(0)
    table, whole = worker.sparse_table("w", (10, 4)), worker.sparse_table("i", (10,), "int32")
    one = np.ones((1, 4), np.float32)
    for rows in ([10], [-1], [0.5], ["1"], [[1]], 3, [2**70]):
        with pytest.raises(UsageError, match="table w"):
            table.inc(one, rows)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="table w"):
            table.get(rows)  # type: ignore[arg-type]
    for delta in (np.ones((2, 4), np.float32), np.ones(4, np.float32), np.ones((1, 5), np.float32), 1.0):
        with pytest.raises(TableMismatch, match="table w: 1 rows need a delta of"):
            table.inc(delta, [1])
    for dtype in ("complex128", "U1", "object"):
        with pytest.raises((TableMismatch, TypeError, ValueError)):
            table.inc(np.ones((1, 4), dtype), [1])
    for bad in (np.nan, np.inf, -np.inf):
        delta = np.ones((2, 4), np.float32)
        delta[1, 2] = bad
        with pytest.raises(
            NonFinite, match=r"worker 0, clock 0: .* table w .* the first at \(1, 2\), which is of row 7"
        ):
            table.inc(delta, [3, 7])
    with pytest.raises(TableMismatch, match="values beyond it"):
        whole.inc(np.array([2**40]), [1])
    worker.tick()
    assert not table.get(range(10)).any(), "nothing was added in any of these cases"
    assert not whole.get(range(10)).any()


def test_after_leaving(join: Callable[..., Worker]) -> None:
    worker = join(0)
    table = worker.sparse_table("w", (10, 4))
    worker.leave()
    for call in (
        lambda: table.get([1]),
        lambda: table.inc(np.ones((1, 4)), [1]),
        lambda: worker.sparse_table("v", (10, 4)),
    ):
        with pytest.raises(SSPError, match="has left"):
            call()


def test_what_a_job_says_of_it(join: Callable[..., Worker], url: str, job: str) -> None:
    join(0).sparse_table("w", (1000, 4, 2), "float64")
    [table] = Job(url, job).status().tables
    assert (table.name, table.dtype, table.shape, table.nbytes) == ("w", "float64", (1000, 4, 2), 64_000)
    assert table.sparse
    assert Job(url, job).table("w").get([1, 2]).shape == (2, 4, 2)
