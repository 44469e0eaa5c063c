"""Is a server fit? Every unfit setting is named, with what to set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from commands import Run

from ssp_redis.cli import fitness
from ssp_redis.connection import RIGHTS


def levels(done: Any) -> dict[str, str]:
    return {finding["name"]: finding["level"] for finding in done.json["findings"]}


def test_a_plain_server_is_fit_and_nothing_is_left_on_it(ssp: Run, own_server: Any) -> None:
    done = ssp("check", "--url", own_server.url, "--json")
    assert done.json["fit"] is True
    found = levels(done)
    assert set(found) == {
        *("protocol", "version", "role", "eviction", "memory", "persistence", "timeout", "output buffer, pubsub"),
        *("keys", "transactions", "scripts", "subscribe", "publish", "round trip", "wake-up"),
    }
    assert "unfit" not in found.values()
    assert found["persistence"] == "warn", "it keeps nothing on disk"
    with redis.Redis.from_url(own_server.url) as client:
        assert client.keys("*") == []
    text = ssp("check", "--url", own_server.url).out
    assert "CONFIG SET appendonly yes" in text
    assert text.endswith("is fit\n")


def test_an_eviction_policy_that_deletes_parameters_is_unfit(ssp: Run, new_server: Callable[..., Any]) -> None:
    server = new_server(args=["--maxmemory-policy", "allkeys-lru"], appendonly=True)
    done = ssp("check", "--url", server.url, "--json", code=1)
    assert levels(done)["eviction"] == "unfit"
    assert levels(done)["persistence"] == "ok"
    assert "is not fit: eviction" in done.err
    assert "CONFIG SET maxmemory-policy noeviction" in ssp("check", "--url", server.url, code=1).out
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory-policy", "volatile-ttl")
    assert levels(ssp("check", "--url", server.url, "--json"))["eviction"] == "warn"


def test_a_full_memory_is_unfit(ssp: Run, new_server: Callable[..., Any]) -> None:
    server = new_server(args=["--maxmemory", "100kb"])
    found = levels(ssp("check", "--url", server.url, "--json", code=1))
    assert found["memory"] == "unfit"


@pytest.mark.parametrize(
    ("rules", "refused"),
    [
        (["~ssp:*", "+@all"], ["subscribe", "publish"]),
        (["~other:*", "&ssp:*", "+@all"], ["keys", "transactions", "scripts", "publish"]),
        (["~ssp:*", "&ssp:*", "+@all", "-@scripting"], ["scripts", "publish"]),
    ],
)
def test_a_user_without_the_rights_is_told_the_rule(
    ssp: Run, own_server: Any, rules: list[str], refused: list[str]
) -> None:
    with redis.Redis.from_url(own_server.url) as client:
        client.execute_command("ACL", "SETUSER", "bob", "on", ">secret", "resetchannels", *rules)
    done = ssp("check", "--url", own_server.url + "?username=bob&password=secret", "--json", code=1)
    assert [name for name, level in levels(done).items() if level == "unfit"] == refused
    for finding in done.json["findings"]:
        if finding["level"] == "unfit":
            assert finding["advice"].endswith(f"ACL SETUSER bob {RIGHTS}")
    assert "secret" not in done.out + done.err


def test_the_rule_that_it_names_is_enough(ssp: Run, own_server: Any) -> None:
    with redis.Redis.from_url(own_server.url) as client:
        client.execute_command("ACL", "SETUSER", "bob", "on", ">secret", "resetchannels", *RIGHTS.split())
    url = own_server.url + "?username=bob&password=secret"
    assert "unfit" not in levels(ssp("check", "--url", url, "--json")).values()
    ssp("launch", "--url", url, "-n", "2", "--clocks", "20")


def test_a_wrong_password_is_named_and_not_shown(ssp: Run, own_server: Any) -> None:
    done = ssp("check", "--url", own_server.url + "?username=bob&password=topsecret", code=1)
    assert "password" in done.err
    assert "topsecret" not in done.err


def test_a_replica_is_unfit_and_its_master_is_named(ssp: Run, own_server: Any) -> None:
    with redis.Redis.from_url(own_server.url) as client:
        client.replicaof("127.0.0.1", "1")
    done = ssp("check", "--url", own_server.url, "--json", code=1)
    role = next(finding for finding in done.json["findings"] if finding["name"] == "role")
    assert role["level"] == "unfit"
    assert "127.0.0.1:1" in role["advice"]


@pytest.mark.parametrize(
    ("info", "level"),
    [
        ({"redis_version": "6.0.20"}, "unfit"),
        ({"redis_version": "6.2.19"}, "warn"),
        ({"redis_version": "6.2.20"}, "ok"),
        ({"redis_version": "7.0.15"}, "warn"),
        ({"redis_version": "7.2.11"}, "ok"),
        ({"redis_version": "8.0.3"}, "warn"),
        ({"redis_version": "8.2.2"}, "ok"),
        ({"redis_version": "8.4.0"}, "ok"),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.3"}, "warn"),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.4"}, "ok"),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2"}, "ok"),
        ({"redis_version": "strange"}, "warn"),
        ({}, "warn"),
    ],
)
def test_a_version_with_the_known_hole_in_lua_is_a_warning_and_one_too_old_is_unfit(
    info: dict[str, str], level: str
) -> None:
    assert fitness.version(info).level == level
    assert bool(fitness.version(info).advice) == (level != "ok")
