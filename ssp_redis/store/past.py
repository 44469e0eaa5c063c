"""Where the members stood in earlier prefixes of the log, which its tags tell: so much a read of that version holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .log import Tag


class Past(NamedTuple):
    """Where the members stood at some length of the log."""

    #: Min clock of the other members; None: there was no other.
    others: int | None
    #: The own clock.
    own: int

    def shows(self, least: int) -> bool:
        """Is the min of the others at least that?"""
        return reached(self.others, least)


def reached(others: int | None, least: int) -> bool:
    """Is the min of the others, None where there are none, at least that?"""
    return others is None or others >= least


def backwards(tags: Sequence[Tag], now: Past, me: str) -> list[Past]:
    """The pasts without the last tag, the last two, … as far back as nobody came or went and all are known.

    Args:
        tags: the end of the log.
        now: where the members stand with all of them.
        me: the id of who asks.
    """
    last: dict[str, int] = {}
    before = []
    for tag in tags:
        before.append(last.get(tag.worker))
        last[tag.worker] = tag.clock
    found = []
    others, own = now
    for tag, clock in zip(reversed(tags), reversed(before), strict=True):
        if tag.kind != "t" or clock is None:
            break
        if tag.worker == me:
            own = clock
        elif others is not None:
            # who has not moved since counts in the min of now; who has was lower, so that this is the min of all
            others = min(others, clock)
        found.append(Past(others, own))
    return found
