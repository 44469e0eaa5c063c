"""A worker runs while its lead is within the staleness, blocks when it is not, and wakes when it may go on."""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Callable

import pytest
import redis
from fixtures import background, blocked, interrupted_at, sigint_at
from proxy import PASS, Fate, Proxy
from remote import Remote, RemoteError, eventually

from ssp_redis import Job, JobStopped, WaitTimeout, Worker

Together = Callable[..., list[Worker]]


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_runs_up_to_the_bound_and_not_beyond(together: Together, staleness: int) -> None:
    """The test comes after the increment: at a lead of exactly ``staleness`` a worker runs, at one more it blocks.

    snuspl/cruise#696: the staleness test used the wrong clock.
    """
    fast, slow = together(2, staleness=staleness)
    for clock in range(1, staleness + 1):
        assert fast.tick(timeout=5) == clock
    ahead = background(fast.tick)
    assert blocked(ahead)
    assert slow.tick(timeout=5) == 1
    assert ahead.result(5) == staleness + 1
    assert fast.clock - fast.min_clock == staleness


def test_an_unbounded_worker_never_waits(together: Together) -> None:
    fast, slow = together(2, staleness=math.inf)
    for _ in range(50):
        fast.tick(timeout=1)
    assert (fast.clock, fast.min_clock, fast.staleness) == (50, 0, math.inf)
    assert slow.tick(timeout=1) == 1


def test_staleness_none_is_unbounded(join: Callable[..., Worker], url: str, job: str) -> None:
    assert join(0, staleness=None).staleness == math.inf
    assert Job(url, job).status().staleness == math.inf


def test_a_timeout_names_who_is_in_the_way(together: Together) -> None:
    """PaddlePaddle/Paddle#42708: 15 minutes of silence when workers vanish, and no word about whom."""
    fast, slow, other = together(3, staleness=1)
    other.tick(timeout=5)
    other.advance()
    fast.tick(timeout=5)
    begun = time.monotonic()
    with pytest.raises(WaitTimeout) as caught:
        fast.tick(timeout=0.3)
    assert 0.25 < time.monotonic() - begun < 1.5
    assert isinstance(caught.value, TimeoutError)
    [blocker] = caught.value.blockers
    assert (blocker.worker, blocker.clock) == ("1", 0)
    assert blocker.last_seen is not None
    assert 0 <= blocker.last_seen < 10
    assert "worker 0 at clock 2 may be 1 ahead" in str(caught.value)
    assert "worker 1 at clock 0, last seen" in str(caught.value)
    assert "worker 2" not in str(caught.value)
    assert slow.clock == 0


def test_a_tick_after_a_timed_out_wait_finishes_that_wait_first(together: Together, url: str, job: str) -> None:
    """† Else every timed-out tick would add one to the lead."""
    fast, slow = together(2, staleness=1)
    fast.tick(timeout=5)
    for _ in range(3):
        with pytest.raises(WaitTimeout):
            fast.tick(timeout=0.05)
        assert fast.clock == 2
    with pytest.raises(WaitTimeout):
        fast.advance(timeout=0.05)
    assert Job(url, job).status().members[0].clock == 2
    slow.tick(timeout=5)
    # the owed wait, then a tick that has to wait itself
    with pytest.raises(WaitTimeout):
        fast.tick(timeout=0.3)
    assert fast.clock == 3
    slow.tick(timeout=5)
    fast.wait(timeout=5)


def test_the_halves_of_a_tick(together: Together, client: redis.Redis, job: str) -> None:
    fast, slow = together(2, staleness=0)
    assert fast.advance() == 1
    assert client.hget(f"ssp:{{{job}}}:clocks", "0") == b"1"
    waiting = background(fast.wait)
    assert blocked(waiting)
    slow.advance()
    waiting.result(5)
    slow.wait(timeout=0)


def test_a_timeout_of_zero_only_looks(together: Together) -> None:
    fast, _ = together(2, staleness=1)
    assert fast.tick(timeout=0) == 1
    begun = time.monotonic()
    with pytest.raises(WaitTimeout):
        fast.tick(timeout=0)
    assert time.monotonic() - begun < 1.0


def test_who_asks_again_and_again_is_admitted(together: Together) -> None:
    fast, slow = together(2, staleness=0)
    with pytest.raises(WaitTimeout):
        fast.tick(timeout=0.01)
    slow.tick(timeout=5)
    eventually(lambda: _admitted(fast, 0))


def _admitted(worker: Worker, timeout: float) -> bool:
    with contextlib.suppress(WaitTimeout):
        worker.wait(timeout)
        return True
    return False


