"""What callers hand to a table: arrays and numbers of rows, checked before anything is added or sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .errors import NonFinite, TableMismatch, UsageError
from .store.passes import finite

Array: TypeAlias = NDArray[Any]
#: Numbers of rows.
Rows: TypeAlias = Sequence[int] | NDArray[np.integer]


def as_array(what: str, value: object) -> Array:
    """``value`` as an array, or an error that says what is none."""
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{what} is not an array: {error}") from None


def as_delta(table: str, dtype: np.dtype[Any], stored: np.dtype[Any], delta: object) -> Array:
    """A delta as an array of the dtype in which its table is summed, with the same values.

    Raises:
        TableMismatch: a dtype, or values, that do not fit into the table.
    """
    array = as_array(f"table {table}: the delta", delta)
    if array.dtype == stored:
        return array
    if array.dtype != dtype and not np.can_cast(array.dtype, stored, "same_kind"):
        raise TableMismatch(f"table {table} is {dtype}: a delta of {array.dtype} does not fit into it")
    with np.errstate(over="ignore"):
        fitted = array.astype(stored)
    if stored.kind == "i" and not np.array_equal(fitted, array):
        raise TableMismatch(f"table {table} is {dtype}: the delta of {array.dtype} has values beyond it")
    return fitted


def as_rows(table: str, shape: tuple[int, ...], rows: Rows) -> NDArray[np.intp]:
    """Numbers of rows as an array.

    Raises:
        UsageError: they are none, or one is not of the table.
    """
    chosen = as_array(f"table {table}: rows", rows)
    if chosen.ndim != 1 or not (chosen.size == 0 or np.issubdtype(chosen.dtype, np.integer)):
        mask = "; those of a mask are np.flatnonzero(mask)" if chosen.dtype.kind == "b" else ""
        raise UsageError(f"table {table}: rows are a list of whole numbers, not {rows!r}{mask}")
    if not shape:
        raise UsageError(f"table {table} is a single value and has no rows")
    if chosen.size and (int(chosen.min()) < 0 or int(chosen.max()) >= shape[0]):
        culprit = int(chosen.min()) if int(chosen.min()) < 0 else int(chosen.max())
        raise UsageError(f"table {table} has rows 0 to {shape[0] - 1}: there is no row {culprit}")
    return chosen.astype(np.intp)


def check_rows_of(table: str, shape: tuple[int, ...], chosen: NDArray[np.intp], delta: Array) -> None:
    """Raise TableMismatch unless the delta has one row for each of those chosen."""
    expected = (len(chosen), *shape[1:])
    if delta.shape != expected:
        raise TableMismatch(f"table {table}: {len(chosen)} rows need a delta of {expected}, not {delta.shape}")


class Adder(Protocol):
    """Who adds."""

    id: str

    @property
    def clock(self) -> int:
        """Ticks completed."""


def check_finite(table: str, who: Adder, delta: Array, chosen: NDArray[np.intp] | None = None) -> None:
    """Raise NonFinite, which names the first culprit, if there is NaN or infinity in the delta.

    Args:
        chosen: the rows that the delta is for; None: all.
    """
    if finite(delta):
        return
    wrong = ~np.isfinite(delta)
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    row = "" if chosen is None else f", which is of row {int(chosen[where[0]])}"
    raise NonFinite(
        f"worker {who.id}, clock {who.clock}: the delta for table {table} has {int(wrong.sum())} values "
        f"that are NaN or infinite, the first at {where}{row}; it was not added"
    )


def sum_not_finite(table: str, who: Adder) -> NonFinite:
    """The error where a delta, finite by itself, could not be added to what the clock had added before."""
    return NonFinite(
        f"worker {who.id}, clock {who.clock}: the deltas of this clock for table {table} add up to more than its dtype "
        "holds; the last one was not added"
    )
