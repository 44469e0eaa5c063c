"""Who is a member: quorum, ids, takeover, leases, leaving, coming back, runs."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from fixtures import background, blocked, long_ago
from proxy import HEARTBEAT, Proxy
from remote import Remote, RemoteError, eventually

import ssp_redis
from ssp_redis import Evicted, Job, JobMismatch, SSPError, StateLost, Superseded, UsageError, WaitTimeout, Worker

Join = Callable[..., Worker]
Together = Callable[..., list[Worker]]


def members_of(url: str, job: str) -> list[str]:
    return [member.worker for member in Job(url, job).status().members]


class TestQuorum:
    def test_nobody_passes_before_it_is_there(self, join: Join) -> None:
        """At any staleness: what is pushed before all are there is pushed against nobody."""
        first = background(join, 0, workers=3, staleness=math.inf)
        second = background(join, 1, workers=3, staleness=math.inf)
        assert blocked(first, 0.2)
        assert blocked(second)
        third = join(2, workers=3, staleness=math.inf)
        assert sorted(worker.id for worker in (first.result(5), second.result(5), third)) == ["0", "1", "2"]

    def test_a_timeout_says_how_many_are_there(self, join: Join, url: str, job: str) -> None:
        first = background(join, 0, workers=4)
        eventually(lambda: Job(url, job).exists())
        begun = time.monotonic()
        with pytest.raises(WaitTimeout, match="2 of 4 joined"):
            join(1, workers=4, timeout=0.3)
        assert 0.25 < time.monotonic() - begun < 2
        # the id is free again, and no longer counted
        assert members_of(url, job) == ["0"]
        assert blocked(first)

    def test_an_idle_job_gathers_when_it_is_told_to(self, join: Join, url: str, job: str) -> None:
        alone = join(0)
        alone.tick()
        with pytest.raises(JobMismatch, match=f"job {job} has members"):
            Job(url, job).gather(2)
        alone.leave()
        Job(url, job).gather(2)
        again = background(join, 0)
        assert blocked(again, 0.2)
        newcomer = join(1, workers=2)
        assert (again.result(5).clock, newcomer.clock) == (1, 1)

    def test_one_id_joining_twice_is_one(self, join: Join) -> None:
        first = background(join, 0, workers=2)
        assert blocked(first)
        again = background(join, 0, workers=2)
        with pytest.raises(Superseded):
            first.result(10)
        assert blocked(again)
        join(1, workers=2)
        again.result(5)

    def test_a_job_that_has_begun_takes_more_than_the_quorum(self, join: Join, url: str, job: str) -> None:
        for i in range(3):
            join(i, workers=1)
        assert members_of(url, job) == ["0", "1", "2"]

    def test_a_killed_joiner_does_not_count(
        self, join: Join, remote: Callable[..., Remote], url: str, job: str
    ) -> None:
        """meta-pytorch/torchft#63: a killed joiner is still counted. Its lease covers joining, too."""
        child = remote()
        child.start("ssp_redis.join(url, job=job, worker=0, workers=2, lease=0.6)", url=url, job=job)
        eventually(lambda: Job(url, job).exists() and members_of(url, job))
        child.kill()
        begun = time.monotonic()
        with pytest.raises(WaitTimeout, match="1 of 2 joined"):
            # whoever comes after the lease has run out is alone
            eventually(lambda: not members_of(url, job), seconds=1.2)
            join(1, workers=2, lease=0.6, timeout=0.3)
        assert time.monotonic() - begun < 2


