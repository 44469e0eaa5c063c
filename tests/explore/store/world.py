"""A state of the world: what the server keeps, what each worker knows, and what the explorer remembers.

All of it is tuples: a state is its own name.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from ssp_redis.keys import StoreKeys
from ssp_redis.store.blob import Block, base_header, base_version, delta_header, is_base
from ssp_redis.store.log import Tag
from ssp_redis.store.view import Taken

from .engine import FIXED, Call, Server

KEYS = StoreKeys("", "R")
#: The only run: the nonce of the first to join.
RUN = "abcdef0000000001"
_RUN = 0xABCDEF


class Process(NamedTuple):
    """What one process knows that runs as a worker; the names are those of ``ssp_redis`` where it has them."""

    worker: str
    nonce: str
    incarnation: int
    # -- Clock: standing, evidence, and the tick under way
    epoch: int
    clock: int
    low: int
    membership: int
    position: int
    tag: str
    staleness: int
    started: bool
    restored: str = "-"
    #: False while a sync is owed: after a lost connection or an answer that asked for one.
    connected: bool = True
    #: False while the connection is lost, too.
    wire: bool = True
    #: Clock that the tick under way wants, 0 when there is none, and how often it was begun.
    pending: int = 0
    attempts: int = 0
    #: What the process is in the middle of, () when of nothing:
    #: (look, …), (doubt, rings), (unlink, rings): in a sweep;
    #: (set, block): the block to SET next; (tick,); (get, base or delta …): what to GET next; (again,): a read that
    #: has to begin anew; (commit, share, replaced, version, tag, untouched); (clean, share): a fault.
    step: tuple[Any, ...] = ()
    # -- Ring
    ring: int = 0
    turn: int = 0
    taken: tuple[int, ...] = ()
    #: Has the list the ring's name, as far as the process knows? Always true where nothing is swept.
    named: bool = True
    #: Rings that it has swept, and will sweep once more.
    swept: tuple[str, ...] = ()
    # -- Reader: log, bases, and the moment at which the log's end was read
    known: bool = False
    start: int = 0
    tags: tuple[str, ...] = ()
    bases: tuple[tuple[int, int], ...] = ()
    doubted: bool = False
    store_epoch: int = -1
    store_membership: int = -1
    others: int | None = None
    at: int = -1
    own: int = 0
    #: The min clock of all at that moment: in a reproducible run views go up to it.
    complete: int = 0
    # -- View
    versions: tuple[int, ...] = ()
    master: tuple[str, ...] = ()
    view: Taken | None = None
    held: tuple[tuple[int, str], ...] = ()
    frozen: str = ""
    open: str = ""
    # -- what the explorer knows of it
    #: Own deltas that it may count on: ticked, and not named as lost.
    acked: tuple[tuple[int, str], ...] = ()
    #: Messages of commits that have arrived and that it has not read yet: (share, version, generation).
    mail: tuple[tuple[int, int, int], ...] = ()

    @property
    def end(self) -> int:
        return self.start + len(self.tags)

    @property
    def admitted(self) -> bool:
        """``Standing.admits``."""
        return self.started and (self.staleness < 0 or self.clock - self.low <= self.staleness)

    def value(self, share: int) -> str:
        """``View.value``: master and overlay."""
        return self.master[share] + "".join(delta + ";" for _, delta in self.held) + self.frozen + ";" + self.open


class Late(NamedTuple):
    """A command that was on its way when its connection broke, or its process died: it may arrive, once or often."""

    worker: str
    incarnation: int
    #: SET (text) or UNLINK (no text) of a key; or a call, with the delta that a tick makes count.
    key: str = ""
    text: str = ""
    call: Call | None = None
    delta: str = ""

    def __str__(self) -> str:
        if self.call is not None:
            return f"{self.call.script} of worker {self.worker}.{self.incarnation % 1000}"
        return f"{'SET' if self.text else 'UNLINK'} {self.key}"


class Left(NamedTuple):
    """How often each thing may still happen."""

    starts: int = 0
    drops: int = 0
    deaths: int = 0
    evictions: int = 0
    leaves: int = 0
    rollbacks: int = 0
    cuts: int = 0
    sweeps: int = 0


class World(NamedTuple):
    server: Server
    #: Every entry that the log has or had before it was trimmed, with the delta that it makes count.
    history: tuple[tuple[str, str], ...]
    processes: tuple[Process | None, ...]
    late: tuple[Late, ...]
    left: Left
    joins: int = 0
    #: A state of the server that it may fall back to, with its history, and how many changes ago that was.
    backup: tuple[Server, tuple[tuple[str, str], ...]] | None = None
    age: int = 0
    #: Deltas that were lost in a way that the protocol does not promise to notice (see ``Bounds.cuts``).
    excused: frozenset[str] = frozenset()
    #: Rings that were swept: what comes late to one of them is named again when its sweeper leaves.
    swept: frozenset[str] = frozenset()

    def process(self, worker: str) -> Process:
        found = self.processes[int(worker)]
        assert found is not None
        return found

    def put(self, worker: str, process: Process | None) -> World:
        number = int(worker)
        return self._replace(processes=(*self.processes[:number], process, *self.processes[number + 1 :]))

    def spend(self, **counts: int) -> World:
        left = self.left._replace(**{name: getattr(self.left, name) - count for name, count in counts.items()})
        return self._replace(left=left)


class Facts(NamedTuple):
    """The fixed keys as Python."""

    config: dict[str, str]
    clocks: dict[str, int]
    order: dict[str, int]
    ids: dict[str, list[str]]
    log: tuple[str, ...]
    off: int
    bases: dict[str, tuple[int, int]]

    @property
    def epoch(self) -> int:
        return int(self.config["epoch"])

    @property
    def end(self) -> int:
        return self.off + len(self.log)

    def lives(self, worker: str, incarnation: int) -> bool:
        """Is that incarnation a member, as the store has it?"""
        record = self.ids.get(worker)
        return record is not None and record[0] == str(incarnation) and record[1] == "-"

    def dead(self, worker: str, incarnation: int) -> bool:
        """Has the store seen that incarnation end?"""
        record = self.ids.get(worker)
        if record is None:
            return False
        return int(record[0]) > incarnation or (int(record[0]) == incarnation and record[1] != "-")


@lru_cache(maxsize=1 << 17)
def _facts(fixed: tuple[tuple[str, ...], ...]) -> Facts:
    def pairs(name: str) -> dict[str, str]:
        flat = words[name]
        return dict(zip(flat[::2], flat[1::2], strict=True))

    words = dict(zip(FIXED, fixed, strict=True))
    config = pairs("config")
    order = words["order"]
    return Facts(
        config,
        {worker: int(clock) for worker, clock in pairs("clocks").items()},
        {worker: int(clock) for clock, worker in zip(order[::2], order[1::2], strict=True)},
        {worker: text.split(" ") for worker, text in pairs("ids").items()},
        words["log"],
        int(config.get("off", 0)),
        {name: (int(text.split(":")[0]), int(text.split(":")[1])) for name, text in pairs("bases").items()},
    )


def facts(server: Server) -> Facts:
    return _facts(server.fixed)


parsed = lru_cache(maxsize=1 << 14)(Tag.parse)


@lru_cache(maxsize=1 << 16)
def prefix(history: tuple[tuple[str, str], ...], version: int, ordered: bool = False) -> str:
    """The sum of the first entries of the log, in their order, or in that of clock and worker."""
    entries = [(text, delta) for text, delta in history[:version] if delta]
    if ordered:
        entries.sort(key=lambda entry: by_clock(parsed(entry[0])))
    return "".join(delta + ";" for _, delta in entries)


def by_clock(tag: Tag) -> tuple[int, int, str]:
    """``view._by_clock``."""
    return tag.clock, len(tag.worker), tag.worker


def _block(share: int) -> Block:
    return Block(_RUN, 0, share, "float32", 1)


@lru_cache(maxsize=1 << 14)
def delta_head(share: int, incarnation: int, clock: int, ring: int, slot: int) -> str:
    """``blob.delta_header``, as text."""
    return delta_header(_block(share), incarnation, clock, ring, slot).hex()


@lru_cache(maxsize=1 << 14)
def base_head(share: int, generation: int, version: int, epoch: int) -> str:
    """``blob.base_header``, as text."""
    return base_header(_block(share), generation, version, epoch).hex()


def is_base_head(text: str, share: int, generation: int, epoch: int) -> bool:
    """``blob.is_base``."""
    return is_base(bytes.fromhex(text.partition("|")[0]), _block(share), generation, epoch)


def version_of(text: str, share: int, generation: int, epoch: int) -> int | None:
    """``blob.base_version``."""
    return base_version(bytes.fromhex(text.partition("|")[0]), _block(share), generation, epoch)


def atoms(value: str) -> list[str]:
    """The deltas in a value or in a delta, one by one."""
    return [atom for atom in value.replace(";", "+").split("+") if atom]
