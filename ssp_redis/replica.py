"""A worker's own copy of a model: train it with anything, and ``tick()`` makes it one of many.

A replica knows numpy and tables, and nothing of optimizers: what the arrays changed since they were last pulled is the
delta, whatever changed them. So momentum, Adam and the like keep their own state and work unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from .config import parse_count
from .errors import UsageError
from .given import Array, Rows, as_array
from .keys import check_name
from .mirror import FLOATS, Flat, Part, Rowed, agree, digest
from .store.passes import finite
from .worker import Worker


class Replica:
    """Named arrays that this worker trains, kept together with those of all others.

    ::

        replica = Replica(worker, {"w": w, "b": b})
        for clock in replica.clocks(500):
            train(w, b)  # changes the arrays in place

    All workers begin with the values of whoever comes first.
    """

    def __init__(
        self,
        worker: Worker,
        arrays: Mapping[str, Any] | Callable[[], Mapping[str, Any]],
        write: Callable[[dict[str, Array]], object] | None = None,
        *,
        copies: bool = False,
        name: str = "model",
        scale: float | str = "workers",
        every: int = 1,
        averaged: Iterable[str] = (),
        fixed: Iterable[str] = (),
        sparse: Iterable[str] = (),
    ) -> None:
        """Compare the arrays with those of the other workers, and take over the shared values.

        Args:
            worker: a member; its clock counts the pushes.
            arrays: arrays of float16, bfloat16, float32 or float64 by name, or what returns them; asked at every tick.
            write: takes values by name, not to be changed and in the dtype in which they are summed (float32 for half
                types). None: the arrays are written in place.
            copies: ``write`` keeps nothing of the memory that it is given, which is used again then, not made anew.
            name: of the model, should a job have several; at most 40 characters.
            scale: what local changes are multiplied with. A number; ``"workers"``: 1/start quorum, so that steps on
                mean losses make a step on the mean loss of all; ``"members"``: 1/members, as they come and go. With 1
                all steps add up, which is an effective learning rate that many times as high.
            every: local steps, calls of ``tick()``, for each clock.
            averaged: names of arrays that are averaged over the members whatever the scale: running statistics.
            fixed: names of arrays that nobody trains: they are made the same for everyone once.
            sparse: names of arrays of many rows of which a step uses a few. Only rows named by :meth:`use` are pulled,
                and pushed. First values are not sent, and must be the same everywhere.

        Raises:
            TableMismatch: an array that is missing, renamed, or of another shape or dtype than in the job.
            UsageError: an array that is not of a floating-point dtype, is not finite, or cannot be written to.
        """
        self.worker = worker
        self.every = parse_count("every", every)
        self._scale = _check_scale(scale)
        self._given = arrays
        self._write = write
        self._copies = copies or write is None
        self._step = 0
        #: Is the base newer than the arrays?
        self._unwritten = False
        check_name("model", name)
        worker.usable()
        found = self._read()
        kinds = dict.fromkeys(averaged, "averaged") | dict.fromkeys(fixed, "fixed") | dict.fromkeys(sparse, "sparse")
        if unknown := sorted(kinds.keys() - found.keys()):
            raise UsageError(f"model {name}: there is no array {unknown[0]}; there are {', '.join(sorted(found))}")
        parts = [self._described(key, found[key], kinds.get(key, "trained")) for key in sorted(found)]
        if not any(part.size for part in parts):
            raise UsageError(f"model {name}: no array has anything in it")
        agree(worker, name, parts)
        self._parts = parts
        self._members = len(worker.members)
        worker.on_members(self._members_changed)
        rowed = [part for part in parts if part.kind == "sparse"]
        self._rowed = {
            part.name: Rowed(worker, f"{name}.rows{i}", part, found[part.name]) for i, part in enumerate(rowed)
        }
        self._flats = self._flats_of(name, lambda part: part.kind in ("trained", "averaged"), found)
        once = self._flats_of(f"{name}.fixed", lambda part: part.kind == "fixed", found)
        for flat in once:
            flat.pull()
            self._install(flat.values())
        self.pull()

    def __repr__(self) -> str:
        elements = sum(part.size for part in self._parts)
        return f"Replica(worker {self.worker.id}, {len(self._parts)} arrays, {elements:,} numbers, every={self.every})"

    # -- stepping ----------------------------------------------------------------------------------------------------

    def tick(self, timeout: float | None = None) -> int:
        """End a local step; the last of ``every`` pushes, ticks, waits and pulls. Returns the worker's clock.

        Raises:
            NonFinite: NaN or infinity in a change; nothing was pushed.
            UsageError: an array was replaced by another that does not fit; nothing was pushed.
            WaitTimeout, JobStopped, Evicted, …: as :meth:`Worker.tick`. Local changes were pushed and stay.
        """
        self._step += 1
        if self._step < self.every:
            return self.worker.clock
        try:
            self._push()
            clock = self.worker.tick(timeout)
            self._pull()
        except BaseException:
            self._keep()
            raise
        return clock

    def clocks(self, count: int) -> Iterator[int]:
        """Run until clock ``count`` or until the job is stopped: a turn is a local step, ``every`` of them a clock."""
        try:
            for clock in self.worker.clocks(count):
                self._pull_late()
                for _ in range(self.every):
                    yield clock
                self._push()
            self._pull_late()
        except BaseException:
            self._keep()
            raise

    def pull(self) -> None:
        """Take the shared values, without what changed here since the last tick."""
        for rowed in self._rowed.values():
            rowed.revert()
        self._step = 0
        self._pull()

    def use(self, name: str, rows: Rows) -> None:
        """Bring rows of a sparse array forward before they are used. What was in this clock already, is left alone."""
        if name not in self._rowed:
            raise UsageError(f"{name} is not one of the sparse arrays: {', '.join(self._rowed) or 'there is none'}")
        self._rowed[name].use(np.asarray(rows).reshape(-1), self._scaled())

    def refresh(self) -> None:
        """Bring all rows of all sparse arrays forward, to save or to evaluate the model as a whole."""
        for rowed in self._rowed.values():
            rowed.use(np.arange(rowed.part.shape[0]), self._scaled())

    def _push(self) -> None:
        if self._unwritten or any(flat.pushed for flat in self._flats):
            self._pull()  # an interruption left the arrays half written, or without a base
        arrays = self._read()
        for part in self._parts:
            if part.name not in arrays:
                raise UsageError(f"{part.name} is gone since the replica was made: make a new one, with another name")
        for rowed in self._rowed.values():
            rowed.see(arrays[rowed.part.name])
        scale, share = self._scaled(), 1 / self._members
        # all are looked at before any is added
        for flat in self._flats:
            flat.changes(arrays, scale, share)
        if len(self._flats) + len(self._rowed) > 1:
            for rowed in self._rowed.values():
                rowed.changes(None, scale)
        for flat in self._flats:
            flat.push()
        for rowed in self._rowed.values():
            rowed.push(scale)
        self._step = 0

    def _pull(self) -> None:
        for flat in self._flats:
            flat.pull()
            self._unwritten = True
        for flat in self._flats:
            self._install(flat.values())
        self._unwritten = False

    def _pull_late(self) -> None:
        if any(flat.pushed for flat in self._flats):
            self._pull()

    def _keep(self) -> None:
        """What was added must not be added again."""
        self._step = min(self._step, self.every - 1)  # a tick that failed is called again, and is the last of its clock
        for flat in self._flats:
            if flat.pushed:
                flat.keep(self._read())

    def _scaled(self) -> float:
        if isinstance(self._scale, float):
            return self._scale
        return 1 / (self._members if self._scale == "members" else self.worker.workers)

    def _members_changed(self, members: list[str]) -> None:
        self._members = max(1, len(members))

    # -- arrays ------------------------------------------------------------------------------------------------------

    def _read(self) -> dict[str, Array]:
        given = self._given() if callable(self._given) else self._given
        if not hasattr(given, "items"):
            raise UsageError(f"a replica is of arrays by their names, {{'w': array}}, not of a {type(given).__name__}")
        return {key: value if isinstance(value, np.ndarray) else as_array(key, value) for key, value in given.items()}

    def _install(self, values: dict[str, Array]) -> None:
        if self._write is not None:
            self._write(values)
            return
        arrays = self._read()
        with np.errstate(over="ignore"):
            for key, value in values.items():
                np.copyto(arrays[key], value, casting="same_kind")

    def _described(self, key: str, array: Array, kind: str) -> Part:
        if array.dtype.name not in FLOATS:
            raise UsageError(f"{key} is {array.dtype}: a replica is of {', '.join(FLOATS)}; share counts as a table")
        if not finite(array):
            raise UsageError(f"{key} has NaN or infinity in it")
        if (self._write is None or kind == "sparse") and not self._writable(key, array):
            raise UsageError(f"{key} cannot be written to in place: give write=…")
        if kind == "sparse" and array.ndim == 0:
            raise UsageError(f"{key} is a single value and has no rows")
        return Part(key, array.shape, array.dtype, kind, digest(array) if kind == "sparse" else "")

    def _writable(self, key: str, array: Array) -> bool:
        given = self._given() if callable(self._given) else self._given
        return isinstance(given[key], np.ndarray) and array.flags.writeable

    def _flats_of(self, name: str, chosen: Callable[[Part], bool], arrays: dict[str, Array]) -> list[Flat]:
        parts = [part for part in self._parts if chosen(part) and part.size]
        kinds = sorted({part.stored for part in parts})
        return [
            Flat(self.worker, f"{name}.{kind}", [p for p in parts if p.stored == kind], arrays, self._copies)
            for kind in kinds
        ]


def _check_scale(scale: object) -> float | str:
    if scale in ("workers", "members"):
        return str(scale)
    if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not math.isfinite(scale):
        raise UsageError(f"scale {scale!r} is not a number, 'workers' or 'members'")
    return float(scale)
