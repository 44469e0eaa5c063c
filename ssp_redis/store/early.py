"""Bases of a part of a clock: at staleness 0, for whoever is late.

While one computes, those who wait sum what the others have added in that clock, and publish it. Who was late then has
one base to read in the place of many deltas. Until it has ticked, it may not read that, and where it has no copy of its
own to go on from, it begins with the base before. That one stays under its key until the next commit, so a base of a
part of a clock is never put in the place of another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..connection import Wire
from .blob import HEADER_SIZE, base_version
from .view import View

if TYPE_CHECKING:
    from .reader import Reader

#: The log keeps so many tags before the lowest base; half of them lie before whatever begins with the base before.
KEPT = 256


def allowed(reader: Reader, view: View, share: int, version: int) -> bool:
    """May a share's base go to that version, though not everybody may read that yet?"""
    log, replaced = reader.log, reader.bases[view.layout.names[share]][0]
    if view.layout.small or reader.host.reproducible or replaced > reader.common():
        return False
    # a base that only moved on tells an older version: it must have been written lately
    lately = max(log.start, version - KEPT // 2)
    return lately < replaced and any(tag.touches(view.layout.number) for tag in log.since(lately, replaced))


def before(reader: Reader, wire: Wire, view: View, share: int) -> tuple[int, int] | None:
    """Version and generation of the base that a share had before; None: it is not there, or too old to go on from."""
    layout, generation = view.layout, reader.bases[view.layout.names[share]][1] - 1
    block = layout.blocks_of(share)[0]
    header = wire.call("GETRANGE", reader.keys.base(layout.number, block, generation), 0, HEADER_SIZE - 1)
    version = base_version(header, layout.block(block), generation, reader.epoch)
    return (version, generation) if version is not None and version >= reader.log.start else None
