"""What schedules of faults have found, each as a test of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from fixtures import Past, background
from proxy import COMMAND, CUT, PASS, Fate, Pair, Proxy, once
from remote import eventually

import ssp_redis
from ssp_redis import Evicted, Job, ServerRefused, StateLost, Superseded, Worker
from ssp_redis.store import store


@pytest.mark.parametrize("size", [100, 300_000])
def test_a_push_that_arrives_after_its_ring_was_swept_leaves_nothing(
    join: Callable[..., Worker], url: str, job: str, client: redis.Redis, size: int
) -> None:
    """Frozen in a push, evicted, its ring swept; then it wakes, and what it writes is in no list of rings any more."""
    with Proxy(url) as proxy:
        mine = background(join, 0, url=proxy.url, workers=2, staleness=9, lease=30.0)
        other = join(1, workers=2, staleness=9, lease=30.0)
        worker = mine.result(20)
        table, theirs = worker.table("w", np.zeros(size)), other.table("w", np.zeros(size))
        table.inc(np.ones(size))
        worker.tick()
        table.inc(np.ones(size))

        def freeze(pair: Pair, chunk: bytes) -> Fate:
            if b":d:" in chunk:
                pair.hold()
            return PASS

        proxy.watch = freeze
        push = background(worker.tick)
        [pair] = proxy.pairs(role=COMMAND)
        eventually(lambda: not pair.moving)
        Job(url, job).evict(0)
        ring = f"{worker.id}:{worker.incarnation}:"

        def slots() -> list[bytes]:
            return list(client.scan_iter(match=f"ssp:{{{job}}}:*:d:*:{ring}*", count=1000))

        def swept() -> bool:
            theirs.inc(np.ones(size))
            other.tick()
            theirs.get()
            return not slots()

        eventually(swept, "the ring is swept")
        proxy.watch = None
        pair.release()
        with pytest.raises(Evicted):
            push.result(10)
        assert slots() == []
        assert (Job(url, job).table("w").get() == 1 + other.clock).all()


@pytest.mark.parametrize("size", [100, 300_000])
def test_rings_given_up_on_a_bad_network_do_not_pile_up(
    join: Callable[..., Worker],
    url: str,
    job: str,
    client: redis.Redis,
    size: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each lost reply means a fresh ring; nobody leaves, and the old ones go all the same."""
    monkeypatch.setattr(store, "_DOUBT", 0.01)
    with Proxy(url) as proxy:
        worker = join(0, url=proxy.url)
        table = worker.table("w", np.zeros(size))
        for clock in range(1, 30):
            table.inc(np.ones(size))
            proxy.fate = once(b":d:", CUT)
            worker.tick()
            proxy.fate = None
            assert (table.get() == clock).all()
            if clock % 10 == 0:
                # a turn of the ring without trouble, so that bases move on
                for _ in range(3):
                    worker.tick()
                worker.table("w").get()
        [rings] = client.scan_iter(match=f"ssp:{{{job}}}:*:rings")
        assert client.scard(rings) < 10


@pytest.mark.parametrize("key", ["config", "clocks", "order", "ids", "leases"])
def test_a_key_that_a_memory_policy_took_is_state_lost(
    join: Callable[..., Worker], together: Callable[..., list[Worker]], client: redis.Redis, job: str, key: str
) -> None:
    """Without its places the job would take each worker for the slowest; without its leases nobody would be reaped."""
    first, second = together(2, staleness=1, lease=0.6, recheck=0.2)
    first.tick()
    client.delete(f"ssp:{{{job}}}:{key}")
    waiting = background(lambda: [first.tick() for _ in range(20)])
    with pytest.raises(StateLost):
        waiting.result(5)
    assert first.clock <= 3
    with pytest.raises(StateLost):
        for _ in range(20):
            second.tick(timeout=5)


@pytest.mark.parametrize("key", ["clocks", "ids", "log"])
def test_a_status_without_a_key_that_a_memory_policy_took_is_state_lost(
    join: Callable[..., Worker], url: str, client: redis.Redis, job: str, key: str
) -> None:
    join(0)
    client.delete(f"ssp:{{{job}}}:{key}")
    with pytest.raises(StateLost):
        Job(url, job).status()