class TestIds:
    def test_the_lowest_free_one_is_claimed(self, join: Join) -> None:
        assert join(1).id == "1"
        assert [join().id, join().id, join().id] == ["0", "2", "3"]

    def test_eight_at_once_get_eight(self, join: Join) -> None:
        """Also when it is one process that claims them all."""
        ids = [background(join, workers=8) for _ in range(8)]
        assert sorted(future.result(20).id for future in ids) == list("01234567")

    def test_eight_processes_at_once_get_eight(self, url: str, job: str) -> None:
        source = "import ssp_redis, sys; print(ssp_redis.join(sys.argv[1], job=sys.argv[2], workers=8, timeout=30).id)"
        children = [
            subprocess.Popen([sys.executable, "-c", source, url, job], stdout=subprocess.PIPE, text=True)
            for _ in range(8)
        ]
        assert sorted(child.communicate(timeout=60)[0].strip() for child in children) == list("01234567")
        assert all(child.returncode == 0 for child in children)

    def test_a_superseded_worker_of_this_process_does_not_give_its_heir_s_id_away(self, join: Join) -> None:
        old, new = join(0), join(0)
        old.leave()
        assert join().id == "1"
        assert new.advance() == 1

    def test_an_id_that_was_left_is_free(self, join: Join) -> None:
        join(0), join(1).leave()
        assert join().id == "1"

    def test_the_id_of_a_dead_process_on_this_host_is_free_at_once(
        self, join: Join, remote: Callable[..., Remote], url: str, job: str
    ) -> None:
        child = remote()
        child.join(url, job, lease=60.0)
        assert child.do("worker.id") == "0"
        assert join().id == "1"
        child.kill()
        assert join().id == "0"

    def test_names_are_ids_too(self, join: Join, url: str, job: str) -> None:
        join("gpu-a.1_x")
        join(10)
        join(9)
        assert members_of(url, job) == ["9", "10", "gpu-a.1_x"]


class TestTakeover:
    def test_a_live_id_is_taken_over_at_once(
        self, join: Join, remote: Callable[..., Remote], url: str, job: str
    ) -> None:
        """dmlc/ps-lite#72: a replacement is ignored until a timeout. A restarted pod must not wait for its lease."""
        old = join(0, lease=60.0)
        old.tick()
        old.tick()
        child = remote()
        begun = time.monotonic()
        child.join(url, job, worker=0)
        assert time.monotonic() - begun < 5
        assert child.do("worker.clock") == 2
        with pytest.raises(Superseded) as caught:
            old.tick(timeout=5)
        assert (caught.value.worker, caught.value.pid) == ("0", child.pid)
        assert caught.value.host == socket.gethostname()
        assert str(child.pid) in str(caught.value) and caught.value.host in str(caught.value)
        assert child.do("worker.tick()") == 3
        old.leave()
        assert members_of(url, job) == ["0"], "whom the old one takes with it is not itself"

    def test_is_noticed_while_waiting(self, together: Together, join: Join) -> None:
        fast, _ = together(2, staleness=0, recheck=0.3)
        ahead = background(fast.tick)
        assert blocked(ahead)
        again = background(join, 0)
        with pytest.raises(Superseded):
            ahead.result(3)
        assert blocked(again)

    def test_incarnations_only_grow(self, join: Join, url: str, job: str) -> None:
        seen = [join(i % 2).incarnation for i in range(6)]
        assert seen == sorted(set(seen))
        for worker in ("0", "1"):
            Job(url, job).evict(worker)
        Job(url, job).delete()
        assert join(0).incarnation > seen[-1]


