"""Interleavings of real workers, command by command; ``python -m tests.explore --live`` plays more of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from ssp_redis.joining import read_records
from ssp_redis.store import blob, store, sweep

from .live import Broken, Play


@pytest.mark.parametrize("seed", range(1, 11))
def test_nothing_breaks_whoever_sends_next(seed: int, url: str) -> None:
    Play(url, seed).run()


def _nothing(*words: Any) -> None:
    return None


def _sweep_all(self: store.Store, wire: Any) -> None:
    live = {str(record.incarnation) for record in read_records(wire, self.job).values() if record.why == "-"}
    rings = sweep.rings(wire, self.keys)
    sweep.delete_rings(wire, self.keys, [ring for ring in rings if ring.split(":")[1] not in live])


def _any_sum(block: blob.Block, *words: int) -> bytes:
    return blob.sum_header(block, 0, 0, 0, 0)


#: What is broken, and in what.
PLANTED: dict[str, tuple[str, Callable[..., Any]]] = {
    "a slot is used again before every base has what was in it": ("store.store.Store._make_room", _nothing),
    "a slot of a sparse table is": ("store.sparse.folding.make_room", _nothing),
    "a sweep does not look at the tags": ("store.store.Store._sweep_now", _sweep_all),
    "any sum that is said is taken for the one that is waited for": ("store.sums.sum_header", _any_sum),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_what_is_broken_on_purpose_is_found(fault: str, url: str) -> None:
    where, broken = PLANTED[fault]
    with mock.patch(f"ssp_redis.{where}", broken), pytest.raises(Broken):
        for seed in range(1, 40):
            Play(url, seed).run()
