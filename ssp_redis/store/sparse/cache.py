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
        #: How often it began anew.
        self.lives += 1
        self._count = 0
        self._hash(10)

    def __len__(self) -> int:
        return self._count

    def find(self, numbers: Array) -> Array:
        """The place of each, −1 where there is none. A place serves until the cache begins anew."""
        found = np.full(len(numbers), -1, np.int64)
        todo, at, sought = np.arange(len(numbers)), self._slots(numbers), numbers
        while len(todo):
            keys = self._keys[at]
            hit = keys == sought
            found[todo[hit]] = self._places[at[hit]]
            more = ~hit & (keys >= 0)
            todo, sought = todo[more], sought[more]
            at = (at[more] + 1) & self._mask
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
            places = places.copy()
            places[fresh] = np.arange(self._count, self._count + len(fresh))
            self._insert(numbers[fresh], places[fresh])
        self._values[places] = rows
        self._versions[places] = version

    def touch(self, numbers: Array, positions: Array) -> None:
        """Tags at those positions touched these rows: those that are not exact beyond are not known any more."""
        places = self.find(numbers)
        known = places >= 0
        places, positions = places[known], positions[known]
        self._versions[places[self._versions[places] <= positions]] = -1

    # -- the hash table ----------------------------------------------------------------------------------------------

    def _hash(self, bits: int) -> None:
        self._mask = (1 << bits) - 1
        self._shift = np.uint64(64 - bits)
        self._keys = np.full(1 << bits, -1, np.int64)
        self._places = np.empty(1 << bits, np.int32)

    def _slots(self, numbers: Array) -> Array:
        slots: Array = ((numbers.astype(np.uint64) * _MULTIPLIER) >> self._shift).astype(np.int64)
        return slots

    def _insert(self, numbers: Array, places: Array) -> None:
        self._count += len(numbers)
        if 2 * self._count > self._mask:
            kept = self._keys >= 0
            numbers, places = (
                np.concatenate((self._keys[kept], numbers)),
                np.concatenate((self._places[kept], places)),
            )
            self._hash((4 * self._count).bit_length())
        at = self._slots(numbers)
        while len(numbers):
            free = self._keys[at] < 0
            # of several that want one slot, one gets it; the others look on
            self._keys[at[free]] = numbers[free]
            won = self._keys[at] == numbers
            self._places[at[won]] = places[won]
            numbers, places = numbers[~won], places[~won]
            at = (at[~won] + 1) & self._mask
