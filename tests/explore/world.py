"""A state of the world: what the server keeps, what each worker's process knows, and what the explorer remembers.

States that differ only in names are one state: incarnations are renamed in their order, nonces as they appear, log
positions counted from the oldest that anybody still refers to, and log entries that nobody refers to lose their text.
The scripts only compare such names, so whatever holds in the one holds in the other. Time stands still: a lease is live
or expired because the explorer says so.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .engine import NOW_MS, SECONDS, Server

LEASE_MS = 10_000
LIVE = str(NOW_MS + LEASE_MS)
EXPIRED = str(NOW_MS - 1)
#: Values of the last TIME that the store has seen: a moment ago, half a lease and more ago, in the future.
RECENT, SILENT, BACKWARDS = str(NOW_MS), str(NOW_MS - LEASE_MS), str(NOW_MS + 3 * LEASE_MS)
FAR = str(NOW_MS + 4 * LEASE_MS)
#: How long the blocked have patience with a min that does not move.
PATIENCE_MS = 1000

#: Bound of a worker that may run however far ahead it is.
UNBOUNDED = 1 << 30


class Process(NamedTuple):
    """What one process that runs as a worker knows, and what it has sent.

    ``phase``: joining, running (admitted), waiting. ``connected`` is False while a sync is owed: after a lost
    connection, a rollback (which breaks every connection) or an answer that asked for one.
    """

    phase: str
    nonce: str
    #: Incarnation that it read before joining.
    known: int
    #: Run that it names, "" for the current.
    name: str
    run: str = ""
    incarnation: int = 0
    epoch: int = 0
    clock: int = 0
    #: Clock that a tick under way wants, 0 when there is none.
    pending: int = 0
    #: The last of the log that it has seen, −1 for nothing.
    position: int = -1
    tag: str = "-"
    connected: bool = False
    #: Staleness when it was admitted last.
    bound: int = 0
    #: What the last sync said of a rollback.
    restored: str = "-"
    #: Lowest clock to which the store fell back in a rollback that this process has not heard of; −1 for none.
    owed: int = -1


class Left(NamedTuple):
    """How often each thing may still happen."""

    starts: tuple[int, ...]
    rollbacks: int = 0
    cuts: int = 0


@dataclass
class World:
    """A state. Moves copy it; nothing in it is changed in place."""

    server: Server
    #: Per worker: the process that runs now, and an earlier one whose calls may still arrive.
    current: dict[str, Process | None]
    former: dict[str, Process | None]
    left: Left
    #: Members whose lease somebody else has renewed since they spoke.
    renewed: tuple[str, ...] = ()
    #: A state of the server that it may fall back to, and how many changes ago that was.
    backup: Server | None = None
    age: int = 0
    #: Members, with their incarnations, that have held the min for as long as anybody has patience.
    stood: tuple[tuple[str, int], ...] = ()
    #: Incarnations that the state speaks of; set by :func:`canonical`.
    incarnations: int = field(default=0, compare=False)

    def having(self, **changes: Any) -> World:
        new = object.__new__(World)
        new.__dict__.update(self.__dict__)
        new.__dict__.update(changes)
        return new

    def with_current(self, worker: str, process: Process | None) -> World:
        if process == self.current[worker]:
            return self
        return self.having(current=self.current | {worker: process})

    def without(self, worker: str) -> World:
        """The current process is gone; what it sent may still arrive."""
        return self.having(current=self.current | {worker: None}, former=self.former | {worker: self.current[worker]})


def empty(workers: int, left: Left) -> World:
    """Nobody has joined, there is no job."""
    ids = [str(number) for number in range(workers)]
    names = ("config", "clocks", "order", "ids", "leases", "graced", "runs")
    server: Server = {name: [] if name == "runs" else {} for name in names} | {"log": [], "expires": 0}
    return World(server, dict.fromkeys(ids), dict.fromkeys(ids), left)


class Record(NamedTuple):
    """What the store remembers of an id."""

    incarnation: int
    why: str
    nonce: str
    host: str
    pid: str
    restored: str


def record(server: Server, worker: str) -> Record | None:
    text = server["ids"].get(worker)
    if text is None:
        return None
    incarnation, why, nonce, host, pid, restored = text.split(" ")
    return Record(int(incarnation), why, nonce, host, pid, restored)


def is_member(server: Server, process: Process | None, worker: str) -> bool:
    """Does the store hold this very incarnation to be a member?"""
    if process is None or process.phase == "joining" or server["config"].get("run") != process.run:
        return False
    known = record(server, worker)
    return known is not None and known.incarnation == process.incarnation and known.why == "-"


def floor_of(server: Server) -> int:
    return int(server["config"].get("floor", 0))


def min_of(server: Server) -> int:
    """The min clock: the lowest member's; the floor of a run without members, or that has not started."""
    if server["config"].get("started") != "1":
        return floor_of(server)
    return min(map(int, server["order"].values()), default=floor_of(server))


def holders(server: Server) -> tuple[tuple[str, int], ...]:
    """The members that hold the min, and their incarnations."""
    low = str(min_of(server))
    held = [(worker, record(server, worker)) for worker, clock in sorted(server["order"].items()) if clock == low]
    return tuple((worker, known.incarnation) for worker, known in held if known)


