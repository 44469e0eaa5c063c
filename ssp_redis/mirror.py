"""What a replica is made of: many arrays in one table, or one array with a row for each row of a sparse table.

Local changes are the difference between an array and its *base*: what it was when it was last written here. A base is
rounded as the array is, so a half type's rounding is never taken for a change.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import NonFinite, TableMismatch, UsageError
from .given import Array
from .sparse import SparseTable
from .store import passes
from .store.blob import HALVES
from .table import Table

if TYPE_CHECKING:
    from .worker import Worker

#: What an array may be of.
FLOATS = ("float32", "float64", *HALVES)


@dataclass(frozen=True)
class Part:
    """One array of a model, as every worker must have it."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    #: ``trained``: changes are scaled and added. ``averaged``: the mean of all. ``fixed``: never changes. ``sparse``.
    kind: str
    #: Of a sparse array's first values, which are not in Redis.
    digest: str = ""

    @property
    def stored(self) -> str:
        """The dtype in which it is summed."""
        return HALVES.get(self.dtype.name, self.dtype.name)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def check(self, array: Array) -> Array:
        """The array, if it is still what it was.

        Raises:
            UsageError: it was replaced by one of another shape or dtype.
        """
        if array.shape != self.shape or array.dtype != self.dtype:
            raise UsageError(
                f"{self.name} was replaced: it is {array.dtype} of shape {array.shape}, and was {self.dtype} of "
                f"{self.shape} when the replica was made; make another, under another name"
            )
        return array

    def rounded(self, values: Array) -> Array:
        """Values as the array itself will hold them, in the dtype in which they are summed."""
        if self.dtype == values.dtype:
            return values
        with np.errstate(over="ignore"):
            rounded: Array = values.astype(self.dtype).astype(values.dtype)
        return rounded


def digest(array: Array) -> str:
    """A short name of these very values."""
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=8).hexdigest()


def agree(worker: Worker, name: str, parts: list[Part]) -> None:
    """Find out whether all workers mean the same model: who comes first describes it, all others compare.

    Raises:
        TableMismatch: naming the first array that differs, and how.
    """
    mine = [[part.name, list(part.shape), part.dtype.name, part.kind, part.digest] for part in parts]
    text = json.dumps(mine, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    try:
        table = worker.table(f"{name}.layout", np.frombuffer(text, "<i4").astype(np.int32))
    except TableMismatch:
        table = worker.table(f"{name}.layout")  # somebody else's, of another length
    theirs: list[list[Any]] = json.loads(table.get().astype("<i4").tobytes())
    if mine == theirs:
        return
    here = {str(entry[0]): entry for entry in mine}
    there = {str(entry[0]): entry for entry in theirs}
    lacking: list[str] = sorted(there.keys() - here.keys())
    surplus: list[str] = sorted(here.keys() - there.keys())
    who = f"worker {worker.id}, model {name}"
    if lacking or surplus:
        what = "; ".join(
            f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''} {where}"
            for names, where in ((lacking, "is missing here"), (surplus, "is unknown to the job"))
            if names
        )
        raise TableMismatch(f"{who}: {what}. Build the same model everywhere, or give another name")
    key = next(key for key in here if here[key] != there[key])
    for place, word in ((1, "of shape"), (2, "of dtype"), (3, "kept as")):
        if here[key][place] != there[key][place]:
            a, b = (tuple(e[place]) if place == 1 else e[place] for e in (here[key], there[key]))
            raise TableMismatch(f"{who}: {key} is {word} {a} here and {b} in the job: use the same everywhere")
    raise TableMismatch(
        f"{who}: {key}, which is sparse, begins with other values here than in the job: seed the model alike "
        "everywhere, or load the same file"
    )


