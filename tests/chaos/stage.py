"""The stage of a schedule: a server, and workers' lives, each behind a proxy of its own."""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import json
import math
import os
import re
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nursery
import redis
from proxy import COMMAND, HEARTBEAT, PASS, SUBSCRIBER, Fate, Pair, Proxy
from remote import environment

from ssp_redis import Job, SSPError
from ssp_redis.lua import source
from ssp_redis.server import EmbeddedServer

from .marks import LIVES
from .plan import KINDS, Planned, Schedule

JOB = "chaos"
_SHA = {
    name: hashlib.sha1(source(name).encode()).hexdigest().encode()
    for name in ("join", "tick", "sync", "leave", "read", "commit", "commit_rows")
}
_SET = re.compile(rb"\$3\r\nSET\r\n\$\d+\r\nssp:\{[^}]*\}:[0-9a-f]+:([dx]):")


#: Kinds that happen to something that is being sent.
_SENT = {
    *("command lost", "reply lost", "command torn", "reply torn"),
    *("command late", "command delayed", "command repeated"),
}


def phase_of(chunk: bytes) -> str | None:
    """What a worker is doing, by what it sends."""
    if _SHA["join"] in chunk:
        return "joining"
    if _SHA["sync"] in chunk:
        return "syncing"
    if found := _SET.search(chunk):
        return "pushing" if found[1] == b"d" else "folding"
    if _SHA["tick"] in chunk:
        return "ticking"
    if _SHA["commit"] in chunk or _SHA["commit_rows"] in chunk:
        return "folding"
    if _SHA["leave"] in chunk:
        return "leaving"
    if _SHA["read"] in chunk or b"\r\nGET\r\n" in chunk or b"\r\nHMGET\r\n" in chunk:
        return "reading"
    return None


@dataclass
class Event:
    """A line that a life wrote."""

    time: float
    what: str
    details: list[Any]


def log_parts(data: Path) -> list[Path]:
    """The files of a server's AOF that grow."""
    return sorted(data.rglob("*.incr.aof")) or sorted(data.rglob("appendonly.aof"))


def needs_company(planned: Planned) -> bool:
    """Can it meet only one who has joined, and waits for the others to join?"""
    return planned.phase == "joining" and (planned.kind == "evicted" or planned.kind.startswith("heartbeat"))


class Life:
    """One process under a worker's id."""

    def __init__(self, stage: Stage, worker: int, number: int) -> None:
        self.stage = stage
        self.worker = worker
        self.number = number
        self.events: list[Event] = []
        schedule = stage.schedule
        path = stage.scratch / f"{worker}.{number}" if schedule.unix else None
        self.proxy = Proxy(stage.server.url, path)
        self.proxy.watch = self._watch
        #: Between joining and having joined; in a wait, as it said; from when it says that it leaves.
        self.joining = self.waiting = self.leaving = False
        self.began = time.monotonic()
        self.killed: float | None = None
        self.evicted: float | None = None
        #: Was it seen to it that the job does not wait for its return?
        self.let_go = False
        self.errors = stage.scratch / f"{worker}.{number}.err"
        told = {
            "url": f"{self.proxy.url}?socket_timeout={schedule.patience}",
            "job": JOB,
            "worker": worker,
            "life": number,
            "loop": worker in schedule.loops,
            "seed": schedule.seed,
            "workers": schedule.workers,
            "staleness": schedule.staleness,
            "clocks": schedule.clocks,
            "work": schedule.work,
            "lease": schedule.lease,
            "recheck": schedule.recheck,
            "reproducible": schedule.reproducible,
            "flush": schedule.flush,
            "hold": str(stage.holding(worker)),
            "sabotage": stage.sabotage,
        }
        self._out, out = os.pipe()
        program = [str(Path(__file__).with_name("worker.py")), json.dumps(told)]
        try:
            with open(os.devnull, "rb") as nothing, self.errors.open("wb") as errors:
                streams = (nothing.fileno(), out, errors.fileno())
                self.process = nursery.start(program, environment(), streams)
        finally:
            os.close(out)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __str__(self) -> str:
        return f"worker {self.worker}, life {self.number}"

    def _watch(self, pair: Pair, chunk: bytes) -> Fate:
        if pair.role != COMMAND:
            return PASS
        phase = phase_of(chunk)
        if phase == "leaving" or self.leaving:
            self.leaving, phase = True, "leaving"  # what it sweeps then belongs to it
        elif phase == "syncing":
            phase = "waiting" if self.waiting else None
        elif phase == "joining":
            self.joining = True
        return self.stage.saw(self, phase, pair, chunk) if phase else PASS

    def _read(self) -> None:
        with os.fdopen(self._out, "rb") as out:
            for line in out:
                moment, what, *details = json.loads(line)
                self.events.append(Event(moment, what, details))
                self._heard(what, details)
        self.process.wait()
        self.stage.tell()

    def _heard(self, what: str, details: list[Any]) -> None:
        if what in ("admitted", "error", "end"):
            self.waiting = False
        if what == "admitted":
            self.stage.went_on(self)
        if what in ("joined", "end"):
            self.joining = False
        if what == "waiting":
            self.waiting = True
            self.stage.lasts(self, "waiting", lambda: self.waiting)
        elif what == "joining":
            self.joining = True
            self.stage.lasts(self, "joining", lambda: self.joining)
        elif what == "begin":
            self.stage.reached(self, details[0])
        elif what in ("joined", "error"):
            self.stage.tell()

    def has(self, role: str) -> list[Pair]:
        """Its connections of a role."""
        return self.proxy.pairs(role=role)

    @property
    def ended(self) -> bool:
        return not self._reader.is_alive()

    def last(self, what: str) -> Event | None:
        """The last event of a kind."""
        return next((event for event in reversed(self.events) if event.what == what), None)

    @property
    def end(self) -> str:
        """Why it ended."""
        event = self.last("end")
        return str(event.details[0]) if event else "killed" if self.killed else f"exit {self.process.returncode}"

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def close(self) -> None:
        if not self.ended:
            self.signal(signal.SIGKILL)
        self._reader.join(5)
        self.proxy.close()