def still_since(server: Server) -> int | None:
    """Since when (ms) a blocked worker knows that the min has not moved; None: it has, or nobody has looked."""
    at, since, _ = server["config"].get("still", "- 0 0").split(" ")
    return int(since) if at == str(min_of(server)) else None


class Truth(NamedTuple):
    """What is announced when it changes."""

    run: str
    epoch: int
    low: int
    staleness: int
    membership: int
    stopped: str
    started: str

    def admits(self, clock: int) -> bool:
        return self.started == "1" and (self.staleness < 0 or clock - self.low <= self.staleness)

    @property
    def bound(self) -> int:
        return UNBOUNDED if self.staleness < 0 else self.staleness

    @classmethod
    def of_message(cls, text: str) -> Truth:
        run, epoch, low, staleness, membership, stopped, started, *_ = text.split(" ")
        return cls(run, int(epoch), int(low), int(staleness), int(membership), stopped, started)


def truth(server: Server) -> Truth | None:
    config = server["config"]
    if not config:
        return None
    return Truth(
        config["run"],
        int(config["epoch"]),
        min_of(server),
        int(config["staleness"]),
        int(config["membership"]),
        config["stop"],
        config["started"],
    )


# -- one text for equal states -----------------------------------------------------------------------------------------

_encode = json.JSONEncoder(separators=(",", ":")).encode
_INCARNATION = re.compile(rf"{SECONDS}\d{{6}}")
_NONCE = re.compile(r"abcdef\d{10}")
_MEMBERSHIP = "100"
#: How many changes of the configuration there were, in every state.
CHANGES = "100"
_SETTLED = ("config", "clocks", "order", "ids", "leases", "graced", "runs")


def _plain(server: Server, log: list[str]) -> list[Any]:
    config = server["config"]
    if config and (config["membership"], config.get("changes")) != (_MEMBERSHIP, CHANGES):
        server = server | {"config": config | {"membership": _MEMBERSHIP, "changes": CHANGES}}
    parts: list[Any] = [
        sorted(value.items()) if isinstance(value, dict) else value for value in map(server.__getitem__, _SETTLED)
    ]
    return [*parts, log, server["expires"]]


def _server(parts: list[Any]) -> Server:
    *settled, log, expires = parts
    server: Server = {
        name: value if name == "runs" else dict(value) for name, value in zip(_SETTLED, settled, strict=True)
    }
    server["log"], server["expires"] = log, expires
    return server


def canonical(world: World) -> str:
    """The text that equal states share; :func:`revive` makes a world of it."""
    log = world.server["log"]
    old = world.backup["log"] if world.backup else None
    processes = [process for process in world.current.values() if process]
    cited = {process.position for process in processes}
    # somebody may still cut the log: two entries stay, whoever refers to them
    start = min((position for position in cited if position >= 0), default=len(log))
    start = max(0, min(start, len(log) - 2, len(log if old is None else old) - 2))
    log = [text if at in cited else "-:" for at, text in enumerate(log)][start:]
    if old is not None:
        old = [text if at in cited else "-:" for at, text in enumerate(old)][start:]

    def shifted(process: Process | None) -> Process | None:
        if process is None or process.position < 0 or not start:
            return process
        return process._replace(position=process.position - start)

    former = [
        process and process._replace(position=-1, tag="-", connected=False, owed=-1, bound=0, restored="-")
        for process in world.former.values()
    ]
    text = _encode(
        [
            _plain(world.server, log),
            [shifted(process) for process in world.current.values()],
            former,
            world.left,
            sorted(world.renewed),
            None if world.backup is None else _plain(world.backup, old or []),
            world.age,
            world.stood,
        ]
    )
    found = sorted(set(_INCARNATION.findall(text)))
    if found and int(found[-1]) != SECONDS * 1_000_000 + len(found):
        names = {name: str(SECONDS * 1_000_000 + number) for number, name in enumerate(found, 1)}
        text = _INCARNATION.sub(lambda match: names[match[0]], text)
    nonces = list(dict.fromkeys(_NONCE.findall(text)))
    renamed = {name: nonce(number) for number, name in enumerate(nonces, 1)}
    if any(name != new for name, new in renamed.items()):
        text = _NONCE.sub(lambda match: renamed[match[0]], text)
    return text


def revive(text: str) -> World:
    """The world that :func:`canonical` described."""
    server, current, former, left, renewed, backup, age, stood = json.loads(text)
    ids = [str(number) for number in range(len(current))]
    return World(
        _server(server),
        {worker: process and Process(*process) for worker, process in zip(ids, current, strict=True)},
        {worker: process and Process(*process) for worker, process in zip(ids, former, strict=True)},
        Left(tuple(left[0]), *left[1:]),
        tuple(renewed),
        None if backup is None else _server(backup),
        age,
        tuple((worker, incarnation) for worker, incarnation in stood),
        len(set(_INCARNATION.findall(text))),
    )


def nonce(number: int) -> str:
    return f"abcdef{number:010}"


#: A nonce that no state knows, for :func:`canonical` counts them from 1.
FRESH_NONCE = nonce(1000)
