"""What a waiter sends that has nothing to do: a question every re-check, and its heartbeats, which have their own pace.

A worker with a table waits for a member that never ticks. What it sends meanwhile is counted at the server's socket
(MONITOR): the statistics of commands would also count what scripts do inside.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable
from typing import TypedDict

import numpy as np

from ..connection import Wire
from ..errors import WaitTimeout
from ..keys import JobKeys
from ..lua import SCHEMA
from ..scripts import Caller, ClockScripts
from ..worker import join
from .counters import Monitor, Seen
from .crew import BenchFailed, Seat, together
from .scene import Scene

#: Seconds between two re-checks, the default of ``join``.
RECHECK = 2.0
#: Seconds of the lease; a heartbeat comes every third of it.
LEASE = 6.0
#: Seconds before the counting begins: the waiter folds what there is to fold, and its first heartbeat connects.
_SETTLE = 2.5
#: Bytes of the waiter's table: large enough to be folded while waiting.
_TABLE = 1 << 20
_STILL, _WAITER = "bench-still", "bench-waiter"
#: Name of a key whose writing says that the waiter is about to wait.
_READY = "bench-ready"


class Idle(TypedDict):
    """Result of :func:`measure`."""

    seconds: float
    recheck_seconds: float
    lease_seconds: float
    #: Commands on the connections of the waiting thread, and what they come to for each re-check.
    commands: int
    commands_per_recheck: float
    #: Commands of the heartbeat; None where connections cannot be told apart (unix socket): then they are in commands.
    heartbeats: int | None
    #: All that the waiter sent, per second.
    per_second: float


def measure(scene: Scene, *, seconds: float, timeout: float) -> Idle:
    """Watch an idle waiter for so many seconds."""
    with scene.job() as job:
        watcher, _ = together(_play, 2, timeout, scene, job, seconds)
    if watcher is None:
        raise BenchFailed("nothing was counted")
    return watcher


def _play(seat: Seat, scene: Scene, job: str, seconds: float) -> Idle | None:
    if seat.rank == 0:
        return _watch(seat, scene, job, seconds)
    _wait(seat, scene, job, seconds)
    return None


def _wait(seat: Seat, scene: Scene, job: str, seconds: float) -> None:
    """The waiter: pushes one clock, and is then too far ahead for the rest of the measurement."""
    seat.meet()  # whoever watches is watching, and the member that never ticks is there
    with join(
        scene.url, job=job, worker=_WAITER, workers=1, staleness=0, lease=LEASE, recheck=RECHECK, timeout=seat.timeout
    ) as worker:
        table = worker.table("w", np.zeros(_TABLE // 4, np.float32))
        table.get()
        table.inc(np.ones(table.shape, np.float32))
        worker.advance()
        wire = scene.connect()
        wire.call("SET", f"ssp:{{{job}}}:{_READY}", 1)
        wire.close()
        seat.meet()
        try:
            worker.wait(_SETTLE + seconds + 1.0)
        except WaitTimeout:
            seat.meet()
            return
    raise BenchFailed("the waiter did not wait: somebody else removed the member that it waits for")


def _watch(seat: Seat, scene: Scene, job: str, seconds: float) -> Idle:
    """The member that never ticks, renewed by hand, and the count of what the other one sends."""
    wire = scene.connect()
    monitor = Monitor(scene.connect())
    try:
        renew = _still(wire, job)
        ear = _Ear(monitor, job, renew)
        seat.meet()
        # from its first command on, to learn what each of its connections is for
        ear.listen(lambda: ear.ready, seat.timeout)
        seat.meet()
        ear.listen(lambda: False, _SETTLE)
        ear.counts.clear()
        ear.listen(lambda: False, seconds)
        counts = dict(ear.counts)
        ear.listen(lambda: False, 0.1)
        seat.meet()
    finally:
        monitor.close()
        wire.close()
    apart = len(ear.waiting) > 1
    commands = sum(number for sender, number in counts.items() if sender in ear.waiting)
    total = sum(counts.values())
    return {
        "seconds": seconds,
        "recheck_seconds": RECHECK,
        "lease_seconds": LEASE,
        "commands": commands,
        "commands_per_recheck": round(commands / (seconds / RECHECK), 3),
        "heartbeats": total - commands if apart else None,
        "per_second": round(total / seconds, 3),
    }


class _Ear:
    """Listens to what the waiter sends, and says now and then that the member that never ticks lives."""

    def __init__(self, monitor: Monitor, job: str, renew: Callable[[], object]) -> None:
        self._monitor = monitor
        self._tag = f"{{{job}}}"
        self._renew = renew
        self._due = 0.0
        #: Senders of the waiting thread, of the waiter altogether, and what each has sent.
        self.waiting: set[str] = set()
        self.counts: Counter[str] = Counter()
        self._known: set[str] = set()
        self.ready = False

    def listen(self, until: Callable[[], bool], timeout: float) -> None:
        """Count until that is so, or until so many seconds have passed."""
        end = time.monotonic() + timeout
        while not until() and (left := end - time.monotonic()) > 0:
            if time.monotonic() >= self._due:
                self._renew()
                self._due = time.monotonic() + LEASE / 6
            for seen in self._monitor.watch(min(left, 0.1)):
                self._note(seen)

    def _note(self, seen: Seen) -> None:
        if f'"{_STILL}"' in seen.text:
            return
        if _READY in seen.text:
            self.ready = True
            return
        ours = self._tag in seen.text
        if ours:
            self._known.add(seen.sender)
            # the thread that waits joins and subscribes; the heartbeat only syncs, on a connection of its own
            if not self.ready:
                self.waiting.add(seen.sender)
        # a connection of the waiter's may also carry what names no key; who shares a unix socket cannot be told apart
        if ours or (seen.sender in self._known and not seen.sender.startswith("unix:")):
            self.counts[seen.sender] += 1


def _still(wire: Wire, job: str) -> Callable[[], object]:
    """A member of a new job at staleness 0; returns what renews its lease."""
    scripts = ClockScripts(JobKeys(job))
    nonce = secrets.token_hex(8)
    joined = scripts.join(wire, SCHEMA, _STILL, nonce, 0, "bench", 1, "", "1", "0", str(round(LEASE * 1000)), "", "")
    caller = Caller(joined.run, joined.standing.epoch, _STILL, joined.incarnation, nonce, "bench", 1)
    return lambda: scripts.sync(wire, caller, 0, -1, "-")