@dataclass
class Injected:
    """A fault that happened."""

    kind: str
    worker: int
    life: int
    phase: str
    begin: float
    #: When it was over; None while it lasts.
    end: float | None = None
    #: Whom it may delay: one worker, or (None) everybody.
    affects: int | None = None
    note: str = ""


@dataclass
class _Trigger:
    planned: Planned
    fired: bool = False


@dataclass
class Outcome:
    """What a schedule came to."""

    schedule: Schedule
    injected: list[Injected] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    #: Things that are counted, and seconds.
    numbers: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    #: Errors that lives were shown or ended with.
    errors: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)


class Stage:
    """Runs one schedule.

    Args:
        inject: does a planned fault to a life; returns what becomes of the chunk that triggered it.
        sabotage: Python source that each life runs first, to break what the checks must find broken.
    """

    def __init__(
        self,
        schedule: Schedule,
        inject: Callable[[Stage, Planned, Life, str, Pair | None, bytes], Fate],
        binary: str | None = None,
        limit: float = 60.0,
        sabotage: str = "",
    ) -> None:
        self.sabotage = sabotage
        self.schedule = schedule
        self.outcome = Outcome(schedule)
        self.limit = limit
        self._inject = inject
        self._lock = threading.RLock()
        self._changed = threading.Condition()
        self._triggers = [_Trigger(planned) for planned in schedule.faults]
        #: The furthest that each worker has come.
        self._clocks: Counter[int] = Counter()
        self.threads: list[threading.Thread] = []
        #: Only one fault of the server at a time.
        self.server_lock = threading.Lock()
        self.lives: list[Life] = []
        #: Calls that arrive once more when all is over.
        self.late: list[bytes] = []
        #: When the job's state was lost on purpose.
        self.lost: float | None = None
        #: When the server forgot what it had acknowledged.
        self.rolled_back: list[float] = []
        self._scratch = tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True)
        self.scratch = Path(self._scratch.name)
        self.data = self.scratch / "data"
        #: What the log of the server had when the tables had been made.
        self.made = 0
        #: Who is late for the sake of a fault.
        self._held: int | None = None
        args = ["--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"] if schedule.keeps else []
        self.server = EmbeddedServer(
            binary, appendonly=schedule.keeps, directory=self.data if schedule.keeps else None, args=args
        )
        self.started = time.monotonic()

    # -- what happens ------------------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        self.outcome.log.append(f"{time.monotonic() - self.started:7.3f} {text}")

    def violation(self, text: str) -> None:
        self.outcome.violations.append(text)
        self.say(f"VIOLATION {text}")

    def tell(self) -> None:
        """Something changed that somebody may wait for."""
        with self._changed:
            self._changed.notify_all()

    def until(self, condition: Callable[[], object], seconds: float) -> bool:
        """Wait until a condition holds that only what is told can make true, or the time is up."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while not condition():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, 0.5))
        return True

    def saw(self, life: Life, phase: str, pair: Pair | None = None, chunk: bytes = b"") -> Fate:
        """A life was seen doing something: is a fault due?"""
        planned = self._due(life, phase, pair, chunk)
        return PASS if planned is None else self._fire(planned, life, phase, pair, chunk)

    def lasts(self, life: Life, phase: str, goes_on: Callable[[], bool]) -> None:
        """A life is in a phase that lasts: a fault may come to meet it there."""
        if not any(self._open(trigger, life, phase) for trigger in self._triggers):
            return

        def lurk() -> None:
            deadline = time.monotonic() + 2.0
            pause = 0.02
            while time.monotonic() < deadline:
                time.sleep(pause)  # so that it is truly in it
                if not goes_on() or life.ended:
                    return
                self.saw(life, phase)

        self.background(lurk)

    def _open(self, trigger: _Trigger, life: Life, phase: str) -> bool:
        """Is it this life in this phase that a fault waits for?"""
        planned = trigger.planned
        return (
            not trigger.fired
            and planned.worker == life.worker
            and planned.phase == phase
            and planned.life <= life.number
            and planned.since <= self._clocks[life.worker]
        )

    def _due(self, life: Life, phase: str, pair: Pair | None, chunk: bytes) -> Planned | None:
        with self._lock:
            for trigger in self._triggers:
                if self._open(trigger, life, phase) and self._can(trigger.planned, life, phase, pair, chunk):
                    if self._is_end(trigger.planned) and not self._late(trigger):
                        continue
                    trigger.fired = True
                    if phase == "waiting" or needs_company(trigger.planned):
                        self.hold(None)
                    return trigger.planned
        return None

    def _can(self, planned: Planned, life: Life, phase: str, pair: Pair | None, chunk: bytes) -> bool:
        """Is there what the fault happens to?"""
        kind = planned.kind
        if KINDS[kind].group in ("server", "end") and self.server_lock.locked():
            return False
        if kind.startswith("waiting"):
            return bool(life.has(SUBSCRIBER))
        if kind.startswith("heartbeat"):
            return bool(life.has(HEARTBEAT))
        if kind == "command repeated":
            return pair is not None and chunk.startswith(b"*") and chunk.endswith(b"\r\n")
        if kind in _SENT:
            return pair is not None
        if kind.startswith("commands"):
            return pair is not None or bool(life.has(COMMAND))
        if phase == "joining" and kind == "evicted":
            return pair is None and self.is_member(life)
        return True

    def is_member(self, life: Life) -> bool:
        """Is this very process a member?"""
        with contextlib.suppress(SSPError), Job(self.server.url, JOB) as job:
            return any(member.pid == life.process.pid for member in job.status().members)
        return False

    def _late(self, trigger: _Trigger) -> bool:
        """What ends it all comes last."""
        others = all(other.fired for other in self._triggers if other is not trigger)
        return others or self._clocks[trigger.planned.worker] >= 0.85 * self.schedule.clocks

    def _is_end(self, planned: Planned) -> bool:
        return KINDS[planned.kind].group == "end"

    def holding(self, worker: int) -> Path:
        """While this file is there, the worker takes its time."""
        return self.scratch / f"{worker}.hold"

    def went_on(self, life: Life) -> None:
        """A wait is over: who was held so that this one would wait need be no longer, if that is what it was for."""
        if any(
            planned.worker == life.worker and planned.phase == "leaving" and planned.kind.startswith("waiting")
            for planned in self.missed()
        ) and life.has(SUBSCRIBER):
            self.hold(None)

    def hold(self, worker: int | None) -> None:
        """Let one be late, so that the others wait for it; None: nobody any more."""
        with self._lock:
            if self._held is not None and worker != self._held:
                self.holding(self._held).unlink(missing_ok=True)
                self._held = None
            if worker is not None and self._held is None:
                self.holding(worker).touch()
                self._held = worker

    def _hold_others(self) -> None:
        """If a fault is to meet somebody who waits, see to it that one has to wait."""
        with self._lock:
            if self._held is not None or self.lost is not None or self.schedule.staleness == math.inf:
                return
            for trigger in self._triggers:
                planned = trigger.planned
                if trigger.fired or planned.since > self._clocks[planned.worker]:
                    continue
                if planned.phase != "waiting" and not self._is_deaf(planned):
                    continue
                if self._is_end(planned) and not self._late(trigger):
                    continue
                if any(life.worker == planned.worker for life in self.running()):
                    self.hold_another(planned.worker)
                    return

    def _is_deaf(self, planned: Planned) -> bool:
        """Is one about to leave without the connection that a fault shall meet then? If it waits, it makes another."""
        return (
            planned.phase == "leaving"
            and planned.kind.startswith("waiting")
            and self._clocks[planned.worker] >= self.schedule.clocks - 4 - 3 * self.schedule.staleness
            and not any(life.has(SUBSCRIBER) for life in self.running() if life.worker == planned.worker)
        )

    def running(self) -> list[Life]:
        """The lives that have joined and go on."""
        return [life for life in self.lives if life.last("joined") and not life.ended]

    def hold_another(self, worker: int) -> None:
        """Let the slowest of the others be late, until ``hold(None)``."""
        others = {life.worker for life in self.running()} - {worker}
        if others:
            self.hold(min(others, key=lambda other: self._clocks[other]))

    def reached(self, life: Life, clock: int) -> None:
        """A life begins a clock. What has not had its chance in the last one gets one, whatever the worker is doing."""
        self._clocks[life.worker] = max(clock, self._clocks[life.worker])
        if clock and not self.made and self.schedule.keeps:
            self.made = sum(part.stat().st_size for part in log_parts(self.data))
        self._hold_others()
        due = None
        if clock >= self.schedule.clocks - 1:
            with self._lock:
                for trigger in self._triggers:
                    planned = trigger.planned
                    if trigger.fired or planned.worker != life.worker or planned.phase in ("leaving", "joining"):
                        continue
                    if planned.kind not in _SENT and self._can(planned, life, "computing", None, b""):
                        trigger.fired, due = True, planned
                        break
        if due is not None:
            self._fire(due, life, "computing", None, b"")

    def _fire(self, planned: Planned, life: Life, phase: str, pair: Pair | None, chunk: bytes) -> Fate:
        if self.lost is not None:
            return PASS
        return self._inject(self, planned, life, phase, pair, chunk)

    def missed(self) -> list[Planned]:
        """The faults whose moment did not come."""
        return [trigger.planned for trigger in self._triggers if not trigger.fired]

    def note(self, kind: str, life: Life, phase: str, affects: int | None, note: str = "") -> Injected:
        """A fault happens now."""
        injected = Injected(kind, life.worker, life.number, phase, time.monotonic(), None, affects, note)
        with self._lock:
            self.outcome.injected.append(injected)
        self.say(f"{kind} at {life}, {phase} {note}")
        return injected

    def background(self, function: Callable[[], object]) -> threading.Thread:
        """Run the rest of a fault in a thread of its own, whose end the schedule waits for."""

        def run() -> None:
            try:
                function()
            except Exception as error:
                self.violation(f"a fault could not be injected: {type(error).__name__}: {error}")
            finally:
                self.tell()

        thread = threading.Thread(target=run, daemon=True)
        self.threads.append(thread)
        thread.start()
        return thread

    def admin(self) -> redis.Redis:
        return redis.Redis.from_url(self.server.url, socket_timeout=10)

    # -- lives -------------------------------------------------------------------------------------------------------

    def spawn(self, worker: int) -> Life | None:
        """Start the next life of an id; None when there are no more marks for it."""
        with self._lock:
            number = sum(life.worker == worker for life in self.lives)
            if number >= LIVES:
                self.violation(f"worker {worker} has used up its lives")
                return None
            life = Life(self, worker, number)
            self.lives.append(life)
            self.say(f"{life} starts, pid {life.process.pid}")
            return life

    def run(self) -> Outcome:
        """Play the schedule until everybody is done; who does not end in time is a violation, with all stacks."""
        if waiting := [fault.worker for fault in self.schedule.faults if needs_company(fault)]:
            # the others wait in join for this one
            self.hold(next(worker for worker in range(self.schedule.workers) if worker not in waiting))
        for worker in range(self.schedule.workers):
            self.spawn(worker)
        deadline = self.started + self.limit
        handled: set[Life] = set()
        while not self._over(handled):
            if time.monotonic() > deadline:
                self._hung()
                break
            self.until(lambda: any(life.ended for life in self.lives if life not in handled), 0.5)
        for life in list(self.lives):
            if life.ended and life not in handled:
                self._ended(life)
        for thread in self.threads:
            thread.join(10)
        return self.outcome

    def _over(self, handled: set[Life]) -> bool:
        for life in list(self.lives):
            if life.ended and life not in handled:
                handled.add(life)
                self._ended(life)
                self.hold(None)  # whoever is held may have been so for its sake; the others ask again
                others = [other for other in self.lives if other.worker == life.worker and other is not life]
                covered = any(not other.ended or other.end == "done" for other in others)
                if self.lost is None and not covered and life.end not in ("done", "StateLost"):
                    self.spawn(life.worker)
        if self.schedule.reproducible:
            self._operate()
        if any(thread.is_alive() for thread in self.threads):
            return False
        if self.lost is not None:
            # who had not joined when the job was lost makes a new one, and waits for a quorum that never comes
            for life in self.lives:
                joined = life.last("joined")
                if not life.ended and (joined is None or joined.time > self.lost) and self._others_ended():
                    self.say(f"{life} had not joined and is ended")
                    life.killed = time.monotonic()
                    life.signal(signal.SIGKILL)
        return all(life.ended and life in handled for life in self.lives)

    def _operate(self) -> None:
        """In a reproducible run whoever is missing is waited for until it returns, or an operator decides otherwise."""
        now = time.monotonic()
        if (
            self.lost is not None
            and now > self.lost + 5.0
            and any(fault.kind == "keys evicted" for fault in self.outcome.injected)
        ):
            for life in self.lives:
                if not life.ended and life.killed is None:
                    self.say(f"{life} waits for those who will not return, and is ended")
                    life.killed = now
                    life.signal(signal.SIGKILL)
            return
        for life in self.lives:
            over = life.last("end")
            if life.end != "done" or life.let_go or over is None or now < over.time + 3.0 or self.lost is not None:
                continue
            life.let_go = True
            with contextlib.suppress(SSPError), Job(self.server.url, JOB) as job:
                if any(member.pid == life.process.pid for member in job.status().members):
                    self.say(f"{life} could not say that it left, and is evicted")
                    life.evicted = now
                    job.evict(life.worker)

    def _others_ended(self) -> bool:
        assert self.lost is not None
        return all(
            life.ended
            for life in self.lives
            if (joined := life.last("joined")) is not None and joined.time <= self.lost
        )

    def _ended(self, life: Life) -> None:
        self.outcome.errors[life.end] += 1
        detail = life.last("end")
        joined, last = life.last("joined"), life.last("advanced")
        span = f"clocks {joined.details[1] if joined else '?'} to {last.details[0] if last else '?'}"
        self.say(f"{life} ended: {life.end}, {span} {detail.details[1] if detail else ''}")
        if life.end.startswith("exit") or not (life.killed or life.process.returncode == 0):
            self.violation(f"{life} ended with {life.end}: {life.errors.read_text(errors='replace')[-1500:]}")

    def _hung(self) -> None:
        self.violation(f"not over after {self.limit:g} s")
        for life in self.lives:
            if not life.ended:
                life.signal(signal.SIGCONT)
                life.signal(signal.SIGUSR1)
        stuck = [life for life in self.lives if not life.ended]
        self.until(lambda: all(b"most recent call" in life.errors.read_bytes() for life in stuck), 3)
        for life in stuck:
            last = life.events[-1] if life.events else None
            self.say(f"{life} hangs; last said: {last}\n{life.errors.read_text(errors='replace')}")
        with (self.scratch / "stacks").open("w+") as stacks:
            faulthandler.dump_traceback(stacks, all_threads=True)
            stacks.seek(0)
            self.say(f"this process:\n{stacks.read()}")

    def close(self) -> None:
        for life in self.lives:
            life.close()
        with contextlib.suppress(ProcessLookupError):
            if self.server.running:
                os.kill(self.server.pid, signal.SIGCONT)
        self.server.stop()
        self._scratch.cleanup()
        self.outcome.seconds = time.monotonic() - self.started
