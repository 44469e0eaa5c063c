"""A server that goes back twice: what was saved from the first time, and is not pushed yet, is not lost the second."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures import Past

from ssp_redis import Job, Worker


def rows(worker: Worker) -> tuple[Callable[[], None], Callable[[], float]]:
    table = worker.sparse_table("w", (100, 2))
    return lambda: table.inc(np.ones((1, 2)), rows=[7]), lambda: float(table.get(rows=[7])[0, 0])


def whole(worker: Worker) -> tuple[Callable[[], None], Callable[[], float]]:
    table = worker.table("w", np.zeros(100))
    return lambda: table.inc(np.ones(100)), lambda: float(table.get()[0])


@pytest.mark.parametrize("kind", [whole, rows])
@pytest.mark.parametrize("adds", [False, True])
def test_what_is_saved_already_is_not_named_as_lost(
    join: Callable[..., Worker],
    new_server: Callable[..., Any],
    tmp_path: Path,
    kind: Callable[[Worker], tuple[Callable[[], None], Callable[[], float]]],
    adds: bool,
) -> None:
    past = Past(new_server, tmp_path)
    worker = join(0, url=past.url, staleness=None)
    add, read = kind(worker)
    add()
    worker.tick()
    assert read() == 1
    past.remember()
    for _ in range(3):
        add()
        worker.tick()
    for _ in range(3):
        past.return_to_it()
        assert worker.members == ["0"]  # asked of the server, so it is noticed
        if adds:
            add()
    assert worker.stats()["epoch"] == 4
    assert worker.tick() == 5
    assert read() == (7 if adds else 4)
    assert worker.stats()["lost_clocks"] == 0, worker.losses
    assert worker.stats()["repushed_clocks"] == 3
    with Job(past.url, worker.job) as outside:
        value = outside.table("w").get()[7 if kind is rows else 0]
        assert (value == (7 if adds else 4)).all()