class TestLease:
    def test_the_others_go_on_when_one_is_killed(
        self, join: Join, remote: Callable[..., Remote], url: str, job: str
    ) -> None:
        """apache/mxnet#9709: a node reboots, all others stall. PaddlePaddle/Paddle#7465, ICB-DCM/pyABC#38: the same."""
        child = remote()
        begin = background(child.join, url, job, worker=1, workers=2, staleness=0, lease=1.0)
        worker = join(0, workers=2, staleness=0, lease=1.0)
        begin.result(20)
        child.start("for _ in range(3): worker.tick()")
        for _ in range(3):
            worker.tick(timeout=5)
        child.result()
        child.kill()
        begun = time.monotonic()
        worker.tick(timeout=5)
        assert time.monotonic() - begun < 1.0 + 0.5
        assert worker.members == ["0"]
        [gone] = Job(url, job).status().departed
        assert (gone.worker, gone.clock, gone.why) == ("1", 3, "lost")
        # the restarted one rejoins under its id, where the others have got to
        again = remote()
        again.join(url, job, worker=1)
        assert again.do("worker.clock") == 4

    def test_one_that_was_only_frozen_is_told(
        self, join: Join, remote: Callable[..., Remote], url: str, job: str
    ) -> None:
        child = remote()
        begin = background(child.join, url, job, worker=1, workers=2, staleness=0, lease=0.6)
        worker = join(0, workers=2, staleness=0, lease=0.6)
        begin.result(20)
        child.signal(signal.SIGSTOP)
        worker.tick(timeout=5)
        child.signal(signal.SIGCONT)
        with pytest.raises(
            RemoteError, match=r"worker 1 is no longer a member .* lease of 0.6 s ran out; join again"
        ) as e:
            child.do("worker.tick(timeout=5)")
        assert e.value.name == "Evicted"
        assert members_of(url, job) == ["0"]
        child.join(url, job, worker=1)
        assert members_of(url, job) == ["0", "1"]

    def test_a_worker_that_only_computes_stays(self, join: Join, together: Together) -> None:
        """A heartbeat speaks for it, and for one that waits."""
        fast, slow = together(2, staleness=0, lease=0.4)
        ahead = background(fast.tick)
        assert blocked(ahead, 1.5)
        assert slow.members == ["0", "1"]
        slow.tick(timeout=5)
        ahead.result(5)

    def test_a_heartbeat_that_leads_nowhere_is_given_up_in_time(
        self, proxy: Proxy, join: Join, url: str, job: str
    ) -> None:
        worker = join(0, url=proxy.url, lease=4.0)
        first = eventually(lambda: proxy.pairs(role=HEARTBEAT))
        proxy.mute(role=HEARTBEAT)
        # whoever looks removes those whose lease has run out
        eventually(lambda: not members_of(url, job) or set(proxy.pairs(role=HEARTBEAT)) - set(first))
        assert members_of(url, job) == ["0"]
        assert worker.tick(timeout=5) == 1

    def test_an_onlooker_reaps(self, join: Join, remote: Callable[..., Remote], url: str, job: str) -> None:
        child = remote()
        child.join(url, job, worker=0, lease=0.3)
        child.kill()
        eventually(lambda: members_of(url, job) == [], seconds=1.5)

    def test_a_lease_that_was_renewed_does_not_say_that_its_holder_was_heard_of(
        self, together: Together, url: str, job: str, client: redis.Redis
    ) -> None:
        first, second = together(2, lease=30.0, recheck=0.05)
        first.advance()
        second.detach()
        long_ago(client, job, 60)
        with pytest.raises(WaitTimeout, match=r"worker 1 at clock 0, last seen 6\d.\d s ago"):
            first.wait(timeout=0.3)
        members = {member.worker: member for member in Job(url, job).status().members}
        assert members["0"].last_seen < 10
        assert 60 <= members["1"].last_seen < 90
        assert 0 < members["1"].expires_in <= 30


class TestEviction:
    def test_frees_the_others_and_tells_the_evicted(self, together: Together, url: str, job: str) -> None:
        fast, slow = together(2, staleness=0)
        ahead = background(fast.tick)
        assert blocked(ahead)
        with Job(url, job) as seen:
            assert seen.evict(1) is True
            assert ahead.result(1) == 1
            assert seen.evict("1") is False
            with pytest.raises(Evicted, match="it was evicted; join again") as caught:
                slow.tick(timeout=5)
            assert caught.value.worker == "1"
            with pytest.raises(Evicted):
                slow.wait()
            slow.leave()
            assert [(gone.worker, gone.why) for gone in seen.status().departed] == [("1", "evicted")]
            with pytest.raises(UsageError, match="has no worker 7"):
                seen.evict(7)

    def test_does_not_ban(self, together: Together, join: Join, url: str, job: str) -> None:
        together(2, staleness=0)
        Job(url, job).evict(1)
        assert join(1).members == ["0", "1"]

    def test_wakes_the_evicted_if_it_waits(self, together: Together, url: str, job: str) -> None:
        fast, _ = together(2, staleness=0, recheck=0.5)
        ahead = background(fast.tick)
        assert blocked(ahead)
        Job(url, job).evict(0)
        with pytest.raises(Evicted):
            ahead.result(3)


