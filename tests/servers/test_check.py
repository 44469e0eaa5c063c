"""``ssp-redis check`` against servers that are set up wrong: each setting is named, with what to set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from clusters import Cluster
from commands import Run
from nodes import Node, free_port
from remote import eventually
from sentinels import Watched

from ssp_redis.cli import settings
from ssp_redis.connection import RIGHTS


@pytest.fixture
def node(server_binary: str) -> Iterator[Node]:
    with Node(server_binary) as node:
        yield node


@pytest.mark.parametrize(
    ("setting", "name", "level", "advice"),
    [
        ("maxmemory-policy allkeys-lru", "eviction", "unfit", "CONFIG SET maxmemory-policy noeviction"),
        ("maxmemory-policy volatile-lru", "eviction", "warn", "CONFIG SET maxmemory-policy noeviction"),
        ("appendonly no", "persistence", "warn", "CONFIG SET appendonly yes"),
        ("appendonly yes", "persistence", "ok", ""),
        ("maxmemory 500kb", "memory", "unfit", "raise maxmemory"),
        ("timeout 5", "timeout", "warn", "CONFIG SET timeout 0"),
        ("timeout 0", "timeout", "ok", ""),
        (
            "client-output-buffer-limit pubsub 1kb 0 0",
            "output buffer, pubsub",
            "unfit",
            "CONFIG SET client-output-buffer-limit 'pubsub 32mb 8mb 60'",
        ),
        (
            "client-output-buffer-limit pubsub 32mb 100kb 60",
            "output buffer, pubsub",
            "warn",
            "CONFIG SET client-output-buffer-limit 'pubsub 32mb 8mb 60'",
        ),
        ("client-output-buffer-limit pubsub 0 0 0", "output buffer, pubsub", "ok", ""),
        (
            "client-output-buffer-limit normal 1mb 0 0",
            "output buffer, normal",
            "warn",
            "CONFIG SET client-output-buffer-limit 'normal 0 0 0'",
        ),
        ("min-replicas-to-write 1", "keys", "unfit", ""),
    ],
)
def test_each_setting_is_named_with_what_to_set(
    node: Node, ssp: Run, server_binary: str, setting: str, name: str, level: str, advice: str
) -> None:
    node.do("CONFIG", "SET", *setting.split(" ", 1))
    done = ssp("check", "--url", node.url, "--json", code=1 if level == "unfit" else 0)
    finding = done.findings[name]
    assert (finding["level"], advice in finding["advice"]) == (level, True), finding
    assert bool(advice) == bool(finding["advice"])
    if level == "unfit":
        assert "is not fit" in done.err and name in done.err
    if advice.startswith("CONFIG SET"):
        # what it says can be said as it stands, and written as it stands
        words = advice.replace("'", "").split(" ", 3)
        line = " ".join(words[2:])
        assert finding["advice"].endswith(f", and in redis.conf the line: {line}")
        with Node(server_binary, f"--{line}".split()) as other:
            assert ssp("check", "--url", other.url, "--json", code=None).findings.get(name, {}).get("level") != level
        node.do(*words)
        assert ssp("check", "--url", node.url, "--json", code=None).findings.get(name, {}).get("level") != level


def test_a_replica_is_unfit_also_when_it_can_be_written_to(node: Node, server_binary: str, ssp: Run) -> None:
    with Node(server_binary) as replica:
        replica.do("REPLICAOF", "127.0.0.1", node.port)
        for read_only in ("yes", "no"):
            replica.do("CONFIG", "SET", "replica-read-only", read_only)
            finding = ssp("check", "--url", replica.url, "--json", code=1).findings["role"]
            assert finding["level"] == "unfit"
            assert f"127.0.0.1:{node.port}" in finding["advice"]


def test_another_protocol_is_not_spoken(node: Node, ssp: Run) -> None:
    finding = ssp("check", "--url", node.url + "?protocol=3", "--json").findings["protocol"]
    assert finding["level"] == "warn" and "leave protocol= out" in finding["advice"]


def test_what_a_user_may_not_see_is_said(node: Node, ssp: Run) -> None:
    node.do("ACL", "SETUSER", "bob", "on", ">hush", *RIGHTS.split())
    url = node.url.replace("://", "://bob:hush@")
    finding = ssp("check", "--url", url, "--json").findings["limits"]
    assert finding["level"] == "warn"
    assert "ACL SETUSER bob +config|get" in finding["advice"]
    node.do("ACL", "SETUSER", "bob", "+config|get")
    assert "limits" not in ssp("check", "--url", url, "--json").findings


@pytest.mark.parametrize(
    ("right", "trial"),
    [
        ("~ssp:*", "keys"),
        ("&ssp:*", "subscribe"),
        ("+@read", "keys"),
        ("+@write", "keys"),
        ("+eval", "scripts"),
        ("+evalsha", "scripts"),
        ("+multi", "transactions"),
        ("+exec", "transactions"),
        ("+subscribe", "subscribe"),
        ("+publish", "publish"),
        ("+time", "publish"),
        ("+info", "info"),
    ],
)
def test_each_right_that_is_missing_is_named(node: Node, ssp: Run, right: str, trial: str) -> None:
    rest = [word for word in RIGHTS.split() if word != right]
    node.do("ACL", "SETUSER", "bob", "reset", "on", ">hush", "-@all", *rest)
    done = ssp("check", "--url", node.url.replace("://", "://bob:hush@"), "--json", code=None)
    finding = done.findings[trial]
    assert finding["level"] == ("warn" if right == "+info" else "unfit")
    assert f"ACL SETUSER bob {RIGHTS}" in finding["advice"]
    if "@" not in right and trial != "publish":
        assert f"it lacks {right};" in finding["advice"]
    assert "hush" not in done.out + done.err


def test_sentinels(watched: Watched, ssp: Run) -> None:
    found = ssp("check", "--url", watched.url, "--json").findings
    assert found["role"]["value"] == "master, standalone, 2 replicas"
    for node in watched.nodes[1:]:
        node.kill()
    eventually(lambda: watched.nodes[0].told("replication")["connected_slaves"] == "0")
    finding = ssp("check", "--url", watched.url, "--json").findings["role"]
    assert (finding["level"], finding["advice"]) == ("warn", "a failover has nobody to go to: start a replica")


class TestCluster:
    def test_a_whole_one(self, cluster: Cluster, ssp: Run) -> None:
        cluster.settle()
        found = ssp("check", "--url", cluster.url, "--json").findings
        assert found["cluster"] == {
            "name": "cluster",
            "level": "ok",
            "value": "3 masters, 6 nodes",
            "advice": "",
        }

    def test_a_plain_url(self, cluster: Cluster, ssp: Run) -> None:
        cluster.settle()
        finding = ssp("check", "--url", cluster.nodes[0].url, "--json", code=1).findings["cluster"]
        assert finding["level"] == "unfit" and "redis+cluster://" in finding["advice"]

    def test_each_node_is_looked_at(self, cluster: Cluster, ssp: Run) -> None:
        cluster.settle()
        for node in cluster.masters:
            node.do("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu")
            done = ssp("check", "--url", cluster.url, "--json", code=1)
            node.do("CONFIG", "SET", "maxmemory-policy", "noeviction")
            bad = [finding for finding in done.json["findings"] if finding["level"] == "unfit"]
            assert [finding["name"] for finding in bad] == ["eviction"]

    def test_slots_without_a_node(self, server_binary: str, ssp: Run) -> None:
        with Node(server_binary, ["--cluster-enabled", "yes", "--cluster-port", str(free_port())]) as node:
            finding = ssp("check", "--url", node.url, "--json", code=1).findings["cluster"]
            assert finding["level"] == "unfit"
            assert finding["value"] == "16384 of 16384 slots have no node"
            assert "redis-cli --cluster fix" in finding["advice"]

    def test_slots_whose_node_has_failed(self, cluster: Cluster, ssp: Run) -> None:
        cluster.settle()
        dead = cluster.masters[0]
        other = cluster.masters[1]
        for node in cluster.nodes:
            node.do("CONFIG", "SET", "cluster-replica-no-failover", "yes")
        dead.kill()
        eventually(lambda: b"cluster_state:fail" in other.do("CLUSTER", "INFO"), "the cluster is down", 30)
        finding = ssp("check", "--url", other.url, "--json", code=1).findings["cluster"]
        assert finding["level"] == "unfit" and finding["value"].startswith("down: ")
        for node in cluster.nodes:
            if node.running:
                node.do("CONFIG", "SET", "cluster-replica-no-failover", "no")
        cluster.settle()


@pytest.mark.parametrize(
    ("limits", "levels"),
    [
        ("normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", ["ok"]),
        ("normal 1000 0 0 replica 0 0 0 pubsub 1000 0 0", ["unfit", "warn"]),
        ("", ["ok"]),
    ],
)
def test_output_buffers(limits: str, levels: list[str]) -> None:
    assert [finding.level for finding in settings.buffers(limits)] == levels
