"""Jobs on a cluster: each on the node that its tag says, also when that is another one a moment later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from clusters import Cluster, slot_of
from crews import TABLES, Crew
from fixtures import background, blocked
from remote import Remote, eventually

import ssp_redis
from ssp_redis import Job, ServerRefused, ServerUnavailable, UsageError

Processes = Callable[..., Remote]


@pytest.fixture(autouse=True)
def whole(cluster: Cluster) -> None:
    cluster.settle()


def test_several_jobs_live_on_different_nodes(cluster: Cluster, remote: Processes) -> None:
    jobs = [cluster.job_on(node, f"several-{i}-") for i, node in enumerate(cluster.masters)]
    crews = [Crew(remote, cluster.url, job, count=2, staleness=staleness) for staleness, job in enumerate(jobs)]
    for crew in crews:
        crew.advance()
    for node, job in zip(cluster.masters, jobs, strict=True):
        # a client's name tells where its connections are: commands, ear and heartbeat
        names = node.do("CLIENT", "LIST").decode()
        assert f"name=ssp-redis:{job} " in names
        assert not any(f"name=ssp-redis:{other} " in names for other in jobs if other != job)
    assert set(jobs) <= set(ssp_redis.list_jobs(cluster.url))
    for crew in crews:
        _, losses = crew.check()
        assert losses == []
    assert not set(jobs) & set(ssp_redis.list_jobs(cluster.url))


def test_a_waiting_worker_is_woken_by_the_node_that_it_is_on(cluster: Cluster, remote: Processes) -> None:
    for number, node in enumerate(cluster.masters):
        job = cluster.job_on(node, f"wake-{number}-")
        children = [remote(), remote()]
        for i, child in enumerate(children):
            # a re-check would come much later than the time that is given
            settings = {"workers": 2, "recheck": 60.0, "lease": 120.0, "timeout": 30.0}
            child.start(
                "worker = ssp_redis.join(url, job=job, worker=i, **settings)",
                url=cluster.url,
                job=job,
                i=i,
                settings=settings,
            )
        for child in children:
            child.result()
        waiter, other = children
        waiter.start("worker.tick(timeout=20)")
        channel = f"ssp:{{{job}}}:min"
        eventually(lambda n=node, c=channel: n.do("PUBSUB", "NUMSUB", c)[1] >= 1)
        with Job(cluster.url, job) as seen:
            eventually(lambda s=seen: s.status().members[0].clock == 1)
        other.do("worker.tick(timeout=20)")
        assert waiter.result() == 1


def test_a_failover_of_its_node_does_not_end_a_job(cluster: Cluster, remote: Processes) -> None:
    old, elsewhere = cluster.masters[0], cluster.masters[1]
    crews = [
        Crew(remote, cluster.url, cluster.job_on(old, "failing-"), count=3),
        Crew(remote, cluster.url, cluster.job_on(elsewhere, "beside-")),
    ]
    for crew in crews:
        crew.advance()
    old.kill()
    new = cluster.failed_over(old, crews[0].job)
    for crew in crews:
        crew.advance()
    cluster.settle()  # the old one is back, as a replica
    assert cluster.owner(crews[0].job) is new
    crews[0].advance()
    crews[0].check()
    assert crews[1].check()[1] == []


@pytest.mark.parametrize("table", TABLES)
def test_what_was_acknowledged_and_not_replicated_is_named(cluster: Cluster, remote: Processes, table: str) -> None:
    crew = Crew(remote, cluster.url, f"losing-{table}", tables=[table])
    crew.advance()
    old = cluster.owner(crew.job)
    replica = cluster.replica(old)
    old.do("ACL", "SETUSER", "default", "-psync", "-sync")
    old.do("CLIENT", "KILL", "TYPE", "replica")
    eventually(lambda: replica.told("replication")["master_link_status"] == "down", "replication is cut", 30)
    crew.advance(40)  # acknowledged, and on the master alone
    reached = min(crew.clocks())
    old.kill()
    assert cluster.failed_over(old, crew.job) is replica
    eventually(lambda: min(crew.clocks(), default=0) > reached, "clocks beyond those that were lost", 60)
    _, losses = crew.check()
    lost = {loss.worker: loss for loss in losses if not loss.repushed}
    assert set(lost) == {"0", "1"}
    assert all(loss.last - loss.first + 1 >= 30 for loss in lost.values())


def test_a_failover_by_hand_loses_nothing(cluster: Cluster, remote: Processes) -> None:
    crew = Crew(remote, cluster.url, "by-hand")
    crew.advance()
    old = cluster.owner(crew.job)
    cluster.replica(old).do("CLUSTER", "FAILOVER")
    new = cluster.failed_over(old, crew.job)
    crew.advance()
    assert new.do("EXISTS", f"ssp:{{{crew.job}}}:config") == 1
    assert crew.check()[1] == []


def test_a_slot_moves_under_a_running_job(cluster: Cluster, remote: Processes) -> None:
    crew = Crew(remote, cluster.url, "moving", count=3)
    crew.advance()
    source = cluster.owner(crew.job)
    target = next(node for node in cluster.masters if node is not source)
    before = source.errors("TRYAGAIN") + source.errors("ASK")
    cluster.begin_migration(crew.job, target)
    cluster.migrate_keys(crew.job, source, target, most=5)
    # the job meets a slot that is open on both sides, and waits for the end of it
    eventually(lambda: source.errors("TRYAGAIN") + source.errors("ASK") > before + 10)
    cluster.end_migration(crew.job, source, target)
    assert cluster.owner(crew.job) is target
    crew.advance()
    assert source.errors("MOVED") > 0
    _, losses = crew.check()
    assert losses == []


def test_it_moves_there_and_back_many_times(cluster: Cluster, remote: Processes) -> None:
    crew = Crew(remote, cluster.url, "to-and-fro")
    crew.advance()
    for _ in range(6):
        source = cluster.owner(crew.job)
        target = next(node for node in cluster.masters if node is not source)
        cluster.begin_migration(crew.job, target)
        while cluster.migrate_keys(crew.job, source, target, most=2):
            pass
        cluster.end_migration(crew.job, source, target)
        crew.advance(5)
    assert crew.check()[1] == []


def test_small_tables_of_many_members_are_not_said_to_all_nodes(cluster: Cluster) -> None:
    """A cluster sends what is published to each of them: the owner publishes a base instead."""
    cluster.settle()
    clocks = 30

    def run(number: int) -> bool:
        with ssp_redis.join(cluster.url, job="six", worker=number, workers=6, staleness=0, timeout=30) as worker:
            small, middle = (worker.table(name, np.zeros(size)) for name, size in (("s", 500), ("m", 20_000)))
            for clock in worker.clocks(clocks):
                for table in (small, middle):
                    assert (table.get() == 6 * clock).all()
                    table.inc(np.ones(table.shape))
            return worker._store.folder.sums._ear is None  # nor did it say anything

    assert all(future.result(60) for future in [background(run, number) for number in range(6)])


def test_a_migration_that_does_not_end_is_named(cluster: Cluster) -> None:
    with ssp_redis.join(cluster.url, job="stuck", worker=0, reconnect_timeout=0.5) as worker:
        table = worker.table("w", np.zeros(3))
        table.inc(np.ones(3))
        worker.tick()
        source = cluster.owner("stuck")
        target = next(node for node in cluster.masters if node is not source)
        cluster.begin_migration("stuck", target)
        table.inc(np.ones(3))
        with pytest.raises(ServerRefused, match="on its way to another node"):
            worker.tick()
        cluster.end_migration("stuck", source, target)
        assert worker.tick() == 2
        assert set(table.get()) == {2.0}


def test_a_job_that_is_deleted_while_its_slot_moves_leaves_nothing(cluster: Cluster) -> None:
    worker = ssp_redis.join(cluster.url, job="moved-away", worker=0, lease=30.0)
    table = worker.table("w", np.zeros(300_000))
    for _ in range(6):
        table.inc(np.ones(300_000))
        worker.tick()
    worker.detach()
    source = cluster.owner("moved-away")
    target = next(node for node in cluster.masters if node is not source)
    cluster.begin_migration("moved-away", target)
    cluster.migrate_keys("moved-away", source, target, most=3)
    before = source.errors("TRYAGAIN") + source.errors("ASK")
    deleting = background(Job(cluster.url, "moved-away", timeout=30.0).delete, force=True)
    eventually(lambda: source.errors("TRYAGAIN") + source.errors("ASK") > before)
    assert blocked(deleting)
    cluster.end_migration("moved-away", source, target)
    deleting.result(30)
    for node in (source, target):
        assert node.do("CLUSTER", "COUNTKEYSINSLOT", slot_of("moved-away")) == 0


class TestUrls:
    def test_a_node_that_is_gone_is_passed_over(self, cluster: Cluster) -> None:
        dead = Job("redis+cluster://127.0.0.1:1", "j", timeout=0.2)
        with pytest.raises(ServerUnavailable):
            dead.exists()
        url = cluster.url.replace("://", "://127.0.0.1:1,")
        with ssp_redis.join(url, job="passed-over", worker=0) as worker:
            assert worker.tick() == 1

    def test_a_plain_url_of_the_wrong_node_says_what_to_give(self, cluster: Cluster) -> None:
        job = cluster.job_on(cluster.masters[0], "plain-")
        with pytest.raises(ServerRefused, match=r"node of a cluster: give redis\+cluster://"):
            ssp_redis.join(cluster.masters[1].url, job=job, worker=0)

    def test_a_server_that_is_no_cluster_says_what_to_give(self, own_server: Any, new_server: Any) -> None:
        url = new_server(tcp=True).url.replace("redis", "redis+cluster")
        with pytest.raises(ServerRefused, match="no cluster: give redis://"):
            ssp_redis.join(url, job="j", worker=0)

    @pytest.mark.parametrize("url", ["redis+cluster://h:1/3", "redis+cluster://", "redis+cluster://h:x"])
    def test_what_is_not_such_a_url_is_refused(self, url: str) -> None:
        with pytest.raises(UsageError):
            Job(url, "j")


def test_bench_wants_one_server(cluster: Cluster, ssp: Callable[..., Any]) -> None:
    assert "bench measures one server" in ssp("bench", "--url", cluster.url, code=2).err
