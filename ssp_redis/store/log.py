"""The part of the log that this process knows: tags in order, from ``start`` to ``end``.

A version is a length of a log prefix. Joins and departures stand in it too, so a prefix says by itself whose deltas
are in it.
"""

from __future__ import annotations

import binascii
from binascii import a2b_base64
from collections.abc import Mapping
from typing import NamedTuple

_NOTHING: Mapping[int, int] = {}
_NO_VALUES: Mapping[int, bytes] = {}


class Tag(NamedTuple):
    """One entry of the log. ``kind``: j joined, t ticked, l left, r restored after a rollback."""

    kind: str
    worker: str
    incarnation: int
    clock: int
    #: Number of the ring that a tick's slots are in, −1 in other tags.
    number: int
    text: str
    #: table number → slot, for each table whose delta is in one.
    slots: Mapping[int, int] = _NOTHING
    #: table number → rows in that slot, for sparse tables.
    rows: Mapping[int, int] = _NOTHING
    #: table number → the elements' bytes, for each table whose delta the tag itself holds.
    values: Mapping[int, bytes] = _NO_VALUES

    @classmethod
    def parse(cls, text: str) -> Tag:
        """Read kind:worker:incarnation:clock:ring:tables."""
        kind, worker, incarnation, clock, ring, rest = text.split(":")
        if kind != "t" or not rest:
            return cls(kind, worker, int(incarnation), int(clock), -1, text)
        table, _, slot = rest.partition(".")
        if slot.isdecimal() and table.isdecimal():  # the delta of one dense table, as mostly
            slots = {int(table): int(slot)}
            # as the constructor does, which costs as much as the rest of this
            return tuple.__new__(
                cls, (kind, worker, int(incarnation), int(clock), int(ring), text, slots, _NOTHING, _NO_VALUES)
            )
        slots = {}
        rows: dict[int, int] | Mapping[int, int] = _NOTHING
        values: dict[int, bytes] | Mapping[int, bytes] = _NO_VALUES
        for word in rest.split(","):
            if "=" in word:
                table, _, value = word.partition("=")
                values = {**values, int(table): _decoded(value)}
                continue
            table, _, slot = word.partition(".")
            if "/" in slot:
                slot, _, count = slot.partition("/")
                rows = {**rows, int(table): int(count)}
            slots[int(table)] = int(slot)
        return cls(kind, worker, int(incarnation), int(clock), int(ring), text, slots, rows, values)

    @property
    def ring(self) -> str:
        """The name of the ring that a tick's slots are in."""
        return f"{self.worker}:{self.incarnation}:{self.number}"

    def touches(self, table: int) -> bool:
        """Did the tick add to this table?"""
        return table in self.values or table in self.slots


def _decoded(text: str) -> bytes:
    """What base64 stands for; nothing, which is no delta of any table, where it is none."""
    try:
        return a2b_base64(text)
    except binascii.Error:
        return b""


class Log:
    """Tags from ``start`` on, appended to and, once no view needs them, dropped."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Know nothing."""
        self.known = False
        self.start = 0
        self.tags: list[Tag] = []
        #: How much of the log goes up to a clock, and of which log: its start and end.
        self._through: dict[int, int] = {}
        self._through_of = (0, 0)

    @property
    def end(self) -> int:
        """Length of the log prefix that is known."""
        return self.start + len(self.tags)

    def begin(self, end: int, texts: list[str]) -> None:
        """Start anew with the last tags before ``end``. Whoever reads it says when it is ``known``."""
        tags = [Tag.parse(text) for text in texts]
        self.start, self.tags = end - len(texts), tags

    def extend(self, texts: list[str]) -> None:
        """What followed."""
        self.tags.extend(map(Tag.parse, texts))

    def since(self, version: int, end: int) -> list[Tag]:
        """The tags between two prefixes; the caller has checked ``start <= version <= end``."""
        return self.tags[version - self.start : end - self.start]

    def through(self, clock: int) -> int:
        """The version without the last ticks, which hold nothing older than a clock, and what stands among them."""
        if self.tags and (last := self.tags[-1]).clock <= clock and last.kind == "t":
            return self.end
        scene = (self.start, self.end)
        if self._through_of != scene:
            self._through, self._through_of = {}, scene
        found = self._through.get(clock)
        if found is None:
            found = self.beyond(clock)
            for version in range(found, self.end):
                if self.tags[version - self.start].kind == "t" and not self._later(version, clock):
                    found = version + 1
            self._through[clock] = found
        return found

    def beyond(self, clock: int) -> int:
        """The version without the last ticks, those beyond a clock, and what stands among them."""
        found = self.end
        for version in range(self.end - 1, self.start - 1, -1):
            tag = self.tags[version - self.start]
            if tag.kind == "t":
                if tag.clock <= clock:
                    break
                found = version
        return found

    def _later(self, version: int, clock: int) -> bool:
        """Has that tick nothing that is older than a clock?

        It may be of several clocks that were flushed as one, and what a rollback took rides on the first tick after it.
        """
        tick = self.tags[version - self.start]
        for place in range(version - self.start - 1, -1, -1):
            tag = self.tags[place]
            if tag.incarnation == tick.incarnation:
                return tag.kind != "r" and tag.clock >= clock
        return False

    def last(self, version: int) -> str:
        """The text of the last tag of a prefix."""
        return self.tags[version - 1 - self.start].text

    def drop(self, version: int) -> None:
        """Forget what lies before a prefix, but for its last tag, which a commit has to name."""
        count = version - 1 - self.start
        if count > 512:
            del self.tags[:count]
            self.start += count
