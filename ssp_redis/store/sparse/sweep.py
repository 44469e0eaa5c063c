"""The keys of a sparse table: its shares, and the pieces in rings, as many as each slot's first piece says."""

from __future__ import annotations

from collections.abc import Iterable

from ...connection import Wire, command
from ...keys import StoreKeys
from ..blob import HEADER_SIZE, rows_of
from .layout import RowLayout
from .view import RowView


def ring_keys(wire: Wire, keys: StoreKeys, layout: RowLayout, ring: str) -> list[str]:
    """What is in a ring, and the scratch of its incarnation."""
    incarnation = int(ring.split(":")[1])
    found = [keys.scratch(layout.number, share, incarnation) for share in range(layout.shares)]
    first = [keys.slot(layout.number, 0, ring, slot) for slot in range(layout.slots)]
    headers = wire.call_all([command("GETRANGE", key, 0, HEADER_SIZE - 1) for key in first])
    for slot, header in enumerate(headers):
        pieces = len(layout.pieces(rows_of(header)))
        found += [keys.slot(layout.number, piece, ring, slot) for piece in range(pieces)]
    return found


def delete_pushed(wire: Wire, keys: StoreKeys, view: RowView, rings: Iterable[str]) -> None:
    """Delete the pieces of the delta that is being pushed, also where the first, which tells how many, is gone."""
    if view.frozen is None:
        return
    pieces = range(len(view.layout.pieces(len(view.frozen.numbers))))
    for ring in rings:
        for slot in range(view.layout.slots):
            wire.call("UNLINK", *(keys.slot(view.layout.number, piece, ring, slot) for piece in pieces))


def every(wire: Wire, keys: StoreKeys, layout: RowLayout, rings: Iterable[str]) -> list[str]:
    """Every key that may hold bytes of a table, for expiry and deletion."""
    found = [keys.rows(layout.number, share) for share in range(layout.shares)]
    for ring in rings:
        found += ring_keys(wire, keys, layout, ring)
    return found
