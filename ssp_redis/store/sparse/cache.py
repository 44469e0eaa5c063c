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
        limit: bytes of rows; when they are used up, it begins anew.
    """

    def __init__(self, width: int, dtype: str, limit: int) -> None:
        self._width, self._dtype = width, dtype
        self._most = max(1024, limit // max(1, width * np.dtype(dtype).itemsize))
        self.clear()

    def clear(self) -> None:
        """Know nothing."""
        self._count = 0
        self._values = np.empty((256, self._width), self._dtype)
        self._versions = np.empty(256, np.int64)
        self._hash(10)

    def __len__(self) -> int:
        return self._count

    def find(self, numbers: Array) -> Array:
        """The place of each, −1 where it is not known. A place serves until the next :meth:`put`."""
        found = self._known(numbers)
        known = found >= 0
        found[known] = np.where(self._versions[found[known]] >= 0, found[known], -1)
        return found

    def values(self, places: Array) -> Array:
        """Copies of the rows at those places."""
        rows: Array = self._values[places]
        return rows

    def versions(self, places: Array) -> Array:
        """At which version each is exact; −1 for the place −1."""
        versions: Array = np.where(places < 0, -1, self._versions[places])
        return versions

    def put(self, numbers: Array, rows: Array, version: int) -> None:
        """These rows, each number once, are exact at that version."""
        places = self._known(numbers)
        fresh = np.flatnonzero(places < 0)
        if self._count + len(fresh) > self._most:
            self.clear()
            numbers, rows = numbers[: self._most], rows[: self._most]
            places, fresh = np.full(len(numbers), -1, np.int64), np.arange(len(numbers))
        if len(fresh):
            places[fresh] = np.arange(self._count, self._count + len(fresh))
            self._grow(self._count + len(fresh))
            self._insert(numbers[fresh], places[fresh])
            self._count += len(fresh)
        self._values[places] = rows
        self._versions[places] = version

    def touch(self, numbers: Array, position: int) -> None:
        """The tag at that position touched these rows: those that are not exact beyond it are not known any more."""
        places = self._known(numbers)
        places = places[places >= 0]
        self._versions[places[self._versions[places] <= position]] = -1

    # -- the table ---------------------------------------------------------------------------------------------------

    def _known(self, numbers: Array) -> Array:
        """The place of each, whether its values are of use or not."""
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

    def _hash(self, bits: int) -> None:
        self._mask = (1 << bits) - 1
        self._shift = np.uint64(64 - bits)
        self._keys = np.full(1 << bits, -1, np.int64)
        self._places = np.empty(1 << bits, np.int64)

    def _slots(self, numbers: Array) -> Array:
        slots: Array = ((numbers.astype(np.uint64) * _MULTIPLIER) >> self._shift).astype(np.int64)
        return slots

    def _insert(self, numbers: Array, places: Array) -> None:
        at = self._slots(numbers)
        while len(numbers):
            free = self._keys[at] < 0
            # of several that want one slot, one gets it; the others look on
            self._keys[at[free]] = numbers[free]
            won = self._keys[at] == numbers
            self._places[at[won]] = places[won]
            numbers, places = numbers[~won], places[~won]
            at = (at[~won] + 1) & self._mask

    def _grow(self, count: int) -> None:
        if count > len(self._versions):
            size = max(count, 2 * len(self._versions))
            values, versions = np.empty((size, self._width), self._dtype), np.empty(size, np.int64)
            values[: self._count], versions[: self._count] = (
                self._values[: self._count],
                self._versions[: self._count],
            )
            self._values, self._versions = values, versions
        if 2 * count > self._mask:
            kept = self._keys >= 0
            numbers, places = self._keys[kept], self._places[kept]
            self._hash((4 * count).bit_length())
            self._insert(numbers, places)
