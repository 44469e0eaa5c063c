"""The header in front of every stored block: what the bytes are, so that nothing foreign is ever taken for numbers."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import TableMismatch
from ..lua import SCHEMA

_HEADER = struct.Struct("<4sBBBxQIIQQQQQ")
#: What of it is another in every delta of a block.
_REST = struct.Struct("<QQQQ")
#: Bytes in front of the elements; a multiple of 64, so that what follows is aligned.
HEADER_SIZE = _HEADER.size
#: A value in Redis may be this large (bytes).
LARGEST = 512 << 20
_MAGIC = b"SSPB"
_DELTA, _BASE, _PIECE, _ROWS, _SUM = 1, 2, 3, 4, 5

#: dtype of stored elements → its number in a header.
STORED = {"float32": 1, "float64": 2, "int32": 3, "int64": 4}
#: Half types are stored and summed as what they round to least: half precision would swallow small deltas.
HALVES = {"float16": "float32", "bfloat16": "float32"}
#: What a table may be of.
DTYPES = (*STORED, *HALVES)


def dtype_of(name: str) -> np.dtype[Any]:
    """The numpy dtype of that name, if a table may have it.

    Raises:
        TableMismatch: it may not, or is bfloat16 and ``ml_dtypes``, which defines that for numpy, is not installed.
    """
    if name not in DTYPES:
        raise TableMismatch(f"a table of {name} is not supported: use one of {', '.join(DTYPES)}")
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise TableMismatch("a table of bfloat16 needs ml_dtypes: pip install 'ssp-redis[bfloat16]'") from None
        half: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return half
    return np.dtype(name)


@dataclass(frozen=True, slots=True)
class Block:
    """Which block of which table a header speaks of."""

    run: int
    table: int
    block: int
    #: Of the stored elements.
    dtype: str
    elements: int


def delta_header(block: Block, incarnation: int, clock: int, ring: int, slot: int) -> bytes:
    """Header of a worker's delta of one clock. An incarnation is unique in a job, so it names the worker too."""
    return _pack(block, _DELTA, incarnation, clock, ring << 16 | slot)


def delta_front(block: Block) -> bytes:
    """What the headers of all deltas of a block begin with; :func:`delta_rest` is what follows."""
    return _front(block, _DELTA)


def delta_rest(incarnation: int, clock: int, ring: int, slot: int) -> bytes:
    """The end of a delta's header."""
    return _REST.pack(incarnation, clock, ring << 16 | slot, 0)


def base_header(block: Block, generation: int, version: int, epoch: int) -> bytes:
    """Header of a base: the exact sum of the first ``version`` entries of the log."""
    return _pack(block, _BASE, generation, version, epoch)


def base_version(header: bytes, block: Block, generation: int, epoch: int) -> int | None:
    """The version that the header of that generation's base states; None: it is another, or of a later epoch."""
    if len(header) != HEADER_SIZE or header[: -_REST.size] != _front(block, _BASE):
        return None
    a, b, c, d = _REST.unpack_from(header, HEADER_SIZE - _REST.size)
    return int(b) if a == generation and c <= epoch and not d else None


def is_base(header: bytes, block: Block, generation: int, epoch: int) -> bool:
    """Is this the header of that generation's base, written in this epoch or before?"""
    return base_version(header, block, generation, epoch) is not None


def sum_header(block: Block, incarnation: int, clock: int, version: int, epoch: int) -> bytes:
    """Header of a sum that is said: of the first ``version`` entries of the log, the last of which is that tick."""
    return _pack(block, _SUM, incarnation, version, epoch, clock)


def table_of(blob: bytes) -> int:
    """The number of the table that a blob says it is of; −1: it is none."""
    return int(_HEADER.unpack_from(blob)[5]) if len(blob) >= HEADER_SIZE else -1


def piece_header(block: Block, incarnation: int, clock: int, ring: int, slot: int, rows: int) -> bytes:
    """Header of a piece of a worker's sparse delta, ``rows`` being those of all its pieces together."""
    return _pack(block, _PIECE, incarnation, clock, ring << 16 | slot, rows)


def rows_of(header: bytes) -> int:
    """How many rows the pieces of a sparse delta have together; 0 when this is no header of a piece."""
    try:
        magic, _, kind, *_, rows = _HEADER.unpack(header)
    except struct.error:
        return 0
    return int(rows) if (magic, kind) == (_MAGIC, _PIECE) else 0


def rows_header(block: Block, generation: int, version: int, epoch: int) -> bytes:
    """Header of a share of a sparse table: its rows hold the first ``version`` entries of the log."""
    return _pack(block, _ROWS, generation, version, epoch)


def rows_base(header: bytes, block: Block, epoch: int) -> tuple[int, int] | None:
    """Version and generation that such a header states, None when it is not of that share, or of a later epoch."""
    try:
        a, b, c, _ = _HEADER.unpack(header)[8:]
    except struct.error:
        return None
    return (b, a) if c <= epoch and header == rows_header(block, a, b, c) else None


@lru_cache(4096)
def _front(block: Block, kind: int) -> bytes:
    return _pack(block, kind, 0, 0, 0)[: -_REST.size]


def _pack(block: Block, kind: int, a: int, b: int, c: int, d: int = 0) -> bytes:
    dtype = STORED[block.dtype]
    return _HEADER.pack(_MAGIC, SCHEMA, kind, dtype, block.run, block.table, block.block, block.elements, a, b, c, d)
