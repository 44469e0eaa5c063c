"""A job behind Sentinels: workers find the master, also the next one, and what a failover lost is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from crews import TABLES, Crew
from remote import Remote, eventually
from sentinels import SERVICE, Watched

import ssp_redis
from ssp_redis import Job, RolledBack, ServerRefused, ServerUnavailable, UsageError

Processes = Callable[..., Remote]


class TestFailover:
    def test_a_killed_master_is_replaced_while_the_job_runs(self, watched: Watched, remote: Processes) -> None:
        crew = Crew(remote, watched.url, "j", count=3)
        crew.advance()
        old = watched.master
        old.kill()
        new = watched.failed_over(old)
        crew.advance()
        assert new.do("EXISTS", "ssp:{j}:config") == 1
        crew.check()

    @pytest.mark.parametrize("table", TABLES)
    def test_what_was_acknowledged_and_not_replicated_is_named(
        self, watched: Watched, remote: Processes, table: str
    ) -> None:
        crew = Crew(remote, watched.url, "j", tables=[table])
        crew.advance()
        old = watched.master
        cut_replication(watched)
        crew.advance(40)  # acknowledged, and on the master alone
        reached = min(crew.clocks())
        old.kill()
        watched.failed_over(old)
        eventually(lambda: min(crew.clocks(), default=0) > reached, "clocks beyond those that were lost", 60)
        clocks, losses = crew.check()
        assert min(clocks) > reached
        lost = {loss.worker: loss for loss in losses if not loss.repushed}
        assert set(lost) == {"0", "1"}
        assert all(loss.last - loss.first + 1 >= 30 for loss in lost.values())

    def test_a_strict_worker_raises_what_was_lost(self, watched: Watched) -> None:
        with ssp_redis.join(watched.url, job="j", worker=0, strict=True) as worker:
            table = worker.table("w", np.zeros(20_000))
            for _ in range(5):
                table.inc(np.ones(20_000))
                worker.tick()
            replicated(watched)
            old = watched.master
            cut_replication(watched)
            for _ in range(5):
                table.inc(np.ones(20_000))
                worker.tick()
            old.kill()
            with pytest.raises(RolledBack) as caught:
                worker.tick()
            assert [loss.worker for loss in caught.value.lost] == ["0"] * len(caught.value.lost)
            lost = [clock for loss in caught.value.lost for clock in range(loss.first, loss.last + 1)]
            assert lost == [5, 6, 7, 8, 9]
            gone = sum(loss.last - loss.first + 1 for loss in caught.value.lost if not loss.repushed)
            worker.tick()
            assert set(table.get()) == {10.0 - gone}

    def test_a_frozen_master_is_left_behind_and_comes_back_as_a_replica(
        self, watched: Watched, remote: Processes
    ) -> None:
        crew = Crew(remote, watched.url + "?socket_timeout=1", "j")
        crew.advance()
        old = watched.master
        old.freeze()
        watched.failed_over(old)
        crew.advance()
        old.thaw()
        eventually(lambda: watched.link(old) == "up", "the old master is a replica", 60)
        crew.advance()
        crew.check()

    def test_a_failover_by_hand_loses_nothing(self, watched: Watched, remote: Processes) -> None:
        crew = Crew(remote, watched.url, "j")
        crew.advance()
        old = watched.master
        eventually(lambda: ordered(watched), "a failover begins", 60)
        watched.failed_over(old)
        crew.advance()
        crew.check()

    def test_a_waiting_worker_wakes_on_the_new_master(self, watched: Watched, remote: Processes) -> None:
        waiter, other = remote(), remote()
        for i, child in enumerate((waiter, other)):
            child.start("worker = ssp_redis.join(url, job='j', worker=i, workers=2, timeout=30)", url=watched.url, i=i)
        for child in (waiter, other):
            child.result()
        waiter.start("worker.tick(timeout=60)")
        eventually(lambda: status(watched, "0") == 1)
        old = watched.master
        old.kill()
        watched.failed_over(old)
        other.do("worker.tick(timeout=60)", 60)
        assert waiter.result(60) == 1


class TestUrls:
    def test_sentinels_that_are_gone_are_passed_over(self, watched: Watched) -> None:
        watched.sentinels[0].stop()
        with ssp_redis.join(watched.url, job="j", worker=0) as worker:
            assert worker.tick() == 1
        watched.sentinels[1].stop()
        watched.sentinels[2].stop()
        with pytest.raises(ServerUnavailable, match="no Sentinel answers"):
            ssp_redis.join(watched.url, job="j", worker=0, reconnect_timeout=0.2)

    def test_a_name_that_they_do_not_know_is_refused_at_once(self, watched: Watched) -> None:
        with pytest.raises(ServerRefused, match=f"know no master other, but: {SERVICE}"):
            ssp_redis.join(watched.url.replace(SERVICE, "other"), job="j", worker=0)

    def test_a_database_and_options(self, watched: Watched) -> None:
        with ssp_redis.join(watched.url + "/3?socket_timeout=2", job="j", worker=0) as worker:
            worker.tick()
        assert watched.master.do("EXISTS", "ssp:{j}:config") == 0
        assert ssp_redis.list_jobs(watched.url + "/3") == ["j"]
        assert ssp_redis.list_jobs(watched.url) == []

    def test_passwords_of_servers_and_of_sentinels(self, server_binary: str) -> None:
        with Watched(server_binary, password="pa:ss", sentinel_password="sesame") as watched:
            url = watched.url.replace("pa:ss", "pa%3Ass")
            with ssp_redis.join(url + "?sentinel_password=sesame", job="j", worker=0) as worker:
                worker.tick()
            for wrong in (url, url + "?sentinel_password=hush"):
                with pytest.raises(ServerRefused, match="Sentinel.*password") as caught:
                    ssp_redis.join(wrong, job="j", worker=0)
                assert "hush" not in str(caught.value)
            with pytest.raises(ServerRefused, match="password") as caught:
                ssp_redis.join(url.replace("pa%3Ass", "hush") + "?sentinel_password=sesame", job="j", worker=0)
            assert "hush" not in str(caught.value) and "sesame" not in str(caught.value)

    @pytest.mark.parametrize(
        "url",
        [
            "redis+sentinel://localhost:26379",
            "redis+sentinel://localhost:26379/",
            "redis+sentinel://localhost:26379/m/x",
            "redis+sentinel://localhost:26379/m?sentinel_port=1",
            "redis+sentinel://localhost:port/m",
            "redis+sentinel://,/m",
            "redis+sentinels://localhost/m",
        ],
    )
    def test_what_is_not_such_a_url_is_refused(self, url: str) -> None:
        with pytest.raises(UsageError, match="server's URL"):
            Job(url, "j")


def ordered(watched: Watched) -> bool:
    """Tell the Sentinels to fail over; they may not be ready to."""
    try:
        return bool(watched.ask_sentinel("SENTINEL", "FAILOVER", SERVICE) == b"OK")
    except Exception:
        return False


def status(watched: Watched, worker: str) -> int:
    with Job(watched.url, "j") as seen:
        return next(member.clock for member in seen.status().members if member.worker == worker)


def replicated(watched: Watched) -> None:
    """Wait until the replicas have all that the master has now: what Sentinels say there goes on to be replicated."""
    master = watched.master
    wanted = int(master.told("replication")["master_repl_offset"])

    def all_of_it() -> bool:
        told = master.told("replication")
        offsets = [told[f"slave{i}"].split("offset=")[1].split(",")[0] for i in range(2)]
        return all(int(offset) >= wanted for offset in offsets)

    eventually(all_of_it, "replicas that have everything", 30)


def cut_replication(watched: Watched) -> None:
    """The replicas lose their master and are not let in again."""
    master = watched.master
    master.do("ACL", "SETUSER", "default", "-psync", "-sync")
    master.do("CLIENT", "KILL", "TYPE", "replica")
    replicas: list[Any] = [node for node in watched.nodes if node is not master]
    eventually(lambda: all(watched.link(node) == "down" for node in replicas), "replication is cut", 30)
