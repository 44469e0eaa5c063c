"""How a table is cut: along axis 0 into blocks of about 1 MiB, the blocks dealt out in shares.

A share is what is folded and committed as one; shares are owned by the members in turn, which saves bytes and decides
nothing: any member may fold any share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import TableMismatch, UsageError
from .blob import HALVES, LARGEST, Block, dtype_of

#: A block is at most about this large (bytes).
BLOCK = 1 << 20
#: A table is cut into shares of at least about this size, one per worker at the most (bytes).
SHARE = 1 << 18
#: A table of one block of at most this size is small (bytes): what a clock costs is the number of calls.
SMALL = 1 << 16
#: Deltas of a table of at most this size stand in the tags of their ticks (bytes).
_INLINE = 64
#: A ring has as many slots as fit in this (bytes), within 3 … 64; of an inline table, where they only count, 512.
_RING, _LEAST, _MOST, _MOST_INLINE = 1 << 20, 3, 64, 512


@dataclass(frozen=True)
class Layout:
    """The cut of one table; the same words (:meth:`describe`) for everybody."""

    number: int
    name: str
    run: int
    dtype: str
    shape: tuple[int, ...]
    shares: int
    blocks_per_share: int
    rows_per_block: int
    #: Deltas a worker may have in the store before a base must hold the oldest.
    slots: int

    @classmethod
    def cut(cls, name: str, dtype: str, shape: tuple[int, ...], workers: int) -> Layout:
        """Cut a new table for so many workers; number and run are the store's to give."""
        dtype_of(dtype)
        rows, width = _rows(shape)
        row_bytes = max(1, width * np.dtype(HALVES.get(dtype, dtype)).itemsize)
        if row_bytes + 64 > LARGEST:
            raise UsageError(
                f"table {name}: a row of {row_bytes / 2**20:.0f} MiB is more than a value in Redis holds (512 MiB): "
                "cut it along axis 0, into more and smaller rows"
            )
        size = rows * row_bytes
        shares = max(1, min(workers, size // SHARE, rows))
        share_rows = math.ceil(rows / shares)
        blocks = max(1, math.ceil(share_rows * row_bytes / BLOCK))
        block_rows = math.ceil(share_rows / blocks)
        blocks = math.ceil(share_rows / block_rows)
        shares = math.ceil(rows / (blocks * block_rows))
        slots = max(_LEAST, min(_MOST if size > _INLINE else _MOST_INLINE, _RING // size))
        return cls(0, name, 0, dtype, shape, shares, blocks, block_rows, slots)

    @classmethod
    def parse(cls, name: str, number: int, run: int, description: str) -> Layout:
        """The inverse of :meth:`describe`."""
        if description.startswith("sparse:"):
            raise TableMismatch(f"table {name} is sparse: use it as a sparse table")
        try:
            dtype, shape, shares, blocks, rows, slots = description.split(":")
            dims = () if shape == "-" else tuple(int(size) for size in shape.split("x"))
            return cls(number, name, run, dtype, dims, int(shares), int(blocks), int(rows), int(slots))
        except ValueError:
            raise TableMismatch(f"table {name}: its description {description!r} cannot be read") from None

    def describe(self) -> str:
        """One word that says it all: dtype:shape:shares:blocks per share:rows per block:slots."""
        shape = "x".join(map(str, self.shape)) or "-"
        return f"{self.dtype}:{shape}:{self.shares}:{self.blocks_per_share}:{self.rows_per_block}:{self.slots}"

    @property
    def stored(self) -> str:
        """The dtype in which elements are stored and summed."""
        return HALVES.get(self.dtype, self.dtype)

    @cached_property
    def elements(self) -> int:
        """Number of elements of the whole table."""
        return math.prod(self.shape)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the whole table as stored, headers not counted."""
        return self.elements * np.dtype(self.stored).itemsize

    @cached_property
    def blocks(self) -> int:
        """Number of blocks that hold rows."""
        return len(self._extents)

    @cached_property
    def small(self) -> bool:
        """Is the whole table one block, and not a large one?"""
        return self.blocks == 1 and self.nbytes <= SMALL

    @cached_property
    def inline(self) -> bool:
        """Is a delta so small that the log holds it, in its tag?"""
        return self.blocks == 1 and self.nbytes <= _INLINE

    @cached_property
    def names(self) -> list[str]:
        """What each share is called in the table of bases."""
        return [f"{self.number}.{share}" for share in range(self.shares)]

    def blocks_of(self, share: int) -> range:
        """The blocks of a share."""
        first = share * self.blocks_per_share
        return range(first, min(first + self.blocks_per_share, self.blocks))

    def extent(self, block: int) -> slice:
        """Which elements of the flattened table a block holds."""
        return self._extents[block]

    @cached_property
    def _extents(self) -> list[slice]:
        rows, width = _rows(self.shape)
        step = self.rows_per_block
        return [slice(first * width, min(rows, first + step) * width) for first in range(0, rows, step)]

    def block(self, block: int) -> Block:
        """What a header says of a block."""
        return self._blocks[block]

    @cached_property
    def _blocks(self) -> list[Block]:
        return [
            Block(self.run, self.number, block, self.stored, part.stop - part.start)
            for block, part in enumerate(self._extents)
        ]

    @cached_property
    def block_bytes(self) -> tuple[int, ...]:
        """Bytes of the elements of each block."""
        size = np.dtype(self.stored).itemsize
        return tuple((part.stop - part.start) * size for part in self._extents)

    def memory(self, workers: int) -> int:
        """Bytes in Redis at the most: two generations and a scratch of the base, and a ring for each worker."""
        return (3 + self.slots * workers) * (self.nbytes + 64 * self.blocks)


def _rows(shape: Sequence[int]) -> tuple[int, int]:
    return (shape[0], math.prod(shape[1:])) if shape else (1, 1)
