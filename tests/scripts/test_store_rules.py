"""The rules of pushing and reading deltas. Each test also shows that it fails once its rule is taken out."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np
import pytest
import redis
from fixtures import background
from proxy import CUT, PASS, Fate, Proxy

import ssp_redis
from ssp_redis import Job, StateLost, Worker
from ssp_redis.connection import Endpoint, command
from ssp_redis.store import push, view
from ssp_redis.store.push import TablePush
from ssp_redis.store.ring import Ring
from ssp_redis.store.view import View

from .stage import client_rule

#: Elements of a table whose deltas go to 64 slots of a ring, in the transaction of the tick.
SMALL = 100


def seen(url: str, job: str) -> list[float] | None:
    """All numbers that are in the table, from outside; None when it cannot be read."""
    with Job(url, job) as outside, contextlib.suppress(StateLost):
        return sorted(set(outside.table("w").get().tolist()))
    return None


def adds(worker: Worker, size: int, clocks: int) -> None:
    """1 to each element at each clock."""
    table = worker.table("w", np.zeros(size))
    for _ in range(clocks):
        table.inc(np.ones(size))
        worker.tick(timeout=10)


@contextlib.contextmanager
def alone(url: str, job: str, **settings: Any) -> Any:
    """A worker that never leaves properly: what it would tidy at its end stays as it is."""
    worker = ssp_redis.join(url, job=job, worker=0, staleness=math.inf, timeout=10, **settings)
    try:
        yield worker
    finally:
        worker.detach()


@client_rule(removed=lambda patch: patch.setattr(TablePush, "renew", lambda self, wire: None))
def test_after_an_error_a_push_goes_to_a_fresh_ring(url: str, job: str) -> None:
    """What was on its way to the old one arrives when the slot has been used again, and harms nobody."""
    lost: list[bytes] = []

    def lose(chunk: bytes) -> Fate:
        if not lost and b"SET\r\n" in chunk:
            lost.append(chunk)
            return CUT
        return PASS

    with Proxy(url) as proxy, alone(proxy.url, job) as worker:
        worker.table("w", np.zeros(SMALL))
        worker.tick()
        proxy.fate = lose
        adds(worker, SMALL, 1)
        proxy.fate = None
        assert lost, "it was in one transaction"
        adds(worker, SMALL, 64)  # the 65th delta is in the first slot, and no base has it
        late = Endpoint(url).connect()
        late.send(lost[0] + command("ECHO", "over"))
        while late.read() != b"over":
            pass  # all of it is in
        late.close()
        assert seen(url, job) == [65]


@client_rule(removed=lambda patch: patch.setattr(Ring, "needs", lambda self, table, slots: 0))
def test_a_slot_is_overwritten_only_when_a_base_has_what_was_in_it(url: str, job: str) -> None:
    with alone(url, job) as worker:
        adds(worker, SMALL, 70)
        assert seen(url, job) == [70]


@client_rule(removed=lambda patch: patch.setattr(Ring, "needs", lambda self, table, slots: 0))
def test_who_only_adds_folds_when_the_turns_of_a_ring_are_over(url: str, job: str) -> None:
    """Of a table in tags too, though nothing would be overwritten: else the log grew for ever."""
    with alone(url, job) as worker, redis.Redis.from_url(url) as client:
        adds(worker, 4, 2500)
        assert client.llen(f"ssp:{{{job}}}:log") < 1100
        assert seen(url, job) == [2500]


class _Any:
    """Equal to all."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __radd__(self, other: object) -> _Any:
        return self

    __hash__ = None  # type: ignore[assignment]


def _read_with_a_foreign_slot(url: str, job: str, reader: str) -> None:
    with alone(url, job) as worker, redis.Redis.from_url(url) as client:
        adds(worker, SMALL, 1)
        with ssp_redis.join(url, job=job, worker="other", timeout=10) as other:
            table = other.table("w")
            assert table.get().tolist() == [1] * SMALL
            adds(worker, SMALL, 2)
            keys = sorted(client.scan_iter(match=f"ssp:{{{job}}}:*:d:*"))
            assert len(keys) == 3
            client.set(keys[1], client.get(keys[2]))  # a late write of another clock
            other.tick(timeout=5)
            if reader == "outside":
                assert seen(url, job) is None, "an error, and no numbers"
            else:
                with pytest.raises(StateLost, match="table w: a base or a delta is missing or foreign"):
                    table.get()


@client_rule(removed=lambda patch: patch.setattr(view, "delta_rest", lambda *words: _Any()))
def test_a_delta_with_another_header_is_not_added_to_what_was_read_before(url: str, job: str) -> None:
    _read_with_a_foreign_slot(url, job, "member")


@client_rule(removed=lambda patch: patch.setattr(view, "delta_rest", lambda *words: _Any()))
def test_a_delta_with_another_header_is_not_added_to_a_base(url: str, job: str) -> None:
    _read_with_a_foreign_slot(url, job, "outside")


@client_rule(removed=lambda patch: patch.setattr(push, "register", lambda keys, ring: []))
def test_what_can_be_found_can_be_swept(url: str, job: str) -> None:
    """A ring is registered before its first slot is written: who dies leaves nothing for ever."""
    joining = [background(ssp_redis.join, url, job=job, worker=i, workers=2, staleness=math.inf) for i in range(2)]
    first, second = (future.result(10) for future in joining)
    with redis.Redis.from_url(url) as client:
        second.table("w", np.zeros(SMALL))
        adds(first, SMALL, 3)
        assert len(client.keys(f"ssp:{{{job}}}:*:d:*")) == 3
        first.detach()
        Job(url, job).evict(0)
        assert second.table("w").get().tolist() == [3] * SMALL
        second.leave()
        assert client.keys(f"ssp:{{{job}}}:*:d:*") == []
        assert seen(url, job) == [3]


def _adds_unchecked(self: View, tag: Any) -> bool:
    self.master += np.frombuffer(tag.values[self.layout.number], self.master.dtype)
    return True


@client_rule(removed=lambda patch: patch.setattr(View, "_add_inline", _adds_unchecked))
def test_a_delta_in_a_tag_is_all_elements_of_the_table(url: str, job: str) -> None:
    """One number would be added to each of them."""
    with alone(url, job) as worker:
        adds(worker, 4, 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TablePush, "note", "0:0=AAAAAAAA8D8=")
            adds(worker, 4, 1)
        assert seen(url, job) is None, "an error, and no numbers"
