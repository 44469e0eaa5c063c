"""How a table comes to be: claimed by one, written as scratch, published whole; the others wait for it."""

from __future__ import annotations

import contextlib

from ..connection import ReplyError, Wire
from ..errors import ServerRefused
from ..link import persist
from ..lua import Code, Refusal
from ..subscriber import Subscriber
from .blob import base_header
from .layout import Layout
from .push import register
from .reader import Reader
from .ring import Ring
from .view import Array, View, as_bytes

#: How long a claim to make a table holds (ms); whoever waits takes it over then.
_CLAIM = 10_000


class Writer(Reader):
    """A reader that also writes: it has a ring, by whose name what it leaves behind is found."""

    ring: Ring


def create(store: Writer, name: str, init: Array, workers: int) -> View:
    """The view of a table, which is made with ``init`` if nobody has made it yet.

    Raises:
        TableMismatch: it is there, with another shape or dtype.
        ServerRefused: the server has not the memory for it.
    """
    layout = Layout.cut(name, init.dtype.name, init.shape, workers)
    caller = store.host.caller
    view = store.views.get(name)
    while view is None:
        try:
            claim = store.host.run(
                lambda wire: store.scripts.claim(wire, caller.run, name, layout.describe(), caller.incarnation, _CLAIM)
            )
        except Refusal as refusal:
            if refusal.code is not Code.CLAIMED:
                raise
            _await(store, name, int(refusal.words[0]) / 1000)
            continue
        if claim.state == "ready":
            view = store.open(name, claim)
        else:
            made = Layout.parse(name, claim.number, store.run_id, layout.describe())
            store.host.run(lambda wire, made=made: _make(store, wire, made, init, workers))  # type: ignore[misc]
    store.check(view, init.shape, init.dtype.name)
    return view


def scratch_of(store: Writer, layout: Layout, blocks: range) -> list[str]:
    """The keys of blocks that this incarnation has on their way to become bases."""
    return [store.keys.scratch(layout.number, block, store.host.caller.incarnation) for block in blocks]


def write_scratch(
    store: Writer, wire: Wire, layout: Layout, blocks: range, headers: list[bytes], values: Array
) -> list[str]:
    """Write blocks as scratch of this incarnation, on their way to become bases. Returns their keys."""
    if registration := register(store.keys, store.ring):
        wire.call_all(registration)
    keys = scratch_of(store, layout, blocks)
    for key, block, header in zip(keys, blocks, headers, strict=True):
        wire.send_set(key, header, as_bytes(values[layout.extent(block)]))
    wire.read_all(len(keys))
    return keys


def _make(store: Writer, wire: Wire, layout: Layout, init: Array, workers: int) -> None:
    _check_memory(wire, layout, workers)
    caller, blocks = store.host.caller, range(layout.blocks)
    headers = [base_header(layout.block(block), 0, 0, 0) for block in blocks]
    scratch = write_scratch(store, wire, layout, blocks, headers, init.reshape(-1).astype(layout.stored, copy=False))
    bases = [store.keys.base(layout.number, block, 0) for block in blocks]
    try:
        store.scripts.publish(wire, caller.run, layout.name, caller.incarnation, layout.shares, scratch, bases)
    except Refusal as refusal:
        if refusal.code is not Code.CHANGED:  # else the claim ran out and is another's: claim again, and see
            raise


def _check_memory(wire: Wire, layout: Layout, workers: int) -> None:
    try:
        info = wire.call("INFO", "memory").decode()
    except ReplyError:
        return  # this user may not ask
    limit = int(next((line[10:] for line in info.split("\r\n") if line.startswith("maxmemory:")), "0"))
    need = layout.memory(workers)
    if limit and need > limit:
        raise ServerRefused(
            f"table {layout.name} may need {need / 2**20:.0f} MiB in Redis with {workers} workers, and "
            f"maxmemory is {limit / 2**20:.0f} MiB: raise it"
        )


def _await(store: Reader, name: str, limit: float) -> None:
    """Somebody else is making it: wait for its announcement, or until the claim runs out."""
    endpoint = store.host.endpoint
    ear = persist(endpoint.label, limit, lambda: Subscriber(endpoint, store.keys.commits))
    try:
        # subscribed first, then asked: what was announced before is there now
        if store.ask(name) is None:
            with contextlib.suppress(OSError):  # whoever lost the connection asks again
                ear.last(limit)
    finally:
        ear.close()
