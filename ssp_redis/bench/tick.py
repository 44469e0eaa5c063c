"""What a tick costs that need not wait: at the server, and there and back, beside the cheapest script there could be.

Two states of the job matter. *still*: the worker leads, so its ticks leave the min clock where it is. *moves*: it is
the slowest by far, so each of its ticks moves the min and announces it. Both with 2 members and with many, to see that
the cost does not grow. All are measured in turns, call by call, with a bare EVALSHA of one HINCRBY between them on a
connection held in the same way. The tick is :meth:`Worker.tick`, all of it; nobody is subscribed to the announcements.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from typing import TypedDict

from ..connection import Wire
from ..keys import JobKeys
from ..lua import SCHEMA, Script, words
from ..worker import Worker, join
from .counters import Monitor, script_time
from .crew import BenchFailed, Inexact
from .samples import Spread, median, micro, ratio, spread
from .scene import Scene

#: A clock that nobody reaches by ticking one by one.
_FAR = 1_000_000_000
#: Commands under way at once while members are made.
_BATCH = 500
#: Members made by hand do not live: their lease must outlast the measurement (seconds).
_LEASE = 3600.0
_BARE = "return redis.call('HINCRBY', KEYS[1], ARGV[1], 1)"


class Case(TypedDict):
    """One kind of tick."""

    members: int
    #: "still" or "moves".
    min: str
    #: Time of one round trip, and the ratio of its median to that of the bare script.
    trip: Spread
    ratio: float
    #: Time in the script, as the server counts it.
    server_us: float


class Ticks(TypedDict):
    """Result of :func:`measure`."""

    calls: int
    bare: Spread
    bare_server_us: float
    cases: list[Case]
    #: Many members against two: of the time at the server, and of the round trip; per state of the min.
    growth_server: dict[str, float]
    growth_trip: dict[str, float]
    #: Commands at the server's socket per tick.
    commands_per_tick: float


def measure(scene: Scene, *, rounds: int, calls: int, members: int) -> Ticks:
    """Measure ticks with 2 and with ``members`` members, ``calls`` of each kind in each of ``rounds``."""
    wire = scene.connect()
    try:
        with contextlib.ExitStack() as stack:
            key = f"ssp:{{{stack.enter_context(scene.job())}}}:bare"
            sha = wire.call("SCRIPT", "LOAD", _BARE)
            kinds = [(count, state) for state in ("still", "moves") for count in (2, members)]
            workers = [stack.enter_context(_job(scene, wire, count, state == "moves")) for count, state in kinds]

            def bare() -> None:
                wire.call("EVALSHA", sha, 1, key, "w")

            contestants: list[Callable[[], object]] = [bare, *(worker.tick for worker in workers)]
            trips: list[list[list[float]]] = [[] for _ in contestants]
            server: list[list[float]] = [[] for _ in contestants]
            for _ in range(rounds):
                for contestant, times in zip(trips, _in_turns(contestants, calls), strict=True):
                    contestant.append(times)
                for act, costs in zip(contestants, server, strict=True):
                    costs.append(_at_server(wire, act, calls))
            for worker in workers:
                if worker.clock != 1 + rounds * 2 * calls:
                    raise Inexact(f"{1 + rounds * 2 * calls} ticks made clock {worker.clock}")
            commands = _commands(scene, workers[0], calls)
    finally:
        wire.close()
    medians = [[median(times) for times in trip] for trip in trips]
    return {
        "calls": calls,
        "bare": spread(trips[0]),
        "bare_server_us": micro(median(server[0])),
        "cases": [
            {
                "members": count,
                "min": state,
                "trip": spread(trips[i]),
                "ratio": ratio(medians[i], medians[0]),
                "server_us": micro(median(server[i])),
            }
            for i, (count, state) in enumerate(kinds, 1)
        ],
        "growth_server": {"still": ratio(server[2], server[1]), "moves": ratio(server[4], server[3])},
        "growth_trip": {"still": ratio(medians[2], medians[1]), "moves": ratio(medians[4], medians[3])},
        "commands_per_tick": commands,
    }


@contextlib.contextmanager
def _job(scene: Scene, wire: Wire, members: int, slowest: bool) -> Iterator[Worker]:
    """A worker at clock 1 in a job with so many members; the others stand there, too, or far ahead."""
    with scene.job() as name:
        worker = join(scene.url, job=name, worker="ticking", workers=1, staleness=None, lease=_LEASE, timeout=30.0)
        try:
            worker.tick()  # so that the server knows the script
            _people(wire, name, members - 1, slowest)
            yield worker
        finally:
            worker.leave()


def _people(wire: Wire, job: str, count: int, ahead: bool) -> None:
    """Make members by calling the scripts, many under way at once."""
    keys = JobKeys(job)
    join_script = Script("join", keys.control())
    tick_script = Script("tick", [keys.config, keys.clocks, keys.order, keys.ids, keys.log, keys.min])
    run = wire.call("HGET", keys.config, "run").decode()
    for first in range(0, count, _BATCH):
        names = [f"m{i}" for i in range(first, min(first + _BATCH, count))]
        joins = [join_script.pack(SCHEMA, name, secrets.token_hex(8), 0, "bench", 1, *[""] * 6) for name in names]
        answers = [words(reply) for reply in wire.call_all(joins)]
        if ahead:
            # of join's answer: epoch, clock, incarnation
            ticks = [
                tick_script.pack(run, answer[0], name, answer[8], answer[6], _FAR, "-:", -1)
                for name, answer in zip(names, answers, strict=True)
            ]
            for reply in wire.call_all(ticks):
                words(reply)


def _in_turns(contestants: list[Callable[[], object]], calls: int) -> list[list[float]]:
    """Seconds of each call of each, one of each in turn."""
    times: list[list[float]] = [[] for _ in contestants]
    pairs = list(zip(contestants, times, strict=True))
    for _ in range(calls):
        for act, mine in pairs:
            begun = time.perf_counter()
            act()
            mine.append(time.perf_counter() - begun)
    return times


def _at_server(wire: Wire, act: Callable[[], object], calls: int) -> float:
    """Seconds of one call in the server's scripts."""
    before = script_time(wire)
    for _ in range(calls):
        act()
    after = script_time(wire)
    count = after[0] - before[0]
    if count < calls:
        raise BenchFailed(f"the server counts {count} scripts where {calls} ran: somebody resets its statistics")
    return (after[1] - before[1]) / count


def _commands(scene: Scene, worker: Worker, calls: int) -> float:
    """Commands at the server's socket for one tick; heartbeats are too far apart to be among them."""
    monitor = Monitor(scene.connect())
    try:
        for _ in range(calls):
            worker.tick()
        return round(sum(f"{{{worker.job}}}" in seen.text for seen in monitor.watch(0.5)) / calls, 3)
    finally:
        monitor.close()
