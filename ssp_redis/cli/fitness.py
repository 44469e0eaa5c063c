"""Is this server fit to hold a job? Each question as a function that answers with a :class:`Finding`.

What can be tried is tried, under the name of a job that nobody has, rather than read from a configuration that the
server may not show: that is what a job will run into.
"""

from __future__ import annotations

import contextlib
import re
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ssp_redis.connection import ReplyError, Wire

OK, WARN, UNFIT = "ok", "warn", "unfit"

#: Oldest servers on which the scripts run.
_OLDEST = {"redis": (6, 2, 0), "valkey": (7, 2, 0)}
#: Where CVE-2025-49844 (a script can break out of Lua) is fixed, by release line; later lines never had it.
_FIXED = {
    "redis": {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2},
    "valkey": {(7, 2): 11, (8, 0): 6, (8, 1): 4},
}
_ROUNDS = 200
_HOPS = 100
#: Seconds; above it every clock of a fast worker is mostly waiting for the network.
_SLOW = 0.002
#: Rights of a user that is only for this; see ACL SETUSER.
_RIGHTS = "~ssp:* &ssp:* +@all -@admin -@dangerous +info"

_TRY = "redis.call('PUBLISH', KEYS[2], 'x') redis.call('TIME') return redis.call('HINCRBY', KEYS[1], 'f', 1)"


@dataclass(frozen=True)
class Finding:
    """One answer: what was looked at, how it stands, and what to do if it is not well."""

    name: str
    level: str
    value: str
    advice: str = ""


def examine(wire: Wire, listener: Wire) -> Iterator[Finding]:
    """All findings, one after the other, over two connections, which are closed afterwards."""
    tag = f"ssp:{{check-{uuid.uuid4().hex}}}:"
    try:
        try:
            info = _info(wire)
        except ReplyError as error:
            info = {}
            yield Finding("info", WARN, str(error), f"let this user see it (+info): {_RIGHTS}")
        if info:
            yield from (version(info), role(info), eviction(info), memory(info), persistence(info))
        trials = list(rights(wire, listener, tag))
        yield from trials
        yield round_trip(wire)
        if all(trial.level == OK for trial in trials):
            yield wake_up(wire, listener, tag)
    finally:
        wire.close()
        listener.close()


def version(info: dict[str, str]) -> Finding:
    """Is the server new enough, and is the known hole in its Lua closed?"""
    kind = "valkey" if "valkey_version" in info else "redis"
    text = info.get(f"{kind}_version", "?")
    name = f"{kind} {text}"
    numbers = tuple(int(number) for number in re.findall(r"\d+", text)[:3])
    if len(numbers) < 3:
        return Finding("version", WARN, name, "an unknown version: it may lack what the scripts need")
    if numbers < _OLDEST[kind]:
        oldest = ".".join(map(str, _OLDEST[kind]))
        return Finding("version", UNFIT, name, f"use {kind} {oldest} or later")
    lines = _FIXED[kind]
    line = numbers[:2]
    fixed = numbers[2] >= lines[line] if line in lines else line > max(lines)
    if not fixed:
        later = [f"{major}.{minor}.{patch}" for (major, minor), patch in lines.items() if (major, minor) >= line]
        return Finding(
            "version",
            WARN,
            name,
            f"CVE-2025-49844 (Lua) is fixed in {', '.join(later)}: update, unless your distribution mended this one",
        )
    return Finding("version", OK, name)


def role(info: dict[str, str]) -> Finding:
    """Can it be written to?"""
    if info.get("role", "master") != "master":
        master = f"{info.get('master_host', '?')}:{info.get('master_port', '?')}"
        return Finding("role", UNFIT, "a replica, which refuses writes", f"give the URL of its master, {master}")
    mode = info.get("redis_mode") or info.get("server_mode") or "standalone"
    replicas = int(info.get("connected_slaves", "0"))
    return Finding("role", OK, f"master, {mode}" + (f", {replicas} replicas" if replicas else ""))


def eviction(info: dict[str, str]) -> Finding:
    """Would a full memory make it throw parameters away?"""
    policy = info.get("maxmemory_policy", "?")
    if policy.startswith("allkeys"):
        return Finding(
            "eviction", UNFIT, policy, "live parameters would be thrown away: CONFIG SET maxmemory-policy noeviction"
        )
    if policy.startswith("volatile"):
        return Finding(
            "eviction", WARN, policy, "results of finished jobs may go early: CONFIG SET maxmemory-policy noeviction"
        )
    return Finding("eviction", OK if policy == "noeviction" else WARN, policy)


