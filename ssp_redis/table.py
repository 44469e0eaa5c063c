"""A table as a worker uses it: ``get`` what is fresh enough, ``inc`` what was computed."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import TableMismatch, UsageError
from .given import Adder, Rows, as_delta, as_rows, check_finite, check_rows_of, sum_not_finite
from .store.blob import dtype_of
from .store.view import View


class Owner(Adder, Protocol):
    """The worker behind a table."""

    def adds(self) -> None:
        """Something is about to be added; raises what makes the worker unusable, if anything does."""

    def fresh(self, view: View) -> None:
        """Bring the view forward if it does not hold what a read at the worker's clock must hold."""


class Table:
    """One shared numpy array.

    A read at clock c holds every delta with timestamp ≤ c − staleness − 1 of every worker, and all of this worker's
    own; it may hold newer ones (Ho et al., NIPS 2013, §3), of a table above 512 KiB in some parts and not in others.
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

    def get(self, rows: Rows | None = None, *, copy: bool = True) -> NDArray[Any]:
        """The table's value, as a new array of ``shape`` and ``dtype``; with ``rows``, those rows in that order.

        Half types are summed in float32 and rounded here; sums of whole numbers wrap around as numpy's do.

        Args:
            copy: False: a read-only array, which for a large table is much cheaper: mostly the memory that the table
                sums in, and copied only if something of it is still held when that goes on.

        Raises:
            UsageError: a row out of range.
            Evicted, Superseded, StateLost, ServerUnavailable: see :mod:`ssp_redis.errors`.
        """
        chosen = None if rows is None else as_rows(self.name, self.shape, rows)
        self._owner.fresh(self._view)
        if chosen is not None:
            value = self._view.rows(chosen)
        else:
            value = (self._view.value() if copy else self._view.show()).reshape(self.shape)
        if value.dtype != self.dtype:
            value = value.astype(self.dtype)
        if not copy:
            value.flags.writeable = False
        return value

    def summed(self) -> NDArray[Any]:
        """What :meth:`get` rounds where the table is of a half type: the value in the dtype in which it is summed."""
        self._owner.fresh(self._view)
        return self._view.value().reshape(self.shape)

    def spare(self) -> NDArray[Any]:
        """Memory of ``shape`` for a delta, in the dtype in which the table is summed.

        Fill it and call :meth:`inc_spare`. In it is what was in an earlier one, or anything.
        """
        return self._view.lend().reshape(self.shape)

    def inc_spare(self, *, finite: bool = False) -> None:
        """Add what :meth:`spare` was filled with: as ``inc``, but not copied; it is not to be touched any more.

        Args:
            finite: True: the caller knows that it is, it need not be looked at.

        Raises:
            UsageError: nothing is lent, or it was taken already.
            NonFinite: it or its sum with what this clock has added is not finite; nothing was added.
        """
        self._owner.adds()
        lent = self._view.lent
        if lent is None:
            raise UsageError(
                f"table {self.name}: inc_spare() takes what spare() has lent, and nothing is: call spare()"
            )
        if not finite:
            check_finite(self.name, self._owner, lent.reshape(self.shape))
        if not self._view.add_lent():
            raise sum_not_finite(self.name, self._owner)

    def inc(self, delta: ArrayLike, rows: Rows | None = None) -> None:
        """Add ``delta`` to the table; it is committed by the tick that ends this clock.

        Args:
            delta: an array of ``shape``, or, with ``rows``, of (len(rows), …): one row each.
            rows: numbers of rows; a row named twice gets both.

        Raises:
            TableMismatch: wrong shape, or a dtype that does not fit into the table's.
            NonFinite: NaN or infinity in the delta, or in its sum with what this clock has added.
            UsageError: a row out of range. Nothing was added in any of these cases.
        """
        # once it is added nothing is called any more, or an interruption there would have it added again
        self._owner.adds()
        array = as_delta(self.name, self.dtype, self._stored, delta)
        if rows is None:
            if array.shape != self.shape:
                raise TableMismatch(f"table {self.name} has shape {self.shape}, the delta {array.shape}")
            if not self._view.add(array.reshape(-1)):
                check_finite(self.name, self._owner, array)
                raise sum_not_finite(self.name, self._owner)
            return
        chosen = as_rows(self.name, self.shape, rows)
        check_rows_of(self.name, self.shape, chosen, array)
        check_finite(self.name, self._owner, array, chosen)
        if not self._view.add_rows(array, chosen):
            raise sum_not_finite(self.name, self._owner)