class Flat:
    """The dense arrays of one dtype end to end in one table, so that a tick costs no more for many than for one.

    Args:
        copied: whoever gets :meth:`values` copies them, so that they may be the memory of the table.
    """

    def __init__(
        self, worker: Worker, name: str, parts: list[Part], arrays: Mapping[str, Array], copied: bool = False
    ) -> None:
        # those that are averaged stand last
        self.parts = sorted(parts, key=lambda part: part.kind == "averaged")
        ends = np.cumsum([part.size for part in self.parts]).tolist()
        self._extents = [slice(end - part.size, end) for part, end in zip(self.parts, ends, strict=True)]
        self._trained = sum(part.size for part in self.parts if part.kind != "averaged")
        self._halves = any(part.dtype.name != part.stored for part in self.parts)
        self._shown = copied and not self._halves
        first = self._joined(arrays)
        self._table: Table = worker.table(name, first)
        self._worker = worker
        self._bases = self._cut(first)
        #: Are local changes in the table that are not in the base yet?
        self.pushed = False

    def changes(self, arrays: Mapping[str, Array], scale: float, share: float) -> None:
        """Compute what changed here since the base, scaled.

        Raises:
            NonFinite: naming the array; nothing was added.
        """
        delta = self._table.spare()
        with np.errstate(invalid="ignore", over="ignore"):
            for part, base, out in zip(self.parts, self._bases, self._cut(delta), strict=True):
                np.subtract(part.check(arrays[part.name]), base, out=out)
            if scale != 1:
                delta[: self._trained] *= scale
            delta[self._trained :] *= share
        if not passes.finite(delta):
            for part, change in zip(self.parts, self._cut(delta), strict=True):
                check_finite(self._worker, part.name, change)

    def push(self) -> None:
        """Add what was computed."""
        self._table.inc_spare(finite=True)
        self.pushed = True
        self._bases = []  # what holds on to the memory of the table has it copied

    def keep(self, arrays: Mapping[str, Array]) -> None:
        """What was added is in the base now; local values stay."""
        self._bases = self._cut(self._joined(arrays))
        self.pushed = False

    def pull(self) -> None:
        """Take the shared value as the base."""
        bases = self._cut(self._table.get(copy=not self._shown))
        if self._halves:
            for part, base in zip(self.parts, bases, strict=True):
                base[...] = part.rounded(base)
        for base in bases:
            base.flags.writeable = False  # adapters see it
        self._bases, self.pushed = bases, False

    def values(self) -> dict[str, Array]:
        """The base by name, not to be written to."""
        return {part.name: base for part, base in zip(self.parts, self._bases, strict=True)}

    def _joined(self, arrays: Mapping[str, Array]) -> Array:
        return np.concatenate([arrays[part.name].astype(part.stored).reshape(-1) for part in self.parts])

    def _cut(self, flat: Array) -> list[Array]:
        return [flat[extent].reshape(part.shape) for part, extent in zip(self.parts, self._extents, strict=True)]


class Rowed:
    """An array of many rows, of which a step uses a few. The table holds what was added to the first values."""

    def __init__(self, worker: Worker, name: str, part: Part, array: Array) -> None:
        self.part = part
        self._worker = worker
        self._array = array
        self._table: SparseTable = worker.sparse_table(name, part.shape, part.stored)
        self._first = array.astype(part.stored)
        self._base = self._first.copy()
        self._fresh = np.zeros(part.shape[0], bool)
        self._used: list[Array] = []

    def see(self, array: Array) -> None:
        """The array as it is now: it may have moved in memory."""
        self._array = self.part.check(array)

    def use(self, rows: Array, scale: float) -> None:
        """Bring rows forward that were not yet in this clock.

        What happened to them here since they were last used, by the momentum of an optimizer say, is pushed first.
        """
        try:
            rows = np.unique(rows)
            wanted = rows[~self._fresh[rows]]
        except IndexError as error:
            raise UsageError(f"{self.part.name}: {error}") from None
        if not len(wanted):
            return
        self._push(wanted, scale)
        shared = self._first[wanted] + self._table.get(wanted)
        self._base[wanted] = self.part.rounded(shared)
        self._fresh[wanted] = True
        self._used.append(wanted)
        self._array[wanted] = self._base[wanted]

    def changes(self, rows: Array | None, scale: float) -> tuple[Array, Array]:
        """Those of these rows (None: of those used in this clock) that changed here, and by how much, scaled.

        Raises:
            NonFinite: naming the row; nothing was added.
        """
        if rows is None:
            rows = np.concatenate(self._used) if self._used else np.empty(0, np.intp)
        array = self._array
        with np.errstate(invalid="ignore"):
            delta = np.subtract(array[rows], self._base[rows], dtype=self._base.dtype)
        moved = (delta != 0).any(axis=tuple(range(1, delta.ndim)))
        rows, delta = rows[moved], delta[moved]
        delta *= delta.dtype.type(scale)
        check_finite(self._worker, self.part.name, delta, rows)
        return rows, delta

    def push(self, scale: float) -> None:
        """Add what changed in this clock, and begin another."""
        self._push(None, scale)
        self._forget()

    def _push(self, rows: Array | None, scale: float) -> None:
        rows, delta = self.changes(rows, scale)
        if len(rows):
            self._table.inc(delta, rows)
            self._base[rows] = self._array[rows]

    def revert(self) -> None:
        """Undo what changed here in this clock."""
        for rows in self._used:
            self._array[rows] = self._base[rows]
        self._forget()

    def _forget(self) -> None:
        for rows in self._used:
            self._fresh[rows] = False
        self._used.clear()


def check_finite(worker: Worker, name: str, delta: Array, rows: Array | None = None) -> None:
    """Raise NonFinite, which names array and place, if there is NaN or infinity in a change."""
    finite = np.isfinite(delta)
    if finite.all():
        return
    where = tuple(int(i) for i in np.argwhere(~finite)[0])
    if rows is not None:
        where = (int(rows[where[0]]), *where[1:])
    raise NonFinite(
        f"worker {worker.id}, clock {worker.clock}: {name} has {int(delta.size - finite.sum())} values that became NaN "
        f"or infinite, the first at {where}; nothing was pushed. pull() takes the shared values back"
    )
