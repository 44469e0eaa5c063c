"""The stage of a schedule: a server, and workers' lives, each behind a proxy of its own."""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from proxy import COMMAND, PASS, Fate, Pair, Proxy
from remote import environment

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


def phase_of(chunk: bytes) -> str | None:
    """What a worker is doing, by what it sends."""
    if _SHA["join"] in chunk:
        return "joining"
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
        #: What shall be done to the next connection of a role.
        self.ambush: dict[str, Callable[[Pair], None]] = {}
        self.began = time.monotonic()
        self.killed: float | None = None
        self.evicted: float | None = None
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
            "sabotage": stage.sabotage,
        }
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("worker.py")), json.dumps(told)],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(),
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __str__(self) -> str:
        return f"worker {self.worker}, life {self.number}"

    def _watch(self, pair: Pair, chunk: bytes) -> Fate:
        role = pair.role
        if role != COMMAND:
            if action := self.ambush.pop(role, None):
                action(pair)
            return PASS
        phase = phase_of(chunk)
        return self.stage.saw(self, phase, pair, chunk) if phase else PASS

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            moment, what, *details = json.loads(line)
            self.events.append(Event(moment, what, details))
            if what == "waiting":
                self.stage.saw(self, "waiting")
            elif what == "begin":
                self.stage.reached(self, details[0])
            elif what in ("joined", "error"):
                self.stage.tell()
        self.process.wait()
        self.stage.tell()

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
        self.process.kill()
        self.process.wait()
        self._reader.join(5)
        if self.process.stdout:
            self.process.stdout.close()
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
    left: int
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
        self._triggers = [_Trigger(planned, planned.count) for planned in schedule.faults]
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
        return self._fire(self._due(life, phase), life, phase, pair, chunk)

    def _due(self, life: Life, phase: str) -> Planned | None:
        with self._lock:
            for trigger in self._triggers:
                planned = trigger.planned
                if trigger.fired or planned.worker != life.worker or planned.phase != phase:
                    continue
                if self._is_end(planned) and not all(other.fired for other in self._triggers if other is not trigger):
                    continue
                trigger.left -= 1
                if trigger.left <= 0:
                    trigger.fired = True
                    return planned
        return None

    def _is_end(self, planned: Planned) -> bool:
        return KINDS[planned.kind].group == "end"

    def reached(self, life: Life, clock: int) -> None:
        """What has not had its chance late in the job gets one, whatever the worker is doing."""
        share = clock / self.schedule.clocks
        due = None
        with self._lock:
            for trigger in self._triggers:
                planned = trigger.planned
                if trigger.fired or planned.worker != life.worker or planned.phase in ("leaving", "joining"):
                    continue
                if share >= (0.9 if self._is_end(planned) else 0.7):
                    trigger.fired, due = True, planned
                    break
        self._fire(due, life, "computing", None, b"")

    def _fire(self, planned: Planned | None, life: Life, phase: str, pair: Pair | None, chunk: bytes) -> Fate:
        if planned is None or self.lost is not None:
            return PASS
        return self._inject(self, planned, life, phase, pair, chunk)

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
                others = [other for other in self.lives if other.worker == life.worker and other is not life]
                covered = any(not other.ended or other.end == "done" for other in others)
                if self.lost is None and not covered and life.end not in ("done", "StateLost"):
                    self.spawn(life.worker)
        if any(thread.is_alive() for thread in self.threads):
            return False
        if self.lost is not None:
            # who had not joined when the job was lost makes a new one, and waits for a quorum that never comes
            for life in self.lives:
                joined = life.last("joined")
                if not life.ended and (joined is None or joined.time > self.lost) and self._others_ended():
                    self.say(f"{life} had not joined and is ended")
                    life.killed = time.monotonic()
                    life.process.kill()
        return all(life.ended and life in handled for life in self.lives)

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
