"""What is left behind, and how it goes: rings of departed workers once they are folded, runs that were replaced."""

from __future__ import annotations

from collections.abc import Iterable

from ..connection import Wire, command
from ..keys import JobKeys, StoreKeys
from .layout import Layout
from .sparse import sweep as rows
from .sparse.layout import KIND, RowLayout


def layouts(wire: Wire, keys: StoreKeys) -> list[Layout | RowLayout]:
    """Every table of a run, half-made ones included."""
    reply = wire.call("HGETALL", keys.tables)
    found: list[Layout | RowLayout] = []
    for i in range(0, len(reply), 2):
        number, _, _, _, description = reply[i + 1].decode().split(" ")
        kind = RowLayout if description.startswith(KIND + ":") else Layout
        found.append(kind.parse(reply[i].decode(), int(number), 0, description))
    return found


def rings(wire: Wire, keys: StoreKeys) -> set[str]:
    """Every ring that may hold deltas."""
    return {ring.decode() for ring in wire.call("SMEMBERS", keys.rings)}


def delete_rings(
    wire: Wire, keys: StoreKeys, names: Iterable[str], tables: list[Layout | RowLayout] | None = None
) -> list[str]:
    """Delete the slots of rings that no tag refers to any more, and the scratch of their incarnations.

    Args:
        tables: which there are; None: those that the run's list has.

    Returns those whose names were in the list, from which they are taken.
    """
    tables = layouts(wire, keys) if tables is None else tables
    removed = []
    for ring in names:
        incarnation = int(ring.split(":")[1])
        doomed = []
        for layout in tables:
            if isinstance(layout, RowLayout):
                doomed += rows.ring_keys(wire, keys, layout, ring)
                continue
            for block in range(layout.blocks):
                doomed += [keys.slot(layout.number, block, ring, slot) for slot in range(layout.slots)]
                doomed.append(keys.scratch(layout.number, block, incarnation))
        _in_batches(wire, "UNLINK", doomed)
        if wire.call("SREM", keys.rings, ring):
            removed.append(ring)
    return removed


def every_key(wire: Wire, keys: StoreKeys) -> list[str]:
    """Every key that a run may have, its lists of tables, bases and rings last."""
    names = sorted(rings(wire, keys))
    found: list[str] = []
    for layout in layouts(wire, keys):
        if isinstance(layout, RowLayout):
            found += rows.every(wire, keys, layout, names)
        else:
            found += keys.every(layout.number, layout.blocks, layout.slots, names)
    return [*found, keys.bases, keys.rings, keys.tables]


def erase(wire: Wire, keys: StoreKeys) -> None:
    """Delete all of a run's tables."""
    _in_batches(wire, "UNLINK", every_key(wire, keys))


def expire(wire: Wire, keys: StoreKeys, milliseconds: int | None) -> None:
    """Let all of a run's tables expire, or (None) keep them."""
    found = every_key(wire, keys)
    for i in range(0, len(found), 1000):
        batch = found[i : i + 1000]
        if milliseconds is None:
            wire.call_all([command("PERSIST", key) for key in batch])
        else:
            wire.call_all([command("PEXPIRE", key, milliseconds) for key in batch])


def retire(wire: Wire, job: JobKeys, keys: StoreKeys) -> None:
    """If the job has no members: let a run's tables expire together with the job's other keys."""
    members, life = wire.call_all([command("ZCARD", job.order), command("PTTL", job.config)])
    if members or life < 0:
        return
    expire(wire, keys, life)
    if wire.call("ZCARD", job.order):
        # somebody has joined meanwhile, perhaps too early to find an expiry to take off
        expire(wire, keys, None)


def _in_batches(wire: Wire, verb: str, keys: list[str]) -> None:
    for i in range(0, len(keys), 1000):
        wire.call(verb, *keys[i : i + 1000])
