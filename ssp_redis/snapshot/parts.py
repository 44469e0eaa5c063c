"""What a restoration writes before anybody sees it: blocks of dense tables, shares of sparse ones.

A block goes where it will stay: a write of it that comes late, over a connection that was lost, is the same bytes or a
base of another generation. Rows that come late would be taken for the newest, so a share goes to a scratch hash first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..connection import Buffer, command, encode
from ..keys import StoreKeys
from ..store.blob import base_header, rows_header
from ..store.layout import Layout
from ..store.sparse.layout import RowLayout
from ..store.view import as_bytes
from .rows import TouchedRows

Array = NDArray[Any]
#: Rows of a share are written so many bytes at a time, about.
_STEP = 1 << 16


@dataclass(frozen=True)
class Write:
    """Commands that can be said again, and how many replies they have."""

    data: list[Buffer]
    replies: int

    @property
    def nbytes(self) -> int:
        """Bytes of it all."""
        return sum(len(data) for data in self.data)


@dataclass(frozen=True)
class Part:
    """One key that is written."""

    key: str
    #: What the script shall find there (``lua/restore.lua``).
    stated: bytes
    #: The hash that a share becomes; a block stays where it is.
    becomes: str | None
    #: What writes it, so that it expires after so many milliseconds.
    writes: Callable[[int], Iterator[Write]]


def blocks(layout: Layout, store: StoreKeys, values: Array) -> Iterator[Part]:
    """The parts of a dense table."""
    for block in range(layout.blocks):
        key, header = store.base(layout.number, block, 0), base_header(layout.block(block), 0, 0, 0)
        yield Part(key, header, None, partial(_block, key, header, as_bytes(values[layout.extent(block)])))


def _block(key: str, header: bytes, part: memoryview, expiry: int) -> Iterator[Write]:
    size = len(header) + part.nbytes
    head = b"*5\r\n" + encode(("SET", key)) + b"$%d\r\n" % size + header
    yield Write([head, part, b"\r\n" + encode(("PX", expiry))], 1)


def shares(layout: RowLayout, store: StoreKeys, table: TouchedRows) -> Iterator[Part]:
    """The parts of a sparse table."""
    numbers = layout.numbers(table.rows)
    order = np.argsort(numbers)
    for share, extent in enumerate(layout.cut(numbers[order])):
        key = store.scratch(layout.number, share, 0)
        # generation 0 is one of which no row was ever touched: members would not look for any
        header = rows_header(layout.block(share, layout.width), 1, 0, 0)
        part = order[extent]
        stated = header + b"%d" % len(part)
        writes = partial(_share, layout, key, header, numbers, table.values, part)
        yield Part(key, stated, store.rows(layout.number, share), writes)


def _share(
    layout: RowLayout, key: str, header: bytes, numbers: Array, values: Array, part: Array, expiry: int
) -> Iterator[Write]:
    # The header comes first: if the key is deleted meanwhile, what follows makes one without.
    yield _expiring(key, 1, encode(("h", header)), expiry)
    head = b"$%d\r\n" % layout.number_bytes
    middle = b"\r\n$%d\r\n" % layout.row_bytes
    record = np.dtype(
        [
            ("head", f"S{len(head)}"),
            ("number", layout.number_type),
            ("middle", f"S{len(middle)}"),
            ("row", np.dtype(layout.stored).newbyteorder("<"), (layout.width,)),
            ("end", "S2"),
        ]
    )
    rows = values.reshape(len(values), layout.width)
    step = max(1, _STEP // record.itemsize)
    for first in range(0, len(part), step):
        some = part[first : first + step]
        words = np.empty(len(some), record)
        words["head"], words["middle"], words["end"] = head, middle, b"\r\n"
        words["number"], words["row"] = numbers[some], rows[some]
        yield _expiring(key, len(some), words.tobytes(), expiry)


def _expiring(key: str, fields: int, words: bytes, expiry: int) -> Write:
    """Fields and values put into a hash, which never is there without an expiry."""
    put = b"*%d\r\n" % (2 + 2 * fields) + encode(("HSET", key)) + words
    return Write([command("MULTI") + put + command("PEXPIRE", key, expiry) + command("EXEC")], 4)
