"""The deltas of a measurement: whatever is wrong with a sum of them is found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ssp_redis.bench.crew import Inexact
from ssp_redis.bench.load import MOST_CLOCKS, Load, _stamp

_COUNT, _CLOCKS = 3, 6


def summed(
    nbytes: int = 1 << 16, order: Callable[[list[tuple[int, int]]], list[tuple[int, int]]] = lambda deltas: deltas
) -> tuple[Load, np.ndarray]:
    loads = [Load(me, _COUNT, nbytes) for me in range(_COUNT)]
    value = loads[0].first()
    for me, clock in order([(me, clock) for clock in range(_CLOCKS) for me in range(_COUNT)]):
        value += loads[me].delta(clock)
    return loads[0], value


@pytest.mark.parametrize("nbytes", [1 << 11, 40 << 10, 1 << 20, 1_000_000])
def test_the_right_sum_is_right_whatever_the_size(nbytes: int) -> None:
    load, value = summed(nbytes)
    load.verify(value, _CLOCKS)
    load.check(value, _CLOCKS, 0)


@pytest.mark.parametrize(
    "order",
    [
        lambda deltas: deltas[:-1],
        lambda deltas: [*deltas, deltas[4]],
        # the same worker's, so that only what differs from clock to clock can tell
        lambda deltas: [deltas[0], *deltas[:3], *deltas[4:]],
        lambda deltas: [deltas[1], deltas[1], *deltas[2:]],
    ],
    ids=["one is missing", "one came twice", "one for another of the worker", "one for another worker's"],
)
def test_a_delta_too_few_or_too_many_is_found(order: Callable[..., list[tuple[int, int]]]) -> None:
    load, value = summed(order=order)
    with pytest.raises(Inexact, match="sums are wrong"):
        load.verify(value, _CLOCKS)


@pytest.mark.parametrize("part", [slice(0, 1), slice(5000, 5001), slice(-1, None), slice(1000, 2000)])
def test_a_delta_of_which_a_part_is_missing_is_found(part: slice) -> None:
    load, value = summed()
    value[part] -= 1
    with pytest.raises(Inexact, match="sums are wrong"):
        load.verify(value, _CLOCKS)


@pytest.mark.parametrize("at", [0, 1, 7, _CLOCKS * _COUNT - 2])
def test_another_order_gives_other_bits(at: int) -> None:
    load, value = summed()
    other = summed(order=lambda deltas: [*deltas[:at], deltas[at + 1], deltas[at], *deltas[at + 2 :]])[1]
    assert load.verify(value, _CLOCKS) != load.verify(other, _CLOCKS)
    assert load.verify(value, _CLOCKS) == load.verify(summed()[1], _CLOCKS)


def test_a_read_that_lacks_something_is_found() -> None:
    loads = [Load(me, 2, 1 << 16) for me in range(2)]
    value = loads[0].first()
    for clock in range(5):
        value += loads[0].delta(clock)
    for clock in range(3):
        value += loads[1].delta(clock)
    loads[0].check(value, 5, 2)
    loads[0].check(value, 5, None)
    with pytest.raises(Inexact, match=r"staleness 1 holds \[5.0, 3.0\]"):
        loads[0].check(value, 5, 1)
    with pytest.raises(Inexact, match="own deltas"):
        loads[1].check(value, 4, 3)
    # one block of it is a clock behind
    value[:64] -= loads[1].delta(2)[:64]
    with pytest.raises(Inexact, match="staleness 2"):
        loads[0].check(value, 5, 2)


def test_sums_stay_exact_up_to_the_most_clocks() -> None:
    assert 3 * sum(_stamp(0, 1, clock) for clock in range(MOST_CLOCKS)) < 1 << 24
    assert 5 * MOST_CLOCKS < 1 << 24