def test_a_barrier_waits_until_all_are_as_far(together: Together) -> None:
    first, second, third = together(3, staleness=5)
    first.tick(timeout=5)
    first.tick(timeout=5)
    arrived = background(first.barrier)
    second.tick(timeout=5)
    second.tick(timeout=5)
    third.tick(timeout=5)
    assert blocked(arrived)
    with pytest.raises(WaitTimeout, match="worker 2 at clock 1"):
        second.barrier(timeout=0.05)
    third.tick(timeout=5)
    arrived.result(5)
    second.barrier(timeout=5)


def test_clocks_finishes_a_wait_that_is_owed(together: Together) -> None:
    fast, slow = together(2, staleness=0)
    with pytest.raises(WaitTimeout):
        fast.tick(timeout=0.01)
    first = background(next, fast.clocks(5))
    assert blocked(first)
    slow.tick(timeout=5)
    assert first.result(5) == 1


class TestStalenessOfARunningJob:
    def test_raised_wakes_whom_it_admits(self, together: Together, url: str, job: str) -> None:
        fast, _ = together(2, staleness=0)
        ahead = background(fast.tick)
        assert blocked(ahead)
        begun = time.monotonic()
        Job(url, job).set_staleness(2)
        assert ahead.result(5) == 1
        assert time.monotonic() - begun < 1.0, "woken by the re-check, not by the change"
        assert fast.tick(timeout=5) == 2
        with pytest.raises(WaitTimeout):
            fast.tick(timeout=0.05)

    def test_to_infinity(self, together: Together, url: str, job: str) -> None:
        fast, _ = together(2, staleness=0)
        ahead = background(fast.tick)
        assert blocked(ahead)
        Job(url, job).set_staleness(math.inf)
        ahead.result(5)
        for _ in range(20):
            fast.tick(timeout=1)
        assert fast.staleness == math.inf

    def test_lowered_counts_from_the_next_admission(self, together: Together, url: str, job: str) -> None:
        fast, slow = together(2, staleness=math.inf)
        for _ in range(5):
            fast.tick(timeout=1)
        with Job(url, job) as seen:
            seen.set_staleness(3)
            assert seen.status().staleness == 3
            assert seen.status().created_staleness == math.inf
        with pytest.raises(WaitTimeout):
            fast.tick(timeout=0.05)
        for _ in range(3):
            slow.tick(timeout=1)
        fast.wait(timeout=5)
        assert fast.staleness == 3

    def test_a_late_worker_adopts_the_current_one(
        self, together: Together, join: Callable[..., Worker], url: str, job: str
    ) -> None:
        together(2, staleness=0)
        Job(url, job).set_staleness(7)
        assert join(2).staleness == 7
        assert join(3, staleness=0).staleness == 7  # compared with the value at creation


class TestStop:
    def test_wakes_who_waits(self, together: Together, url: str, job: str) -> None:
        fast, _ = together(2, staleness=0)
        ahead = background(fast.tick)
        assert blocked(ahead)
        begun = time.monotonic()
        Job(url, job).stop()
        with pytest.raises(JobStopped, match=job):
            ahead.result(5)
        assert time.monotonic() - begun < 1.0
        assert fast.clock == 1

    def test_ends_clocks_everywhere(self, together: Together, url: str, job: str) -> None:
        workers = together(2, staleness=0)
        done = [background(lambda w=worker: len(list(w.clocks(10**9)))) for worker in workers]
        eventually(lambda: Job(url, job).status().min_clock > 20)
        Job(url, job).stop()
        assert all(future.result(5) > 20 for future in done)
        assert all(worker.stopped for worker in workers)

    def test_can_be_taken_back(self, together: Together, url: str, job: str) -> None:
        first, second = together(2, staleness=0)
        with Job(url, job) as seen:
            seen.stop()
            seen.stop()
            with pytest.raises(JobStopped):
                first.tick(timeout=5)
            seen.resume()
            second.tick(timeout=5)
            first.wait(timeout=5)
            assert not seen.status().stopped
            seen.stop()
            with pytest.raises(JobStopped):
                second.tick()
            seen.resume()
            ahead = background(lambda: list(first.clocks(3)))
            assert list(second.clocks(3)) == [2]
            assert ahead.result(5) == [1, 2]

    def test_who_joins_a_stopped_job_is_told(self, join: Callable[..., Worker], url: str, job: str) -> None:
        with join(0):
            Job(url, job).stop()
            worker = join(1)
            assert worker.stopped
            assert list(worker.clocks(5)) == []