def test_a_log_that_a_memory_policy_took_is_not_begun_anew(
    join: Callable[..., Worker], together: Callable[..., list[Worker]], url: str, client: redis.Redis, job: str
) -> None:
    """Who leaves, evicts or reaps would write its tag where another has stood, and others would go on from there."""
    first, second = together(2, staleness=1, lease=0.6, recheck=0.2)
    first.tick()
    client.delete(log := f"ssp:{{{job}}}:log")
    with pytest.raises(StateLost):
        Job(url, job).evict(0)
    first.leave()
    with pytest.raises(StateLost):
        eventually(lambda: not Job(url, job).status().members, seconds=2)
    assert not client.exists(log)
    with pytest.raises(StateLost):
        for _ in range(20):
            second.tick(timeout=5)


def test_one_that_was_evicted_while_the_others_were_late_is_told_so(
    together: Callable[..., list[Worker]], url: str, job: str
) -> None:
    """It looks for something to fold while it waits, and is not among those who might."""
    first, second = together(2, recheck=0.2)
    table = first.table("w", np.zeros(300_000))
    second.table("w", np.zeros(300_000))
    table.get()
    table.inc(np.ones(300_000))
    first.advance()
    Job(url, job).evict(0)
    with pytest.raises(Evicted):
        first.wait(timeout=5)


def test_one_that_leaves_a_job_that_is_gone_is_told_so(join: Callable[..., Worker], url: str, job: str) -> None:
    """Its open clock cannot be committed, and the reason has a name of its own."""
    worker = join(0)
    worker.table("w", np.zeros(3)).inc(np.ones(3))
    Job(url, job).delete(force=True)
    with pytest.raises(StateLost):
        worker.leave()


def test_one_that_leaves_and_was_superseded_is_told_so(join: Callable[..., Worker]) -> None:
    worker = join(0)
    worker.table("w", np.zeros(3)).inc(np.ones(3))
    join(0)
    with pytest.raises(Superseded):
        worker.leave()


@pytest.mark.parametrize("size", [3, 100, 300_000])
def test_what_the_server_forgot_of_one_that_leaves_is_pushed_again(
    new_server: Callable[..., Any], tmp_path: Path, size: int
) -> None:
    """It finds out by its last command; what it still holds would ride on a push that never comes."""
    past = Past(new_server, tmp_path)
    worker, other = (background(ssp_redis.join, past.url, job="j", worker=i, workers=2, staleness=9) for i in range(2))
    table = worker.result(20).table("w", np.zeros(size))
    past.remember()
    table.inc(np.ones(size))
    worker.result().tick()
    past.return_to_it()
    worker.result().leave()
    assert (Job(past.url, "j").table("w").get() == 1).all()
    assert [loss.repushed for loss in worker.result().losses] == [True]
    other.result().leave()
    assert (Job(past.url, "j").table("w").get() == 1).all()


@pytest.mark.parametrize("open_clock", [True, False])
def test_the_open_clock_of_one_that_leaves_is_committed_by_a_tick_of_its_own(
    join: Callable[..., Worker], open_clock: bool
) -> None:
    """With what was not flushed it went under the tick before: one that was killed then did that clock once more."""
    worker = join(0, staleness=9, flush_every=5)
    table = worker.table("w", np.zeros(3))
    for _ in range(2):
        table.inc(np.ones(3))
        worker.tick()
    if open_clock:
        table.inc(np.ones(3))
    worker.leave()
    again = join(0)
    assert again.clock == 2 + open_clock
    assert (again.table("w").get() == 2 + open_clock).all()


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("size", [3, 100, 300_000])
def test_all_clocks_that_were_pushed_as_one_are_named_when_they_are_lost(
    new_server: Callable[..., Any], tmp_path: Path, size: int, reads: bool
) -> None:
    past = Past(new_server, tmp_path)
    worker = ssp_redis.join(past.url, job="j", worker=0, staleness=9, flush_every=3)
    table = worker.table("w", np.zeros(size))
    past.remember()
    for _ in range(3):
        table.inc(np.ones(size))
        worker.tick()
    if reads:
        table.get()  # what is in its view it does not hold any longer
    past.return_to_it()
    table.inc(np.ones(size))
    worker.leave()
    assert [(loss.first, loss.last, loss.repushed) for loss in worker.losses] == [(0, 2, not reads)]
    assert (Job(past.url, "j").table("w").get() == (1 if reads else 4)).all()


