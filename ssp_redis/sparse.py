"""Sparse tables as a worker uses them: millions of rows, of which each step touches a few."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .errors import UsageError
from .given import Adder, Array, Rows, as_delta, as_rows, check_finite, check_rows_of, sum_not_finite
from .keys import check_name
from .store.blob import DTYPES, dtype_of
from .store.sparse.initial import INITIALIZERS
from .store.sparse.layout import RowLayout
from .store.sparse.view import RowView


class Owner(Adder, Protocol):
    """The worker behind a table."""

    def adds(self) -> None:
        """Something is about to be added; raises what makes the worker unusable, if anything does."""

    def rows(self, view: RowView, wanted: Array) -> Array:
        """Rows by their numbers, ascending, each once, as fresh as a read at the worker's clock must be."""


class SparseTable:
    """One shared array whose rows are made when they are first touched.

    The guarantee is :class:`ssp_redis.Table`'s, row by row of one ``get`` at one moment: it holds every delta with
    timestamp ≤ c − staleness − 1 of every worker, and all of this worker's own. What a row begins as depends on the
    table's initializer and seed and on the row's number, not on who touches it; a row that is only read is not stored.
    Memory and traffic are in proportion to the rows touched, not to the table.
    """

    def __init__(self, owner: Owner, view: RowView) -> None:
        self._owner = owner
        self._view = view
        layout = view.layout
        self.name = layout.name
        self.shape = layout.shape
        self.dtype: np.dtype[Any] = dtype_of(layout.dtype)
        self._stored: np.dtype[Any] = np.dtype(layout.stored)

    def __repr__(self) -> str:
        return f"SparseTable({self.name!r}, shape={self.shape}, dtype={self.dtype})"

    def get(self, rows: Rows) -> Array:
        """Those rows, in that order, as a new array of (len(rows), …).

        Raises:
            UsageError: a row out of range.
            Evicted, Superseded, StateLost, ServerUnavailable: see :mod:`ssp_redis.errors`.
        """
        return pick(self._view, rows, lambda wanted: self._owner.rows(self._view, wanted))

    def inc(self, delta: ArrayLike, rows: Rows) -> None:
        """Add one row of ``delta`` to each of ``rows``; it is committed by the tick that ends this clock.

        Args:
            delta: an array of (len(rows), …).
            rows: numbers of rows; a row named twice gets both.

        Raises:
            TableMismatch: wrong shape, or a dtype that does not fit into the table's.
            NonFinite: NaN or infinity in the delta, or in its sum with what this clock has added.
            UsageError: a row out of range. Nothing was added in any of these cases.
        """
        self._owner.adds()
        chosen = as_rows(self.name, self.shape, rows)
        array = as_delta(self.name, self.dtype, self._stored, delta)
        check_rows_of(self.name, self.shape, chosen, array)
        check_finite(self.name, self._owner, array, chosen)
        if len(chosen):
            layout = self._view.layout
            # once it is added nothing is called any more, or an interruption there would have it added again
            if not self._view.add(layout.numbers(chosen), array.reshape(len(chosen), layout.width)):
                raise sum_not_finite(self.name, self._owner)


def pick(view: RowView, rows: Rows, read: Callable[[Array], Array]) -> Array:
    """Rows as a caller names them, read by their numbers, ascending, each once."""
    layout = view.layout
    wanted, places = np.unique(layout.numbers(as_rows(layout.name, layout.shape, rows)), return_inverse=True)
    values = read(wanted)[places.reshape(-1)]
    return values.reshape(len(places), *layout.shape[1:]).astype(dtype_of(layout.dtype), copy=False)


def described(
    name: str, shape: Sequence[int], dtype: DTypeLike, initializer: str, seed: int, scale: float, workers: int
) -> RowLayout:
    """The description of a table that is asked for.

    Raises:
        UsageError: it makes no sense.
    """
    check_name("table", name)
    try:
        kind = np.dtype(dtype)
        dims = tuple(operator.index(size) for size in shape)
        seed, scale = operator.index(seed), float(scale)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"table {name}: a shape, dtype, seed or scale that is none: {error}") from None
    if kind.name not in DTYPES:
        raise UsageError(f"table {name}: {kind} is not supported, use one of {', '.join(DTYPES)}")
    if not dims or min(dims) < 1:
        raise UsageError(f"table {name}: shape {dims} has no rows to touch")
    if dims[0] > 1 << 62:
        raise UsageError(f"table {name}: {dims[0]} rows are more than can be numbered")
    if initializer not in INITIALIZERS:
        raise UsageError(f"table {name}: no initializer {initializer!r}, use one of {', '.join(INITIALIZERS)}")
    if initializer != "zeros" and kind.kind == "i":
        raise UsageError(f"table {name}: rows of {kind} begin as zeros, not {initializer}")
    if not 0 <= seed < 1 << 63:
        raise UsageError(f"table {name}: seed {seed!r} is not a whole number from 0 up")
    if not math.isfinite(scale):
        raise UsageError(f"table {name}: scale {scale!r} is not a number")
    with np.errstate(over="ignore"):
        # a normal value is hardly ever more than nine times its standard deviation
        largest = np.array(9 * scale).astype(dtype_of(kind.name)) if kind.kind != "i" else np.array(0)
    if not np.isfinite(largest):
        raise UsageError(f"table {name}: scale {scale!r} makes rows that {kind} does not hold")
    return RowLayout.new(name, kind.name, dims, workers, initializer, seed, scale)
