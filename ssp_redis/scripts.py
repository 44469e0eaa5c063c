"""The scripts, typed: a wrapper's signature is the script's calling contract, its result the script's answer.

One method per Lua file; ``lua/README.md`` says what each does. Nothing here decides anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from .connection import Wire
from .keys import JobKeys
from .lua import Script


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the job and the caller stand: the first words of every answer of the clock's scripts."""

    epoch: int
    min_clock: int
    #: Clocks; −1 when unbounded.
    staleness: int
    membership: int
    stopped: bool
    started: bool
    #: The caller's clock in the store.
    clock: int
    #: Length of the log.
    end: int

    @classmethod
    def of(cls, answer: list[str]) -> Standing:
        epoch, low, staleness, membership, stop, started, clock, end = answer[:8]
        return cls(
            int(epoch), int(low), int(staleness), int(membership), stop == "1", started == "1", int(clock), int(end)
        )

    def admits(self, clock: int) -> bool:
        """May a worker at ``clock`` run? The test comes after the increment."""
        return self.started and (self.staleness < 0 or clock - self.min_clock <= self.staleness)


@dataclass(frozen=True, slots=True)
class Joined:
    """Answer of ``join``."""

    standing: Standing
    incarnation: int
    #: Id of the run: names its tables' keys.
    run: str
    members: int
    workers: int
    #: Seconds.
    lease: float
    position: int
    tag: str
    #: Run that this one replaced, or "".
    dropped: str


@dataclass(frozen=True, slots=True)
class Synced:
    """Answer of ``sync``."""

    standing: Standing
    members: int
    #: Seconds until the earliest lease of another member runs out; None when there is no other.
    next_expiry: float | None
    position: int
    tag: str


@dataclass(frozen=True, slots=True)
class Tags:
    """What the log holds after the position a reader knew."""

    #: Min clock of the other members, None when there is none.
    others: int | None
    #: The tags in order; None when the reader must start from the base.
    tags: list[str] | None


@dataclass(frozen=True, slots=True)
class Caller:
    """A member as it states itself to the scripts."""

    run: str
    epoch: int
    worker: str
    incarnation: int
    nonce: str
    host: str
    pid: int


class ClockScripts:
    """The five control scripts of one job."""

    def __init__(self, keys: JobKeys) -> None:
        control = keys.control()
        self._join = Script("join", control)
        self._sync = Script("sync", control)
        self._leave = Script("leave", control)
        self._configure = Script("configure", [keys.config, keys.clocks, keys.order, keys.log, keys.min])
        self._tick = Script("tick", [keys.config, keys.clocks, keys.order, keys.ids, keys.log, keys.tags, keys.min])
        self._bound: Script | None = None
        self._bound_to: Caller | None = None

    def join(
        self,
        wire: Wire,
        schema: int,
        worker: str,
        nonce: str,
        known: int,
        host: str,
        pid: int,
        name: str,
        workers: str,
        staleness: str,
        lease_ms: str,
        retain_ms: str,
    ) -> Joined:
        answer = self._join.call(
            wire, schema, worker, nonce, known, host, pid, name, workers, staleness, lease_ms, retain_ms
        )
        incarnation, run, members, quorum, lease, position, tag, *dropped = answer[8:]
        return Joined(
            Standing.of(answer),
            int(incarnation),
            run,
            int(members),
            int(quorum),
            int(lease) / 1000,
            int(position),
            tag,
            dropped[0] if dropped else "",
        )

    def pack_tick(self, caller: Caller, clock: int, wanted: int, note: str, known: int) -> bytes:
        """``tick`` as a command; :meth:`ticked` reads its answer."""
        return self._tick_of(caller).pack(clock, wanted, note, known)

    def call_tick(self, wire: Wire, caller: Caller, clock: int, wanted: int, note: str, known: int) -> list[str]:
        return self._tick_of(caller).call(wire, clock, wanted, note, known)

    def _tick_of(self, caller: Caller) -> Script:
        if self._bound is None or self._bound_to is not caller:
            self._bound = self._tick.bind(caller.run, caller.epoch, caller.worker, caller.incarnation)
            self._bound_to = caller
        return self._bound

    @staticmethod
    def ticked(answer: list[str], known: int) -> tuple[Standing, Tags | None]:
        standing = Standing.of(answer)
        if known < 0:
            return standing, None
        others, tags = answer[8], answer[9:]
        return standing, Tags(None if others == "-" else int(others), None if tags == ["!"] else tags)

    def sync(self, wire: Wire, caller: Caller, clock: int, position: int, tag: str) -> Synced:
        """``caller.worker`` "" is an observer."""
        answer = self._sync.call(
            wire,
            caller.run,
            caller.epoch,
            caller.worker,
            caller.incarnation,
            clock,
            position,
            tag,
            caller.nonce,
            caller.host,
            caller.pid,
        )
        members, expiry, at, last = answer[8:]
        left = int(expiry)
        return Synced(Standing.of(answer), int(members), None if left < 0 else left / 1000, int(at), last)

    def leave(
        self, wire: Wire, run: str, epoch: int, worker: str, incarnation: int, clock: int, why: str
    ) -> tuple[Standing, int]:
        """Returns where the job stands and how many members are left."""
        answer = self._leave.call(wire, run, epoch, worker, incarnation, clock, why)
        return Standing.of(answer), int(answer[8])

    def configure(self, wire: Wire, run: str, field: str, old: str, new: str) -> Standing:
        return Standing.of(self._configure.call(wire, run, field, old, new))
