"""Schedules: which job, on which server, and what shall happen to it when. The same seed gives the same schedule."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from typing import TypeVar

T = TypeVar("T")

#: What a worker may be doing when a fault meets it.
PHASES = ("joining", "pushing", "ticking", "waiting", "reading", "folding", "leaving")


@dataclass(frozen=True)
class Kind:
    """A kind of fault."""

    name: str
    #: wire, process, server; or end: the state of the job is lost with it.
    group: str
    what: str


KINDS = {
    kind.name: kind
    for kind in (
        Kind("command lost", "wire", "the connection is cut before a command arrives"),
        Kind("reply lost", "wire", "the command arrives, the connection is cut before its reply"),
        Kind("command torn", "wire", "the connection is cut after n bytes of a command"),
        Kind("reply torn", "wire", "the connection is cut after n bytes of a reply"),
        Kind("command late", "wire", "the client is cut off, the server gets the command up to 0.6 s later"),
        Kind("command delayed", "wire", "a command is held for up to 0.5 s"),
        Kind("command repeated", "wire", "a script's call arrives again later, and again after the end"),
        Kind("commands half-open", "wire", "the command connection stays open, no reply comes back"),
        Kind("commands frozen", "wire", "nothing moves on the command connection, then what was sent arrives"),
        Kind("waiting cut", "wire", "the connection that a worker waits on is cut"),
        Kind("waiting half-open", "wire", "it stays open, no message comes"),
        Kind("waiting frozen", "wire", "nothing moves on it for up to 1.3 s"),
        Kind("heartbeat cut", "wire", "the heartbeat's connection is cut"),
        Kind("heartbeat half-open", "wire", "it stays open, no reply comes back"),
        Kind("killed", "process", "kill −9 of a worker; it is started again"),
        Kind("stopped", "process", "SIGSTOP, then SIGCONT within its lease"),
        Kind("stopped too long", "process", "SIGSTOP for longer than its lease, then SIGCONT"),
        Kind("taken over", "process", "a second process joins under the id of a live one"),
        Kind("taken over stopped", "process", "the same, the first one being stopped, then continued"),
        Kind("evicted", "process", "somebody evicts the worker; it is started again"),
        Kind("scripts flushed", "server", "SCRIPT FLUSH"),
        Kind("clients killed", "server", "CLIENT KILL TYPE normal"),
        Kind("subscribers killed", "server", "CLIENT KILL TYPE pubsub"),
        Kind("server frozen", "server", "SIGSTOP of the server for longer than the lease"),
        Kind("server restarted", "server", "kill −9 of the server, and a start from its AOF"),
        Kind("server rolled back", "server", "the same, the AOF's tail being cut off"),
        Kind("read-only", "server", "REPLICAOF: the server refuses writes"),
        Kind("memory full", "server", "maxmemory is reached, and nothing may be evicted"),
        Kind("disk unwritable", "server", "a snapshot cannot be written: MISCONF"),
        Kind("channels forbidden", "server", "the ACL allows no channel"),
        Kind("keys flushed", "end", "FLUSHALL"),
        Kind("server restarted empty", "end", "kill −9 of the server, and a start without its data"),
        Kind("keys evicted", "end", "maxmemory is reached, and the policy evicts any key"),
    )
}
#: Those while which the server refuses what it is asked.
REFUSALS = {"memory full", "disk unwritable", "channels forbidden", "read-only", "keys evicted"}


@dataclass(frozen=True)
class Planned:
    """One fault to come."""

    kind: str
    #: Whom it meets, and what that worker shall be doing.
    worker: int
    phase: str
    #: Not before the worker has come to this clock.
    since: int
    #: Nor before so many processes under its id have come and gone.
    life: int
    #: How much of it, 0 … 1.
    amount: float

    def __str__(self) -> str:
        again = f", life {self.life} or later" if self.life else ""
        return f"{self.kind} ({self.amount:.2f}) at worker {self.worker}, {self.phase}, from clock {self.since}{again}"


@dataclass(frozen=True)
class Schedule:
    """A job and its faults."""

    seed: int
    workers: int
    staleness: float
    clocks: int
    #: Mean seconds of work per clock.
    work: float
    #: Does the server keep an AOF?
    keeps: bool
    #: Do the proxies listen on unix sockets?
    unix: bool
    #: Workers that are programs of one loop, which an error ends; the others ride errors out.
    loops: tuple[int, ...]
    faults: list[Planned] = field(default_factory=list)
    #: A reproducible run?
    reproducible: bool = False
    #: Clocks whose deltas are pushed as one.
    flush: int = 1

    #: Seconds. By default a lease is 10 s and a re-check is promised within 2 s; here both are asked for sooner.
    lease = 1.5
    recheck = 0.5
    #: Seconds after which an exchange without an answer is given up.
    patience = 0.8

    @property
    def kinds(self) -> set[str]:
        return {fault.kind for fault in self.faults}

    def __str__(self) -> str:
        kept = "AOF" if self.keeps else "memory"
        head = (
            f"seed {self.seed}: {self.workers} workers, staleness {self.staleness}, {self.clocks} clocks, {kept}, "
            f"{'unix' if self.unix else 'tcp'}, loops {list(self.loops)}"
            f"{', reproducible' if self.reproducible else ''}"
            f"{f', flushes every {self.flush}' if self.flush > 1 else ''}"
        )
        return "\n  ".join([head, *map(str, self.faults)])


_KINDS_OF = {
    group: [kind.name for kind in KINDS.values() if kind.group == group]
    for group in ("process", "server", "wire", "end")
}
#: Of which group the kinds are that a phase is dealt, one after the other. Any six neighbours have all three in them.
_PATTERN = [
    *("process", "server", "wire", "server", "wire"),
    *("process", "server", "wire", "wire", "wire"),
    *("process", "server", "wire", "server", "wire"),
    *("process", "server", "wire", "server", "wire"),
    *("process", "server", "wire", "wire", "wire"),
    *("process", "server", "wire", "server", "wire"),
]
_EVERY = tuple(phase for phase in PHASES if phase != "leaving")
_ENDS = [(kind, phase) for kind in _KINDS_OF["end"] for phase in PHASES]
#: Other settings of the job (see ``schedule``).
VARIANTS = ("", "reproducible", "flush", "crowd")
#: Of so many seeds in a row, in how many the job's state is lost at last; in the others workers leave in faults.
_TURN, _LOSING = 9, 5
#: After these another process goes on under the id.
_RESTARTING = ("killed", "evicted", "taken over", "taken over stopped", "stopped too long")


def _dealt(what: str, cards: list[T], number: int) -> T:
    """One card after the other from a shuffled deck, then from the next deck."""
    deck, place = divmod(number, len(cards))
    return random.Random(f"{what} {deck}").sample(cards, len(cards))[place]


def _kind(phase: str, seed: int) -> str:
    """The kind of fault that a seed has for a phase: each once in so many seeds as there are kinds."""
    deck, place = divmod(seed + _EVERY.index(phase), len(_PATTERN))
    group = _PATTERN[place]
    kinds = _KINDS_OF[group]
    return random.Random(f"{phase} {group} {deck}").sample(kinds, len(kinds))[_PATTERN[:place].count(group)]


def pairs(seed: int) -> list[tuple[str, str]]:
    """(kind, phase): which faults a seed has, and in what they shall meet a worker.

    One for each phase, of connections, processes and the server; besides either two that meet leaving workers, or one
    that ends it all. All pairs come up equally often over a row of seeds.
    """
    found = [(_kind(phase, seed), phase) for phase in _EVERY]
    turn, place = divmod(seed, _TURN)
    if place % 2 == 0:  # 0, 2, 4, 6, 8
        return [*found, _dealt("ends", _ENDS, _LOSING * turn + place // 2)]
    number = (_TURN - _LOSING) * turn + place // 2
    kinds = [kind.name for kind in KINDS.values() if kind.group != "end"]
    return [*found, *((_dealt("leaving", kinds, 2 * number + one), "leaving") for one in range(2))]


def schedule(seed: int, variant: str = "") -> Schedule:
    """The schedule of a seed; a variant of it has the same faults, and other settings of the job."""
    usual = _usual(seed)
    if variant == "reproducible":
        return replace(usual, staleness=0, reproducible=True)
    if variant == "crowd":
        return replace(usual, staleness=0, workers=6)  # the others meet no faults of their own
    if variant == "flush":
        rng = random.Random(f"flush {seed}")
        staleness = rng.choice((1, 3)) if seed % 8 else math.inf
        return replace(usual, staleness=staleness, flush=rng.randint(2, 2 if staleness == 1 else 4))
    return usual


def _usual(seed: int) -> Schedule:
    rng = random.Random(f"chaos {seed}")
    workers, clocks = rng.choice((3, 3, 4)), 24
    loops = tuple(worker for worker in range(workers) if rng.random() < 0.3)[: workers - 1]
    talkers = [worker for worker in range(workers) if worker not in loops]
    dealt = pairs(seed)
    end = [pair for pair in dealt if KINDS[pair[0]].group == "end"]
    usual = [pair for pair in dealt if pair[1] not in ("joining", "leaving") and pair not in end]
    rng.shuffle(usual)
    faults: list[Planned] = []
    for place, (kind, phase) in enumerate(usual):
        # a program of one loop does not say when it waits
        victim = rng.choice(talkers if phase == "waiting" else range(workers))
        since = 1 + round(place * 0.65 * clocks / len(usual))
        if kind == "server rolled back":
            since = max(since, clocks // 3)  # so that there is something to forget
        faults.append(Planned(kind, victim, phase, since, 0, rng.random()))
    restarts = [fault for fault in faults if fault.kind in _RESTARTING]

    def comes_back() -> tuple[int, int]:
        """A worker that is started again, and the clock from which on that happens."""
        if restarts:
            return restarts[0].worker, restarts[0].since
        victim, since = rng.randrange(workers), rng.randint(2, clocks // 2)
        restarts.append(Planned("killed", victim, rng.choice(("pushing", "reading")), since, 0, rng.random()))
        faults.append(restarts[0])
        return victim, since

    for kind, phase in dealt:
        if phase == "joining" and (kind, phase) not in end:
            again = kind == "server rolled back" or (restarts and rng.random() < 0.5)
            # who comes back does not wait for the others
            if again and kind != "evicted" and not kind.startswith("heartbeat"):
                victim, since = comes_back()
                faults.append(Planned(kind, victim, phase, since, 1, rng.random()))
            else:
                faults.append(Planned(kind, rng.randrange(workers), phase, 0, 0, rng.random()))
    leavers = rng.sample(range(workers), workers)
    for kind, phase in dealt:
        if phase == "leaving" and (kind, phase) not in end:
            faults.append(Planned(kind, leavers.pop(), phase, 0, 0, rng.random()))
    for kind, phase in end:
        victim, since = rng.choice(talkers), round(0.7 * clocks)
        if phase == "joining":
            faults.append(Planned("killed", victim, rng.choice(("pushing", "reading")), since, 0, rng.random()))
        faults.append(Planned(kind, victim, phase, since, int(phase == "joining"), rng.random()))
    kinds = {fault.kind for fault in faults}
    return Schedule(
        seed=seed,
        workers=workers,
        staleness=rng.choice((0, 1, 3)) if seed % 8 else math.inf,
        clocks=clocks,
        work=0.03 if any(kind.startswith("heartbeat") for kind in kinds) else rng.choice((0.002, 0.01, 0.02)),
        keeps=bool({"server restarted", "server rolled back"} & kinds) or rng.random() < 0.2,
        unix=rng.random() < 0.3,
        loops=loops,
        faults=faults,
    )
