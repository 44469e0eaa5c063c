"""Ctrl-C wherever the interpreter looks for it in a replica's tick, and the same tick again: everything counts once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import fixtures
import numpy as np
import pytest

import ssp_redis
from ssp_redis import Job, Replica, Worker

pytestmark = pytest.mark.usefixtures("collected")

Together = Callable[..., list[Worker]]
_OURS = Path(ssp_redis.__file__).parent
#: What comes between a program and the wire.
_FILES = {
    str(_OURS / name) for name in ("replica.py", "mirror.py", "table.py", "sparse.py", "given.py", "store/view.py")
}


def interrupted_at(call: int) -> AbstractContextManager[list[int]]:
    """Raise KeyboardInterrupt as that many functions of ours are entered, and count them."""
    return fixtures.interrupted_at(call, "call", _FILES.__contains__)


def arrays() -> dict[str, Any]:
    return {"w": np.zeros((3, 2), np.float32), "v": np.zeros(4, np.float32)}


@pytest.mark.parametrize("read_on", [False, True], ids=["made again", "read on and made again"])
def test_an_interrupted_tick_that_is_made_again_adds_once(together: Together, read_on: bool) -> None:
    workers, models = together(2, staleness=None), [arrays(), arrays()]
    first, second = (Replica(w, m, scale=1) for w, m in zip(workers, models, strict=True))
    table = workers[0].table("model.float32")
    with Job(workers[0]._clock.settings.url, workers[0].job) as job:
        call, calls, turn = 1, sys.maxsize, 0
        while call < calls:
            turn += 1
            for values in models:
                for value in values.values():
                    value += 1
            with interrupted_at(call) as count:
                first.tick(10)
            second.tick(10)
            if count[0] < call:
                calls = call  # the whole of it was shorter: all has been tried
            else:
                if read_on:
                    workers[0].tick(10)
                    table.get()
                first.tick(10)
            found = job.table("model.float32").get()
            assert (found == 2 * turn).all(), f"interrupted at call {call}: {found}, not {2 * turn}"
            call += 1
    assert call > 30


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_interrupted_rows_that_are_added_again_count_once(together: Together, kind: str) -> None:
    (worker,) = together(1)
    table = worker.table("t", np.zeros((9, 2))) if kind == "dense" else worker.sparse_table("t", (9, 2))
    call, calls, expected = 1, sys.maxsize, 0
    while call < calls:
        added = False
        with interrupted_at(call) as count:
            table.inc(np.ones((2, 2)), rows=[3, 5])
            added = True
        if not added:
            table.inc(np.ones((2, 2)), rows=[3, 5])
        if count[0] < call:
            calls = call
        expected += 1
        found = table.get(rows=[3, 5])
        assert (found == expected).all(), f"interrupted at call {call}: {found}, not {expected}"
        call += 1
    assert call > 5
