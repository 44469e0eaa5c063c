"""One process's copy of a sparse table: the rows that it knows, what is pending, and its own deltas."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from ...keys import StoreKeys
from ..log import Tag
from ..ring import Ring
from ..view import Taken
from .blobs import header_of
from .cache import RowCache
from .delta import OpenDelta, RowDelta, overlap
from .layout import RowLayout
from .pending import Pending, Piece

Array = NDArray[Any]
#: Rows that a process keeps of a table, at the most (bytes): an owner that knows its rows need not read them to fold.
_CACHE = 1 << 28


@dataclass(frozen=True, slots=True)
class Written:
    """What a slot of the ring holds."""

    #: Version that every base must have reached before it may go.
    version: int
    pieces: int
    nbytes: int


@dataclass
class RowView:
    """A sparse table as this process has it.

    Whatever of rows is kept here is exactly a prefix of the log; own deltas that are not in it lie over that.
    """

    layout: RowLayout
    keys: StoreKeys
    #: Sum in the order (clock, worker) instead of the log's.
    ordered: bool = False
    pending: Pending = field(default_factory=Pending)
    #: Version up to which pieces are pending or in the bases; −1: unknown, start from the bases.
    end: int = -1
    #: Own deltas up to that clock are in the prefix.
    own: int = -1
    #: Own committed deltas that some base does not hold yet, by the clock of their tag.
    held: dict[int, RowDelta] = field(default_factory=dict)
    #: A delta that is being pushed, then one that is still open.
    frozen: RowDelta | None = None
    open: OpenDelta | None = None
    taken: Taken | None = None
    #: Shares of which this process has folded all that ever was: version of the base, and the cache's life since.
    #: Such a row that is not in the cache has never been touched.
    complete: dict[int, tuple[int, int]] = field(default_factory=dict)
    #: What the slots of the ring in use hold, by slot.
    written: dict[int, Written] = field(default_factory=dict)
    ring: str = ""

    def __post_init__(self) -> None:
        most = min(self.layout.shape[0], max(1, _CACHE // self.layout.row_bytes))
        self.cache = RowCache(self.layout.width, self.layout.stored, most)

    @property
    def version(self) -> int:
        """The log prefix that the view holds."""
        return self.end

    def forget(self) -> None:
        """What is known of rows is worth nothing any more."""
        self.taken = None
        self.end = -1
        self.cache.clear()
        self.pending.clear()

    def folded(self, share: int, replaced: tuple[int, int], version: int) -> None:
        """This process has put a base in the place of another, and its rows into the cache."""
        whole = self.complete.pop(share, None) == (replaced[0], self.cache.lives)
        if whole or replaced[1] == 0:
            self.complete[share] = (version, self.cache.lives)

    def is_complete(self, share: int, version: int) -> bool:
        """Are all rows that a share's base at that version has in the cache?"""
        return self.complete.get(share) == (version, self.cache.lives)

    # -- own deltas --------------------------------------------------------------------------------------------------

    def add(self, numbers: Array, rows: Array) -> bool:
        """Add to the open clock's delta; rows named twice add up. False when a sum is too large for the dtype."""
        opened = self.open or OpenDelta()
        if not opened.add(numbers, rows):
            return False
        self.open = opened
        return True

    def freeze(self) -> None:
        """The open clock's delta is about to be pushed."""
        if self.open is not None:
            together = self.open.together()
            self.frozen, self.open = together, None

    def thaw(self) -> bool:
        """What was frozen was never sent (an interruption): it belongs to the open clock still. Is anything open?"""
        if self.frozen is not None:
            again = OpenDelta([self.frozen, *(self.open.parts if self.open is not None else ())])
            self.open, self.frozen = again, None
        return self.open is not None

    def committed(self, clock: int) -> None:
        """The frozen delta is in the log."""
        if self.frozen is not None:
            self.held[clock] = self.frozen
            self.frozen = None

    def lay_over(self, wanted: Array, values: Array) -> None:
        """Add to rows of the prefix what this worker has added and the prefix does not hold."""
        own = [delta for clock, delta in self.held.items() if clock > self.own]
        for delta in (*own, self.frozen, self.open.together() if self.open is not None else None):
            if delta is not None:
                places, inside = overlap(wanted, delta.numbers)
                values[places] += delta.rows[inside]

    def drop_held(self) -> None:
        """Own deltas that every base holds need not be held any longer."""
        pending = {piece.own for piece in self.pending.pieces}
        for clock in [clock for clock in self.held if clock <= self.own and clock not in pending]:
            del self.held[clock]

    def rolled_back(self, first: int) -> None:
        """The store begins anew, without the own ticks from clock ``first`` on: their deltas ride on the next push."""
        self.forget()
        for clock in [held for held in self.held if held > first]:
            delta = self.held.pop(clock)
            self.add(delta.numbers, delta.rows)

    # -- pieces ------------------------------------------------------------------------------------------------------

    def pieces(self, tag: Tag, position: int, incarnation: int) -> list[Piece]:
        """What a tag has put into this table."""
        order = (tag.clock, len(tag.worker), tag.worker) if self.ordered else position
        number = self.layout.number
        if tag.incarnation == incarnation and tag.clock in self.held:
            own = self.held[tag.clock]
            return [Piece(position, order, tag.ring, b"", b"", len(own.numbers), tag.clock, own.numbers, own.rows)]
        slot, count = tag.slots[number], tag.rows.get(number, 0)
        return [
            Piece(
                position,
                order,
                tag.ring,
                self.keys.slot(number, i, tag.ring, slot).encode(),
                header_of(self.layout, i, part, count, tag.incarnation, tag.clock, tag.number, slot),
                part.stop - part.start,
            )
            for i, part in enumerate(self.layout.pieces(count))
        ]

    def slots_of(self, ring: Ring) -> dict[int, Written]:
        """What the slots of that ring hold; those of another are no longer this worker's to overwrite."""
        if self.ring != ring.name:
            self.ring, self.written = ring.name, {}
        return self.written
