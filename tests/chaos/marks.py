"""What workers add to the tables: whole numbers that name worker, life and clock, so that each delta can be told.

A *life* is one process under a worker's id; its number counts the processes started for that id.
"""

from __future__ import annotations

import base64
import random
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Lives per id that the tables have room for.
LIVES = 8
#: Clocks per element of the tiny table: two bits each tell 0, 1, 2 and 3 apart.
_DIGITS = 31
_ROWS, _COLUMNS = 320, 1024
#: Rows of the large table that every delta adds 1 to, in both of its blocks.
_BAND = slice(200, 270)
TABLES = ("tiny", "small", "large", "sparse")
#: Often enough there is nothing to push before a tick, or only what the tick carries itself.
_ODDS = {"tiny": 0.6, "small": 0.5, "large": 0.15, "sparse": 0.3}

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Marks:
    """Where each delta of a job leaves its mark."""

    seed: int
    workers: int
    clocks: int

    def touched(self, worker: int, clock: int) -> list[str]:
        """The tables that this worker adds to at this clock, whichever of its lives it is."""
        rng = random.Random(f"{self.seed} {worker} {clock}")
        return [table for table in TABLES if rng.random() < _ODDS[table]]

    def _digits(self, worker: int, clock: int) -> int:
        """The element of the tiny table for a worker's clock."""
        return worker * (self.clocks // _DIGITS + 1) + clock // _DIGITS

    @property
    def _shape(self) -> tuple[int, int, int]:
        return self.workers, LIVES, self.clocks + 1

    def open(self, worker: Any) -> dict[str, Any]:
        """The tables of a worker."""
        rows = int(np.prod(self._shape)) + 1
        return {
            "tiny": worker.table("tiny", np.zeros(8, np.int64)),
            "small": worker.table("small", np.zeros(self._shape, np.int32)),
            "large": worker.table("large", np.zeros((_ROWS, _COLUMNS), np.float32)),
            "sparse": worker.sparse_table("sparse", (rows, 2), np.int64),
        }

    def mark(self, tables: dict[str, Any], worker: int, life: int, clock: int) -> None:
        """Add what this life adds at this clock."""
        for name in self.touched(worker, clock):
            if name == "tiny":
                delta = np.zeros(8, np.int64)
                delta[self._digits(worker, clock)] = 4 ** (clock % _DIGITS)
                tables[name].inc(delta)
            elif name == "small":
                small = np.zeros(self._shape, np.int32)
                small[worker, life, clock] = 1
                tables[name].inc(small)
            elif name == "large":
                row = worker * LIVES + life
                large = np.zeros((_ROWS, _COLUMNS), np.float32)
                large[_BAND] = 1
                large[row, clock] = large[_ROWS - 1 - row, clock] = 1
                tables[name].inc(large)
            else:
                row = int(np.ravel_multi_index((worker, life, clock), self._shape))
                tables[name].inc(np.array([[1, 1], [1, 0]]), rows=[row, int(np.prod(self._shape))])

    def counts(self, table: str, value: NDArray[Any]) -> Counts:
        """How often each (worker, life, clock) is in a table; of the tiny one, (worker, clock).

        Raises:
            ValueError: the parts of the value do not agree with each other.
        """
        if table == "tiny":
            tiny = np.zeros((self.workers, self.clocks + 1), np.int64)
            for worker in range(self.workers):
                for clock in range(self.clocks + 1):
                    tiny[worker, clock] = int(value[self._digits(worker, clock)]) // 4 ** (clock % _DIGITS) % 4
            return tiny
        if table == "small":
            return value.astype(np.int64)
        if table == "large":
            rows = self.workers * LIVES
            upper, lower = value[:rows], value[::-1][:rows]
            if not (upper == lower).all():
                raise ValueError("large: its two blocks hold different deltas")
            if not (value[_BAND] == upper.sum()).all():
                raise ValueError("large: a block holds another number of deltas than their marks say")
            return upper[:, : self.clocks + 1].reshape(self._shape).astype(np.int64)
        if value[:-1, 0].sum() != value[-1, 0] or not (value[:-1, 0] == value[:-1, 1]).all():
            raise ValueError("sparse: its rows do not agree on the number of deltas")
        return value[:-1, 0].reshape(self._shape).astype(np.int64)

    def parts(self, table: str, value: NDArray[Any]) -> list[Counts]:
        """The counts in what a worker has read: of a large table its parts may be of different moments.

        Raises:
            ValueError: what belongs to one part does not agree.
        """
        if table != "large":
            return [self.counts(table, value)]
        rows = self.workers * LIVES
        upper, lower = value[:rows], value[::-1][:rows]
        if not (value[_BAND][40:] == lower.sum()).all():
            raise ValueError("large: its lower part holds another number of deltas than their marks say")
        if len(np.unique(value[_BAND][:14])) > 1:
            raise ValueError("large: rows of one part hold different numbers of deltas")
        return [part[:, : self.clocks + 1].reshape(self._shape).astype(np.int64) for part in (upper, lower)]

    def pack(self, table: str, value: NDArray[Any]) -> str:
        """The counts in a value, in a few characters."""
        return self.packed(self.counts(table, value))

    @staticmethod
    def packed(counts: Counts) -> str:
        """Counts, in a few characters."""
        return base64.b64encode(zlib.compress(counts.astype(np.int8).tobytes())).decode()

    def unpack(self, table: str, text: str) -> Counts:
        """What ``pack`` made."""
        counts = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.int8).astype(np.int64)
        return counts.reshape((self.workers, self.clocks + 1) if table == "tiny" else self._shape)


def read(table: Any) -> NDArray[Any]:
    """All of a table, dense or sparse."""
    return table.get(range(table.shape[0])) if table.name == "sparse" else table.get()
