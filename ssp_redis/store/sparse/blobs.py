"""A piece of a sparse delta as it is stored: a header, the numbers of its rows ascending, then the rows."""

from __future__ import annotations

from ..blob import piece_header
from ..view import as_bytes
from .delta import RowDelta
from .layout import RowLayout


def header_of(
    layout: RowLayout, piece: int, part: slice, count: int, incarnation: int, clock: int, ring: int, slot: int
) -> bytes:
    """What piece ``piece``, rows ``part`` of a delta of ``count`` rows, must begin with."""
    elements = (part.stop - part.start) * layout.width
    return piece_header(layout.block(piece, elements), incarnation, clock, ring, slot, count)


def numbers_and_rows(layout: RowLayout, delta: RowDelta, part: slice) -> tuple[bytes, memoryview]:
    """What follows the header of a piece; the rows are not copied."""
    return delta.numbers[part].astype(layout.number_type).tobytes(), as_bytes(delta.rows[part])
