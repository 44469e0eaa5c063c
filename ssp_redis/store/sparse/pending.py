"""What was pushed and is not in every base yet: which rows which delta touches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .delta import overlap

Array = NDArray[Any]
_NONE = np.zeros(0, np.int64)


@dataclass(slots=True)
class Piece:
    """A piece of a delta. The rows stay in the store until somebody asks for one of them."""

    #: Place of its tag in the log.
    position: int
    #: In which order deltas are summed.
    order: tuple[int, int, str] | int
    #: Of which ring it is, where, and what it must begin with.
    ring: str
    key: bytes
    header: bytes
    #: How many rows.
    count: int
    #: Clock of the tag, if this process holds the delta itself.
    own: int | None = None
    numbers: Array | None = None
    rows: Array | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """Rows that are asked for and that a piece touches."""

    piece: Piece
    #: Where they stand in the piece, ascending, and among those asked for.
    inside: Array
    places: Array


class Pending:
    """Pieces in the order in which they are summed."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Know nothing."""
        #: The pieces of all tags from this position on are here.
        self.floor = 0
        self.pieces: list[Piece] = []
        self._index()

    def add(self, pieces: list[Piece]) -> None:
        """More pieces, whose row numbers are known."""
        if pieces:
            self.pieces = sorted([*self.pieces, *pieces], key=lambda piece: piece.order)
            self._index()

    def purge(self, version: int) -> list[Piece]:
        """Every base is at that version or beyond: drop and return what they all hold."""
        self.floor = max(self.floor, version)
        gone = [piece for piece in self.pieces if piece.position < version]
        if gone:
            self.pieces = [piece for piece in self.pieces if piece.position >= version]
            self._index()
        return gone

    def _index(self) -> None:
        self._numbers = np.concatenate([numbers_of(piece) for piece in self.pieces]) if self.pieces else _NONE
        self._ends = np.cumsum([piece.count for piece in self.pieces], dtype=np.int64)
        self._positions = np.array([piece.position for piece in self.pieces], np.int64)

    @property
    def rows(self) -> int:
        """Rows in all pieces together."""
        return len(self._numbers)

    def touched(self, first: int, stop: int, version: int) -> Array:
        """The numbers from ``first`` up to ``stop`` that tags from position ``version`` on touch, ascending."""
        found = []
        for piece in self.pieces:
            if piece.position >= version:
                numbers = numbers_of(piece)
                low, high = np.searchsorted(numbers, (first, stop))
                found.append(numbers[low:high])
        return np.unique(np.concatenate(found)) if found else _NONE

    def matches(self, wanted: Array, versions: Array) -> list[Match]:
        """For each piece, the rows among ``wanted`` (ascending) that it touches and that are not in ``versions``."""
        if not len(wanted) or not len(self._numbers):
            return []
        # most pieces touch few of the rows that are wanted: a look at a table of bits sorts out nearly all the others
        mask = (1 << max(10, (16 * len(wanted)).bit_length())) - 1
        bits = np.zeros(mask + 1, np.bool_)
        bits[wanted & mask] = True
        candidates = bits[self._numbers & mask].nonzero()[0]
        places, inside = overlap(wanted, self._numbers[candidates])
        candidates = candidates[inside]
        which = np.searchsorted(self._ends, candidates, side="right")
        lacking = self._positions[which] >= versions[places]
        candidates, places, which = candidates[lacking], places[lacking], which[lacking]
        edges = np.searchsorted(which, np.arange(len(self.pieces) + 1)).tolist()
        ends, found = self._ends.tolist(), []
        for piece, end, first, last in zip(self.pieces, ends, edges, edges[1:], strict=False):
            if first < last:
                found.append(Match(piece, candidates[first:last] - (end - piece.count), places[first:last]))
        return found


def numbers_of(piece: Piece) -> Array:
    """Its row numbers, which are known of every piece that is pending."""
    return _NONE if piece.numbers is None else piece.numbers
