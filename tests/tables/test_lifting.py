"""A table that nobody touches or reads any more does not keep the log from being trimmed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import redis

from ssp_redis import Job, Worker
from ssp_redis.store.lifting import EVERY


def open_none(worker: Worker) -> None:
    """Nobody has opened it here; it was made, and pushed once, by one who is gone."""


def open_all(worker: Worker) -> None:
    for name in ("quiet", "large"):
        worker.table(name)
    worker.sparse_table("rows")


@pytest.mark.parametrize("opened", [open_none, open_all])
@pytest.mark.parametrize("touched", [False, True])
def test_bases_that_nobody_moves_on_are_lifted(
    opened: Callable[[Worker], None], touched: bool, join: Callable[..., Worker], url: str, job: str
) -> None:
    with join("gone") as first:
        quiet, large = first.table("quiet", np.zeros(3)), first.table("large", np.zeros(9000))
        rows = first.sparse_table("rows", (100, 2))
        if touched:
            quiet.inc(np.ones(3))
            large.inc(np.ones(9000))
            rows.inc(np.ones((1, 2), np.float32), [7])
        first.tick()
        worker = join("busy")
    # the last to leave folds all it knows: here that is not the last
    opened(worker)
    busy = worker.table("busy", np.zeros(1))
    with redis.Redis.from_url(url) as client:
        log = f"ssp:{{{job}}}:log"
        longest = 0
        for clock in range(3 * EVERY):
            busy.inc(np.ones(1))
            worker.tick()
            if clock % 64 == 0:
                longest = max(longest, client.llen(log))
        assert longest < 1.5 * EVERY
    with Job(url, job) as view:
        assert view.table("busy").get() == [3 * EVERY]
        assert (view.table("quiet").get() == float(touched)).all()
        assert (view.table("large").get() == float(touched)).all()
        assert (view.table("rows").get([7, 8]) == [[float(touched)] * 2, [0.0] * 2]).all()


@pytest.mark.parametrize("touched", [False, True])
@pytest.mark.parametrize("uses", ["nothing", "a table of its own"])
def test_lifting_opens_no_table_that_the_worker_does_not_use(
    join: Callable[..., Worker], client: redis.Redis, url: str, job: str, uses: str, touched: bool
) -> None:
    """Nor does the log grow where tables are there that no member has opened."""
    with join("gone") as first:
        quiet, large = first.table("quiet", np.zeros(3)), first.table("large", np.zeros(9000))
        rows = first.sparse_table("rows", (100, 2))
        if touched:
            quiet.inc(np.ones(3))
            large.inc(np.ones(9000))
            rows.inc(np.ones((1, 2), np.float32), [7])
        first.tick()
        worker = join("busy")
    busy = worker.table("busy", np.zeros(1)) if uses != "nothing" else None
    store = worker._store
    before = (set(store.views), set(store.sparse)) if store else None
    longest = 0
    for clock in range(2 * EVERY + 128):
        if busy:
            busy.inc(np.ones(1))
        worker.tick()
        if clock % 64 == 0:
            longest = max(longest, client.llen(f"ssp:{{{job}}}:log"))
    assert EVERY <= longest < 1.5 * EVERY
    assert worker._store is store
    assert ((set(store.views), set(store.sparse)) if store else None) == before
    with Job(url, job) as view:
        assert (view.table("quiet").get() == float(touched)).all()
        assert (view.table("large").get() == float(touched)).all()
        assert (view.table("rows").get([7, 8]) == [[float(touched)] * 2, [0.0] * 2]).all()
