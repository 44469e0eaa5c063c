"""Tables of every type: what is stored, what comes back, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ssp_redis
from ssp_redis import Job, NonFinite, TableMismatch, UsageError


@pytest.mark.parametrize("rows", [3, 100])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64", "bfloat16"])
def test_a_table_keeps_its_type_and_sums_exactly(url: str, job: str, dtype: str, rows: int) -> None:
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    with ssp_redis.join(url, job=job) as worker:
        first = np.arange(2 * rows).reshape(rows, 2)
        table = worker.table("w", first.astype(dtype))
        for _ in worker.clocks(4):
            table.inc(np.ones((rows, 2), dtype))
            table.inc(np.full((1, 2), 2, dtype), rows=[1])
        value = table.get()
    expected = first + 4
    expected[1] += 8
    expected = expected.astype(dtype)
    assert value.dtype == expected.dtype
    assert np.array_equal(value, expected)
    with Job(url, job) as outside:
        assert outside.table("w").get().dtype == expected.dtype
        assert np.array_equal(outside.table("w").get(), expected)


@pytest.mark.parametrize("size", [1, 100])
def test_half_types_are_summed_in_float32(url: str, job: str, size: int) -> None:
    # in float16, 2048 + 1 is 2048: four thousand single steps would all be lost
    with ssp_redis.join(url, job=job) as worker:
        table = worker.table("w", np.full(size, 2048, np.float16))
        for _ in worker.clocks(40):
            table.inc(np.ones(size, np.float16))
        assert (table.get() == np.float16(2088)).all()


def test_a_delta_that_does_not_fit_is_refused(url: str, job: str) -> None:
    with ssp_redis.join(url, job=job) as worker:
        whole = worker.table("n", np.zeros(2, np.int32))
        with pytest.raises(TableMismatch, match="a delta of float64 does not fit"):
            whole.inc(np.ones(2))
        with pytest.raises(TableMismatch, match="values beyond it"):
            whole.inc(np.array([1, 2**40]))
        whole.inc(np.array([1, 2]))
        assert whole.get().tolist() == [1, 2]


@pytest.mark.parametrize("dtype", ["float16", "float32", "int64"])
@pytest.mark.parametrize("rows", [3, 100])
def test_memory_that_a_table_lends_is_taken_without_a_copy(url: str, job: str, dtype: str, rows: int) -> None:
    with ssp_redis.join(url, job=job) as worker:
        table = worker.table("w", np.zeros((rows, 2), dtype))
        for clock in worker.clocks(5):
            delta = table.spare()
            assert table.spare().base is delta.base, "lent once, until it is taken"
            delta[...] = clock
            table.inc(delta)
            table.inc(np.ones((rows, 2), dtype))
            another = table.spare()
            assert table._view.open is not None
            assert not np.shares_memory(another, table._view.open), "the sum of the clock so far is not lent"
            another[...] = 1
            table.inc(another)  # not the first of its clock: added
            assert (table.get() == sum(range(clock + 1)) + 2 * (clock + 1)).all()


def test_lent_memory_counts_in_the_order_in_which_it_is_handed_back(url: str, job: str) -> None:
    with ssp_redis.join(url, job=job) as worker:
        for name, shape in (("tiny", (5,)), ("large", (100_000,)), ("rows", (2, 3))):
            table = worker.table(name, np.zeros(shape))
            delta = table.spare()
            delta[...] = np.arange(delta.size).reshape(shape)
            expected = np.flip(delta).copy()
            table.inc(np.flip(delta))
            assert np.array_equal(table.get(), expected)
            worker.tick()
            assert np.array_equal(table.get(), expected)


def test_lent_memory_is_looked_at_unless_it_is_known_to_be_finite(url: str, job: str) -> None:
    with ssp_redis.join(url, job=job) as worker:
        table = worker.table("w", np.zeros((2, 3), np.float32))
        table.spare()[...] = [[1, 2, 3], [4, np.nan, 6]]
        with pytest.raises(NonFinite, match=r"table w has 1 values that are NaN or infinite, the first at \(1, 1\)"):
            table.inc_spare()
        assert not table.get().any(), "nothing was added"
        table.spare()[...] = 1
        table.inc_spare()
        table.spare()[...] = np.finfo(np.float32).max
        table.inc_spare(finite=True)
        table.spare()[...] = np.finfo(np.float32).max
        with pytest.raises(NonFinite, match="add up to more"):
            table.inc_spare(finite=True)
        worker.tick()
        assert (table.get() == np.finfo(np.float32).max).all()
        table.spare()[...] = -1
        table.inc_spare()
        for finite in (False, True):
            with pytest.raises(UsageError, match=r"inc_spare\(\) takes what spare\(\) has lent, and nothing is"):
                table.inc_spare(finite=finite)


@pytest.mark.parametrize("size", [5, 1000, 300_000])
def test_a_read_that_is_not_copied_never_changes(url: str, job: str, size: int) -> None:
    """It is the memory that the table sums in, as long as nobody holds on to it; else that goes on elsewhere."""
    with (
        ssp_redis.join(url, job=job, worker=0, staleness=None, refresh=1) as worker,
        ssp_redis.join(url, job=job, worker=1) as other,
    ):
        table, theirs = worker.table("w", np.zeros((size, 2))), other.table("w")
        held: list[tuple[int, Any]] = []
        for clock in range(1, 8):
            theirs.inc(np.full((size, 2), 10.0))
            other.tick()
            if clock != 4:
                table.inc(np.ones((size, 2)))
            worker.tick()
            value = table.get(copy=False)
            assert value.shape == (size, 2)
            with pytest.raises(ValueError, match="WRITEABLE"):
                value.flags.writeable = True
            expected = int(value[0, 0])
            assert (value == expected).all()
            assert np.array_equal(table.get(), value) and table.get().flags.writeable
            table.inc(np.ones((size, 2)))
            assert (table.get(copy=False) == expected + 1).all() and (value == expected).all(), (
                "what is open lies over it"
            )
            # a part of it holds on to all of it
            held.append((expected, value[size // 2 :, 1] if clock % 2 else value))
            del value
            for then, kept in held:
                assert (kept == then).all()
        assert len({then for then, _ in held}) == len(held)


def test_a_read_that_is_not_copied_costs_no_memory_when_it_is_let_go(url: str, job: str) -> None:
    with ssp_redis.join(url, job=job) as worker:
        table = worker.table("w", np.zeros(100_000))
        places = set()
        for _ in range(4):
            table.inc(np.ones(100_000))
            worker.tick()
            value = table.get(copy=False)
            places.add(value.__array_interface__["data"][0])
            again = table.get(copy=False)
            assert np.shares_memory(value, again)
            del value, again
        assert len(places) == 1
