"""The rules of the clock's client. Each test also shows that it fails once its rule is taken out of the client."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import pytest
import redis
from fixtures import background, blocked, in_database

import ssp_redis
from ssp_redis import Job, StateLost, WaitTimeout, Worker
from ssp_redis.clock import Clock
from ssp_redis.link import Link
from ssp_redis.scripts import Standing
from ssp_redis.subscriber import Subscriber

from .stage import client_rule


@contextlib.contextmanager
def team(url: str, job: str, count: int = 2, staleness: float = 0, **settings: object) -> Iterator[list[Worker]]:
    """So many workers of one job; none leaves by itself."""
    joining = [
        background(
            ssp_redis.join, url, job=job, worker=worker, workers=count, staleness=staleness, timeout=10, **settings
        )
        for worker in range(count)
    ]
    workers = [future.result(10) for future in joining]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.leave()


def waits(worker: Worker, seconds: float = 0.3) -> bool:
    """Does it wait so long and longer?"""
    try:
        worker.wait(timeout=seconds)
    except WaitTimeout:
        return True
    return False


def delivered(url: str) -> None:
    """What was announced is with all who listen: the server writes it before it takes another command."""
    with redis.Redis.from_url(url) as client:
        client.ping()


@client_rule(
    removed=lambda patch: patch.setattr(
        Standing,
        "admits",
        lambda self, clock: self.started and (self.staleness < 0 or clock - 1 - self.min_clock <= self.staleness),
    )
)
def test_the_test_comes_after_the_increment(url: str, job: str) -> None:
    with team(url, job, staleness=1) as (fast, _):
        fast.advance()
        assert not waits(fast)
        fast.advance()
        assert waits(fast), "it leads by 2"


def _advance_at_once(self: Worker, timeout: float | None) -> int:
    self._clock.local += 1
    self._commit()
    return self.clock


@client_rule(removed=lambda patch: patch.setattr(Worker, "_advance", _advance_at_once))
def test_a_tick_after_a_wait_that_timed_out_finishes_that_wait_first(url: str, job: str) -> None:
    with team(url, job) as (fast, _):
        for _ in range(3):
            with contextlib.suppress(WaitTimeout):
                fast.tick(timeout=0.1)
        assert fast.clock == 1


@client_rule(removed=lambda patch: patch.setattr(Clock, "_wait", lambda self, *args, **kwargs: None))
def test_join_returns_only_when_the_quorum_is_there(url: str, job: str) -> None:
    first = background(ssp_redis.join, url, job=job, worker=0, workers=2, staleness=math.inf, timeout=10)
    try:
        assert blocked(first, 0.3)
    finally:
        second = ssp_redis.join(url, job=job, worker=1, workers=2, timeout=10)
        first.result(10).leave()
        second.leave()


@client_rule(removed=lambda patch: patch.setattr(Clock, "_wait", lambda self, *args, **kwargs: None))
def test_join_returns_only_when_the_worker_is_admitted(url: str, job: str) -> None:
    with team(url, job, staleness=3) as (ahead, slow):
        for _ in range(3):
            ahead.tick()
        Job(url, job).set_staleness(0)
        again = background(ssp_redis.join, url, job=job, worker=0, timeout=10)
        try:
            assert blocked(again, 0.3)
        finally:
            for _ in range(3):
                slow.advance()
            again.result(10).leave()


def _without_greeting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Link, "greet", property(lambda self: lambda wire: None, lambda self, greet: None), raising=False)


@client_rule(removed=_without_greeting)
def test_a_new_connection_syncs_before_it_says_anything_else(url: str, job: str) -> None:
    """Else the loss of what it has seen would be covered by what it says next."""
    with team(url, job, staleness=5) as (one, two), redis.Redis.from_url(url) as client:
        two.tick()
        one._clock.sync()
        client.rpop(f"ssp:{{{job}}}:log")
        one._clock.link.drop()
        one.tick()
        assert Job(url, job).status().epoch == 2


def _first(self: Subscriber, timeout: float, run: str) -> str | None:
    if not self._wire.ready(timeout):
        return None
    reply = self._wire.read()
    return reply[2].decode() if reply[0] == b"message" else None


@client_rule(removed=lambda patch: patch.setattr(Subscriber, "last", _first))
def test_of_several_messages_the_last_one_decides(url: str, job: str) -> None:
    with team(url, job, recheck=30.0) as (fast, _):
        fast.advance()
        Job(url, job).set_staleness(5)
        Job(url, job).set_staleness(0)
        delivered(url)
        assert waits(fast)


def _of_any_run(self: Subscriber, timeout: float, run: str) -> str | None:
    messages = self.all(timeout)
    return messages[-1] if messages else None


def _if_of_my_run(self: Subscriber, timeout: float, run: str) -> str | None:
    last = _of_any_run(self, timeout, run)
    return last if last and last.startswith(run) else None


@contextlib.contextmanager
def namesake(url: str, job: str) -> Iterator[tuple[str, Worker]]:
    """A worker in a job of the same name in another database, and that database."""
    elsewhere = in_database(url, 1)
    with ssp_redis.join(elsewhere, job=job, worker=7) as worker:
        yield elsewhere, worker
    Job(elsewhere, job).delete()


@client_rule(removed=lambda patch: patch.setattr(Subscriber, "last", _of_any_run))
def test_what_a_job_of_the_same_name_in_another_database_announces_is_not_believed(url: str, job: str) -> None:
    """Channels know no databases."""
    with team(url, job, recheck=30.0) as (fast, _), namesake(url, job) as (elsewhere, other):
        fast.advance()
        other.tick()
        assert waits(fast)
        Job(elsewhere, job).stop()
        assert waits(fast)


@client_rule(removed=lambda patch: patch.setattr(Subscriber, "last", _if_of_my_run))
def test_of_the_messages_of_several_runs_the_last_of_mine_decides(url: str, job: str) -> None:
    with team(url, job, recheck=30.0) as (fast, slow), namesake(url, job) as (_, other):
        fast.advance()
        slow.tick()
        other.tick()
        delivered(url)
        assert not waits(fast)


@client_rule(removed=lambda patch: patch.setattr(Subscriber, "last", _of_any_run))
def test_a_worker_of_a_deleted_run_is_not_admitted_by_the_next(url: str, job: str) -> None:
    with team(url, job) as (old, _):
        old.advance()
        Job(url, job).delete(force=True)
        with team(url, job) as workers:
            for worker in workers:
                worker.advance()
            with pytest.raises(StateLost):
                old.wait(timeout=10)


def _resubscribe_only(self: Clock) -> None:
    self._subscriber = Subscriber(self.endpoint, self.keys.min)


@client_rule(removed=lambda patch: patch.setattr(Clock, "_resubscribe", _resubscribe_only))
def test_what_was_announced_while_nobody_was_subscribed_is_not_missed(url: str, job: str) -> None:
    with team(url, job, recheck=30.0) as (fast, slow), redis.Redis.from_url(url) as client:
        fast.advance()
        waiting = background(fast.wait, timeout=2)
        assert blocked(waiting, 0.2)
        clock, caller = slow._clock, slow._clock.caller
        tick = clock.scripts.pack_tick(caller, 0, 1, "-:", -1)
        wire = clock.endpoint.connect()
        kill = b"*4\r\n$6\r\nCLIENT\r\n$4\r\nKILL\r\n$4\r\nTYPE\r\n$6\r\npubsub\r\n"
        wire.call_all([kill, tick])  # in one go: nobody can subscribe in between
        wire.close()
        assert client.hget(f"ssp:{{{job}}}:clocks", "1") == b"1"
        assert waiting.exception(5) is None