def test_a_tick_in_the_body_of_clocks_is_told_once(
    join: Callable[..., Worker], caplog: pytest.LogCaptureFixture
) -> None:
    worker = join(0)
    for clock in worker.clocks(6):
        if clock:
            worker.tick()
    assert [record.getMessage() for record in caplog.records] == [
        "clocks() ticks by itself: that the body did so, too, at clock 1 skips one"
    ]


def test_clocks_yields_each_clock_and_ends_at_the_count(join: Callable[..., Worker], url: str, job: str) -> None:
    with join(0) as worker:
        assert list(worker.clocks(5)) == [0, 1, 2, 3, 4]
        assert worker.clock == 5
        assert list(worker.clocks(5)) == []
    [gone] = Job(url, job).status().departed
    assert (gone.worker, gone.clock, gone.why) == ("0", 5, "done")


def test_an_idle_waiter_sends_no_more_than_a_command_per_recheck(proxy: Proxy, join: Callable[..., Worker]) -> None:
    """testground/testground#663: 256 ms polling dominates the profile. Here: 2 s, and a heartbeat every lease/3."""
    slow = background(join, 1, workers=2, staleness=0, lease=9.0, url=proxy.url)
    fast = join(0, workers=2, staleness=0, lease=9.0, url=proxy.url)
    slow.result(10)
    waiting = background(fast.tick)
    assert blocked(waiting, 0.2)
    chunks: list[bytes] = []

    def count(chunk: bytes) -> Fate:
        chunks.append(chunk)
        return PASS

    proxy.fate = count
    assert blocked(waiting, 6.1)
    # of the waiter: at most 3 re-checks; of each of the two: at most 2 or 3 heartbeats of 3 s
    commands = [chunk for chunk in chunks if b"CLIENT" not in chunk]
    assert len(commands) <= 3 + 2 * 3, commands
    slow.result(0).tick(timeout=5)
    waiting.result(5)


def test_a_lost_notification_is_covered_by_the_recheck(together: Together, client: redis.Redis, job: str) -> None:
    """redis/redis-py#1464, #1572, #816; rq/rq#1836: the listener dies, the process looks healthy.

    The subscription is gone at the moment of the publish; the waiter finds out, at the latest after one re-check.
    """
    fast, slow = together(2, staleness=0, recheck=1.0)
    for clock in range(1, 4):
        waiting = background(fast.tick)
        assert blocked(waiting, 0.05)
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        begun = time.monotonic()
        slow.tick(timeout=5)
        assert waiting.result(5) == clock
        assert time.monotonic() - begun < 1.5


def test_a_notification_that_never_comes_is_covered_by_the_recheck(
    proxy: Proxy, join: Callable[..., Worker], url: str
) -> None:
    """redis/redis-py#705, #1427, #3092: a half-open connection gives ``None`` for ever."""
    slow = background(join, 1, workers=2, staleness=0)
    fast = join(0, workers=2, staleness=0, recheck=0.5, url=proxy.url)
    waiting = background(fast.tick)
    assert blocked(waiting, 0.2)
    proxy.mute(b"SUBSCRIBE")
    begun = time.monotonic()
    slow.result(10).tick(timeout=5)
    assert waiting.result(5) == 1
    assert time.monotonic() - begun < 1.0


def test_the_recheck_comes_also_where_each_call_is_shorter(proxy: Proxy, join: Callable[..., Worker]) -> None:
    joining = background(join, 1, workers=2, staleness=0)
    fast = join(0, workers=2, staleness=0, recheck=1.0, url=proxy.url)
    waiting = background(fast.tick, 0.2)
    assert blocked(waiting)
    proxy.mute(b"SUBSCRIBE")
    with pytest.raises(WaitTimeout):
        waiting.result(5)
    joining.result(10).tick(timeout=5)
    eventually(lambda: _admitted(fast, 0.05), seconds=5.0)


def test_a_subscription_that_leads_nowhere_costs_one_recheck_and_not_one_each_clock(
    proxy: Proxy, join: Callable[..., Worker]
) -> None:
    """As after a failover from a server that froze: it never closes the connection."""
    joining = background(join, 1, workers=2, staleness=0)
    fast = join(0, workers=2, staleness=0, recheck=1.0, url=proxy.url)
    slow = joining.result(10)
    waiting = background(fast.tick)
    assert blocked(waiting, 0.2)
    proxy.mute(b"SUBSCRIBE")
    slow.tick(timeout=5)
    assert waiting.result(5) == 1
    begun = time.monotonic()
    for clock in range(2, 6):
        waiting = background(fast.tick)
        assert blocked(waiting, 0.05)
        slow.tick(timeout=5)
        assert waiting.result(5) == clock
    assert time.monotonic() - begun < 1.0


