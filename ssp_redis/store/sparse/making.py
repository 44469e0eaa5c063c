"""How a sparse table comes to be, and how it is found: as a dense one, with an empty hash for each share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...connection import Wire, command
from ...errors import TableMismatch
from ..blob import rows_header
from ..claiming import look, obtain, publish
from ..push import register
from .layout import KIND, RowLayout
from .view import RowView

if TYPE_CHECKING:
    from ...scripts import Claim
    from ..reader import Reader
    from ..store import Store


def ask(reader: Reader, name: str) -> RowView | None:
    """The view of a sparse table; None when nobody has made it, or it is a dense one."""
    if name in reader.sparse:
        return reader.sparse[name]
    claim = look(reader, name)
    if claim is None or not claim.description.startswith(KIND + ":"):
        return None
    return _open(reader, name, claim)


def create(store: Store, wanted: RowLayout) -> RowView:
    """The view of a table, which is made if nobody has made it yet.

    Raises:
        TableMismatch: it is there, and is another.
    """
    name, description = wanted.name, wanted.describe()

    def make(wire: Wire, number: int) -> None:
        _make(store, wire, RowLayout.parse(name, number, store.run_id, description))

    view = store.sparse.get(name) or _open(store, name, obtain(store, name, description, make))
    check(view.layout, wanted)
    return view


def check(layout: RowLayout, wanted: RowLayout) -> None:
    """Raise TableMismatch unless both are the same, but for how many workers they were laid out for."""

    def say(table: RowLayout) -> str:
        return f"{table.dtype} of shape {table.shape}, {table.initializer} (seed {table.seed}, scale {table.scale:g})"

    if say(layout) != say(wanted) or layout.scale != wanted.scale:
        raise TableMismatch(
            f"table {layout.name} is {say(layout)}, not {say(wanted)}: use the same everywhere, or another name or run"
        )


def _open(reader: Reader, name: str, claim: Claim) -> RowView:
    layout = RowLayout.parse(name, claim.number, reader.run_id, claim.description)
    reader.sparse[name] = view = RowView(layout, reader.keys, reader.host.reproducible)
    # its bases may stand where the log as known here has not begun or has ended
    reader.log.clear()
    return view


def _make(store: Store, wire: Wire, layout: RowLayout) -> None:
    store.making = layout
    shares = range(layout.shares)
    scratch = [store.keys.scratch(layout.number, share, store.host.caller.incarnation) for share in shares]
    words = register(store.keys, store.ring)
    for share, key in zip(shares, scratch, strict=True):
        words += [
            command("DEL", key),
            command("HSET", key, "h", rows_header(layout.block(share, layout.width), 0, 0, 0)),
        ]
    wire.call_all(words)
    rows = [store.keys.rows(layout.number, share) for share in shares]
    publish(store, wire, layout.name, layout.shares, scratch, rows)
