"""A worker's delta of one clock: the rows it touches, in the order of their numbers, each once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class RowDelta:
    """Sorted numbers of rows, and for each what is added to it."""

    numbers: Array
    rows: Array

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return int(self.rows.nbytes)


@dataclass
class OpenDelta:
    """What the open clock has added so far, as it came."""

    numbers: list[Array] = field(default_factory=list)
    rows: list[Array] = field(default_factory=list)

    def add(self, numbers: Array, rows: Array) -> None:
        """Add rows, which are copied; a row that comes twice gets both."""
        delta = _sum(numbers, rows)
        self.numbers.append(delta.numbers)
        self.rows.append(delta.rows)

    def together(self) -> RowDelta:
        """All of it as one delta. What was added later is added on top, so asking in between changes no bit."""
        if len(self.numbers) > 1:
            delta = _sum(np.concatenate(self.numbers), np.concatenate(self.rows))
            self.numbers, self.rows = [delta.numbers], [delta.rows]
        return RowDelta(self.numbers[0], self.rows[0])


def _sum(numbers: Array, rows: Array) -> RowDelta:
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    again = numbers[1:] == numbers[:-1]
    if not again.any():
        return RowDelta(numbers, rows[order])
    begins = np.concatenate(([0], (~again).nonzero()[0] + 1))
    return RowDelta(numbers[begins], np.add.reduceat(rows[order], begins, axis=0))


def overlap(wanted: Array, numbers: Array) -> tuple[Array, Array]:
    """Where numbers that are in both stand: places in ``wanted``, and in ``numbers``. Both are sorted."""
    if len(wanted) == 0 or len(numbers) == 0:
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    places = np.searchsorted(wanted, numbers)
    places[places == len(wanted)] = 0
    inside = (wanted[places] == numbers).nonzero()[0]
    return places[inside], inside
