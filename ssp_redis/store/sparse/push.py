"""Sparse deltas on their way: piece by piece to the slots of the worker's ring, in one push with the dense ones."""

from __future__ import annotations

from collections.abc import Callable

from ...connection import Packed, Wire, command
from ...keys import StoreKeys
from ..layout import SMALL
from ..push import TablePush, register
from ..ring import Ring
from ..view import View
from .blobs import header_of, numbers_and_rows
from .delta import RowDelta
from .view import RowView, Written

#: How many bytes of deltas may be unacknowledged at once.
_WINDOW = 4 << 20
#: From this size on, what is in a slot is deleted as soon as it is not needed, rather than overwritten in its turn.
LARGE = 1 << 16


class RowPush:
    """What one tick carries (see ``clock.Push``): the deltas of dense tables, and those of sparse ones.

    Args:
        dense: the others.
        spent: slots of these tables that all bases are past.
    """

    def __init__(
        self,
        dense: TablePush,
        keys: StoreKeys,
        ring: Ring,
        views: list[RowView],
        spent: Callable[[RowView], list[int]],
        done: Callable[[RowPush], None],
    ) -> None:
        self._dense = dense
        #: Said again after an interruption, the deltas are the same, whatever the views have made of them meanwhile.
        self._deltas = {id(view): view.frozen for view in views}
        self._keys = keys
        self._ring = ring
        self._views = views
        self._spent = spent
        self._done = done
        self.clock = dense.clock
        self.known = dense.known
        self.views: list[View | RowView] = [*dense.views, *views]

    @property
    def note(self) -> str:
        """ "ring:table.slot,table.slot/rows,…": where a reader finds the deltas, and how many rows a sparse one has."""
        words = [word for word in self._dense.note.partition(":")[2].split(",") if word]
        for view in self._views:
            layout = view.layout
            words.append(f"{layout.number}.{self._slot(view)}/{len(self._delta(view).numbers)}")
        return f"{self._ring.number}:{','.join(words)}"

    def commands(self) -> list[Packed] | None:
        """All as commands for the tick's transaction, if they are small enough."""
        if sum(self._delta(view).nbytes for view in self._views) > SMALL:
            return None
        dense = self._dense.commands()
        if dense is None:
            return None
        words: list[Packed] = [*register(self._keys, self._ring), *dense]
        for view in self._views:
            words += self._clear(view)
            words += [command("SET", key, head + bytes(rows)) for key, head, rows in self._pieces(view)]
            self._note_written(view)
        return words

    def send(self, wire: Wire) -> None:
        """Write all, and return when all is acknowledged: only then may the tick make it count."""
        words = register(self._keys, self._ring)
        if self._dense.views:
            wire.call_all(words)
            self._dense.send(wire)
            words = []
        outstanding, replies = 0, len(words)
        wire.send(b"".join(words))
        for view in self._views:
            cleared = self._clear(view)
            wire.send(b"".join(cleared))
            replies += len(cleared)
            for key, head, rows in self._pieces(view):
                wire.send_set(key, head, rows)
                outstanding += rows.nbytes
                replies += 1
                if outstanding > _WINDOW:
                    wire.read_all(replies)
                    outstanding = replies = 0
            self._note_written(view)
        wire.read_all(replies)

    def moved(self, clock: int) -> None:
        """The tick will take the worker to another clock: so will the headers say."""
        self.clock = clock
        self._dense.moved(clock)

    def committed(self, end: int) -> None:
        """The tick has happened: the deltas are in the log, and their slots are taken until bases hold its prefix."""
        self._dense.committed(end)
        for view in self._views:
            written, slot = view.slots_of(self._ring), self._slot(view)
            if slot in written:
                written[slot] = Written(end, written[slot].pieces, written[slot].nbytes)
            view.committed(self.clock)
            self._ring.take(view.layout.number, view.layout.slots, end)
        self._done(self)

    def renew(self, wire: Wire) -> None:
        """Nobody knows what of the last attempt is still on its way: turn to a fresh ring."""
        self._dense.again(wire)
        self._ring.renew()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _delta(self, view: RowView) -> RowDelta:
        delta = self._deltas[id(view)]
        assert delta is not None
        return delta

    def _slot(self, view: RowView) -> int:
        return self._ring.slot(view.layout.number, view.layout.slots)

    def _pieces(self, view: RowView) -> list[tuple[str, bytes, memoryview]]:
        layout, ring, delta, slot = view.layout, self._ring, self._delta(view), self._slot(view)
        count = len(delta.numbers)
        found = []
        for i, part in enumerate(layout.pieces(count)):
            header = header_of(layout, i, part, count, ring.incarnation, self.clock, ring.number, slot)
            numbers, rows = numbers_and_rows(layout, delta, part)
            found.append((self._keys.slot(layout.number, i, ring.name, slot), header + numbers, rows))
        return found

    def _clear(self, view: RowView) -> list[bytes]:
        """Before anything is written: what the slot holds beyond what comes, and other slots that are large and spent.

        A slot's first piece says how many there are, so those beyond must be gone before it is replaced.
        """
        written, slot, layout = view.slots_of(self._ring), self._slot(view), view.layout
        coming, there = len(layout.pieces(len(self._delta(view).numbers))), written.get(slot)
        doomed = keys_of(self._keys, view, self._ring, slot, range(coming, there.pieces if there else 0))
        for other in self._spent(view):
            if other != slot:
                doomed += keys_of(self._keys, view, self._ring, other, range(written.pop(other).pieces))
        return [command("UNLINK", *doomed)] if doomed else []

    def _note_written(self, view: RowView) -> None:
        """Not spent before the tick says where it is in the log."""
        delta = self._delta(view)
        pieces = len(view.layout.pieces(len(delta.numbers)))
        view.slots_of(self._ring)[self._slot(view)] = Written(1 << 62, pieces, delta.nbytes)


def keys_of(keys: StoreKeys, view: RowView, ring: Ring, slot: int, pieces: range) -> list[str]:
    """The keys of pieces of a slot."""
    return [keys.slot(view.layout.number, piece, ring.name, slot) for piece in pieces]
