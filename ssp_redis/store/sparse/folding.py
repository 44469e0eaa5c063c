"""Folding sparse tables: the rows that deltas have touched are summed and put into the bases, share by share.

An owner that keeps the rows of its share need not read them again; of the others' deltas it reads its part. Readers do
not wait for it: to them a delta that is not folded yet costs four bytes a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...connection import Wire, command
from ...errors import ServerRefused
from ...lua import Refusal
from ..blob import rows_header
from ..tries import Tries
from .exchange import records
from .push import LARGE, keys_of
from .reading import advance, current, lost, purge
from .view import RowView

if TYPE_CHECKING:
    from ..store import Store

#: So many bytes of rows that are not folded are due at once.
_HEAVY = 2 << 20
#: So many bytes in slots that all bases are past are deleted at once; less waits for the next push.
_MUCH = 1 << 20


def base(store: Store, view: RowView, share: int) -> int:
    """Version of a share's base, as known here."""
    return store.bases.get(f"{view.layout.number}.{share}", (0, 0))[0]


def tend(store: Store) -> None:
    """Fold what is due, so that rings do not fill up: own shares early, anybody's when its owner seems not to."""
    for view in list(store.sparse.values()):
        due = _due(store, view)
        if due and not _own(store, due):
            store.host.run(store.learn)  # before doing another's work: has it been done meanwhile?
            due = _due(store, view)
        if due:
            fold(store, view, due)


def _due(store: Store, view: RowView) -> list[int]:
    members, end = store.folder.members(), store.common()
    if view.end < 0 or not members:
        return []
    nbytes = view.pending.rows * view.layout.row_bytes
    lag = max(1, len(members) * view.layout.slots // 2)
    due = []
    for share in range(view.layout.shares):
        patience = 1 if members[share % len(members)] == store.host.caller.worker else 2
        behind = end - base(store, view, share)
        if behind >= patience * lag or (behind and nbytes >= patience * patience * _HEAVY):
            due.append(share)
    return due


def _own(store: Store, shares: list[int]) -> bool:
    members = store.folder.members()
    return bool(members) and all(members[share % len(members)] == store.host.caller.worker for share in shares)


def fold(store: Store, view: RowView, shares: list[int]) -> None:
    """Bring shares to the end of the log and publish them.

    Raises:
        StateLost: a value is gone from the server.
    """
    learn = store.epoch != store.host.caller.epoch

    def attempt(wire: Wire) -> bool:
        nonlocal learn
        ask, learn = learn, True
        if not advance(store, view, wire, ask):
            return False
        return all(_fold_share(store, view, wire, share) for share in shares)

    tries = Tries(store)
    while tries.more:
        if store.host.run(attempt):
            break
    else:
        raise lost(view)
    purge(view, min(view.end, *(base(store, view, share) for share in range(view.layout.shares))))
    release(store, view)


def _fold_share(store: Store, view: RowView, wire: Wire, share: int) -> bool:
    layout = view.layout
    replaces, version = store.bases[f"{layout.number}.{share}"], view.end
    if not max(replaces[0], store.log.start) < version <= store.common():
        return True
    numbers = view.pending.touched(share * layout.stride, (share + 1) * layout.stride, replaces[0])
    life = view.cache.lives
    rows = current(store, view, wire, numbers)
    if rows is None or view.end != version:
        return False
    if store.epoch != store.host.caller.epoch:
        return False
    header = rows_header(layout.block(share, layout.width), replaces[1] + 1, version, store.epoch)
    name = f"{layout.number}.{share}"
    try:
        store.bases[name] = store.scripts.commit_rows(
            wire,
            store.host.caller,
            store.host.clock,
            name,
            replaces,
            version,
            store.log.last(version),
            view.keys.rows(layout.number, share),
            view.keys.undo(layout.number, share),
            header,
            layout.number_bytes,
            layout.record.itemsize,
            records(layout, numbers, rows),
        )
        if view.cache.lives == life:
            view.folded(share, replaces, version)
    except Refusal as refusal:
        store.overtaken(name, refusal)
        view.complete.pop(share, None)
    return True


def make_room(store: Store, view: RowView) -> None:
    """See to it that the slot whose turn it is may be overwritten."""
    layout = view.layout
    for attempt in range(64):
        need = store.ring.needs(layout.number, layout.slots)
        if need and store.doubted:
            store.host.run(store.learn)
        late = [share for share in range(layout.shares) if base(store, view, share) < need]
        if not late:
            return
        if attempt % 2 == 0:
            store.host.run(store.learn)  # somebody may have folded it meanwhile
        else:
            fold(store, view, late)
    raise ServerRefused(f"table {layout.name}: its bases do not advance, so there is no free slot to push to")


def spent(store: Store, view: RowView, least: int = LARGE) -> list[int]:
    """Slots of at least so many bytes that every base is past."""
    if store.doubted:
        return []
    low = min(base(store, view, share) for share in range(view.layout.shares))
    written = view.slots_of(store.ring)
    return [slot for slot, what in written.items() if what.nbytes >= least and what.version <= low]


def release(store: Store, view: RowView) -> None:
    """Delete what is in spent slots, when it is much."""
    slots = spent(store, view)
    written = view.slots_of(store.ring)
    if sum(written[slot].nbytes for slot in slots) < _MUCH:
        return
    doomed = [key for slot in slots for key in keys_of(store.keys, view, store.ring, slot, range(written[slot].pieces))]
    store.host.run(lambda wire: wire.call_all([command("UNLINK", key) for key in doomed]))
    for slot in slots:
        written.pop(slot, None)  # not before: an interruption would leave pieces that nobody knows of
