"""The scripts, typed: a wrapper's signature is the script's calling contract, its result the script's answer.

One method per Lua file; ``lua/README.md`` says what each does. Nothing here decides anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .connection import ReplyError, Wire
from .keys import JobKeys, StoreKeys
from .lua import Script


class Standing(NamedTuple):
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
        """Read the first eight words after the code."""
        epoch, low, staleness, membership, stop, started, clock, end = map(int, answer[:8])
        return cls(epoch, low, staleness, membership, stop == 1, started == 1, clock, end)

    @property
    def announced(self) -> tuple[int, ...]:
        """What is published when it changes."""
        return self[:6]

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
    reproducible: bool
    position: int
    tag: str
    #: Run that this one replaced, or "".
    dropped: str


@dataclass(frozen=True, slots=True)
class Synced:
    """Answer of ``sync``."""

    standing: Standing
    members: int
    #: Seconds until the earliest lease of another member runs out, or the patience with who blocks; None: neither.
    next_expiry: float | None
    #: "-", or "epoch:clock": deltas from that clock on were not in the store when that epoch began.
    restored: str
    #: The last entry of the log.
    position: int
    tag: str


class Tags(NamedTuple):
    """What the log holds after the position a reader knew."""

    since: int
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
        self._tick = Script("tick", [keys.config, keys.clocks, keys.order, keys.ids, keys.log, keys.min])
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
        reproducible: str,
    ) -> Joined:
        """An empty text adopts what the job has, or a default where it is new."""
        answer = self._join.call(
            wire, schema, worker, nonce, known, host, pid, name, workers, staleness, lease_ms, retain_ms, reproducible
        )
        incarnation, run, members, quorum, lease, kept, position, tag, *dropped = answer[8:]
        return Joined(
            Standing.of(answer),
            int(incarnation),
            run,
            int(members),
            int(quorum),
            int(lease) / 1000,
            kept != "0",
            int(position),
            tag,
            dropped[0] if dropped else "",
        )

    def pack_tick(self, caller: Caller, clock: int, wanted: int, note: str, known: int) -> bytes:
        """``tick`` as a command; :meth:`ticked` reads its answer."""
        return self._tick_of(caller).pack(clock, wanted, note, known)

    def explain(self, error: ReplyError) -> ReplyError:
        """What a ``tick`` that was sent packed was answered."""
        return self._tick.explain(error)

    def call_tick(self, wire: Wire, caller: Caller, clock: int, wanted: int, note: str, known: int) -> list[str]:
        """``tick``; :meth:`ticked` reads its answer."""
        return self._tick_of(caller).call(wire, clock, wanted, note, known)

    def _tick_of(self, caller: Caller) -> Script:
        if self._bound_to is not caller or self._bound is None:
            self._bound = self._tick.bind(caller.run, caller.epoch, caller.worker, caller.incarnation)
            self._bound_to = caller
        return self._bound

    @staticmethod
    def ticked(answer: list[str], known: int) -> tuple[Standing, Tags | None]:
        """Read the answer to a ``tick`` that stated ``known``."""
        standing = Standing.of(answer)
        if known < 0:
            return standing, None
        others, tags = answer[8], answer[9:]
        return standing, Tags(known, None if others == "-" else int(others), None if tags == ["!"] else tags)

    def sync(
        self,
        wire: Wire,
        caller: Caller,
        clock: int,
        position: int,
        tag: str,
        tired: int = 0,
        lead: int | None = None,
    ) -> Synced:
        """``caller.worker`` "" is an observer.

        Args:
            tired: ms after which who blocks the caller is evicted, 0: never.
            lead: clocks that the caller may be ahead before it is blocked; None: the staleness.
        """
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
            *((tired, "" if lead is None else lead) if tired else ()),
        )
        members, expiry, restored, at, tag = answer[8:]
        left = int(expiry)
        wait = None if left < 0 else left / 1000
        return Synced(Standing.of(answer), int(members), wait, restored, int(at), tag)

    def leave(
        self, wire: Wire, run: str, epoch: int, worker: str, incarnation: int, clock: int, why: str
    ) -> tuple[Standing, int]:
        """Returns where the job stands and how many members are left."""
        answer = self._leave.call(wire, run, epoch, worker, incarnation, clock, why)
        return Standing.of(answer), int(answer[8])

    def configure(self, wire: Wire, run: str, field: str, changes: str, new: str) -> Standing:
        """``field``: staleness or stop. ``changes``: how many there were before, as the config has it."""
        return Standing.of(self._configure.call(wire, run, field, changes, new))


@dataclass(frozen=True, slots=True)
class Read:
    """Answer of ``read``: one moment of a store."""

    epoch: int
    min_clock: int
    membership: int
    others: int | None
    #: Position of the first entry that the log has still, and its length.
    off: int
    end: int
    #: "table.share" → (version, generation).
    bases: dict[str, tuple[int, int]]
    tags: list[str]


@dataclass(frozen=True, slots=True)
class Claim:
    """Answer of ``claim``."""

    #: ready, yours or none.
    state: str
    number: int
    description: str


class StoreScripts:
    """The scripts of one store; ``job`` are the keys of the clock whose log orders it."""

    def __init__(self, job: JobKeys, keys: StoreKeys) -> None:
        self._job = job
        self._keys = keys
        self._read = Script("read", [job.config, job.order, job.log, keys.bases])
        self._claim = Script("claim", [job.config, keys.tables])
        self._commits: dict[tuple[str, str, int, int], Script] = {}

    def read(self, wire: Wire, run: str, epoch: int | None, worker: str, known: int) -> Read:
        """``known`` −1: all tags that a base does not hold yet. ``epoch`` None: whichever it is."""
        answer = self._read.call(wire, run, "" if epoch is None else epoch, worker, known)
        stored, low, membership, others, off, end, *rest = answer
        bar = rest.index("|")
        bases: dict[str, tuple[int, int]] = {}
        for word in rest[:bar]:
            share, version, generation = word.split(":")
            bases[share] = (int(version), int(generation))
        return Read(
            int(stored),
            int(low),
            int(membership),
            None if others == "-" else int(others),
            int(off),
            int(end),
            bases,
            rest[bar + 1 :],
        )

    def claim(self, wire: Wire, run: str, table: str, description: str, claimer: int, lease_ms: int) -> Claim:
        """``claimer`` 0 only asks."""
        state, *rest = self._claim.call(wire, run, table, description, claimer, lease_ms)
        return Claim(state, int(rest[0]), rest[1]) if rest else Claim(state, -1, "")

    def publish(
        self, wire: Wire, run: str, table: str, claimer: int, shares: int, scratch: list[str], bases: list[str]
    ) -> int:
        """Returns the version at which the table's first base stands."""
        keys = [self._job.config, self._keys.tables, self._keys.bases, self._job.log, *scratch, *bases]
        return int(Script("publish", keys).call(wire, run, table, claimer, shares, self._keys.commits)[0])

    def mark(self, wire: Wire, run: str, mark: str, hold: int, shares: list[str], undo: list[str]) -> list[int]:
        """Keep what is overwritten in shares of sparse tables for ``hold`` ms; 0: no longer. Returns their versions."""
        keys = [self._job.config, self._keys.bases, *undo]
        return [int(word) for word in Script("mark", keys).call(wire, run, mark, hold, *shares)]

    def commit_rows(
        self,
        wire: Wire,
        caller: Caller,
        clock: int,
        share: str,
        replaces: tuple[int, int],
        version: int,
        tag: str,
        rows: str,
        undo: str,
        header: bytes,
        number_bytes: int,
        record_bytes: int,
        records: list[bytes],
    ) -> tuple[int, int]:
        """``rows``, ``undo``: the share's hashes; ``records``: what changes. Returns the new (version, generation)."""
        script = self._commit("commit_rows", [rows, undo], caller, clock, share, replaces, version, tag)
        answer = script.call(wire, header, number_bytes, record_bytes, *records)
        return int(answer[0]), int(answer[1])

    def commit(
        self,
        wire: Wire,
        caller: Caller,
        clock: int,
        share: str,
        replaces: tuple[int, int],
        version: int,
        tag: str,
        scratch: list[str],
        bases: list[str],
        headers: list[bytes],
        first: list[bytes],
        due: int,
    ) -> tuple[int, int]:
        """``first`` are SETs of the scratch, ``due`` is how many were sent already. Returns (version, generation)."""
        script = self._commit("commit", [*scratch, *bases], caller, clock, share, replaces, version, tag)
        answer = script.call(wire, *headers, first=first, due=due)
        return int(answer[0]), int(answer[1])

    def _commit(
        self,
        name: str,
        keys: list[str],
        caller: Caller,
        clock: int,
        share: str,
        replaces: tuple[int, int],
        version: int,
        tag: str,
    ) -> Script:
        """What all commits begin with: who commits, which share, and in the place of what."""
        # the keys of a share alternate
        named = (name, share, replaces[1] % 2, len(keys))
        script = self._commits.get(named)
        if script is None:
            job = self._job
            script = Script(name, [job.config, job.clocks, job.ids, job.log, self._keys.bases, *keys])
            self._commits[named] = script
        member = (caller.run, caller.epoch, caller.worker, caller.incarnation, clock)
        return script.bind(*member, share, f"{replaces[0]}:{replaces[1]}", version, tag, self._keys.commits)
