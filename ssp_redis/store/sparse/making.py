"""How a sparse table comes to be, and how it is found: as a dense one, with an empty hash for each share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...connection import Wire, command
from ...errors import TableMismatch
from ...lua import Code, Refusal
from ...subscriber import Subscriber
from ..blob import rows_header
from ..push import register
from .layout import KIND, RowLayout
from .view import RowView

if TYPE_CHECKING:
    from ...scripts import Claim
    from ..reader import Reader
    from ..store import Store

#: How long a claim to make a table holds (ms); whoever waits takes it over then.
_CLAIM = 10_000


def ask(reader: Reader, name: str) -> RowView | None:
    """The view of a sparse table; None when nobody has made it, or it is a dense one."""
    if name in reader.sparse:
        return reader.sparse[name]
    try:
        claim = reader.host.run(lambda wire: reader.scripts.claim(wire, reader.host.caller.run, name, "-", 0, 0))
    except Refusal as refusal:
        if refusal.code is Code.CLAIMED:
            return None
        raise
    if claim.state != "ready" or not claim.description.startswith(KIND + ":"):
        return None
    return _open(reader, name, claim)


def create(store: Store, wanted: RowLayout) -> RowView:
    """The view of a table, which is made if nobody has made it yet.

    Raises:
        TableMismatch: it is there, and is another.
    """
    name, caller = wanted.name, store.host.caller
    view = store.sparse.get(name)
    while view is None:
        try:
            claim = store.host.run(
                lambda wire: store.scripts.claim(wire, caller.run, name, wanted.describe(), caller.incarnation, _CLAIM)
            )
        except Refusal as refusal:
            if refusal.code is not Code.CLAIMED:
                raise
            _await(store, name, int(refusal.words[0]) / 1000)
            continue
        if claim.state == "ready":
            view = _open(store, name, claim)
        else:
            made = RowLayout.parse(name, claim.number, store.run_id, wanted.describe())
            store.host.run(lambda wire, made=made: _make(store, wire, made))  # type: ignore[misc]
    check(view.layout, wanted)
    return view


def _await(store: Store, name: str, limit: float) -> None:
    """Somebody else is making it: wait for its announcement, or until the claim runs out."""
    ear = Subscriber(store.host.endpoint, store.keys.commits)
    try:
        # subscribed first, then asked: what was announced before is there now
        if ask(store, name) is None:
            ear.last(limit)
    finally:
        ear.close()


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
    caller, shares = store.host.caller, range(layout.shares)
    scratch = [store.keys.scratch(layout.number, share, caller.incarnation) for share in shares]
    words = register(store.keys, store.ring)
    for share, key in zip(shares, scratch, strict=True):
        words += [
            command("DEL", key),
            command("HSET", key, "h", rows_header(layout.block(share, layout.width), 0, 0, 0)),
        ]
    wire.call_all(words)
    rows = [store.keys.rows(layout.number, share) for share in shares]
    try:
        store.scripts.publish(wire, caller.run, layout.name, caller.incarnation, layout.shares, scratch, rows)
    except Refusal as refusal:
        if refusal.code is not Code.CHANGED:  # else the claim ran out and is another's: claim again, and see
            raise
