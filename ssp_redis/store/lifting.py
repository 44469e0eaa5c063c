"""Bases that nobody moves on: of tables that are no longer pushed or read, perhaps not even opened by anybody.

The log holds all tags from the lowest base on, so one that stays behind would let it grow for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..connection import Wire
from ..lua import Refusal
from .sparse import folding, making
from .sparse.layout import KIND

if TYPE_CHECKING:
    from .store import Store

#: After so many entries of the log it is looked whether a base has stayed half as many behind.
EVERY = 4096


def lift(store: Store) -> int:
    """Bring bases that are far behind to the end of the log. Returns its length from which on to look again."""
    store.host.run(store.learn)
    end, log = store.common(), store.log
    behind = [(name, base) for name, (base, _) in store.bases.items() if end - base > EVERY // 2]
    if min((base for _, base in behind), default=log.start) < log.start:
        log.clear()
        store.host.run(store.learn)
    for name, base in behind:
        number, share = map(int, name.split("."))
        if log.start <= base and not any(tag.touches(number) for tag in log.since(base, end)):
            store.host.run(lambda wire, name=name: _move(store, wire, name, end))  # type: ignore[misc]
        else:
            _fold(store, number, share)
    return store.log.end + EVERY


def _move(store: Store, wire: Wire, name: str, end: int) -> None:
    """No tag has touched the share since: only its version moves."""
    if name not in store.bases or store.epoch != store.host.caller.epoch or store.bases[name][0] >= end:
        return
    replaces, tag = store.bases[name], store.log.last(end)
    try:
        store.bases[name] = store.scripts.commit(
            wire, store.host.caller, store.host.clock, name, replaces, end, tag, [], [], [], [], 0
        )
    except Refusal as refusal:
        store.overtaken(name, refusal)


def _fold(store: Store, number: int, share: int) -> None:
    name, description = store.named(number)
    views: dict[str, Any] = store.sparse if description.startswith(KIND) else store.views
    known = name in views
    if description.startswith(KIND):
        rowed = making.ask(store, name)
        if rowed is not None:
            folding.fold(store, rowed, [share])
    elif name:
        view = store.ask(name)
        if view is not None:
            store.folder.fold(view, [share])
    if not known:
        views.pop(name, None)  # nobody here uses it