class TestLeaving:
    def test_frees_the_others(self, together: Together, url: str, job: str) -> None:
        """horovod/horovod#832, mila-iqia/platoon#24: unequal numbers of batches, and the others wait for ever."""
        fast, slow = together(2, staleness=0)
        ahead = background(fast.tick)
        assert blocked(ahead)
        begun = time.monotonic()
        slow.leave()
        assert ahead.result(5) == 1
        assert time.monotonic() - begun < 1.0

    def test_no_worker_is_special(self, together: Together, url: str, job: str) -> None:
        """apache/mxnet#2412: worker 0 ends and stops the service for all."""
        first, second, third = together(3, staleness=0)
        first.leave()
        for _ in range(3):
            ahead = background(second.tick)
            third.tick(timeout=5)
            ahead.result(5)
        assert second.min_clock == 3

    def test_is_idempotent_and_ends_the_use(self, join: Join, url: str, job: str) -> None:
        worker = join(0)
        worker.tick()
        for _ in range(3):
            worker.leave()
        for call in (worker.tick, worker.advance, worker.wait, worker.barrier, lambda: worker.members):
            with pytest.raises(SSPError, match="left its job: join again"):
                call()
        assert worker.clock == 1
        assert members_of(url, job) == []

    def test_two_can_leave_at_once(self, together: Together, url: str, job: str) -> None:
        for future in [background(worker.leave) for worker in together(4)]:
            future.result(5)
        assert [gone.why for gone in Job(url, job).status().departed] == ["left"] * 4

    def test_says_why(self, join: Join, url: str, job: str) -> None:
        join(0).leave("done")
        with join(1):
            pass
        with pytest.raises(ZeroDivisionError), join(2):
            raise ZeroDivisionError
        with join(3) as worker:
            list(worker.clocks(2))
        assert [gone.why for gone in Job(url, job).status().departed] == ["done", "left", "left", "done"]

    def test_is_quick_after_a_lost_server(self, own_server: Any) -> None:
        """dmlc/ps-lite#29, pytorch/pytorch#63247: hangs on exit."""
        worker = ssp_redis.join(own_server.url, job="j", worker=0)
        worker.tick()
        own_server.kill()
        begun = time.monotonic()
        worker.leave()
        worker.leave()
        assert time.monotonic() - begun < 4

    def test_works_in_a_signal_handler(self, remote: Callable[..., Remote], join: Join, url: str, job: str) -> None:
        child = remote()
        begin = background(child.join, url, job, worker=1, workers=2, staleness=0)
        join(0, workers=2, staleness=0)
        begin.result(20)
        child.do(
            """
def end(*_):
    worker.leave()
    raise SystemExit
signal.signal(signal.SIGTERM, end)
"""
        )
        child.start("worker.tick()")
        eventually(lambda: Job(url, job).status().members[-1].clock == 1)
        child.signal(signal.SIGTERM)
        with pytest.raises(RemoteError, match="SystemExit"):
            child.result(5)
        assert members_of(url, job) == ["0"]


class TestComingBack:
    def test_resumes_at_its_clock(self, together: Together, join: Join) -> None:
        fast, _ = together(2, staleness=5)
        for _ in range(3):
            fast.tick()
        fast.leave()
        assert join(0).clock == 3

    def test_or_at_the_floor_if_that_is_higher(self, together: Together, join: Join) -> None:
        """snuspl/cruise#748: an added worker starts at clock 0 and freezes everybody."""
        first, second = together(2, staleness=math.inf)
        second.tick()
        second.leave()
        for _ in range(5):
            first.tick()
        assert join(1).clock == 5
        assert join(2).clock == 5
        assert first.tick(timeout=1) == 6

    def test_the_floor_never_falls(self, join: Join, url: str, job: str) -> None:
        with join(0) as worker:
            list(worker.clocks(4))
        assert Job(url, job).status().min_clock == 4
        assert join("new").clock == 4

    def test_only_when_admitted(self, together: Together, join: Join) -> None:
        """† One that left far ahead must not read what it may not read yet."""
        fast, slow = together(2, staleness=3)
        for _ in range(3):
            fast.tick()
        fast.advance()
        fast.leave()
        again = background(join, 0)
        assert blocked(again, 0.2)
        slow.tick()
        assert again.result(5).clock == 4

    def test_what_is_done_is_done(self, join: Join, url: str, job: str) -> None:
        with join(0) as worker:
            assert len(list(worker.clocks(6))) == 6
        with join(0) as worker:
            assert list(worker.clocks(6)) == []
            assert worker.clock == 6
        with join(0) as worker:
            assert list(worker.clocks(8)) == [6, 7]


