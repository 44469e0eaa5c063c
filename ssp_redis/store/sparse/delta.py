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

    parts: list[RowDelta] = field(default_factory=list)
    #: No element of the sum is larger.
    _most: float = 0.0

    def add(self, numbers: Array, rows: Array) -> bool:
        """Add rows, which are copied; a row that comes twice gets both.

        False, and nothing is added, when a sum is too large for the dtype.
        """
        with np.errstate(over="ignore"):
            delta, most = _sum(numbers, rows), 0.0
            if rows.dtype.kind == "f" and rows.size:
                most = self._most + float(np.abs(delta.rows).max())
                if most > np.finfo(rows.dtype).max:
                    # it may be: look at the sum itself
                    most = float(np.abs(_total([*self.parts, delta]).rows).max())
                    if not np.isfinite(most):
                        return False
        # no call after which an interruption (Ctrl-C) would leave it added, though it did not return
        self._most = most
        self.parts += (delta,)
        return True

    def together(self) -> RowDelta:
        """All of it as one delta. What was added later is added on top, so asking in between changes no bit."""
        if len(self.parts) > 1:
            self.parts = [_total(self.parts)]
        return self.parts[0]


def _total(parts: list[RowDelta]) -> RowDelta:
    return _sum(np.concatenate([part.numbers for part in parts]), np.concatenate([part.rows for part in parts]))


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
