"""A server turns out, in the middle of a read of a large table, to have forgotten: nothing old is in what is read."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures import Past, background

from ssp_redis import Worker

Join = Callable[..., Worker]
#: 4 MiB: a share for each of four workers.
SHAPE = (64, 16384)


@pytest.mark.parametrize("staleness", [math.inf, 20, 2])
@pytest.mark.parametrize("members", [1, 4])
def test_a_rollback_between_two_shares_of_a_read(
    join: Join,
    new_server: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    staleness: float,
    members: int,
) -> None:
    past = Past(new_server, tmp_path)
    settings = {"url": past.url, "workers": 4, "staleness": staleness, "refresh": 1}
    joining = [background(join, number, **settings) for number in range(4)]
    workers = [future.result(30) for future in joining]
    for worker in workers[members:]:
        worker.leave()
    del workers[members:]
    tables = [worker.table("w", np.zeros(SHAPE, np.float32)) for worker in workers]
    reader, table = workers[0], tables[0]
    added = 0

    def clocks(count: int) -> None:
        nonlocal added
        for _ in range(count):
            for number, worker in enumerate(workers):
                tables[number].inc(np.full(SHAPE, 16.0**number, np.float32))
                worker.advance()
            added += 1

    def exact() -> None:
        value = table.get() % 16
        lost = [loss for loss in reader.losses if loss.worker == reader.id and not loss.repushed]
        assert (value == added - sum(loss.last - loss.first + 1 for loss in lost)).all()

    clocks(4 if members == 1 else 1)
    exact()
    past.remember()
    clocks(4 if members == 1 else 2)
    folder = reader._store.folder  # type: ignore[union-attr]
    publish = folder.publish

    def forgetful(*args: Any) -> None:
        monkeypatch.undo()
        past.return_to_it()
        publish(*args)

    monkeypatch.setattr(folder, "publish", forgetful)
    exact()
    assert reader.stats()["epoch"] == 2
    clocks(1)
    exact()
