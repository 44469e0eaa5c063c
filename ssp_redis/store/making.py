"""What is written when a dense table is made, and whenever one of its shares becomes a base: scratch."""

from __future__ import annotations

from ..connection import ReplyError, Wire
from ..errors import ServerRefused
from ..lua import Code, Refusal
from .blob import base_header
from .claiming import obtain, publish
from .layout import Layout
from .push import register
from .reader import Reader
from .ring import Ring
from .sparse.layout import RowLayout
from .view import Array, View, as_bytes


class Writer(Reader):
    """A reader that also writes: it has a ring, by whose name what it leaves behind is found."""

    ring: Ring
    #: The table that was made here last.
    making: Layout | RowLayout | None = None

    def overtaken(self, share: str, refusal: Refusal) -> None:
        """A commit was refused because somebody was faster: take over which base stands now. Else it is raised."""
        if refusal.code is not Code.CHANGED:
            raise refusal
        self.bases[share] = (int(refusal.words[0]), int(refusal.words[1]))


def create(store: Writer, name: str, init: Array, workers: int) -> View:
    """The view of a table, which is made with ``init`` if nobody has made it yet.

    Raises:
        TableMismatch: it is there, with another shape or dtype.
        ServerRefused: the server has not the memory for it.
    """
    layout = Layout.cut(name, init.dtype.name, init.shape, workers)

    def make(wire: Wire, number: int) -> None:
        _make(store, wire, Layout.parse(name, number, store.run_id, layout.describe()), init, workers)

    view = store.views.get(name) or store.open(name, obtain(store, name, layout.describe(), make))
    store.check(view, init.shape, init.dtype.name)
    return view


def scratch_of(store: Writer, layout: Layout, blocks: range) -> list[str]:
    """The keys of blocks that this incarnation has on their way to become bases."""
    return [store.keys.scratch(layout.number, block, store.host.caller.incarnation) for block in blocks]


def send_scratch(
    store: Writer, wire: Wire, layout: Layout, blocks: range, headers: list[bytes], values: Array
) -> tuple[list[str], int]:
    """Write blocks as scratch of this incarnation, on their way to become bases.

    Returns their keys, and how many replies are to be read.
    """
    if registration := register(store.keys, store.ring):
        wire.call_all(registration)
    keys = scratch_of(store, layout, blocks)
    for key, block, header in zip(keys, blocks, headers, strict=True):
        wire.send_set(key, header, as_bytes(values[layout.extent(block)]))
    return keys, len(keys)


def _make(store: Writer, wire: Wire, layout: Layout, init: Array, workers: int) -> None:
    _check_memory(wire, layout, workers)
    store.making = layout
    blocks = range(layout.blocks)
    headers = [base_header(layout.block(block), 0, 0, 0) for block in blocks]
    values = init.reshape(-1).astype(layout.stored, copy=False)
    scratch, replies = send_scratch(store, wire, layout, blocks, headers, values)
    wire.read_done(replies)
    bases = [store.keys.base(layout.number, block, 0) for block in blocks]
    publish(store, wire, layout.name, layout.shares, scratch, bases)


def _check_memory(wire: Wire, layout: Layout, workers: int) -> None:
    try:
        info = wire.call("INFO", "memory").decode()
    except ReplyError:
        return  # this user may not ask
    limit = int(next((line[10:] for line in info.split("\r\n") if line.startswith("maxmemory:")), "0"))
    need = layout.memory(workers)
    if limit and need > limit:
        who = "1 worker" if workers == 1 else f"{workers} workers"
        raise ServerRefused(
            f"table {layout.name} may need {need / 2**20:.0f} MiB in Redis with {who}, and maxmemory is "
            f"{limit / 2**20:.0f} MiB: raise it"
        )
