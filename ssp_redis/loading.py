"""Setting tables to values from outside, where all that can be done to a table is to add to it.

Of sums of floats, ``have + (value − have)`` is mostly not ``value`` but its neighbour, and where what is there is much
larger, nothing like it. So what is missing is added in turn, until nothing is: what is left becomes smaller each time,
and nobody ever reads anything but the old value and one as near to the new as the old one's own precision.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from .given import Array
from .worker import join

#: Turns; three are enough for any two finite values, two for most.
_TURNS = 6


def load(url: str, job: str, arrays: Mapping[str, ArrayLike]) -> None:
    """Bring each table to the value given for it, each turn by a worker of its own that joins, adds and leaves."""
    #: What is there, but for what others have added since it was read first, and what shall be there.
    have: dict[str, Array] = {}
    wanted: dict[str, Array] = {}
    missing = list(arrays)
    for _ in range(_TURNS):
        if not missing:
            return
        with join(url, job=job, worker=f"load-{secrets.token_hex(4)}", timeout=30.0) as loader:
            tables = [loader.table(name, arrays[name]) for name in missing]
            for name, table in zip(missing, tables, strict=True):
                if name not in have:
                    have[name] = table.summed()
                    wanted[name] = np.asarray(arrays[name], table.dtype).astype(have[name].dtype)
                delta = _towards(have[name], wanted[name])
                table.inc(delta)
                with np.errstate(over="ignore"):
                    have[name] = np.asarray(have[name] + delta)
        missing = [name for name in missing if not np.array_equal(have[name], wanted[name])]


def _towards(have: Array, wanted: Array) -> Array:
    """What is missing, or the most that can be added at once: the difference of finite numbers may be beyond all."""
    with np.errstate(over="ignore"):
        delta: Array = np.asarray(wanted - have)
    if delta.dtype.kind == "f":
        most = np.finfo(delta.dtype).max
        delta = np.asarray(np.clip(delta, -most, most))
    return delta
