"""Reading rows: from what is known here, from the bases, and from the deltas that follow them.

A row is brought to the end of the log as it is known by starting from a value that is exact at some version (of this
process or of the base, which its share's header dates) and adding, in the log's order, the deltas from there on that
touch it. Which rows a delta touches is read of all of them, four bytes a row; the rows themselves only where they are
asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...connection import Wire
from ...errors import StateLost
from ..tries import Tries
from .exchange import read_base, read_numbers, read_rows
from .pending import Match, Piece, numbers_of
from .view import RowView

if TYPE_CHECKING:
    from ..reader import Reader

Array = NDArray[Any]
#: How often rows are looked for while the view moves on, before all of it is begun again.
_ROUNDS = 8


def read(reader: Reader, view: RowView, wanted: Array, renew: bool, learn: bool) -> Array:
    """Rows by their numbers, ascending, each once: a prefix of the log and all own deltas.

    Args:
        renew: bring the view to the end of the log; False serves from the prefix it has, if it has one.
        learn: False trusts the log as it is known.

    Raises:
        StateLost: a value is gone from the server.
    """

    def attempt(wire: Wire) -> Array | None:
        nonlocal learn
        if renew or view.end < 0 or reader.doubted:
            ask, learn = learn, True
            if not advance(reader, view, wire, ask):
                return None
        return current(reader, view, wire, wanted)

    tries = Tries(reader)
    while tries.more:
        values = reader.host.run(attempt)
        if values is not None:
            view.lay_over(wanted, values)
            return values
        renew = learn = True
    raise lost(view)


def lost(view: RowView) -> StateLost:
    """The exception for what cannot be read."""
    return StateLost(
        f"table {view.layout.name}: a share or a delta is missing or foreign, and stays so: it was deleted, or evicted "
        "by a memory policy (set maxmemory-policy noeviction)"
    )


def advance(reader: Reader, view: RowView, wire: Wire, learn: bool) -> bool:
    """Bring a view to the end of the log: learn which rows the deltas that are new touch.

    Returns False when one was overwritten meanwhile; then the view starts again from the bases.
    """
    log = reader.log
    if learn or reader.doubted or not log.known or reader.epoch != reader.host.caller.epoch:
        reader.learn(wire)
    floor = _floor(reader, view)
    if floor < 0:
        reader.learn(wire)
        if (floor := _floor(reader, view)) < 0:
            raise StateLost(f"table {view.layout.name}: its bases are gone from the server")
    if floor > reader.horizon():
        reader.learn(wire)  # announced meanwhile, of a longer prefix than is known here
    if not log.start <= view.end:
        view.forget()
        if floor < log.start:
            log.clear()
            reader.learn(wire)
            floor = _floor(reader, view)
        view.end = view.pending.floor = floor
    # further only where staleness was another before
    end = max(reader.horizon(), view.end, *_versions(reader, view))
    pieces = _new_pieces(reader, view, floor, end)
    if not read_numbers(wire, view.layout, [piece for piece in pieces if piece.numbers is None]):
        view.forget()
        return False
    # until both are done the view is worth nothing: pieces added twice would count twice, for everybody
    view.end = -1
    view.pending.add(pieces)
    view.end = end
    view.own = min(reader.own, reader.complete) if view.ordered else reader.own
    purge(view, min(floor, end))
    view.taken = reader.moment()
    reader.trim()
    return True


def _floor(reader: Reader, view: RowView) -> int:
    """The version that every share's base has reached, as far as is known; −1: nothing is."""
    return min(_versions(reader, view))


def _versions(reader: Reader, view: RowView) -> list[int]:
    number, bases = view.layout.number, reader.bases
    return [bases.get(f"{number}.{share}", (-1, 0))[0] for share in range(view.layout.shares)]


def _new_pieces(reader: Reader, view: RowView, floor: int, end: int) -> list[Piece]:
    layout, incarnation = view.layout, reader.host.caller.incarnation
    pieces: list[Piece] = []
    for position, tag in enumerate(reader.log.since(view.end, end), view.end):
        if layout.number in tag.slots:
            pieces += view.pieces(tag, position, incarnation)
    old = sum(piece.count for piece in pieces if piece.position < floor)
    if old * layout.number_bytes > len(view.cache) * layout.row_bytes:
        # what all bases hold matters only to rows that are known here: forgetting those is cheaper
        view.forget()
        view.end = view.pending.floor = floor
        pieces = [piece for piece in pieces if piece.position >= floor]
    return pieces