def test_a_long_idle_wait_outlives_the_socket_timeout(
    together: Together, url: str, join: Callable[..., Worker], new_job: Callable[[], str]
) -> None:
    """redis/redis-py#4098, #2807: ``socket_timeout`` cuts a long wait; #3313: ``get_message`` returns early."""
    joiner = "&" if "?" in url else "?"
    other = new_job()
    settings = {"workers": 2, "job": other, "url": f"{url}{joiner}socket_timeout=0.3", "recheck": 5.0}
    second = background(join, 1, **settings)
    first = join(0, **settings)
    waiting = background(first.tick)
    assert blocked(waiting, 1.2)
    received, sent = first._clock.link.traffic()
    begun = time.monotonic()
    second.result(5).tick(timeout=5)
    waiting.result(5)
    assert time.monotonic() - begun < 0.5, "woken by a re-check"
    assert first._clock.link.traffic() == (received, sent), "a message that admits needs no further question"


class TestInterruption:
    """redis/redis-py#1128: Ctrl-C in mid-read leaves a connection one reply behind."""

    def test_ctrl_c_while_blocked(
        self, remote: Callable[..., Remote], join: Callable[..., Worker], url: str, job: str
    ) -> None:
        child = remote()
        begin = background(child.join, url, job, worker=0, workers=2, staleness=0)
        other = join(1, workers=2, staleness=0)
        begin.result(20)
        for clock in range(1, 6):
            child.start("worker.tick()")
            eventually(lambda clock=clock: Job(url, job).status().members[0].clock == clock)
            child.signal(signal.SIGINT)
            with pytest.raises(RemoteError, match="KeyboardInterrupt"):
                child.result()
            assert child.do("worker.clock") == clock
            other.tick(timeout=5) if clock % 2 else other.advance()
            child.do("worker.wait(timeout=5)")
            assert child.do("worker.members") == ["0", "1"]

    @pytest.mark.parametrize("subscription", ["stands", "is lost"])
    def test_what_it_kept_from_being_heard_is_asked_for(
        self, together: Together, client: redis.Redis, subscription: str
    ) -> None:
        """Ctrl-C at any line of a wait: the same call again need not wait for the re-check."""
        fast, slow = together(2, staleness=0, recheck=30.0)
        files = ("ssp_redis/clock.py", "ssp_redis/subscriber.py")
        line, met = 0, True
        while met:
            line += 1
            with contextlib.suppress(WaitTimeout):
                fast.tick(timeout=0)
            if subscription == "is lost":
                client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            slow.tick(timeout=5)
            with sigint_at(line, lambda code: code.co_filename.endswith(files)) as seen:
                with contextlib.suppress(KeyboardInterrupt):
                    fast.wait(timeout=5)
            fast.wait(timeout=5)
            met = seen[0] >= line
        assert line > 20

    def test_a_timeout_ends_with_its_tick_wherever_that_is_interrupted(self, join: Callable[..., Worker]) -> None:
        worker = join(0)
        line, met = 0, True
        while met:
            line += 1
            with interrupted_at(line, "line", lambda file: file.endswith("ssp_redis/link.py")) as count:
                worker.tick(timeout=5)
            met = count[0] >= line
            assert worker._clock.link.patience() is None
            worker.tick(timeout=5)
        assert line > 20

    def test_ctrl_c_at_any_moment_of_a_tick(self, remote: Callable[..., Remote], url: str, job: str) -> None:
        child = remote()
        child.join(url, job, worker=0)
        child.do("table = worker.table('w', np.zeros(4))")
        hits = child.do(_TICK_UNDER_FIRE, timeout=60, turns=1000)
        assert hits > 50
        assert child.do("worker.clock, table.get().tolist()") == (1000, [1000.0] * 4)
        assert Job(url, job).table("w").get().tolist() == [1000.0] * 4


_TICK_UNDER_FIRE = """
import random, threading
rng, stop, armed, hits = random.Random(1), threading.Event(), False, 0

def interrupt(*_):
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt

def shoot():
    while not stop.wait(rng.uniform(0.0002, 0.002)):
        os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, interrupt)
shooter = threading.Thread(target=shoot)
shooter.start()
for turn in range(turns):
    table.inc(np.ones(4))
    while worker.clock == turn:
        try:
            armed = True
            worker.tick()
            armed = False
        except KeyboardInterrupt:
            hits += 1
stop.set()
shooter.join()
if worker._half:
    worker.tick()  # the last one was interrupted, perhaps before it was sent: the same call again completes it
hits
"""
