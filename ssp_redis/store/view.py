"""One process's copy of a table: the master, exactly a prefix of the log, and its own deltas laid over it.

The master is summed strictly in the order of the log, share by share, starting from a base that was summed in the same
order: whoever computes a prefix gets the same bits. Only a master is ever published as a base; what is not in the log
yet lies in the overlay.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..connection import Values, Wire, command, encode
from ..keys import StoreKeys
from . import passes
from .blob import HEADER_SIZE, delta_front, delta_rest, is_base
from .layout import Layout
from .log import Log, Tag
from .past import reached

Array = NDArray[Any]
#: Of a table that is pushed and not read, a process holds so many bytes of own deltas, and so many deltas.
_HELD, _MOST_HELD = 16 << 20, 4096
#: Of so many slots the keys are remembered.
_KEYS = 4096
_GET = b"*2\r\n$3\r\nGET\r\n"
#: Of so many slots of a small table deltas are asked for at once.
_AT_ONCE = 32
#: How many bytes of values may be on their way at once.
_WINDOW = (4 << 20) + (1 << 16)


class Fetch(NamedTuple):
    """A block to get: of a base, which takes the place of what the master has, or of a delta, which is added to it."""

    #: The command that asks for it.
    question: bytes
    share: int
    block: int
    #: Of the base.
    generation: int
    #: The header of the delta; b"": it is a base.
    delta: bytes = b""


class _Place(NamedTuple):
    """A block in memory: what the master has of it, and where its deltas arrive, each as numbers and as bytes."""

    part: Array
    bytes: memoryview
    delta: Array
    incoming: memoryview
    #: About so many bytes are on their way when it is asked for.
    size: int


class Step(NamedTuple):
    """A delta to add without any traffic, in its turn; ``use`` returns False when it is not the right one."""

    use: Callable[[], bool]
    share: int


class Taken(NamedTuple):
    """The moment that a view shows."""

    epoch: int
    membership: int
    #: Min clock of the other members; None: there was no other.
    others: int | None
    #: The reader's own clock.
    clock: int

    def serves(self, epoch: int, membership: int, clock: int, staleness: int) -> bool:
        """Does a view of this moment hold what a read at ``clock`` must hold (Ho et al. 2013, §3)?

        Every delta with a timestamp up to clock − staleness − 1 of every other member: it does while their min at that
        moment is at least clock − staleness. After a change of membership that min is another one.
        """
        if self.epoch != epoch or self.membership != membership:
            return False
        return staleness < 0 or self.shows(clock - staleness)

    def shows(self, least: int) -> bool:
        """Is the min of the others at least that?"""
        return reached(self.others, least)


@dataclass
class View:
    """A table as this process has it."""

    layout: Layout
    keys: StoreKeys
    #: Sum in the order (clock, worker) instead of the log's.
    ordered: bool = False
    #: Version of each share of the master; −1: unknown, start from the base.
    versions: list[int] = field(default_factory=list)
    #: The own ticks up to this clock are in that share of the master.
    owned: list[int] = field(default_factory=list)
    master: Array = field(init=False)
    #: Own committed deltas that the master does not hold yet, by the clock of their tag.
    held: dict[int, Array] = field(default_factory=dict)
    #: A delta that is being pushed, then one that is still open.
    frozen: Array | None = None
    open: Array | None = None
    taken: Taken | None = None

    def __post_init__(self) -> None:
        self.master = np.zeros(self.layout.elements, self.layout.stored)
        #: Memory of deltas that are in the master by now: a fresh array would have to be faulted in page by page.
        self._spare: list[Array] = []
        #: Such memory in the hands of a caller, who fills it.
        self.lent: Array | None = None
        #: The master as it was shown, if somebody holds on to it still: then it must not change.
        self._shown: weakref.ref[Array] | None = None
        #: Of a tiny table, master and overlay but for the open clock's part; None: to be laid anew.
        self._laid: Array | None = None
        #: Tags that touch the table between two versions, of late.
        self._between: dict[tuple[int, int], list[Tag]] = {}
        #: Of deltas that are held, the length of the log with their tick.
        self._ends: dict[int, int] = {}
        self.scratch = np.empty(self.layout.extent(0).stop, self.layout.stored)
        #: The blocks in memory, cut as :attr:`_places` has them.
        self._cut: list[_Place] | None = None
        #: Of a small table, where deltas arrive, and that memory for so many at once.
        self._arriving: list[tuple[bytearray, Array]] = []
        self._values: dict[int, Values] = {}
        #: What deltas' headers begin with, by block, and the keys of slots, as words of commands.
        self._fronts = [delta_front(self.layout.block(block)) for block in range(self.layout.blocks)]
        self._slots: dict[tuple[int, int, int, int], bytes] = {}
        self.versions = [-1] * self.layout.shares
        self.owned = [0] * self.layout.shares

    def forget(self) -> None:
        """The master is worth nothing any more (new epoch)."""
        self.taken = self._laid = None
        self.versions = [-1] * self.layout.shares
        self._between.clear()

    @property
    def master_known(self) -> bool:
        """Has anybody read the table here?"""
        return max(self.versions) >= 0

    @property
    def version(self) -> int:
        """The log prefix that all of the master holds."""
        return min(self.versions)

    # -- own deltas --------------------------------------------------------------------------------------------------

    def lend(self) -> Array:
        """Memory for a delta, flat, which :meth:`add_lent` adds."""
        if self.lent is None:
            self.lent = self._spare.pop() if self._spare else np.empty_like(self.master)
        return self.lent

    def add(self, delta: Array) -> bool:
        """Add to the open clock's delta; False, and nothing is added, when it or their sum is not finite."""
        # beside the old sum, which must be what it was if the new one is none, or if an interruption (Ctrl-C) comes
        added = self._spare.pop() if self._spare else np.empty_like(self.master)
        before = self.open
        right = passes.copy(delta, added) if before is None else passes.add(before, delta, added)
        if not right:
            self._spare.append(added)
            return False
        spare = self._spare if before is None or len(self._spare) > 1 else [*self._spare, before]
        self.open, self._spare = added, spare  # no call after this: who is interrupted there adds it again
        return True

    def add_lent(self) -> bool:
        """Add what is in the memory that was lent, and finite; False as in :meth:`add`."""
        assert self.lent is not None
        if self.open is not None:
            return self.add(self.lent)
        self.open, self.lent = self.lent, None
        return True

    def add_rows(self, delta: Array, rows: NDArray[np.intp]) -> bool:
        """Add rows; rows named twice add up. False as in :meth:`add`."""
        opened = np.zeros_like(self.master) if self.open is None else self.open
        table = opened.reshape(self.layout.shape)
        unique, places = np.unique(rows, return_inverse=True)
        with np.errstate(over="ignore"):
            if len(unique) == len(rows):
                sums = table[rows] + delta
                unique = rows
            else:
                sums = table[unique]
                np.add.at(sums, places.reshape(-1), delta)
        if not passes.finite(sums):
            return False
        # an interruption (Ctrl-C) comes before the last, short step, or after it
        if opened is self.open and sums.nbytes > opened.nbytes // 4:
            opened = opened.copy()
            table = opened.reshape(self.layout.shape)
        table[unique] = sums
        self.open = opened
        return True

    def value(self) -> Array:
        """Master and overlay as a new array, flat."""
        if not self.layout.inline:
            return self._lay([self.open] if self.open is not None else [])
        if self._laid is None:
            self._laid = self._lay([])
        return self._laid.copy() if self.open is None else self._laid + self.open

    def show(self) -> Array:
        """The value, flat, not to be written to and never to change: the master itself, if nothing is laid over it."""
        if self.open is not None or self._overlay(min(self.owned)):
            value = self.value()
        else:
            shown = self._shown() if self._shown is not None else None
            if shown is not None:
                return shown
            # over a memoryview: what is made of it holds on to this array, not to the one that has the memory
            value = np.frombuffer(memoryview(self.master).toreadonly(), self.master.dtype)  # type: ignore[arg-type]
            self._shown = weakref.ref(value)
        return value

    def _change(self) -> None:
        """The master is about to change."""
        self._laid = None
        if self._shown is not None:
            if self._shown() is not None:
                self.master, self._cut = self.master.copy(), None
            self._shown = None

    def _lay(self, last: list[Array]) -> Array:
        """Master and overlay, but of the open clock only what is given as the last."""
        if min(self.owned) == max(self.owned):
            return passes.total(self.master, self._overlay(self.owned[0]) + last)
        value = np.empty_like(self.master)
        for share, owned in enumerate(self.owned):
            overlay = self._overlay(owned) + last
            for extent in map(self.layout.extent, self.layout.blocks_of(share)):
                passes.total(self.master[extent], [delta[extent] for delta in overlay], value[extent])
        return value

    def _overlay(self, owned: int) -> list[Array]:
        """The deltas that a share lacks which holds the own ticks up to that clock, but for the open one."""
        overlay = [delta for clock, delta in self.held.items() if clock > owned]
        if self.frozen is not None:
            overlay.append(self.frozen)
        return overlay

    def rows(self, rows: NDArray[np.intp]) -> Array:
        """Those rows of master and overlay, as a new array."""
        shape = self.layout.shape
        value: Array = self.master.reshape(shape)[rows]
        owned = np.asarray(self.owned)[rows // (self.layout.rows_per_block * self.layout.blocks_per_share)]
        for clock, delta in self.held.items():
            lacks = clock > owned
            value[lacks] += delta.reshape(shape)[rows[lacks]]
        for late in (self.frozen, self.open):
            if late is not None:
                value += late.reshape(shape)[rows]
        return value

    def thaw(self) -> bool:
        """What was frozen was never sent (an interruption): it belongs to the open clock still. Is anything open?"""
        if self.frozen is not None:
            again = self.frozen if self.open is None else self.frozen + self.open
            self.open, self.frozen, self._laid = again, None, None
        return self.open is not None

    def freeze(self) -> None:
        """The open clock's delta is about to be pushed."""
        laid = self._laid
        if laid is not None and self.open is not None:
            laid = laid + self.open
        self.frozen, self.open, self._laid = self.open, None, laid

    def committed(self, clock: int, end: int) -> None:
        """The frozen delta is in the log, among its first ``end`` entries."""
        if self.frozen is not None:
            self.held[clock] = self.frozen
            self._ends[clock] = end
            self.frozen = None

    def release(self, version: int) -> None:
        """Every base is at that version: where nobody reads, of the own deltas that they hold only some are held here.

        They could be pushed again, should the server forget them.
        """
        many = len(self.held) - max(self.layout.slots, min(_MOST_HELD, _HELD // self.layout.nbytes))
        if many > 0:
            self.taken = self._laid = None  # a read begins anew
            for clock in list(self.held)[:many]:
                if self._ends.get(clock, version + 1) <= version:
                    del self.held[clock], self._ends[clock]

    # -- bringing the master forward ---------------------------------------------------------------------------------

    def plan(
        self, ends: dict[int, int], log: Log, bases: dict[str, tuple[int, int]], incarnation: int
    ) -> list[Fetch | Step]:
        """What to get and add to bring shares to the versions ``ends``, the cheaper way, in order."""
        work: list[Fetch | Step] = []
        ways: dict[tuple[int, int, int], tuple[bool, list[Tag]]] = {}
        for share, end in ends.items():
            base, generation = bases[self.layout.names[share]]
            alike = (self.versions[share], base, end)  # as most shares are
            if alike not in ways:
                ways[alike] = self._way(share, log, end, base, incarnation)
            anew, tags = ways[alike]
            if not work and (anew or tags):
                self._change()
            # block by block, so that one is in the cache for all that is added to it
            for block in self.layout.blocks_of(share):
                if anew:
                    work.append(Fetch(self._ask_base(block, generation), share, block, generation))
                work += [self._delta(share, block, tag, incarnation) for tag in tags]
        return work

    def _way(self, share: int, log: Log, end: int, base: int, incarnation: int) -> tuple[bool, list[Tag]]:
        """The cheaper way to ``end``: whether to start anew from the base, and the tags whose deltas follow."""
        lacking = self.lacking(log, self.versions[share], end)
        if lacking is not None and (base <= self.versions[share] or len(self._foreign(lacking, incarnation)) < 2):
            return False, lacking
        newer = self.lacking(log, base, end)
        if lacking is None or (
            newer is not None and 1 + len(self._foreign(newer, incarnation)) < len(self._foreign(lacking, incarnation))
        ):
            return True, newer or []
        return False, lacking

    def bring_small(
        self, wire: Wire, log: Log, end: int, bases: dict[str, tuple[int, int]], epoch: int, incarnation: int
    ) -> bool:
        """What :meth:`plan` and :meth:`bring` do, for a table of one small block: there, calls cost more than bytes."""
        base, generation = bases[self.layout.names[0]]
        anew, tags = self._way(0, log, end, base, incarnation)
        self._change()
        self.versions[0] = -1  # until all of it is in, it is nothing
        if anew:
            wire.send(self._ask_base(0, generation))
            header = bytearray(HEADER_SIZE)
            there = wire.read_into(memoryview(header), as_bytes(self.master))
            if not there or not is_base(bytes(header), self.layout.block(0), generation, epoch):
                return False
        return self._add_all(wire, tags, end, incarnation)

    def follow(self, wire: Wire, log: Log, end: int, base: int, incarnation: int) -> bool:
        """As :meth:`bring_small`, if it is only a matter of adding what was pushed since; else False."""
        tags = self.lacking(log, self.versions[0], end)
        if tags is None or (base > self.versions[0] and len(self._foreign(tags, incarnation)) > 1):
            return False
        if tags:
            self._change()
        self.taken, self.versions[0] = None, -1
        return self._add_all(wire, tags, end, incarnation)

    def replace(self, version: int, values: memoryview) -> None:
        """Let the master of a small table be that sum of a log prefix."""
        self._change()
        self.taken, self.versions[0] = None, -1
        as_bytes(self.master)[:] = values
        self.versions[0] = version

    def _add_all(self, wire: Wire, tags: list[Tag], end: int, incarnation: int) -> bool:
        """Add the deltas of those tags to a small table, which then is at ``end``; False: one is missing or foreign."""
        number, master, held = self.layout.number, self.master, self.held
        foreign = self._foreign(tags, incarnation)
        arrived: list[Array] = []
        for tag in tags:
            if tag.incarnation == incarnation and tag.clock in held:
                master += held[tag.clock]
            elif number in tag.values:
                if not self._add_inline(tag):
                    return False
            else:
                if not arrived:
                    asked, foreign = foreign[:_AT_ONCE], foreign[_AT_ONCE:]
                    arrived = self._fetch(wire, asked)
                    if not arrived:
                        return False
                master += arrived.pop()
        self.versions[0] = end
        return True

    def _fetch(self, wire: Wire, tags: list[Tag]) -> list[Array]:
        """The deltas of a small table that tags name, the last one first; none if one is missing or foreign."""
        count, number, front = len(tags), self.layout.number, self._fronts[0]
        values = self._values.get(count)
        if values is None:
            while len(self._arriving) < count:
                self._arriving.append((bytearray(HEADER_SIZE), np.empty_like(self.master)))
            headers, deltas = zip(*self._arriving[:count], strict=True)
            values = self._values[count] = Values(headers, [as_bytes(delta) for delta in deltas])
        wire.send(b"".join([b"*%d\r\n$4\r\nMGET\r\n" % (count + 1), *[self._slot(tag, 0) for tag in tags]]))
        if not wire.read_values(values):
            return []
        found: list[Array] = []
        for tag, (header, delta) in zip(tags, self._arriving, strict=False):
            if header != front + delta_rest(tag.incarnation, tag.clock, tag.number, tag.slots[number]):
                return []
            found.append(delta)
        found.reverse()
        return found

    def _slot(self, tag: Tag, block: int) -> bytes:
        """The key of a block of the slot that the tag names, as a word of a command."""
        slot = tag.slots[self.layout.number]
        named = (block, tag.incarnation, tag.number, slot)
        word = self._slots.get(named)
        if word is None:
            if len(self._slots) > _KEYS:
                self._slots.clear()
            word = self._slots[named] = encode((self.keys.slot(self.layout.number, block, tag.ring, slot),))
        return word

    def _ask_base(self, block: int, generation: int) -> bytes:
        """The command that gets a block of a base."""
        return command("GET", self.keys.base(self.layout.number, block, generation))

    def _add_inline(self, tag: Tag) -> bool:
        """Add the delta that the tag itself holds; False when it is not one of this table."""
        value = tag.values[self.layout.number]
        return len(value) == self.layout.nbytes and _add(self.master, np.frombuffer(value, self.master.dtype))

    def lacking(self, log: Log, version: int, end: int) -> list[Tag] | None:
        """The tags between two versions that touch this table, in the order in which they are summed.

        None when the log as known begins later than ``version``, or that is beyond ``end``.
        """
        if not log.start <= version <= end:
            return None
        tags = self._between.get((version, end))
        if tags is None:
            number = self.layout.number
            tags = [tag for tag in log.since(version, end) if tag.touches(number)]
            if self.ordered:
                tags.sort(key=_by_clock)
            if len(self._between) > 8:
                self._between.clear()
            self._between[version, end] = tags
        return tags

    def cost(self, share: int, log: Log, end: int, base: int, incarnation: int) -> int:
        """How many values a share costs at the best: deltas of others, or a base and the deltas after it."""
        lacking, newer = self.lacking(log, self.versions[share], end), self.lacking(log, base, end)
        ways = [len(self._foreign(lacking, incarnation))] if lacking is not None else []
        if newer is not None:
            ways.append(1 + len(self._foreign(newer, incarnation)))
        return min(ways, default=1)

    def _foreign(self, tags: list[Tag], incarnation: int) -> list[Tag]:
        """Those of the deltas that have to be fetched."""
        number, held = self.layout.number, self.held
        return [
            tag for tag in tags if number in tag.slots and not (tag.incarnation == incarnation and tag.clock in held)
        ]

    def fetched(self, tag: Tag, incarnation: int) -> bool:
        """Does this delta have to be fetched?"""
        return bool(self._foreign([tag], incarnation))

    def _delta(self, share: int, block: int, tag: Tag, incarnation: int) -> Fetch | Step:
        """How a block of a delta is had."""
        number = self.layout.number
        if tag.incarnation == incarnation and tag.clock in self.held:
            delta = self.held[tag.clock][self.layout.extent(block)]
            return Step(lambda: _add(self._places[block].part, delta), share)
        if number in tag.values:
            return Step(lambda: self._add_inline(tag), share)
        rest = delta_rest(tag.incarnation, tag.clock, tag.number, tag.slots[number])
        return Fetch(_GET + self._slot(tag, block), share, block, -1, self._fronts[block] + rest)

    def bring(self, wire: Wire, ends: dict[int, int], work: list[Fetch | Step], epoch: int) -> bool:
        """Carry out a plan. False when a value was missing or foreign: that share starts again from its base."""
        for item in work:
            # until all of it is in, it is nothing: an interruption leaves no half sum that could be taken for one
            self.versions[item.share] = -1
        bad: set[int] = set()
        header = bytearray(HEADER_SIZE)
        before, places = memoryview(header), self._places
        fetches = [item for item in work if isinstance(item, Fetch)]
        sent, outstanding = 0, 0
        for item in work:
            batch: list[bytes] = []
            while sent < len(fetches) and (
                not outstanding or outstanding + places[fetches[sent].block].size <= _WINDOW
            ):
                batch.append(fetches[sent].question)
                outstanding += places[fetches[sent].block].size
                sent += 1
            if batch:
                wire.send(b"".join(batch))
            if isinstance(item, Step):
                if item.share not in bad and not item.use():
                    bad.add(item.share)
                continue
            place = places[item.block]
            arrived = wire.read_into(before, place.incoming if item.delta else place.bytes)
            outstanding -= place.size
            if item.share in bad:
                continue
            if item.delta:
                right = arrived and header == item.delta
                if right:
                    np.add(place.part, place.delta, out=place.part)
            else:
                right = arrived and is_base(bytes(header), self.layout.block(item.block), item.generation, epoch)
            if not right:
                bad.add(item.share)
        for share, end in ends.items():
            self.versions[share] = -1 if share in bad else end
        return not bad

    @property
    def _places(self) -> list[_Place]:
        if self._cut is None:
            parts = [self.master[self.layout.extent(block)] for block in range(self.layout.blocks)]
            deltas = [self.scratch[: part.size] for part in parts]
            self._cut = [
                _Place(part, as_bytes(part), delta, as_bytes(delta), part.nbytes + 2 * HEADER_SIZE)
                for part, delta in zip(parts, deltas, strict=True)
            ]
        return self._cut

    def settle(self) -> None:
        """What all shares of the master hold of the own deltas need not be held any longer."""
        clock, self._laid = min(self.owned), None
        for done in list(self.held):
            if done <= clock:
                spare = self.held.pop(done)
                self._ends.pop(done, None)
                if len(self._spare) < 2:
                    self._spare.append(spare)


def as_bytes(values: Array) -> memoryview:
    """The memory of a contiguous array."""
    return memoryview(values).cast("B")  # type: ignore[arg-type]


def _by_clock(tag: Tag) -> tuple[int, int, str]:
    return tag.clock, len(tag.worker), tag.worker


def _add(part: Array, delta: Array) -> bool:
    part += delta
    return True
