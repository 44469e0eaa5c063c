"""What a worker holds of tables that it pushes to and does not read: a bounded number of own deltas, and of tags."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ssp_redis import Job, Worker

#: Size of a table, clocks, and how many own deltas and tags may be held at the most.
SIZES = {"tiny": (2, 10_000, 5500), "small": (100, 10_000, 5500), "large": (200_000, 60, 30)}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("reads", [0, 1])
def test_who_only_pushes_holds_a_bounded_number_of_deltas_and_tags(
    join: Callable[..., Worker], url: str, job: str, size: str, reads: int
) -> None:
    """And reads right afterwards."""
    elements, clocks, most = SIZES[size]
    worker = join(0)
    table = worker.table("w", np.zeros(elements))
    store = worker._store
    assert store is not None
    for _ in range(reads):
        table.get()
    ones, held, tags = np.ones(elements), 0, 0
    for _ in range(clocks):
        table.inc(ones)
        worker.tick()
        held, tags = max(held, len(table._view.held)), max(tags, len(store.log.tags))
    assert held < most
    assert tags < 5500
    assert len(table._view._ends) == len(table._view.held)
    assert (table.get() == clocks).all()
    table.inc(ones)
    assert (table.get() == clocks + 1).all()
    worker.tick()
    assert (table.get() == clocks + 1).all()
    assert table._view.held == {}
    with Job(url, job) as outside:
        assert (outside.table("w").get() == clocks + 1).all()


def test_what_was_released_is_read_right_by_whoever_pushes_on(together: Callable[..., list[Worker]]) -> None:
    """Both push a table and read it seldom, out of step with what they release."""
    workers = together(2, staleness=8)
    tables = [worker.table("w", np.zeros(200_000)) for worker in workers]
    ones = np.ones(200_000)
    for clock in range(1, 61):
        for worker, table in zip(workers, tables, strict=True):
            table.inc(ones)
            worker.tick(10)
        if clock % 29 == 0:
            assert (tables[0].get() >= 2 * clock - 9).all()
    for worker in workers:
        worker.barrier(10)
    for table in tables:
        assert (table.get() == 120).all()