class TestRuns:
    def test_a_new_name_starts_from_zero_and_takes_the_old_keys_away(
        self, join: Join, client: redis.Redis, job: str, url: str
    ) -> None:
        import numpy as np

        with join(0, run="one") as worker:
            worker.table("w", np.ones(4)).inc(np.ones(4))
            list(worker.clocks(3))
        old = Job(url, job).status().run_id
        assert list(client.scan_iter(match=f"*{old}*"))
        with join(0, run="two", staleness=5, workers=1, lease=5.0) as worker:
            assert worker.clock == 0
            status = Job(url, job).status()
            assert (status.run, status.staleness, status.lease, status.tables) == ("two", 5, 5.0, [])
            assert worker.table("w", np.zeros(4)).get().tolist() == [0] * 4
        assert not list(client.scan_iter(match=f"*{old}*"))

    def test_a_name_is_used_once(self, join: Join) -> None:
        for run in ("one", "two"):
            join(0, run=run).leave()
        with pytest.raises(JobMismatch, match="run one was used before run two: choose another name"):
            join(0, run="one")
        join(0, run="two").leave()

    def test_does_not_begin_while_the_old_one_has_members(self, join: Join) -> None:
        join(0, run="one")
        with pytest.raises(JobMismatch, match="run two cannot begin while run one has members") as caught:
            join(1, run="two")
        assert (caught.value.field, caught.value.stored, caught.value.given) == ("run", "one", "two")
        assert join(1).members == ["0", "1"]

    def test_begins_as_soon_as_the_dead_are_gone(
        self, join: Join, remote: Callable[..., Remote], url: str, job: str
    ) -> None:
        child = remote()
        child.join(url, job, worker=0, run="one", lease=0.3)
        child.kill()

        def begin() -> Worker | None:
            try:
                return join(0, run="two")
            except JobMismatch:
                return None

        assert eventually(begin, seconds=2).clock == 0

    @pytest.mark.parametrize("act", ["join", "delete", "restore"])
    def test_members_that_died_long_ago_are_waited_for_once_more_and_not_refused(
        self, join: Join, url: str, job: str, client: redis.Redis, tmp_path: Path, act: str
    ) -> None:
        """Whoever looks first after a silence cannot tell whether they, or the server, were away."""
        with Job(url, job) as view:

            def call(timeout: float | None) -> object:
                if act == "join":
                    return join(0, run="two", timeout=timeout).clock == 0
                if act == "delete":
                    return view.delete(timeout=timeout)
                return view.restore(tmp_path / "s.npz", timeout=timeout)

            join(0, lease=1.5).detach()
            view.snapshot(tmp_path / "s.npz")
            long_ago(client, job, 60)
            with pytest.raises(WaitTimeout, match=r"worker 0 at clock 0, last seen 6\d.\d s ago: wait for that"):
                call(0.1)
            begun = time.monotonic()
            assert call(None if act != "join" else 20.0)
            assert time.monotonic() - begun < 10

    @pytest.mark.parametrize("reproducible", [False, True])
    def test_members_that_speak_after_a_silence_are_refused(
        self, join: Join, url: str, job: str, client: redis.Redis, reproducible: bool
    ) -> None:
        """In a reproducible run also those that do not: they are waited for until they return."""
        join(0, lease=60.0 if reproducible else 0.9, reproducible=reproducible)
        long_ago(client, job, 90)
        with pytest.raises(JobMismatch, match="run two cannot begin"):
            join(0, run="two")
        long_ago(client, job, 90)
        with pytest.raises(UsageError, match="has members"):
            Job(url, job).delete()
        assert members_of(url, job) == ["0"]

    def test_a_worker_of_the_old_run_is_refused(self, join: Join, url: str, job: str) -> None:
        old = join(0, run="one")
        Job(url, job).evict(0)
        new = join(0, run="two")
        with pytest.raises(SSPError) as caught:
            old.tick(timeout=5)
        assert isinstance(caught.value, StateLost | Superseded | Evicted)
        assert new.advance() == 1

    def test_two_begun_at_once_are_one(self, join: Join) -> None:
        join(0, run="one").leave()
        workers = [background(join, i, run="two", workers=4) for i in range(4)]
        assert {future.result(10).clock for future in workers} == {0}


