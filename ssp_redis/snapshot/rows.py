"""A sparse table in a snapshot: its description, and the rows that were ever touched.

Of a table NAME the file holds two arrays, ``NAME@rows`` and ``NAME@values``; ``@`` stands in no table's name. Rows are
named as the user does: by what number they are stored depends on how many workers the table was laid out for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import TableMismatch, UsageError
from ..keys import check_name
from ..sparse import described
from ..store.blob import dtype_of
from ..store.sparse.layout import RowLayout

Array = NDArray[Any]
ROWS, VALUES = "@rows", "@values"


@dataclass(frozen=True)
class TouchedRows:
    """A table's rows that are not as the initializer makes them, or were not always."""

    dtype: str
    shape: tuple[int, ...]
    initializer: str
    seed: int
    scale: float
    #: Ascending.
    rows: Array = field(repr=False, compare=False)
    #: As stored, half types as float32: (len(rows), …).
    values: Array = field(repr=False, compare=False)

    @classmethod
    def of(cls, layout: RowLayout, rows: Array, values: Array) -> TouchedRows:
        """Rows of a table that is there."""
        shaped = values.reshape(len(rows), *layout.shape[1:])
        return cls(layout.dtype, layout.shape, layout.initializer, layout.seed, layout.scale, rows, shaped)

    def layout(self, name: str, workers: int) -> RowLayout:
        """Laid out anew, for so many workers."""
        shape, dtype = self.shape, self.dtype
        return RowLayout.new(name, dtype, shape, workers, self.initializer, self.seed, self.scale)

    def words(self) -> dict[str, Any]:
        """The description, for JSON."""
        return {
            "dtype": self.dtype,
            "shape": list(self.shape),
            "initializer": self.initializer,
            "seed": self.seed,
            "scale": self.scale,
        }


def of_words(name: str, words: dict[str, Any], arrays: dict[str, Array]) -> TouchedRows:
    """The inverse of :meth:`TouchedRows.words`, for words that anybody may have written; takes its arrays.

    Raises:
        UsageError: saying what is wrong with them.
        KeyError, TypeError: a word is missing, or is of another kind.
    """
    check_name("table", name)
    if not {name + ROWS, name + VALUES} <= arrays.keys():
        raise UsageError(f"table {name} is in its metadata, and its rows ({name}{ROWS}, {name}{VALUES}) are not there")
    rows, values = arrays.pop(name + ROWS), arrays.pop(name + VALUES)
    shape, seed, scale = words["shape"], words["seed"], words["scale"]
    if not isinstance(shape, list) or not all(map(_is_whole, [*shape, seed])) or not isinstance(scale, float):
        raise UsageError(f"table {name}: shape {shape!r}, seed {seed!r}, scale {scale!r} are no numbers")
    try:
        layout = described(name, shape, dtype_of(words["dtype"]), words["initializer"], seed, scale, 1)
    except TableMismatch as error:
        raise UsageError(f"table {name}: {error}") from None
    height = layout.shape[0]
    if rows.ndim != 1 or rows.dtype.kind != "i" or rows.dtype.itemsize != 8:
        raise UsageError(f"table {name}: the numbers of its rows are {rows.dtype} of shape {rows.shape}, not int64")
    if len(rows) and (rows[0] < 0 or rows[-1] >= height or (rows[1:] <= rows[:-1]).any()):
        raise UsageError(f"table {name}: the numbers of its rows are not ascending from 0 to {height - 1}")
    expected = (len(rows), *layout.shape[1:])
    if values.dtype.name != layout.stored or values.shape != expected:
        raise UsageError(
            f"table {name}: its rows must be {layout.stored} of shape {expected}, and are {values.dtype} of shape "
            f"{values.shape}"
        )
    kept = np.ascontiguousarray(values, layout.stored).reshape(expected)
    return TouchedRows.of(layout, np.ascontiguousarray(rows, np.int64), kept)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
