"""What the server says of its own settings (INFO, CONFIG, CLUSTER INFO), each judged, with what to set instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ssp_redis.cli import format
from ssp_redis.connection import Endpoint, ReplyError, Wire, denied

OK, WARN, UNFIT = "ok", "warn", "unfit"

#: Oldest servers on which the scripts run.
_OLDEST = {"redis": (6, 2, 0), "valkey": (7, 2, 0)}
#: Where CVE-2025-49844 (a script can break out of Lua) is fixed, by release line; later lines never had it.
_FIXED = {
    "redis": {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2},
    "valkey": {(7, 2): 11, (8, 0): 6, (8, 1): 4},
}
#: Bytes. Messages are below 1 KiB, but a worker that computes leaves them unread.
_LITTLE_UNREAD, _TOO_LITTLE_UNREAD = 1 << 20, 1 << 16
#: Bytes. A read of tables may ask for this much at once.
_LITTLE_REPLY = 64 << 20


@dataclass(frozen=True)
class Finding:
    """One answer: what was looked at, how it stands, and what to do if it is not well."""

    name: str
    level: str
    value: str
    advice: str = ""


def settings(info: dict[str, str], wire: Wire, endpoint: Endpoint) -> Iterator[Finding]:
    """All findings about one server, to which ``wire`` leads."""
    yield from (version(info), role(info, endpoint.kind), eviction(info), memory(info), persistence(info))
    if info.get("cluster_enabled") == "1":
        yield cluster(wire, endpoint)
    yield from configuration(wire, endpoint.user)


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


def role(info: dict[str, str], kind: str = "") -> Finding:
    """Can it be written to, and is there somebody to take its place where that is expected?"""
    if info.get("role", "master") != "master":
        master = f"{info.get('master_host', '?')}:{info.get('master_port', '?')}"
        return Finding("role", UNFIT, "a replica, which refuses writes", f"give the URL of its master, {master}")
    mode = info.get("redis_mode") or info.get("server_mode") or "standalone"
    replicas = int(info.get("connected_slaves", "0"))
    if kind and not replicas:
        return Finding("role", WARN, f"master, {mode}, no replica", "a failover has nobody to go to: start a replica")
    return Finding("role", OK, f"master, {mode}" + (f", {format.counted(replicas, 'replica')}" if replicas else ""))


def eviction(info: dict[str, str]) -> Finding:
    """Would a full memory make it throw parameters away?"""
    policy = info.get("maxmemory_policy", "?")
    if policy.startswith("allkeys"):
        return Finding(
            "eviction", UNFIT, policy, f"live parameters would be thrown away: {_set('maxmemory-policy', 'noeviction')}"
        )
    if policy.startswith("volatile"):
        return Finding(
            "eviction", WARN, policy, f"results of finished jobs may go early: {_set('maxmemory-policy', 'noeviction')}"
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
            f"free disk space, or {_set('stop-writes-on-bgsave-error', 'no')}",
        )
    return Finding(
        "persistence",
        WARN,
        "no AOF",
        f"a restart loses what came after the last snapshot: {_set('appendonly', 'yes')}",
    )


def cluster(wire: Wire, endpoint: Endpoint) -> Finding:
    """Is the cluster whole, and will the URL find a job's node?"""
    try:
        lines = wire.call("CLUSTER", "INFO").decode().splitlines()
    except ReplyError as error:
        right = denied(str(error))
        if right is None:
            raise
        return Finding(
            "cluster", WARN, "cannot be seen by this user", f"to see it: ACL SETUSER {endpoint.user} {right}"
        )
    told = dict(line.split(":", 1) for line in lines if ":" in line)
    nodes = f"{told.get('cluster_size', '?')} masters, {told.get('cluster_known_nodes', '?')} nodes"
    unserved = 16384 - int(told.get("cluster_slots_assigned", "0"))
    if unserved:
        return Finding(
            "cluster",
            UNFIT,
            f"{unserved} of 16384 slots have no node",
            "give them one: redis-cli --cluster fix HOST:PORT",
        )
    if told.get("cluster_state") != "ok":
        return Finding(
            "cluster",
            UNFIT,
            f"down: {told.get('cluster_slots_fail', '?')} slots are on nodes that failed",
            "bring them back, or promote their replicas: CLUSTER FAILOVER TAKEOVER",
        )
    if endpoint.kind != "cluster" and told.get("cluster_size") != "1":
        return Finding(
            "cluster", UNFIT, f"{nodes}, of which this URL finds one", "give redis+cluster://HOST:PORT as the URL"
        )
    return Finding("cluster", OK, nodes)


def _set(name: str, value: str) -> str:
    """What changes a setting now, and what keeps it changed when the server starts again."""
    quoted = f"'{value}'" if " " in value else value
    return f"CONFIG SET {name} {quoted}, and in redis.conf the line: {name} {value}"


def configuration(wire: Wire, user: str) -> Iterator[Finding]:
    """Will it cut off who is silent, or slow to read?"""
    try:
        found = {name: wire.call("CONFIG", "GET", name)[1].decode() for name in _ASKED}
    except (ReplyError, IndexError) as error:
        right = denied(str(error))
        advice = f"to see them: ACL SETUSER {user} {right}, or ask as an administrator" if right else ""
        yield Finding("limits", WARN, "timeout and output buffers cannot be seen by this user", advice)
        return
    yield idle(found["timeout"])
    yield from buffers(found["client-output-buffer-limit"])


_ASKED = ("timeout", "client-output-buffer-limit")


def idle(timeout: str) -> Finding:
    """Does it close connections that are silent?"""
    if timeout == "0":
        return Finding("timeout", OK, "none")
    return Finding(
        "timeout",
        WARN,
        f"closes connections that are idle for {timeout} s",
        f"a worker whose clocks take longer connects anew at each: {_set('timeout', '0')}",
    )


def buffers(limits: str) -> Iterator[Finding]:
    """May a subscriber that is slow to read, or a large reply, be cut off?"""
    words = limits.split()
    found = {words[i]: (int(words[i + 1]), int(words[i + 2])) for i in range(0, len(words) - 3, 4)}
    least = {kind: min((size for size in sizes if size), default=0) for kind, sizes in found.items()}
    unread, reply = least.get("pubsub", 0), least.get("normal", 0)
    name = "output buffer"
    if unread and unread < _LITTLE_UNREAD:
        yield Finding(
            f"{name}, pubsub",
            UNFIT if unread < _TOO_LITTLE_UNREAD else WARN,
            f"subscribers are cut off when {unread} bytes are unread",
            _set("client-output-buffer-limit", "pubsub 32mb 8mb 60"),
        )
    else:
        yield Finding(f"{name}, pubsub", OK, f"{unread >> 20} MiB" if unread else "no limit")
    if reply and reply < _LITTLE_REPLY:
        yield Finding(
            f"{name}, normal",
            WARN,
            f"clients are cut off when {reply} bytes are unread: large tables may not be readable",
            _set("client-output-buffer-limit", "normal 0 0 0"),
        )
