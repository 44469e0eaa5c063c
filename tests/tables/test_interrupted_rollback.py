"""Ctrl-C at any line of what a worker does when the server was rolled back: nothing that it still holds is left out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import pytest
from fixtures import Past, sigint_at

from ssp_redis import RolledBack, Worker

pytestmark = pytest.mark.usefixtures("collected")

Join = Callable[..., Worker]
#: What a worker does then: what signals wait for, and what is around it.
_HELD = {"_reconcile", "rolled_back", "_rolled_back", "forget", "_rebase", "add", "renew"}
_NAMES = {*_HELD, "_greet", "_log"}


def of(names: set[str]) -> Callable[[CodeType], bool]:
    return lambda code: code.co_name in names and "ssp_redis" in code.co_filename


def interrupted(join: Join, past: Past, job: str, line: int) -> bool:
    """Roll the server back under a worker, and send SIGINT at one of the lines. Was there such a line?"""
    worker = join(0, url=past.url, job=job, staleness=None)
    tables = [worker.table(name, np.zeros(100)) for name in "vw"]
    rowed = worker.sparse_table("s", (100, 2))

    def push() -> None:
        for table in tables:
            table.inc(np.ones(100))
        rowed.inc(np.ones((1, 2)), rows=[7])
        worker.tick()

    def read() -> list[float]:
        return [*(float(table.get()[0]) for table in tables), float(rowed.get(rows=[7])[0, 0])]

    push()
    read()
    past.remember()
    for _ in range(3):
        push()
    past.return_to_it()
    with sigint_at(line, of({*_NAMES, "_tell"})) as seen, contextlib.suppress(KeyboardInterrupt):
        worker.members  # noqa: B018 - something that asks the server
    worker.tick()
    assert read() == [4.0 - float(worker.stats()["lost_clocks"])] * 3, (line, worker.losses)
    assert worker.stats()["lost_clocks"] == 0
    worker.leave()
    return seen[0] >= line


def test_nothing_that_is_held_is_left_out(join: Join, new_server: Any, tmp_path: Path) -> None:
    past = Past(new_server, tmp_path)
    line, step = 1, 7
    while interrupted(join, past, f"j{line}", line):
        line += step
    assert line > 5 * step


def told(join: Join, past: Past, job: str, line: int, names: set[str], log: pytest.LogCaptureFixture) -> bool:
    """The same with a strict worker: it is told of its loss once. Was there such a line?"""
    worker = join(0, url=past.url, job=job, staleness=None, strict=True)
    table = worker.table("w", np.zeros(100))
    worker.tick()
    past.remember()
    for _ in range(2):
        table.inc(np.ones(100))
        worker.tick()
    past.return_to_it()
    log.clear()
    line_of_log = f"job {job}: the server was rolled back: worker 0, clocks 1..2"
    errors: list[RolledBack] = []
    with sigint_at(line, of(names)) as seen:
        for _ in range(3):
            try:
                worker.members  # noqa: B018
            except KeyboardInterrupt:
                assert names != _HELD or line_of_log in log.text
            except RolledBack as error:
                errors.append(error)
    assert [error.lost for error in errors] == [worker.losses]
    assert line_of_log in log.text
    worker.leave()
    return seen[0] >= line


@pytest.mark.parametrize("names", [_HELD, _NAMES], ids=["while signals wait", "at any line"])
def test_a_loss_is_told_though_it_is_interrupted(
    join: Join, new_server: Any, tmp_path: Path, names: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    past = Past(new_server, tmp_path)
    line, step = 1, 7
    while told(join, past, f"j{line}", line, names, caplog):
        line += step
    assert line > 5 * step