@pytest.mark.parametrize("refused", [True, False])
def test_a_ring_whose_name_did_not_arrive_is_named_again(
    own_server: Any, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fold names the ring, too; where that was refused, or cut off, later pushes were to a ring that nobody knew."""
    with Proxy(own_server.url) as proxy, redis.Redis.from_url(own_server.url) as client:
        worker = ssp_redis.join(proxy.url, job="j", worker=0)
        table = worker.table("w", np.zeros(300_000))
        worker._tables().ring.renew()
        if refused:
            client.config_set("maxmemory", 1)
            with pytest.raises(ServerRefused):
                worker._tables().create("x", np.zeros(300_000))
            client.config_set("maxmemory", 0)
        else:
            proxy.fate = once(b"SADD", CUT)
        worker.table("x", np.zeros(300_000))
        table.inc(np.ones(300_000))
        worker.tick()
        [rings] = client.scan_iter(match="ssp:{j}:*:rings")
        [slot] = client.scan_iter(match="ssp:{j}:*:d:0:0:*")
        assert client.sismember(rings, b":".join(slot.split(b":")[-4:-1]))
        worker.leave()


def test_what_was_swept_once_and_is_needed_after_a_rollback_is_not_swept_again(
    new_server: Callable[..., Any], tmp_path: Path
) -> None:
    """Its slots are back, and so are the tags that name them."""
    past = Past(new_server, tmp_path)
    futures = [background(ssp_redis.join, past.url, job="j", worker=i, workers=2, staleness=9) for i in range(2)]
    dead, sweeper = (future.result(20) for future in futures)
    tables = [worker.table("w", np.zeros(100)) for worker in (dead, sweeper)]
    tables[0].inc(np.ones(100))
    dead.tick()
    past.remember()
    Job(past.url, "j").evict(0)
    tables[1].get()
    sweeper._store.folder.fold(sweeper._store.views["w"], [0])

    def swept() -> bool:
        sweeper.tick()
        tables[1].get()
        return bool(sweeper._store._swept)

    eventually(swept)
    [(_, ring)] = sweeper._store._swept
    sweeper._store._swept = [(0.0, ring)]
    past.return_to_it()
    sweeper.advance()
    for _ in range(3):
        assert (tables[1].get() == 1).all()
        sweeper.advance()
    assert (Job(past.url, "j").table("w").get() == 1).all()
    dead.detach()
    sweeper.detach()


def test_a_set_that_comes_after_the_sweep_of_its_ring_is_found_by_another(
    together: Callable[..., list[Worker]], url: str, job: str, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever swept looks again a minute later, or names the ring when it leaves."""
    monkeypatch.setattr(store, "_DOUBT", 0.5)
    dead, sweeper, last = together(3, staleness=None)
    tables = [worker.table("w", np.zeros(100)) for worker in (dead, sweeper, last)]
    tables[0].inc(np.ones(100))
    dead.tick()
    [slot] = client.scan_iter(match=f"ssp:{{{job}}}:*:d:*")
    value = client.get(slot)
    Job(url, job).evict(0)

    def gone() -> bool:
        tables[1].inc(np.ones(100))
        sweeper.tick()
        tables[1].get()
        return not client.exists(slot)

    sweeper._store.folder.fold(sweeper._store.views["w"], [0])
    eventually(gone)
    client.set(slot, value)
    eventually(gone)
    client.set(slot, value)  # once more, and now whoever swept leaves
    sweeper._store._swept = [(0.0, ":".join(slot.decode().split(":")[-4:-1]))]
    sweeper.leave()
    tables[2].get()
    last.leave()
    assert not client.exists(slot)
