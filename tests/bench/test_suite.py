"""Which combinations are measured."""

from __future__ import annotations

import pytest

from ssp_redis.bench.suite import KIB, MIB, Wish, cells
from ssp_redis.errors import UsageError


def test_what_is_asked_for_is_combined() -> None:
    found = cells("dense", Wish(workers=(2, 3), sizes=(MIB, 40 * KIB), staleness=(0, -1), clocks=7))
    assert {(cell.workers, cell.nbytes, cell.staleness) for cell in found} == {
        (workers, nbytes, bound) for workers in (2, 3) for nbytes in (MIB, 40 * KIB) for bound in (0, None)
    }
    assert {cell.clocks for cell in found} == {7}


def test_deltas_are_merged_over_half_of_the_staleness_unless_said_otherwise() -> None:
    found = cells("dense", Wish(staleness=(0, 3, 10)))
    assert {(cell.staleness, cell.flush_every) for cell in found} == {(0, 1), (3, 2), (10, 5)}
    found = cells("dense", Wish(staleness=(0, 3), flush_every=(1, 4)))
    assert {(cell.staleness, cell.flush_every) for cell in found} == {(0, 1), (3, 1), (3, 4)}


def test_the_last_clock_is_flushed() -> None:
    (cell,) = cells("dense", Wish(workers=(2,), staleness=(10,), clocks=7))
    assert cell.rounded(cell.clocks) == 10


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        (Wish(staleness=(0,), flush_every=(2,)), "flush_every"),
        (Wish(sizes=(100,)), "too small"),
    ],
)
def test_what_cannot_be_measured_is_refused(wish: Wish, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        cells("dense", wish)