class TestMismatch:
    @pytest.mark.parametrize(
        ("field", "stored", "given"), [("workers", "1", "3"), ("staleness", "2", "inf"), ("lease", "7.5", "3")]
    )
    def test_names_both_values(self, join: Join, field: str, stored: str, given: str) -> None:
        join(0, workers=1, staleness=2, lease=7.5)
        with pytest.raises(
            JobMismatch, match=f"created with {field} {stored}, not {given}: leave {field} out"
        ) as caught:
            join(1, **{field: float(given) if field != "workers" else int(given)})
        assert (caught.value.field, caught.value.stored, caught.value.given) == (field, stored, given)

    def test_what_is_left_out_is_adopted(self, join: Join, url: str, job: str) -> None:
        join(0, workers=1, staleness=2, lease=7.5)
        assert join(1).staleness == 2
        assert Job(url, job).status().lease == 7.5

    def test_another_schema_is_refused(self, join: Join, client: redis.Redis, job: str) -> None:
        join(0).leave()
        client.hset(f"ssp:{{{job}}}:config", "schema", "999")
        with pytest.raises(JobMismatch, match="schema 999, this is schema 1: use the same version"):
            join(0)


class TestAfterTheLast:
    def test_all_keys_expire_after_the_retention(self, join: Join, client: redis.Redis, job: str) -> None:
        import numpy as np

        for retain in (None, None):
            with join(0, retain=retain) as worker, join(1) as other:
                table = worker.table("w", np.zeros((300, 300)))
                other.table("w").inc(np.ones((300, 300)))
                table.inc(np.ones((300, 300)))
                for _ in range(3):
                    worker.advance(), other.advance()
                assert all(client.ttl(key) == -1 for key in client.scan_iter(match=f"ssp:{{{job}}}:*"))
            lives = {key: client.ttl(key) for key in client.scan_iter(match=f"ssp:{{{job}}}:*")}
            assert len(lives) > 8
            assert all(6 * 86400 < left <= 7 * 86400 for left in lives.values()), lives

    def test_the_parameters_stay_readable_until_then(self, join: Join, client: redis.Redis, url: str, job: str) -> None:
        import numpy as np

        with join(0, retain=1.0) as worker:
            worker.table("w", np.zeros(3)).inc(np.ones(3))
        assert Job(url, job).table("w").get().tolist() == [1, 1, 1]
        eventually(lambda: not client.keys(f"ssp:{{{job}}}:*"), seconds=3)

    @pytest.mark.parametrize("end", ["evicted", "lost"])
    def test_also_when_the_last_did_not_say_goodbye(
        self, remote: Callable[..., Remote], client: redis.Redis, url: str, job: str, end: str
    ) -> None:
        child = remote()
        child.join(url, job, worker=0, lease=0.4, retain=50.0)
        child.do("t = worker.table('w', np.zeros(3)); t.inc(np.ones(3)); worker.tick()")
        if end == "evicted":
            assert Job(url, job).evict(0)
        child.kill()
        eventually(lambda: members_of(url, job) == [])
        lives = {key: client.ttl(key) for key in client.scan_iter(match=f"ssp:{{{job}}}:*")}
        assert len(lives) > 8
        assert all(0 < left <= 50 for left in lives.values()), lives

    def test_delete_leaves_nothing(self, join: Join, client: redis.Redis, url: str, job: str) -> None:
        import numpy as np

        worker = join(0)
        worker.table("w", np.zeros(3)).inc(np.ones(3))
        worker.tick()
        with Job(url, job) as seen:
            with pytest.raises(UsageError, match=r"has members \(0\): stop it first, or force"):
                seen.delete()
            worker.leave()
            assert seen.delete() > 5
            assert client.keys(f"ssp:{{{job}}}:*") == []
            assert not seen.exists()
            assert seen.delete() == 0
            with pytest.raises(StateLost, match="there is no job"):
                seen.status()

    def test_forced_delete_is_state_lost_for_its_members(self, together: Together, url: str, job: str) -> None:
        first, second = together(2, staleness=0, recheck=0.3)
        waiting = background(first.tick)
        assert blocked(waiting)
        Job(url, job).delete(force=True)
        with pytest.raises(StateLost):
            waiting.result(3)
        with pytest.raises(StateLost):
            second.tick(timeout=5)


