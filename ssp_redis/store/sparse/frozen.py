"""Every row of a table that was ever touched, at one version of the log, while workers go on: what a snapshot takes.

The shares are marked: from then on a commit keeps what it overwrites in their undo hashes (``lua/mark.lua``). The
deltas between the bases as marked and the version wanted are read at once, for they are soon overwritten; if one was,
the shares are marked anew. Then there is time: the bases are scanned as they are, what was kept of their rows is laid
over that, and the deltas are added. It takes what the touched rows take, however high the table is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...connection import Wire, command
from ...errors import StateLost
from ..blob import rows_base
from .exchange import read_numbers, read_rows
from .pending import Match, Pending
from .view import RowView

if TYPE_CHECKING:
    from ..reader import Reader

Array = NDArray[Any]
_NONE = np.zeros(0, np.int64)
#: How long a mark holds without being renewed (ms): so long may be between two pages.
HOLD = 30_000
#: About so many bytes in a page of a scan: the server answers nobody else meanwhile.
_PAGE = 1 << 18
_FIRST = b"0"


class Unmarked(Exception):
    """The mark is gone: it ran out, or the server lost it."""


class Frozen:
    """A sparse table as an onlooker reads it."""

    def __init__(self, reader: Reader, view: RowView) -> None:
        self._reader = reader
        self._view = view
        self._pending = Pending()
        self._bases: list[int] = []
        self._renewed: list[str] = []
        self.layout = view.layout
        shares = range(self.layout.shares)
        #: Of each share: its name among the bases, and the key of its undo hash.
        self.names = [f"{self.layout.number}.{share}" for share in shares]
        self.undo = [view.keys.undo(self.layout.number, share) for share in shares]

    def follow(self, wire: Wire, bases: list[int], end: int) -> bool:
        """Read the deltas from the bases, which were marked at those versions, up to ``end``.

        Returns False when one was overwritten meanwhile.
        """
        log, layout, self._bases = self._reader.log, self.layout, bases
        first = min(bases)
        if not log.start <= first:
            log.clear()  # to be read from the bases on
            return False
        if max(bases) > end:
            return False
        pieces = [
            piece
            for position, tag in enumerate(log.since(first, end), first)
            if layout.number in tag.slots
            for piece in self._view.pieces(tag, position, 0)
        ]
        if not read_numbers(wire, layout, pieces):
            return False
        every = [Match(piece, np.arange(piece.count), _NONE) for piece in pieces if piece.count]
        rows = read_rows(wire, layout, every)
        if rows is None:
            return False
        for match, values in zip(every, rows, strict=True):
            match.piece.rows = values
        self._pending.clear()
        self._pending.add(pieces)
        return True

    def read(self, mark: str, renewed: list[str]) -> tuple[Array, Array]:
        """The rows that were touched, ascending, and their elements.

        Args:
            mark: what the undo hashes must say.
            renewed: all undo hashes that must be kept meanwhile.

        Raises:
            Unmarked: all is to be done again.
            StateLost: a value is gone from the server.
        """
        layout, run, self._renewed = self.layout, self._reader.host.run, renewed
        numbers, rows = [], []
        for share in range(layout.shares):
            # over a new connection all of a share again: a server that was restarted knows nothing of a cursor
            found = run(lambda wire, share=share: self._share(wire, share, mark.encode()))  # type: ignore[misc]
            numbers.append(found[0])
            rows.append(found[1])
        known, values = np.concatenate(numbers), np.concatenate(rows)
        del numbers, rows
        fresh = np.setdiff1d(self._pended(), known)
        if len(fresh):
            values = np.concatenate((values, layout.first_values(fresh)))
            known = np.concatenate((known, fresh))
            order = np.argsort(known)
            known, values = known[order], values[order]
        versions = np.array(self._bases)[known // layout.stride]
        for match in self._pending.matches(known, versions):
            assert match.piece.rows is not None
            values[match.places] += match.piece.rows[match.inside]
        names = layout.rows(known)
        order = np.argsort(names)
        return names[order], values[order]

    # -- inside ------------------------------------------------------------------------------------------------------

    def _pended(self) -> Array:
        """What deltas touch that the bases as marked do not hold."""
        stride, found = self.layout.stride, [_NONE]
        for share, base in enumerate(self._bases):
            found.append(self._pending.touched(share * stride, (share + 1) * stride, base))
        return np.concatenate(found)

    def _share(self, wire: Wire, share: int, mark: bytes) -> tuple[Array, Array]:
        """Rows of a share's base as it was marked, by their numbers, ascending."""
        layout, key = self.layout, self._view.keys.rows(self.layout.number, share)
        header = wire.call("HGET", key, "h")
        if rows_base(header or b"", layout.block(share, layout.width), self._reader.epoch) is None:
            raise self._lost()
        undo = self.undo[share]
        numbers, rows, _ = self._collect(self._scan(wire, key, undo, mark))
        # What was overwritten before its page was read is there by now; what was later changes nothing.
        changed, before, absent = self._collect(self._scan(wire, undo, undo, mark))
        if wire.call("HGET", undo, "h") != mark:
            raise Unmarked
        everything = np.concatenate((changed, numbers))
        # the first of each number counts
        everything, once = np.unique(everything, return_index=True)
        values = np.concatenate((before, rows))[once]
        if len(absent):
            kept = np.isin(everything, absent, invert=True)
            everything, values = everything[kept], values[kept]
        return everything, values

    def _collect(self, pages: Iterator[tuple[list[bytes], list[bytes]]]) -> tuple[Array, Array, Array]:
        """Numbers, rows, and numbers of those that were not there (in an undo hash)."""
        layout = self.layout
        stored, numbers, rows, absent = np.dtype(layout.stored).newbyteorder("<"), [_NONE], [], [_NONE]
        for names, elements in pages:
            lengths = np.fromiter(map(len, elements), np.int64, len(elements))
            there = lengths > 0
            if {*map(len, names)} - {layout.number_bytes} or (lengths[there] != layout.row_bytes).any():
                raise self._lost()
            page = np.frombuffer(b"".join(names), layout.number_type).astype(np.int64)
            absent.append(page[~there])
            numbers.append(page[there])
            rows.append(np.frombuffer(b"".join(elements), stored).reshape(-1, layout.width))
        empty = np.zeros((0, layout.width), layout.stored)
        values = np.concatenate([empty, *rows]).astype(layout.stored, copy=False)
        return np.concatenate(numbers), values, np.concatenate(absent)

    def _scan(self, wire: Wire, key: str, undo: str, mark: bytes) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """All fields and values of a hash that hold rows; a field may come twice. Keeps the marks meanwhile."""
        count = max(16, _PAGE // (self.layout.row_bytes + 32))
        cursor, renewed = _FIRST, 0.0
        while True:
            if time.monotonic() - renewed > HOLD / 6000:
                renewed = time.monotonic()
                if wire.call("HGET", undo, "h") != mark:
                    raise Unmarked
                wire.call_all([command("PEXPIRE", marked, HOLD) for marked in self._renewed])
            cursor, items = wire.call("HSCAN", key, cursor, "COUNT", count)
            names, elements = items[::2], items[1::2]
            if b"h" in names:
                at = names.index(b"h")
                del names[at], elements[at]
            if names:
                yield names, elements
            if cursor == _FIRST:
                return

    def _lost(self) -> StateLost:
        return StateLost(
            f"table {self.layout.name}: a share is missing or foreign: it was deleted, or evicted by a memory policy "
            "(set maxmemory-policy noeviction)"
        )
