"""Bounded staleness and read-my-writes of sparse tables, checked by the workers themselves on every read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from remote import run_programs

from ssp_redis import Job, Worker

_PROGRAM = Path(__file__).parent / "guarantee.py"


@pytest.mark.parametrize(
    ("workers", "staleness", "own", "width", "clocks"),
    [
        (4, 0, 20, 4, 150),  # one transaction with the tick
        (4, 2, 20, 4, 200),
        (3, math.inf, 20, 4, 200),
        (4, 0, 400, 32, 40),  # 100 KiB: by SET
        (3, 2, 5000, 64, 15),  # 2.5 MiB: in pieces, folded at once
        (3, math.inf, 5000, 64, 12),
    ],
)
def test_holds(url: str, job: str, workers: int, staleness: float, own: int, width: int, clocks: int) -> None:
    words = [str(workers), str(clocks), str(own), str(width), str(staleness)]
    printed = run_programs(_PROGRAM, [[url, job, str(i), *words] for i in range(workers)], timeout=100)
    results = [json.loads(line) for line in printed]
    assert all(result["clock"] == clocks and result["lost_clocks"] == 0 for result in results)
    assert all(result["reads"] >= clocks for result in results)
    rows = np.random.default_rng(7).permutation(100_000)[: workers * own + 3]
    value = Job(url, job).table("rows").get(rows)
    assert (value[:3] == clocks * workers).all()
    assert (value[3:] == clocks).all()


def test_reads_within_the_bound_are_free(together: Callable[..., list[Worker]]) -> None:
    fast, slow = together(2, staleness=6, refresh=7)
    table = fast.sparse_table("w", (1000, 8))
    for _ in range(3):
        slow.advance()
    rows = [3, 500, 999, 3]
    fast.tick()
    table.get(rows)
    free = []
    for _ in range(4):
        table.inc(np.ones((4, 8), np.float32), rows)
        fast.tick()
        before = fast.stats()
        done = fast.clock - 1
        assert table.get(rows)[:, 0].tolist() == [2 * done, done, done, 2 * done]
        free.append(fast.stats()["bytes_in"] == before["bytes_in"])
    assert free == [True] * 4