class TestProgress:
    """progress_timeout: a worker that beats but no longer ticks is evicted by whoever it blocks, and by nobody else."""

    def test_who_holds_the_min_is_evicted_by_the_blocked(self, together: Together, url: str, job: str) -> None:
        stuck, ahead = together(2, staleness=1, progress_timeout=0.3)
        stuck.tick()
        for _ in range(2):
            ahead.tick()
        begun = time.monotonic()
        ahead.tick(timeout=10)
        assert 0.3 <= time.monotonic() - begun < 5
        assert members_of(url, job) == ["1"]
        with pytest.raises(Evicted):
            stuck.tick()

    @pytest.mark.parametrize("staleness", [1, math.inf])
    def test_in_a_barrier_too(self, together: Together, url: str, job: str, staleness: float) -> None:
        _, ahead = together(2, staleness=staleness, progress_timeout=0.3)
        ahead.tick()
        ahead.barrier(timeout=10)
        assert members_of(url, job) == ["1"]

    def test_when_the_time_is_up_and_not_at_the_recheck_after_it(self, together: Together) -> None:
        _, ahead = together(2, progress_timeout=1.5, recheck=1.0)
        begun = time.monotonic()
        ahead.tick(timeout=10)
        assert 1.5 <= time.monotonic() - begun < 2.6

    @pytest.mark.parametrize("new", [0, 2])
    def test_who_has_just_come_has_a_time_of_its_own(
        self, together: Together, join: Join, client: redis.Redis, url: str, job: str, new: int
    ) -> None:
        """A newcomer enters at the min; so does the stuck one, restarted under its id."""
        stuck, ahead = together(2, progress_timeout=2.0)
        waiting = background(ahead.tick, 20)
        still = eventually(lambda: client.hget(f"ssp:{{{job}}}:config", "still"))
        worker = join(new)
        eventually(lambda: client.hget(f"ssp:{{{job}}}:config", "still") != still)
        assert members_of(url, job) == sorted({"1", str(new)})
        worker.tick(timeout=10)
        waiting.result(5)
        with pytest.raises(Superseded if new == 0 else Evicted):
            stuck.tick()

    def test_it_may_join_again(self, together: Together, join: Join) -> None:
        stuck, ahead = together(2, progress_timeout=0.2)
        ahead.tick(timeout=10)
        with pytest.raises(Evicted):
            stuck.tick()
        assert join(0).clock == ahead.clock

    def test_one_that_ticks_however_slowly_stays(self, together: Together, url: str, job: str) -> None:
        slow, ahead = together(2, progress_timeout=1.5)
        for _ in range(3):
            waiting = background(ahead.tick)
            assert blocked(waiting, 0.8)
            slow.tick()
            waiting.result(5)
        assert members_of(url, job) == ["0", "1"]

    def test_nobody_is_evicted_whom_nobody_waits_for(self, together: Together, url: str, job: str) -> None:
        """A long step of all hurts nobody."""
        workers = together(3, staleness=2, lease=0.6, progress_timeout=0.05)
        for worker in workers:
            worker.tick()
        workers[0].tick()
        Job(url, job).status()
        # several heartbeats of each
        before = [Job(url, job).status().members[i].last_seen for i in range(3)]
        eventually(lambda: [m.last_seen for m in Job(url, job).status().members] != before)
        assert members_of(url, job) == ["0", "1", "2"]

    def test_off_unless_asked_for(self, together: Together) -> None:
        _, ahead = together(2)
        waiting = background(ahead.tick)
        assert blocked(waiting, 3)

    def test_a_reproducible_run_waits(self, together: Together) -> None:
        _, ahead = together(2, reproducible=True, progress_timeout=0.05)
        waiting = background(ahead.tick)
        assert blocked(waiting, 1)