def purge(view: RowView, floor: int) -> None:
    """All bases are there: what they hold is no longer pending."""
    # until both are done the view is worth nothing: a row in the cache may lack what is not pending any more
    end, view.end = view.end, -1
    gone = view.pending.purge(floor)
    if gone:
        positions = np.repeat([piece.position for piece in gone], [piece.count for piece in gone])
        view.cache.touch(np.concatenate([numbers_of(piece) for piece in gone]), positions)
    view.end = end
    view.drop_held()


def current(reader: Reader, view: RowView, wire: Wire, wanted: Array) -> Array | None:
    """Rows exact at the view's end, which may move on while they are read. None: something was overwritten."""
    layout = view.layout
    values = np.empty((len(wanted), layout.width), layout.stored)
    versions = np.full(len(wanted), -1, np.int64)
    places = view.cache.find(wanted)
    known = view.cache.versions(places)
    for _ in range(_ROUNDS):
        lacking = ((versions < 0) & (known < 0)).nonzero()[0]
        if not len(lacking):
            break
        if not _read_base(reader, view, wire, wanted, lacking, places < 0, values, versions):
            return None
        if versions.max() > view.end:
            if not advance(reader, view, wire, learn=True):
                return None
            # of what was read before the view moved on, some may lack deltas that are no longer pending
            versions[versions < view.pending.floor] = -1
            places = view.cache.find(wanted)
            known = view.cache.versions(places)
    else:
        return None
    fetched = versions >= 0
    if not fetched.all():
        there = (~fetched).nonzero()[0]
        values[there], versions[there] = view.cache.values(places[there]), known[there]
    changed = _add(view, wire, wanted, values, versions)
    if changed is None:
        return None
    changed |= fetched
    if changed.all():
        view.cache.put(wanted, places, values, view.end)
    elif changed.any():
        view.cache.put(wanted[changed], places[changed], values[changed], view.end)
    return values


def _read_base(
    reader: Reader,
    view: RowView,
    wire: Wire,
    wanted: Array,
    lacking: Array,
    strange: Array,
    values: Array,
    versions: Array,
) -> bool:
    layout, bases = view.layout, reader.bases
    known = [bases[f"{layout.number}.{share}"] for share in range(layout.shares)]
    base = np.array([version for version, _ in known])
    whole = np.array([view.is_complete(share, version) for share, (version, _) in enumerate(known)])
    if whole.any():
        shares = wanted[lacking] // layout.stride
        new = whole[shares] & strange[lacking]
        values[lacking[new]] = layout.first_values(wanted[lacking[new]])
        versions[lacking[new]] = base[shares[new]]
        lacking = lacking[~new]
        if not len(lacking):
            return True
    answer = read_base(wire, layout, view.keys, wanted, lacking, values, reader.epoch)
    if answer is None:
        return False
    read, stands = answer
    # a base may have moved on without a change of rows; then its header is older than what is known of it
    versions[lacking] = np.maximum(read, base[wanted[lacking] // layout.stride])
    for share, stand in stands.items():
        name = f"{layout.number}.{share}"
        bases[name] = max(bases[name], stand)
    return True


def _add(view: RowView, wire: Wire, wanted: Array, values: Array, versions: Array) -> Array | None:
    """Add what is pending, in order. Returns which rows it changed; None: a piece was overwritten meanwhile."""
    matches = view.pending.matches(wanted, versions)
    absent = [match for match in matches if match.piece.rows is None]
    rows = read_rows(wire, view.layout, absent) if absent else []
    if rows is None:
        return None
    there = iter(rows)
    changed = np.zeros(len(wanted), np.bool_)
    for match in matches:
        values[match.places] += _rows_of(match, there)
        changed[match.places] = True
    return changed


def _rows_of(match: Match, fetched: Any) -> Array:
    own = match.piece.rows
    rows: Array = next(fetched) if own is None else own[match.inside]
    return rows
