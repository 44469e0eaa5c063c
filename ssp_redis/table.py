"""A table as a worker uses it: ``get`` what is fresh enough, ``inc`` what was computed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import NonFinite, TableMismatch, UsageError
from .store.blob import dtype_of
from .store.view import Array, View

#: Up to so many elements numpy takes longer to begin than Python to finish.
_FEW = 16


class Owner(Protocol):
    """The worker behind a table."""

    id: str

    @property
    def clock(self) -> int:
        """Ticks completed."""

    def usable(self) -> None:
        """Raise what makes the worker unusable, if anything does."""

    def fresh(self, view: View) -> None:
        """Bring the view forward if it does not hold what a read at the worker's clock must hold."""


def as_array(what: str, value: object) -> Array:
    """``value`` as an array, or an error that says what is none."""
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{what} is not an array: {error}") from None


def fit(table: str, dtype: np.dtype[Any], stored: np.dtype[Any], delta: Array) -> Array:
    """The same values in the dtype in which a table is summed."""
    if delta.dtype == stored:
        return delta
    if delta.dtype != dtype and not np.can_cast(delta.dtype, stored, "same_kind"):
        raise TableMismatch(f"table {table} is {dtype}: a delta of {delta.dtype} does not fit into it")
    with np.errstate(over="ignore"):
        fitted = delta.astype(stored)
    if stored.kind == "i" and not np.array_equal(fitted, delta):
        raise TableMismatch(f"table {table} is {dtype}: the delta of {delta.dtype} has values beyond it")
    return fitted


class Table:
    """One shared numpy array.

    A read at clock c holds every delta with timestamp ≤ c − staleness − 1 of every worker, and all of this worker's
    own; it may hold newer ones (Ho et al., NIPS 2013, §3).
    """

    def __init__(self, owner: Owner, view: View) -> None:
        self._owner = owner
        self._view = view
        layout = view.layout
        self.name = layout.name
        self.shape = layout.shape
        self.dtype: np.dtype[Any] = dtype_of(layout.dtype)
        self._stored: np.dtype[Any] = np.dtype(layout.stored)

    def __repr__(self) -> str:
        return f"Table({self.name!r}, shape={self.shape}, dtype={self.dtype})"

    def get(self, rows: Sequence[int] | NDArray[np.integer] | None = None) -> NDArray[Any]:
        """The table's value, as a new array of ``shape`` and ``dtype``; with ``rows``, those rows in that order.

        Half types are summed in float32 and rounded here; sums of whole numbers wrap around as numpy's do.

        Raises:
            UsageError: a row out of range.
            Evicted, Superseded, StateLost, ServerUnavailable: see :mod:`ssp_redis.errors`.
        """
        chosen = None if rows is None else self._rows(rows)
        self._owner.fresh(self._view)
        value = self._view.value().reshape(self.shape) if chosen is None else self._view.rows(chosen)
        return value.astype(self.dtype, copy=False)

    def inc(self, delta: ArrayLike, rows: Sequence[int] | NDArray[np.integer] | None = None) -> None:
        """Add ``delta`` to the table; it is committed by the tick that ends this clock.

        Args:
            delta: an array of ``shape``, or, with ``rows``, of (len(rows), …): one row each.
            rows: numbers of rows; a row named twice gets both.

        Raises:
            TableMismatch: wrong shape, or a dtype that does not fit into the table's.
            NonFinite: NaN or infinity in the delta.
            UsageError: a row out of range. Nothing was added in any of these cases.
        """
        self._owner.usable()
        array = as_array(f"table {self.name}: the delta", delta)
        array = fit(self.name, self.dtype, self._stored, array)
        if rows is None:
            if array.shape != self.shape:
                raise TableMismatch(f"table {self.name} has shape {self.shape}, the delta {array.shape}")
            self._check_finite(array)
            self._view.add(array.reshape(-1))
            return
        chosen = self._rows(rows)
        expected = (len(chosen), *self.shape[1:])
        if array.shape != expected:
            raise TableMismatch(f"table {self.name}: {len(chosen)} rows need a delta of {expected}, not {array.shape}")
        self._check_finite(array)
        self._view.add_rows(array, chosen)

    def _check_finite(self, array: Array) -> None:
        if self._stored.kind == "i":
            return
        if array.size <= _FEW and all(map(math.isfinite, array.ravel().tolist())):
            return
        finite = np.isfinite(array)
        if not finite.all():
            where = tuple(int(i) for i in np.argwhere(~finite)[0])
            raise NonFinite(
                f"worker {self._owner.id}, clock {self._owner.clock}: the delta for table {self.name} has "
                f"{int(array.size - finite.sum())} values that are NaN or infinite, the first at {where}; "
                "it was not added"
            )

    def _rows(self, rows: Sequence[int] | NDArray[np.integer]) -> NDArray[np.intp]:
        chosen = as_array(f"table {self.name}: rows", rows)
        if chosen.ndim != 1 or not (chosen.size == 0 or np.issubdtype(chosen.dtype, np.integer)):
            raise UsageError(f"table {self.name}: rows are a list of whole numbers, not {rows!r}")
        if not self.shape:
            raise UsageError(f"table {self.name} is a single value and has no rows")
        if chosen.size and (int(chosen.min()) < 0 or int(chosen.max()) >= self.shape[0]):
            culprit = int(chosen.min()) if int(chosen.min()) < 0 else int(chosen.max())
            raise UsageError(f"table {self.name} has rows 0 to {self.shape[0] - 1}: there is no row {culprit}")
        return chosen.astype(np.intp)
