"""Is this server fit to hold a job? Each question as a function that answers with a :class:`Finding`.

What can be tried is tried, under the name of a job that nobody has, rather than read from a configuration that the
server may not show: that is what a job will run into. What it says of its settings is judged in ``settings.py``.
"""

from __future__ import annotations

import contextlib
import hashlib
import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ssp_redis.cli.settings import OK, UNFIT, WARN, Finding, settings, version
from ssp_redis.connection import RIGHTS, Endpoint, ReplyError, Wire, command, denied

__all__ = ["OK", "UNFIT", "WARN", "Finding", "examine", "tag", "version"]

_ROUNDS = 200
_HOPS = 100
#: Seconds; above it every clock of a fast worker is mostly waiting for the network.
_SLOW = 0.002

_ADD = "return redis.call('HINCRBY', KEYS[1], 'f', 1)"
_TRY = "redis.call('PUBLISH', KEYS[2], 'x') redis.call('TIME') return redis.call('HINCRBY', KEYS[1], 'f', 1)"


def tag() -> str:
    """The beginning of keys of a job that nobody has."""
    return f"ssp:{{check-{uuid.uuid4().hex}}}:"


def examine(
    wire: Wire, listener: Wire, mark: str, endpoint: Endpoint, others: Sequence[Wire] = ()
) -> Iterator[Finding]:
    """All findings, one after the other, over connections that are closed afterwards.

    Args:
        wire, listener: to the server that has the keys beginning with ``mark``.
        others: to each master of a cluster.
    """
    try:
        yield protocol(endpoint)
        try:
            info = _info(wire)
        except ReplyError as error:
            yield Finding("info", WARN, str(error), f"let this user see it: {_advice(endpoint, error)}")
        else:
            yield from settings(info, wire, endpoint)
            for other in others:
                yield from _elsewhere(other, info, endpoint)
        trials = list(rights(wire, listener, mark, endpoint))
        yield from trials
        yield round_trip(wire, mark)
        if all(trial.level == OK for trial in trials):
            yield wake_up(wire, listener, mark)
    finally:
        for each in (wire, listener, *others):
            each.close()


def _elsewhere(wire: Wire, known: dict[str, str], endpoint: Endpoint) -> Iterator[Finding]:
    """What is not well on another node of the cluster."""
    with contextlib.suppress(ReplyError):
        info = _info(wire)
        if info.get("run_id") == known.get("run_id"):
            return
        for finding in settings(info, wire, endpoint):
            if finding.level != OK:
                yield replace(finding, value=f"{wire.label.partition(' ')[0]}: {finding.value}")


def protocol(endpoint: Endpoint) -> Finding:
    """Do both sides speak the same?"""
    if endpoint.asked_protocol != 2:
        return Finding(
            "protocol",
            WARN,
            f"RESP2, although the URL asks for RESP{endpoint.asked_protocol}",
            "leave protocol= out of the URL: it is not used",
        )
    return Finding("protocol", OK, "RESP2")


def rights(wire: Wire, listener: Wire, tag: str, endpoint: Endpoint) -> Iterator[Finding]:
    """May this user do what a worker does? Tries it, and leaves nothing behind."""
    key, channel, digest = tag + "clocks", tag + "min", hashlib.sha1(_ADD.encode()).hexdigest()
    trials: list[tuple[str, Callable[[], Any]]] = [
        (
            "keys",
            lambda: (wire.call("SET", key + ":x", "1"), wire.call("GET", key + ":x"), wire.call("DEL", key + ":x")),
        ),
        ("transactions", lambda: wire.transact([command("SET", key + ":x", "1"), command("DEL", key + ":x")])),
        ("scripts", lambda: (wire.call("EVAL", _ADD, "1", key), wire.call("EVALSHA", digest, "1", key))),
        ("subscribe", lambda: listener.call("SUBSCRIBE", channel)),
        ("publish", lambda: wire.call("EVAL", _TRY, "2", key, channel)),
    ]
    for name, attempt in trials:
        try:
            attempt()
        except ReplyError as error:
            advice = _advice(endpoint, error)
            yield Finding(name, UNFIT, str(error).partition("\n")[0], advice)
        else:
            yield Finding(name, OK, "allowed")
    with contextlib.suppress(ReplyError):
        wire.call("DEL", key)


def round_trip(wire: Wire, tag: str) -> Finding:
    """How long does a question take?"""
    times = []
    for _ in range(_ROUNDS):
        begun = time.perf_counter()
        with contextlib.suppress(ReplyError):
            wire.call("GET", tag + "x")
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


def _advice(endpoint: Endpoint, error: ReplyError) -> str:
    right = denied(str(error))
    if right is None:
        return ""
    missing = f"it lacks {right}; " if right else ""
    return f"{missing}ACL SETUSER {endpoint.user} {RIGHTS}"
