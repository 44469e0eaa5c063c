"""Servers, Sentinels and nodes of a cluster that never answer: deadlines and leases hold."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest
from clusters import Cluster
from remote import eventually
from sentinels import Watched

import ssp_redis
from ssp_redis import Job, ServerUnavailable

#: What comes to a timeout: the grace that it leaves a server, and what a busy machine takes.
LATE = 1.0 + 1.5


@pytest.fixture
def silent() -> Iterator[list[str]]:
    """Three places where whoever connects hears nothing."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    yield [f"127.0.0.1:{listener.getsockname()[1]}" for listener in listeners]
    for listener in listeners:
        listener.close()


@pytest.mark.parametrize("form", ["redis://{0}", "redis+sentinel://{0},{1},{2}/m", "redis+cluster://{0},{1},{2}"])
@pytest.mark.parametrize(
    "call",
    [
        lambda url: ssp_redis.join(url, job="j", timeout=0.5),
        lambda url: Job(url, "j", timeout=0.5).status(),
    ],
    ids=["join", "status"],
)
def test_a_timeout_holds_where_nobody_answers(silent: list[str], form: str, call: Callable[[str], object]) -> None:
    begun = time.monotonic()
    with pytest.raises(ServerUnavailable):
        call(form.format(*silent))
    assert time.monotonic() - begun < 0.5 + LATE


def test_nodes_that_do_not_answer_are_passed_over_in_time(silent: list[str], cluster: Cluster) -> None:
    url = cluster.url.replace("://", f"://{silent[0]},{silent[1]},")
    with ssp_redis.join(url, job="silent", worker=0, timeout=2) as worker:
        assert worker.tick(timeout=2) == 1


class TestFrozenSentinels:
    def test_the_one_that_answers_is_found_in_time_and_at_once_the_next_time(self, watched: Watched) -> None:
        for sentinel in watched.sentinels[:2]:
            sentinel.freeze()
        with ssp_redis.join(watched.url, job="j", worker=0, timeout=2) as worker:
            watched.master.do("CLIENT", "KILL", "TYPE", "normal")
            begun = time.monotonic()
            assert worker.tick(timeout=2) == 1
            assert time.monotonic() - begun < 0.9

    def test_a_worker_that_computes_stays_when_its_connections_are_cut(self, watched: Watched) -> None:
        master = watched.master
        seen = Job(master.url, "j")
        with ssp_redis.join(watched.url, job="j", worker=0, lease=4.0) as worker:
            # it has asked the first until now
            for sentinel in watched.sentinels[:2]:
                sentinel.freeze()
            master.do("CLIENT", "KILL", "TYPE", "normal")
            # whoever looks removes those whose lease has run out
            eventually(lambda: not seen.status().members or b":heartbeat" in master.do("CLIENT", "LIST"))
            assert [member.worker for member in seen.status().members] == ["0"]
            assert worker.tick() == 1
