"""Ctrl-C at any line of what a worker does when the server was rolled back: nothing that it still holds is left out."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from fixtures import Past

from ssp_redis import Worker

Join = Callable[..., Worker]
_NAMES = {"_greet", "_reconcile", "rolled_back", "_rolled_back", "forget", "_rebase", "add", "renew", "_tell"}


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
    seen = [0]

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if code.co_name not in _NAMES or "ssp_redis" not in code.co_filename:
            return trace if event == "call" else None
        if event == "line":
            seen[0] += 1
            if seen[0] == line:
                signal.raise_signal(signal.SIGINT)
        return trace

    sys.settrace(trace)
    try:
        worker.members  # noqa: B018 - something that asks the server
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
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
