"""Rows that this process knows, each exact at a version of its own: a hash table in numpy arrays.

Rows are looked up and put in by thousands, so it is done for all of them at once: a Python dict would take longer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class RowCache:
    """Number of a row → its values, and the version of the log at which they are exact.

    Args:
        most: rows; when they are used up, it begins anew.
    """

    def __init__(self, width: int, dtype: str, most: int) -> None:
        self._most = most
        self.lives = 0
        # memory that nobody has touched is none: this takes what is used of it
        self._values = np.empty((most, width), dtype)
        self._versions = np.empty(most, np.int64)
        self.clear()

    def clear(self) -> None:
        """Know nothing."""
        table = _Table(10)
        #: How often it began anew.
        self.lives, self._count, self._table = self.lives + 1, 0, table

    def __len__(self) -> int:
        return self._count

    def find(self, numbers: Array) -> Array:
        """The place of each, −1 where there is none. A place serves until the cache begins anew."""
        found, table = np.full(len(numbers), -1, np.int64), self._table
        todo, at, sought = np.arange(len(numbers)), table.slots(numbers), numbers
        while len(todo):
            keys = table.keys[at]
            hit = keys == sought
            found[todo[hit]] = table.places[at[hit]]
            more = ~hit & (keys >= 0)
            todo, sought = todo[more], sought[more]
            at = (at[more] + 1) & table.mask
        return found

    def values(self, places: Array) -> Array:
        """Copies of the rows at those places."""
        rows: Array = self._values[places]
        return rows

    def versions(self, places: Array) -> Array:
        """At which version each is exact; −1: its values are not known."""
        versions: Array = np.where(places < 0, -1, self._versions[places])
        return versions

    def put(self, numbers: Array, places: Array, rows: Array, version: int) -> None:
        """These rows, each number once, at the places that were found for them, are exact at that version."""
        fresh = (places < 0).nonzero()[0]
        if self._count + len(fresh) > self._most:
            self.clear()
            numbers, rows = numbers[: self._most], rows[: self._most]
            places, fresh = np.full(len(numbers), -1, np.int64), np.arange(len(numbers))
        if len(fresh):
            places, count = places.copy(), self._count + len(fresh)
            places[fresh] = np.arange(self._count, count)
            # until they are there they are not known: an interruption (Ctrl-C) may find their places without them
            self._versions[self._count : count] = -1
            self._count = count
            self._insert(numbers[fresh], places[fresh])
        self._values[places], self._versions[places] = rows, version

    def touch(self, numbers: Array, positions: Array) -> None:
        """Tags at those positions touched these rows: those that are not exact beyond are not known any more."""
        places = self.find(numbers)
        known = places >= 0
        places, positions = places[known], positions[known]
        self._versions[places[self._versions[places] <= positions]] = -1

    def _insert(self, numbers: Array, places: Array) -> None:
        table = self._table
        if 2 * self._count > table.mask:
            kept = table.keys >= 0
            larger = _Table((4 * self._count).bit_length())
            larger.insert(table.keys[kept], table.places[kept])
            larger.insert(numbers, places)
            self._table = larger  # as a whole, or not at all
        else:
            table.insert(numbers, places)


class _Table:
    """The hash table: number of a row → its place."""

    def __init__(self, bits: int) -> None:
        self.mask = (1 << bits) - 1
        self._shift = np.uint64(64 - bits)
        self.keys = np.full(1 << bits, -1, np.int64)
        self.places = np.empty(1 << bits, np.int32)

    def slots(self, numbers: Array) -> Array:
        """Where to begin to look for each."""
        slots: Array = ((numbers.astype(np.uint64) * _MULTIPLIER) >> self._shift).astype(np.int64)
        return slots

    def insert(self, numbers: Array, places: Array) -> None:
        """Put in what is not there."""
        at = self.slots(numbers)
        while len(numbers):
            free = self.keys[at] < 0
            # of several that want one slot, the last gets it; the others look on
            self.places[at[free]] = places[free]
            self.keys[at[free]] = numbers[free]
            lost = self.keys[at] != numbers
            numbers, places = numbers[lost], places[lost]
            at = (at[lost] + 1) & self.mask