def memory(info: dict[str, str]) -> Finding:
    """Is there room?"""
    used, most = int(info.get("used_memory", "0")), int(info.get("maxmemory", "0"))
    if not most:
        return Finding("memory", OK, f"{used / 1e6:.0f} MB used, no limit")
    value = f"{used / 1e6:.0f} of {most / 1e6:.0f} MB used"
    if used > 0.9 * most:
        return Finding(
            "memory", UNFIT if used >= most else WARN, value, "raise maxmemory, or delete what is not needed"
        )
    return Finding("memory", OK, value)


def persistence(info: dict[str, str]) -> Finding:
    """Does a restart of the server keep the job?"""
    if info.get("aof_enabled") == "1":
        if info.get("aof_last_write_status", "ok") != "ok":
            return Finding(
                "persistence", UNFIT, "AOF, but its last write failed", "free disk space; see the server's log"
            )
        return Finding("persistence", OK, "AOF")
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        return Finding(
            "persistence",
            UNFIT,
            "snapshots, and the last one failed: writes are refused (MISCONF)",
            "free disk space, or CONFIG SET stop-writes-on-bgsave-error no",
        )
    return Finding(
        "persistence", WARN, "no AOF", "a restart loses what came after the last snapshot: CONFIG SET appendonly yes"
    )


def rights(wire: Wire, listener: Wire, tag: str) -> Iterator[Finding]:
    """May this user do what a worker does? Tries it, and leaves nothing behind."""
    key, channel = tag + "clocks", tag + "min"
    trials: list[tuple[str, Callable[[], Any]]] = [
        ("keys", lambda: (wire.call("SET", key + ":x", "1"), wire.call("DEL", key + ":x"))),
        ("scripts", lambda: wire.call("EVAL", "return redis.call('HINCRBY', KEYS[1], 'f', 1)", "1", key)),
        ("subscribe", lambda: listener.call("SUBSCRIBE", channel)),
        ("publish", lambda: wire.call("EVAL", _TRY, "2", key, channel)),
    ]
    for name, attempt in trials:
        try:
            attempt()
        except ReplyError as error:
            advice = f"ACL SETUSER {_user(wire)} {_RIGHTS}" if _denied(error) else ""
            yield Finding(name, UNFIT, str(error).partition("\n")[0], advice)
        else:
            yield Finding(name, OK, "allowed")
    with contextlib.suppress(ReplyError):
        wire.call("DEL", key)


def round_trip(wire: Wire) -> Finding:
    """How long does a question take?"""
    times = []
    for _ in range(_ROUNDS):
        begun = time.perf_counter()
        wire.call("PING")
        times.append(time.perf_counter() - begun)
    return _time("round trip", times)


def wake_up(wire: Wire, listener: Wire, tag: str) -> Finding:
    """How long from a change to the worker that waits for it? One hop of pub/sub, on a connection that subscribed."""
    times = []
    while listener.ready(0.05):  # what the trials published
        listener.read()
    for _ in range(_HOPS):
        begun = time.perf_counter()
        wire.call("PUBLISH", tag + "min", "x")
        if not listener.ready(2.0):
            return Finding("wake-up", UNFIT, "a message never arrived", "is a proxy in between that drops pub/sub?")
        listener.read()
        times.append(time.perf_counter() - begun)
    return _time("wake-up", times)


def _time(name: str, times: list[float]) -> Finding:
    median, slowest = statistics.median(times), sorted(times)[int(0.99 * len(times))]
    value = f"{median * 1e6:.0f} us (median), {slowest * 1e6:.0f} us (p99)"
    if median > _SLOW:
        return Finding(name, WARN, value, "no clock can be shorter than this: bring workers and server closer together")
    return Finding(name, OK, value)


def _info(wire: Wire) -> dict[str, str]:
    lines = wire.call("INFO").decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _denied(error: ReplyError) -> bool:
    text = str(error).lower()
    return "noperm" in text or "permission" in text or "can't publish" in text


def _user(wire: Wire) -> str:
    try:
        return str(wire.call("ACL", "WHOAMI").decode())
    except ReplyError:
        return "USER"
