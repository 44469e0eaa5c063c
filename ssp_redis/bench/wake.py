"""How long after the slowest worker calls its tick a blocked worker runs again, in another process.

Measured in turns with the least that Redis can do, redis-py's ``publish`` in one process to ``get_message`` in another,
and with what is done without notifications: asking every 10 ms. Times of two processes are compared, by the monotonic
clock, which all processes of a machine share.
"""

from __future__ import annotations

import random
import time
from typing import Any, TypedDict

import redis

from ..worker import join
from .crew import BenchFailed, Seat, together
from .samples import Spread, median, ratio, spread
from .scene import Scene

#: Seconds between two looks of who polls.
POLL = 0.01
#: Seconds that a hop may take before the measurement is given up.
_LATE = 20.0
#: Seconds, at least and at most, that pass before the next hop, so that the other process is blocked by then.
_PAUSE = (0.002, 0.004)
_WAYS = ("tick", "publish", "poll")


class Wakes(TypedDict):
    """Result of :func:`measure`: from the call that frees to the return of who was blocked."""

    hops: int
    tick: Spread
    publish: Spread
    poll: Spread
    #: Median of the rounds' ratios of medians: tick to publish, and poll to tick.
    ratio: float
    poll_ratio: float
    #: Hops left out because the other process was not blocked yet.
    missed: int


def measure(scene: Scene, *, rounds: int, hops: int, timeout: float) -> Wakes:
    """``hops`` of each kind in each of ``rounds``."""
    with scene.job() as job:
        caller, waiter = together(_play, 2, timeout, scene.url, job, rounds * hops)
    times: dict[str, list[list[float]]] = {way: [] for way in _WAYS}
    missed = 0
    for first in range(0, rounds * hops, hops):
        for way in _WAYS:
            called = caller[way][first : first + hops]
            waited = waiter[way][first : first + hops]
            kept = [woke - call for call, (began, woke) in zip(called, waited, strict=True) if began < call]
            missed += hops - len(kept)
            if not kept:
                raise BenchFailed("the waiting process was never blocked in time: the machine is too busy to measure")
            times[way].append([gap / 1e9 for gap in kept])
    medians = {way: [median(gaps) for gaps in times[way]] for way in _WAYS}
    return {
        "hops": hops,
        "tick": spread(times["tick"]),
        "publish": spread(times["publish"]),
        "poll": spread(times["poll"]),
        "ratio": ratio(medians["tick"], medians["publish"]),
        "poll_ratio": ratio(medians["poll"], medians["tick"]),
        "missed": missed,
    }


def _play(seat: Seat, url: str, job: str, hops: int) -> dict[str, list[Any]]:
    return _caller(seat, url, job, hops) if seat.rank == 0 else _waiter(seat, url, job, hops)


def _caller(seat: Seat, url: str, job: str, hops: int) -> dict[str, list[Any]]:
    """The slowest worker, the publisher, the writer: when each call began, in ns."""
    began: dict[str, list[Any]] = {way: [] for way in _WAYS}
    key = f"ssp:{{{job}}}:hop"
    draw = random.Random(1)
    with (
        redis.Redis.from_url(url) as client,
        join(url, job=job, worker="slowest", workers=2, staleness=0, lease=60.0, timeout=_LATE) as worker,
    ):
        client.set(key, 0)
        seat.meet()
        for hop in range(1, hops + 1):
            time.sleep(draw.uniform(*_PAUSE))
            began["tick"].append(time.monotonic_ns())
            worker.tick(_LATE)
            time.sleep(draw.uniform(*_PAUSE))
            began["publish"].append(time.monotonic_ns())
            client.publish(key, hop)
            # anywhere between two looks of who polls
            time.sleep(_PAUSE[0] + draw.uniform(0.0, POLL))
            began["poll"].append(time.monotonic_ns())
            client.set(key, hop)
            seat.meet()
    return began


def _waiter(seat: Seat, url: str, job: str, hops: int) -> dict[str, list[Any]]:
    """Who is blocked: when each wait began and when it returned, in ns."""
    waited: dict[str, list[Any]] = {way: [] for way in _WAYS}
    key = f"ssp:{{{job}}}:hop"
    with (
        redis.Redis.from_url(url, socket_timeout=_LATE) as client,
        client.pubsub() as ear,
        join(url, job=job, worker="blocked", workers=2, staleness=0, lease=60.0, timeout=_LATE) as worker,
    ):
        ear.subscribe(key)
        _await(ear)
        seat.meet()
        for hop in range(1, hops + 1):
            worker.advance(_LATE)
            begun = time.monotonic_ns()
            worker.wait(_LATE)
            waited["tick"].append((begun, time.monotonic_ns()))
            begun = time.monotonic_ns()
            message = ear.get_message(timeout=None)  # blocks: the fastest that redis-py has
            waited["publish"].append((begun, time.monotonic_ns()))
            if message is None or int(message["data"]) != hop:
                raise BenchFailed(f"message {hop} was expected, {message} came")
            begun = time.monotonic_ns()
            while int(client.get(key) or 0) < hop:
                time.sleep(POLL)
            waited["poll"].append((begun, time.monotonic_ns()))
            seat.meet()
    return waited


def _await(ear: Any) -> None:
    """Until the subscription is confirmed."""
    deadline = time.monotonic() + _LATE
    while (message := ear.get_message(timeout=0.1)) is None or message["type"] != "subscribe":
        if time.monotonic() > deadline:
            raise BenchFailed("the server did not confirm a subscription")