def test_jobs_do_not_see_each_other(join: Join, new_job: Callable[[], str], url: str) -> None:
    first, second = join(0, job=new_job()), join(0, job=new_job(), staleness=3)
    first.tick()
    assert (second.clock, second.members) == (0, ["0"])
    assert {first.job, second.job} <= set(ssp_redis.list_jobs(url))


def test_a_forked_child_must_join_by_itself(remote: Callable[..., Remote], url: str, job: str) -> None:
    """redis-py: a forked child's ``get_message()`` steals its parent's message."""
    child = remote()
    child.join(url, job, worker=0)
    said = child.do(
        """
reader, writer = os.pipe()
import warnings
warnings.simplefilter("ignore")
pid = os.fork()
if not pid:
    try:
        worker.tick()
    except ssp_redis.SSPError as error:
        os.write(writer, str(error).encode())
    worker.leave()
    os._exit(0)
os.waitpid(pid, 0)
os.read(reader, 1000).decode(), pid
"""
    )
    assert f"this worker belongs to process {child.pid}: process {said[1]} must join by itself" in said[0]
    assert child.do("worker.tick(), worker.members") == (1, ["0"])


def test_callbacks_hear_of_members(join: Join, url: str, job: str) -> None:
    worker = join(0)
    heard: list[list[str]] = []
    worker.on_members(heard.append)
    join(1, staleness=0)
    worker.advance()
    assert heard[-1] == ["0", "1"]
    Job(url, job).evict(1)
    worker.tick(timeout=5)
    assert heard[-1] == ["0"]
    assert os.getpid() == Job(url, job).status().members[0].pid


def test_leave_leaves_whatever_committing_raises(join: Callable[..., Worker], url: str, job: str) -> None:
    """An error of the program's own, here in what it wants to be called for, keeps no membership and no heartbeat."""
    worker = join(0, staleness=3)
    table = worker.table("w", np.zeros(3))
    worker.on_members(lambda members: 1 / 0)
    join(1)
    table.inc(np.ones(3))
    with pytest.raises(ZeroDivisionError):
        worker.leave()
    assert [member.worker for member in Job(url, job).status().members] == ["1"]
    beat = worker._clock._heartbeat
    assert beat is not None
    eventually(lambda: not beat.is_alive())
    worker.leave()  # there is nothing left to do
    with pytest.raises(SSPError, match="has left"):
        worker.tick()


@pytest.mark.parametrize("added", [False, True])
def test_a_refused_tick_has_not_happened(join: Callable[..., Worker], url: str, job: str, added: bool) -> None:
    worker = join(0, staleness=3)
    table = worker.table("w", np.zeros(3))
    worker.tick(timeout=5)
    Job(url, job).evict("0")
    if added:
        table.inc(np.ones(3))
    for _ in range(2):
        with pytest.raises(Evicted):
            worker.tick(timeout=5)
        assert worker.clock == worker.stats()["clock"] == 1


def test_who_waits_for_the_quorum_says_how_many_are_there(url: str, job: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(WaitTimeout):
        ssp_redis.join(url, job=job, workers=3, recheck=0.05, timeout=1)
    assert caplog.text.count(f"job {job} has not begun: 1 of 3 workers have joined") == 1
