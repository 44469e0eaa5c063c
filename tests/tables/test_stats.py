"""What a worker counts, and what a status says of tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fixtures import background
from remote import eventually

from ssp_redis import Job, Worker

Together = Callable[..., list[Worker]]


@pytest.mark.parametrize("elements", [2, 100, 300_000])
def test_waits_that_were_spent_folding_are_counted(together: Together, url: str, job: str, elements: int) -> None:
    fast, slow = together(2, staleness=0)
    tables = [worker.table("w", np.zeros(elements)) for worker in (fast, slow)]
    before, theirs = fast.stats()["waits"], slow.stats()["waits"]
    with Job(url, job) as outside:
        for clock in range(1, 11):
            for table in tables:
                table.inc(np.ones(elements))
            ticking = background(fast.tick, 10)
            eventually(lambda clock=clock: max(one.clock for one in outside.status().members) == clock)  # type: ignore[misc]
            slow.tick(timeout=10)
            assert ticking.result(10) == clock
            for table in tables:
                assert (table.get() == 2 * clock).all()
    assert fast.stats()["waits"] == before + 10  # type: ignore[operator]
    assert slow.stats()["waits"] == theirs


@pytest.mark.parametrize("kind", ["inline", "slots", "sparse"])
def test_how_stale_reads_were(together: Together, kind: str) -> None:
    """At staleness 3 a read is renewed every 2 clocks, and shows the others as they were then."""
    fast, slow = together(2, staleness=3)
    if kind == "sparse":
        tables: list[Any] = [worker.sparse_table("s", (9, 2)) for worker in (fast, slow)]
    else:
        tables = [worker.table("w", np.zeros(2 if kind == "inline" else 100)) for worker in (fast, slow)]
    more = {"rows": [1, 2]} if kind == "sparse" else {}

    def stale(worker: Worker) -> tuple[Any, ...]:
        stats = worker.stats()
        return stats["reads"], stats["mean_staleness"], stats["most_staleness"]

    assert stale(fast) == (0, 0, 0)
    for clock in range(4):
        assert fast.clock == clock
        tables[0].get(**more)  # the other is at clock 0: behind by 0, 1, 2 and 3
        if clock < 3:
            fast.tick(timeout=5)
    assert stale(fast) == (4, 6 / 4, 3)
    slow.tick(timeout=5)
    slow.tick(timeout=5)
    tables[0].get(**more)  # as read at clock 2: by 3
    assert stale(fast) == (5, 9 / 5, 3)
    fast.tick(timeout=5)
    tables[0].get(**more)  # anew: by 2
    assert stale(fast) == (6, 11 / 6, 3)
    tables[1].get(**more)  # who is behind the others reads nothing that is stale
    assert stale(slow) == (1, 0, 0)


def test_a_status_tells_the_bytes_of_each_block(together: Together, url: str, job: str) -> None:
    one, _ = together(2)
    shapes = {"tiny": ((3,), "float64"), "half": ((10, 7), "float16"), "large": ((3001, 301), "float32")}
    layouts = {name: one.table(name, np.zeros(shape, dtype))._view.layout for name, (shape, dtype) in shapes.items()}
    one.sparse_table("rows", (100, 2))
    tables = {table.name: table for table in Job(url, job).status().tables}
    assert tables["tiny"].block_bytes == (24,)
    assert tables["half"].block_bytes == (280,), "as it is summed, in float32"
    large = tables["large"].block_bytes
    assert sum(large) == 3001 * 301 * 4 == tables["large"].nbytes
    assert len(large) == layouts["large"].blocks > 2
    assert list(large) == [4 * layouts["large"].block(block).elements for block in range(len(large))]
    assert tables["rows"].block_bytes == ()
    assert tables["rows"].sparse
