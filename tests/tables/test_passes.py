"""Passes over whole tables do what numpy does, and find what is not finite wherever it is."""

from __future__ import annotations

import numpy as np
import pytest

from ssp_redis.store import passes

SIZES = [1, 16, 17, 1 << 16, (1 << 16) + 1, 200_000]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("size", SIZES)
def test_sums_have_the_bits_of_numpy(size: int, dtype: str) -> None:
    draw = np.random.default_rng(size)
    arrays = [(1000 * draw.standard_normal(size)).astype(dtype) for _ in range(4)]
    kept = [array.copy() for array in arrays]
    out = np.empty_like(arrays[0])
    assert passes.copy(arrays[0], out)
    assert np.array_equal(out, arrays[0])
    assert passes.add(arrays[0], arrays[1], out)
    assert np.array_equal(out, arrays[0] + arrays[1])
    for count in range(4):
        expected = arrays[0].copy()
        for other in arrays[1 : 1 + count]:
            expected += other
        assert np.array_equal(passes.total(arrays[0], arrays[1 : 1 + count]), expected)
    assert all(np.array_equal(array, before) for array, before in zip(arrays, kept, strict=True))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("size", SIZES)
def test_what_is_not_finite_is_found(size: int, wrong: float) -> None:
    good, out = np.ones(size, np.float32), np.empty(size, np.float32)
    assert passes.finite(good)
    for place in {0, size // 2, size - 1}:
        bad = good.copy()
        bad[place] = wrong
        assert not passes.finite(bad)
        assert not passes.copy(bad, out)
        assert not passes.add(good, bad, out)
    most = np.full(size, np.finfo(np.float32).max)
    assert passes.finite(most)
    assert not passes.add(most, most, out)


def test_whole_numbers_are_always_finite() -> None:
    assert passes.finite(np.full(100_000, np.iinfo(np.int64).max))
