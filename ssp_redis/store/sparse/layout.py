"""How a sparse table is laid out: which share a row is of, by what number it is stored, how long a piece may be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import TableMismatch, UsageError
from ..blob import HALVES, LARGEST, Block, dtype_of
from . import initial

Array = NDArray[Any]
#: First word of a description.
KIND = "sparse"
#: A table has a share for each worker of the start quorum, but not more than this.
_SHARES = 64
#: Deltas a worker may have in the store before a base must hold the oldest.
_SLOTS = 8
#: A piece of a delta is at most about this large (bytes).
_PIECE = 1 << 20
#: What a row in a base takes beside its elements (bytes).
_ROW = 80


@dataclass(frozen=True)
class RowLayout:
    """A sparse table's description; the same words (:meth:`describe`) for everybody.

    Row r is of share r mod ``shares`` and is stored by the *number* (r mod shares) · stride + r div shares: neighbours
    go to different shares, and the numbers of a share are a range, so that sorted numbers are cut by slices.
    """

    number: int
    name: str
    run: int
    dtype: str
    shape: tuple[int, ...]
    shares: int
    slots: int
    initializer: str
    seed: int
    scale: float

    @classmethod
    def new(
        cls, name: str, dtype: str, shape: tuple[int, ...], workers: int, initializer: str, seed: int, scale: float
    ) -> RowLayout:
        """Lay out a new table for so many workers; number and run are the store's to give."""
        dtype_of(dtype)
        size = math.prod(shape[1:]) * np.dtype(HALVES.get(dtype, dtype)).itemsize
        if size + 128 > LARGEST:
            raise UsageError(
                f"table {name}: a row of {size >> 20} MiB is more than a value in Redis holds (512 MiB): use "
                "more and smaller rows"
            )
        return cls(0, name, 0, dtype, shape, min(workers, _SHARES, shape[0]), _SLOTS, initializer, seed, scale)

    @classmethod
    def parse(cls, name: str, number: int, run: int, description: str) -> RowLayout:
        """The inverse of :meth:`describe`."""
        if not description.startswith(KIND + ":"):
            raise TableMismatch(f"table {name} is dense: use it as table({name!r})")
        try:
            _, dtype, shape, shares, slots, initializer, seed, scale = description.split(":")
            if initializer not in initial.INITIALIZERS:
                raise ValueError
            dims = tuple(int(size) for size in shape.split("x"))
            return cls(number, name, run, dtype, dims, int(shares), int(slots), initializer, int(seed), float(scale))
        except ValueError:
            raise TableMismatch(f"table {name}: its description {description!r} is not of a sparse table") from None

    def describe(self) -> str:
        """One word that says it all: sparse:dtype:shape:shares:slots:initializer:seed:scale."""
        shape = "x".join(map(str, self.shape))
        return f"{KIND}:{self.dtype}:{shape}:{self.shares}:{self.slots}:{self.initializer}:{self.seed}:{self.scale!r}"

    @property
    def stored(self) -> str:
        """The dtype in which elements are stored and summed."""
        return HALVES.get(self.dtype, self.dtype)

    @cached_property
    def width(self) -> int:
        """Elements of a row."""
        return math.prod(self.shape[1:])

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of a row as stored."""
        return self.width * np.dtype(self.stored).itemsize

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the whole table, were all its rows touched."""
        return self.shape[0] * self.row_bytes

    @cached_property
    def stride(self) -> int:
        """Numbers of a share."""
        return -(-self.shape[0] // self.shares)

    @cached_property
    def number_type(self) -> str:
        """How a row's number is stored."""
        return "<u4" if self.shares * self.stride < 2**32 else "<u8"

    @cached_property
    def number_bytes(self) -> int:
        """Bytes of a row's number as stored."""
        return np.dtype(self.number_type).itemsize

    @cached_property
    def piece_rows(self) -> int:
        """Rows of a delta that are stored in one piece."""
        return max(1, _PIECE // (self.row_bytes + self.number_bytes))

    @cached_property
    def record(self) -> np.dtype[Any]:
        """A row with its number, as ``commit_rows`` takes them."""
        return np.dtype([("number", self.number_type), ("row", np.dtype(self.stored).newbyteorder("<"), (self.width,))])

    def numbers(self, rows: Array) -> Array:
        """The numbers by which rows are stored."""
        numbers: Array = (rows % self.shares) * self.stride + rows // self.shares
        return numbers

    def rows(self, numbers: Array) -> Array:
        """The rows that are stored by those numbers."""
        rows: Array = (numbers % self.stride) * self.shares + numbers // self.stride
        return rows

    def first_values(self, numbers: Array) -> Array:
        """What rows of those numbers begin as."""
        return initial.rows(self.initializer, self.seed, self.scale, self.rows(numbers), self.width, self.stored)

    def cut(self, numbers: Array) -> list[slice]:
        """Sorted numbers cut into shares."""
        edges = np.searchsorted(numbers, np.arange(self.shares + 1) * self.stride).tolist()
        return [slice(first, last) for first, last in pairwise(edges)]

    def pieces(self, count: int) -> list[slice]:
        """So many rows cut into pieces."""
        return [slice(i, min(count, i + self.piece_rows)) for i in range(0, count, self.piece_rows)]

    def memory(self, rows: int) -> int:
        """Bytes in Redis of so many rows, about; what is pushed and not folded yet comes on top."""
        return rows * (self.row_bytes + _ROW)

    def block(self, number: int, elements: int) -> Block:
        """What a header says of a piece or of a share."""
        return Block(self.run, self.number, number, self.stored, elements)
