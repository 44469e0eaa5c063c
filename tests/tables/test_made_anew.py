"""A server that falls back to before tables were made: who had opened them is told, whatever is made in their place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures import Past, background

from ssp_redis import StateLost, Worker


def opened(worker: Worker, name: str, sparse: bool) -> Any:
    return worker.sparse_table(name, (100, 2)) if sparse else worker.table(name, np.zeros((100, 2)))


def add(table: Any, what: float) -> None:
    table.inc(np.full((100, 2), what), rows=range(100))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("anew", [["w", "v"], ["v"], []])
def test_tables_that_are_not_the_same_any_more(
    join: Callable[..., Worker], new_server: Callable[..., Any], tmp_path: Path, anew: list[str], sparse: bool
) -> None:
    """Made again in another order they would have each other's numbers, and of each other what is pushed again."""
    past = Past(new_server, tmp_path)
    joining = background(join, 0, url=past.url, workers=2, staleness=None)
    other = join(1, url=past.url, workers=2, staleness=None)
    worker = joining.result(20)
    past.remember()
    tables = [opened(worker, name, sparse) for name in ("v", "w")]
    add(tables[0], 1)
    worker.tick()
    past.return_to_it()
    made = [opened(other, name, sparse) for name in anew]
    add(tables[0], 10)
    for _ in range(2):
        with pytest.raises(StateLost, match="fell back to before it was made"):
            worker.tick()
    with pytest.raises(StateLost, match="fell back to before it was made"):
        tables[1].get(rows=[0])
    for table in made:
        assert (table.get(rows=range(100)) == 0).all()
