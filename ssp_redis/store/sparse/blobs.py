"""A piece of a sparse delta as it is stored: a header, the numbers of its rows ascending, then the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..blob import piece_header
from .delta import RowDelta
from .layout import RowLayout

Array = NDArray[Any]


def header_of(
    layout: RowLayout, piece: int, part: slice, count: int, incarnation: int, clock: int, ring: int, slot: int
) -> bytes:
    """What piece ``piece``, rows ``part`` of a delta of ``count`` rows, must begin with."""
    elements = (part.stop - part.start) * layout.width
    return piece_header(layout.block(piece, elements), incarnation, clock, ring, slot, count)


def body_of(layout: RowLayout, delta: RowDelta, part: slice) -> memoryview:
    """Numbers and rows of a piece."""
    numbers = delta.numbers[part].astype(layout.number_type)
    rows = delta.rows[part]
    body = np.empty(numbers.nbytes + rows.nbytes, np.uint8)
    body[: numbers.nbytes] = numbers.view(np.uint8)
    body[numbers.nbytes :] = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
    return memoryview(body)  # type: ignore[arg-type]
