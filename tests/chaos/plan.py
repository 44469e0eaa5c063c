"""Schedules: which job, on which server, and what shall happen to it when. The same seed gives the same schedule."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

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
        Kind("waiting frozen", "wire", "nothing moves on it for up to 2.5 s"),
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
        Kind("server restarted empty", "end", "kill −9 of a server without an AOF, and a start"),
        Kind("keys evicted", "end", "maxmemory is reached, and the policy evicts any key"),
    )
}
#: Those while which the server refuses what it is asked.
REFUSALS = {"memory full", "disk unwritable", "channels forbidden", "read-only", "keys evicted"}


@dataclass(frozen=True)
class Planned:
    """One fault to come."""

    kind: str
    #: Whom it meets, and what that worker shall be doing for the so-manyth time.
    worker: int
    phase: str
    count: int
    #: How much of it, 0 … 1.
    amount: float

    def __str__(self) -> str:
        return f"{self.kind} ({self.amount:.2f}) at worker {self.worker}, {self.phase} no. {self.count}"


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

    #: Seconds. A re-check is promised within 2 s by default; here it is asked for sooner.
    lease = 3.0
    recheck = 1.0
    #: Seconds after which an exchange without an answer is given up.
    patience = 1.5

    @property
    def kinds(self) -> set[str]:
        return {fault.kind for fault in self.faults}

    def __str__(self) -> str:
        kept = "AOF" if self.keeps else "memory"
        head = (
            f"seed {self.seed}: {self.workers} workers, staleness {self.staleness}, {self.clocks} clocks, {kept}, "
            f"{'unix' if self.unix else 'tcp'}, loops {list(self.loops)}"
        )
        return "\n  ".join([head, *map(str, self.faults)])


def _some(rng: random.Random, group: str, count: int) -> list[str]:
    return rng.sample([kind.name for kind in KINDS.values() if kind.group == group], count)


def schedule(seed: int) -> Schedule:
    """The schedule of a seed."""
    rng = random.Random(f"chaos {seed}")
    workers = rng.choice((3, 3, 4))
    clocks = rng.randint(24, 40)
    kinds = [
        *_some(rng, "wire", rng.randint(2, 4)),
        *_some(rng, "process", rng.randint(1, 2)),
        *_some(rng, "server", rng.randint(1, 3)),
    ]
    rng.shuffle(kinds)
    end = _some(rng, "end", 1) if rng.random() < 0.2 else []
    if end:
        # what was acknowledged and forgotten is a story of its own
        kinds = [kind for kind in kinds if kind != "server rolled back"]
    keeps = bool({"server restarted", "server rolled back"} & set(kinds)) or rng.random() < 0.3
    if "server restarted empty" in end:
        kinds, keeps = [kind for kind in kinds if kind != "server restarted"], False
    loops = tuple(worker for worker in range(workers) if rng.random() < 0.3)
    faults = []
    for kind in kinds:
        phase = rng.choice(PHASES)
        often = {"joining": 1, "leaving": 1, "folding": 2, "ticking": 6, "reading": 6}.get(phase, round(clocks * 0.4))
        # a program of one loop does not say when it waits
        victims = [worker for worker in range(workers) if phase != "waiting" or worker not in loops]
        victim = rng.choice(victims or range(workers))
        faults.append(Planned(kind, victim, phase, rng.randint(1, often), rng.random()))
    for kind in end:
        phase = rng.choice([phase for phase in PHASES if phase not in ("joining", "leaving")])
        faults.append(Planned(kind, rng.randrange(workers), phase, 1, rng.random()))
    return Schedule(
        seed=seed,
        workers=workers,
        staleness=rng.choice((0, 1, 3, math.inf)),
        clocks=clocks,
        work=rng.choice((0.002, 0.01, 0.02)),
        keeps=keeps,
        unix=rng.random() < 0.3,
        loops=loops,
        faults=faults,
    )
