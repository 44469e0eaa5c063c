"""The rights that are documented are enough, none is too many, and the one that is missing is named."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import Cluster
from crews import Crew
from nodes import Node
from remote import Remote

import ssp_redis
from ssp_redis import Job, ServerRefused
from ssp_redis.connection import RIGHTS

_RULE = RIGHTS.split()
_GRANTED = [word for word in _RULE if not word.startswith("-")]
_README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def server(server_binary: str) -> Iterator[Node]:
    with Node(server_binary) as node:
        yield node


def user(node: Node, *rules: str) -> str:
    """Make a user with these rights alone; its URL."""
    node.do("ACL", "SETUSER", "bob", "reset", "on", ">hush", "-@all", *rules)
    return node.url.replace("://", "://bob:hush@")


def job(url: str) -> None:
    """All that a job does: joins, pushes small and large, waits, folds, leaves; is looked at, steered and deleted."""
    with ssp_redis.join(url, job="j", worker=0, workers=1, reconnect_timeout=2.0) as worker:
        tables = [worker.table(f"t{size}", np.zeros(size)) for size in (3, 200, 40_000)]
        sparse = worker.sparse_table("sparse", (1000, 4))
        for clock in range(69, -1, -1):
            for table in tables[: clock % 3 + 1]:  # tags, small values, large values
                table.inc(np.ones(table.shape))
                table.get()
            if clock % 3 == 2:
                sparse.inc(np.ones((1, 4)), rows=[3])
                sparse.get([3])
            worker.tick(timeout=10)
        worker.barrier(timeout=10)
    with Job(url, "j", timeout=2.0) as seen:
        assert seen.status().departed[0].clock == 70
        assert seen.table("t40000").get().max() == 23
        assert "j" in ssp_redis.list_jobs(url)
        seen.set_staleness(2)
        seen.stop()
        seen.delete()


def test_it_is_what_stands_in_the_readme() -> None:
    assert f"`{RIGHTS}`" in " ".join(_README.read_text().split())


def test_it_is_enough(server: Node, remote: Callable[..., Remote], tmp_path: Path) -> None:
    url = user(server, *_RULE)
    job(url)
    crew = Crew(remote, url, "crew", count=3, tables=["large", "small"])
    crew.advance()
    crew.seen.snapshot(tmp_path / "crew.npz")
    crew.children[0].kill()
    assert crew.seen.evict(0)
    crew.children = crew.children[1:]
    crew.seen.stop()
    for child in crew.children:
        child.result()
    crew.seen.restore(tmp_path / "crew.npz")
    crew.seen.delete(force=True)


@pytest.mark.parametrize("missing", [word for word in _GRANTED if word != "+info"])
def test_what_is_missing_is_named_until_it_is_there(
    server: Node, missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = user(server, *(word for word in _RULE if word != missing))
    server.do("SCRIPT", "FLUSH")
    given: list[str] = []
    while True:
        if missing not in ("+time", "+publish"):
            server.do("FLUSHALL")  # a script that was ended in its middle leaves what it wrote
        caplog.clear()
        try:
            job(url)
            break
        except IndexError:
            text = caplog.records[0].getMessage()  # a worker whose leave is refused says so and ends
        except ServerRefused as error:
            text = str(error)
        assert f"a user for ssp-redis needs: {RIGHTS}" in text
        assert "hush" not in text
        found = re.search(r"ACL SETUSER USER ((?:[+~&]\S+ ?)+);", text)
        assert found, text
        rights = found[1].split()
        assert not set(rights) <= set(given), f"{rights} are there: {text}"
        given += rights
        server.do("ACL", "SETUSER", "bob", *rights)  # as it says
    assert given, f"{missing} is not needed"
    if "@" not in missing:
        assert given == [missing]


def test_a_join_that_may_not_ask_for_the_time_leaves_nothing_half_made(server: Node) -> None:
    with pytest.raises(ServerRefused, match=r"lacks \+time"):
        job(user(server, *(word for word in _RULE if word != "+time")))
    assert server.do("DBSIZE") == 0


def test_without_info_check_says_so(server: Node, ssp: Callable[..., Any]) -> None:
    url = user(server, *(word for word in _RULE if word != "+info"))
    job(url)
    found = ssp("check", "--url", url, "--json").findings
    assert found["info"]["level"] == "warn"
    assert found["info"]["advice"] == f"let this user see it: it lacks +info; ACL SETUSER bob {RIGHTS}"


def test_a_database_needs_one_more(server: Node) -> None:
    url = user(server, *_RULE)
    with pytest.raises(ServerRefused, match=r"lacks \+select"):
        job(url + "/1")
    server.do("ACL", "SETUSER", "bob", "+select")
    job(url + "/1")


def test_a_cluster_needs_one_more(cluster: Cluster) -> None:
    cluster.settle()
    for node in cluster.nodes:
        user(node, *_RULE)
    url = cluster.url.replace("://", "://bob:hush@")
    with pytest.raises(ServerRefused, match=r"on a cluster it needs that too: ACL SETUSER USER \+cluster\|slots"):
        job(url)
    for node in cluster.nodes:
        node.do("ACL", "SETUSER", "bob", "+cluster|slots")
    job(url)
