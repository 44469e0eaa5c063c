"""Work on whole tables in one pass: piece by piece, so that a piece stays in the cache for all that is done with it.

A pass over memory costs more than the sums in it, the more so where several processes share a processor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
#: Elements of a piece.
_PIECE = 1 << 16
#: So few numbers are looked at one by one: that is faster than numpy.
_FEW = 16


def finite(values: Array) -> bool:
    """Are all values finite?"""
    if values.dtype.kind == "i":
        return True
    if values.size <= _FEW:
        return all(map(math.isfinite, values.ravel().tolist()))
    if values.size <= _PIECE or not values.flags.c_contiguous:
        return bool(np.logical_and.reduce(np.isfinite(values), axis=None))
    flat = values.reshape(-1)
    return all(np.isfinite(flat[piece]).all() for piece in _pieces(flat))


def copy(values: Array, out: Array) -> bool:
    """Copy a flat array; False when something in it is not finite."""
    if values.size <= _PIECE:
        out[:] = values
        return finite(out)
    for piece in _pieces(values):
        out[piece] = values[piece]
        if not finite(out[piece]):
            return False
    return True


def add(first: Array, second: Array, out: Array) -> bool:
    """Add flat arrays; False when a sum is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        if first.size <= _PIECE:
            np.add(first, second, out=out)
            return finite(out)
        for piece in _pieces(first):
            if not finite(np.add(first[piece], second[piece], out=out[piece])):
                return False
    return True


def total(first: Array, others: Sequence[Array], out: Array | None = None) -> Array:
    """The sum of flat arrays, in that order, as another array than any of them."""
    if out is None and not others:
        return first.copy()
    value = np.empty_like(first) if out is None else out
    if others and first.size <= _PIECE:
        np.add(first, others[0], out=value)
        for other in others[1:]:
            value += other
        return value
    for piece in _pieces(first):
        part = value[piece]
        if not others:
            part[:] = first[piece]
            continue
        np.add(first[piece], others[0][piece], out=part)
        for other in others[1:]:
            part += other[piece]
    return value


def _pieces(values: Array) -> list[slice]:
    return [slice(start, start + _PIECE) for start in range(0, values.size, _PIECE)]
