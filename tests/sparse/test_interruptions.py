"""Ctrl-C between two steps that belong together: what is read after it is right, of sparse tables and of dense ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ssp_redis import Worker
from ssp_redis.store.log import Log
from ssp_redis.store.sparse import cache, folding
from ssp_redis.store.sparse.cache import RowCache
from ssp_redis.store.sparse.pending import Pending

Join = Callable[..., Worker]


def interrupt_after(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, when: Callable[[Any], bool] = lambda value: True
) -> list[str]:
    """A call of it is made, and then KeyboardInterrupt comes. The list says that it has come."""
    function, came = getattr(owner, name), list[str]()

    def call(*args: Any) -> Any:
        value = function(*args)
        if not came and when(value):
            came.append(name)
            raise KeyboardInterrupt
        return value

    monkeypatch.setattr(owner, name, call)
    return came


def test_rows_are_known_after_an_interruption_between_purge_and_touch(
    join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (join(i, staleness=5, refresh=1) for i in range(2))
    mine, theirs = (worker.sparse_table("w", (100, 2), float) for worker in (one, two))
    for clock in range(1, 4):
        theirs.inc(np.ones((1, 2)), rows=[7])
        two.advance()
        one.advance()
        assert (mine.get([7, 8]) == [[clock] * 2, [0, 0]]).all()
    theirs.inc(np.ones((1, 2)), rows=[7])
    two.advance()
    one.advance()
    folding.fold(two._tables(), theirs._view, [0])
    one._clock.link.drop()
    assert one.members == ["0", "1"]  # another connection: the next read asks for the bases
    came = interrupt_after(monkeypatch, Pending, "purge", when=bool)
    with pytest.raises(KeyboardInterrupt):
        mine.get([8])
    assert came
    assert (mine.get([8]) == 0).all(), "the same call once more"
    assert (mine.get([7]) == 4).all()


def test_rows_are_known_after_an_interruption_in_the_cache(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    one = join(0, staleness=5)
    table = one.sparse_table("w", (100, 2), float)
    table.inc(np.ones((1, 2)), rows=[7])
    one.tick()
    folding.fold(one._tables(), table._view, [0])
    two = join(1, staleness=5)
    also = two.sparse_table("w")
    interrupt_after(monkeypatch, RowCache, "_insert")
    with pytest.raises(KeyboardInterrupt):
        also.get([7])
    assert (also.get([7]) == 1).all()


@pytest.mark.parametrize("name", ["full", "empty"])
def test_the_cache_grows_as_a_whole_or_not_at_all(join: Join, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    one = join(0, staleness=5)
    table = one.sparse_table("w", (10_000, 2), float)
    view = table._view
    for first in (0, 400):
        table.inc(np.ones((400, 2)), rows=range(first, first + 400))
        one.tick()
        if not first:
            table.get([0])
            folding.fold(one._tables(), view, [0])  # whose rows are all in the cache then
    one._clock.run(one._tables().learn)
    function, came = getattr(np, name), []

    def make(size: Any, *more: Any, **names: Any) -> Any:
        made = function(size, *more, **names)
        if size == 4096 and not came:  # of the larger hash table
            came.append(size)
            raise KeyboardInterrupt
        return made

    monkeypatch.setattr(cache.np, name, make)
    with pytest.raises(KeyboardInterrupt):
        folding.fold(one._tables(), view, [0])
    assert came
    assert (table.get(range(800)) == 1).all()


@pytest.mark.parametrize("dense", [False, True])
def test_own_deltas_count_once_after_an_interruption_in_what_the_log_says(
    join: Join, monkeypatch: pytest.MonkeyPatch, dense: bool
) -> None:
    """A push reads the log first, as of the new clock, because a connection was lost; then the tick brings the tags."""
    worker = join(0, staleness=5)
    table = worker.table("w", np.zeros(100)) if dense else worker.sparse_table("w", (100, 2), float)

    def add() -> None:
        table.inc(np.ones(100)) if dense else table.inc(np.ones((1, 2)), [7])

    def read() -> Any:
        return table.get() if dense else table.get([7])

    for clock in range(1, 79):
        add()
        worker.tick()
        if clock % 3 == 0:
            assert (read() == clock).all()
    for _ in range(2):
        add()
        worker.tick()
    add()
    worker._clock.link.drop()  # a Ctrl-C in an exchange does that
    assert worker.members == ["0"]  # another connection: before a slot is overwritten, the bases are read
    calls: list[Any] = []
    came = interrupt_after(monkeypatch, Log, "extend", when=lambda value: calls.append(value) or len(calls) == 2)
    with pytest.raises(KeyboardInterrupt):
        worker.tick()
    assert came
    assert worker.tick() == 81
    assert (read() == 81).all()
