"""Deltas whose sums tell what is in them: what each worker adds in a measurement of tables, and what must come out.

A table is seen as groups of elements, several in every block. Of a group

- one element for each worker counts that worker's clocks: what a read holds, and what it lacks, can be read off;
- one is different for every worker and clock: a delta that is in the sum twice for another that is missing shows;
- eight are fractions of different sizes: float32 rounds them differently in another order, so two copies that were
  summed in different orders differ in their bits;
- the others are small integers, of which float32 sums are exact: what is added twice, or half, or torn, shows.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .crew import Inexact

Array = NDArray[np.float32]

#: Elements of a group, at the most.
_STRIDE = 16384
#: Length of the pattern of small integers.
_PATTERN = 5040
#: Stamps are below this, times at most 3; sums of them must stay below 2^24 to be exact.
_STAMPS = 251
#: Fractions of a group, and sets of them, used in turn.
_WIDE, _FRACTIONS = 8, 32
#: So many pieces of memory are remembered, and one more.
_FILLED = 7
#: A delta is in a read of a table of so many elements as a whole, or not. There one group tells, another at each clock;
#: all are looked at in one of so many clocks.
_WHOLE, _THOROUGH = 1 << 17, 16
#: Clocks of all workers together up to which every sum is exact.
MOST_CLOCKS = 20_000


class Load:
    """One worker's deltas for a table of float32.

    Args:
        me: number of this worker.
        count: number of workers, each of which adds one delta in each clock.
        nbytes: size of the table.
    """

    def __init__(self, me: int, count: int, nbytes: int) -> None:
        self._me, self._count = me, count
        self._elements = nbytes // 4
        self._stride = max(count + 1 + _WIDE, min(_STRIDE, self._elements // 8))
        self._groups = self._elements // self._stride
        self._one_tells = self._groups > 0 and self._elements <= _WHOLE
        self._rough = slice(count + 1, count + 1 + _WIDE)
        #: What is another in every clock, and where it belongs.
        self._changing = np.empty((self._groups, 1 + _WIDE), np.float32)
        self._changes = np.arange(self._groups)[:, None] * self._stride + np.arange(count, count + 1 + _WIDE)
        self._stamps, self._roughs = self._changing[:, 0], self._changing[:, 1:]
        self._delta: Array = np.resize(_pattern(me), self._elements)
        groups = self._grouped(self._delta)
        groups[:, :count] = 0
        groups[:, me] = 1
        #: Memory that was filled before, by its id: only what is another in every clock is to be put there.
        self._filled: dict[int, Array] = {}
        #: Where the elements are that count each worker's clocks: a row for each group.
        self._counting = np.arange(self._groups)[:, None] * self._stride + np.arange(count)
        self._factor = 1 + np.arange(self._groups, dtype=np.float32) % 3
        draw = np.random.default_rng([7, me])
        size = (_FRACTIONS, self._groups, _WIDE)
        self._fractions = (draw.standard_normal(size) * 10.0 ** draw.integers(-1, 2, size)).astype(np.float32)

    def first(self) -> Array:
        """The table's first value."""
        value = np.full(self._elements, 3, np.float32)
        groups = self._grouped(value)
        groups[:, : self._count + 1] = 0
        # not 0, for the first two of a sum may be swapped
        groups[:, self._rough] = 0.1
        return value

    def delta(self, clock: int) -> Array:
        """What this worker adds in a clock; valid until the next call."""
        self._stamp_on(self._delta, clock)
        return self._delta

    def fill(self, out: Array, clock: int) -> None:
        """Put what this worker adds in a clock into memory that is new, or holds what it added in another."""
        memory = out.base if isinstance(out.base, np.ndarray) else out
        if self._filled.get(id(memory)) is not memory:
            out[:] = self._delta
            if len(self._filled) > _FILLED:
                self._filled.clear()
            self._filled[id(memory)] = memory
        self._stamp_on(out, clock)

    def _stamp_on(self, delta: Array, clock: int) -> None:
        np.multiply(self._factor, _stamp(self._me, self._count, clock), out=self._stamps)
        self._roughs[:] = self._fractions[clock % _FRACTIONS]
        delta.put(self._changes, self._changing)

    def check(self, value: Array, clock: int, staleness: int | None) -> None:
        """Does a read at ``clock`` hold all of this worker's deltas, and of the others' what the bound promises?

        At staleness 0 that is those of the clocks before, and no more.

        Raises:
            Inexact: it does not.
        """
        # a check is to cost no more than need be beside what is measured
        if staleness == 0 and self._one_tells and clock % _THOROUGH:
            first = clock % self._groups * self._stride
            if value[first : first + self._count].tolist() == [clock] * self._count:
                return
        seen = value.take(self._counting)
        if staleness == 0 and (seen == clock).all():
            return
        least = seen.min(axis=0)
        if least[self._me] != clock or seen[:, self._me].max() != clock:
            raise Inexact(f"a read at clock {clock} holds {seen[:, self._me].tolist()} own deltas")
        if staleness is not None and least.min() < clock - staleness:
            raise Inexact(f"a read at clock {clock} and staleness {staleness} holds {least.tolist()} deltas of each")
        if staleness == 0 and seen.max() > clock:
            raise Inexact(f"a read at clock {clock} and staleness 0 holds {seen.max(axis=0).tolist()} deltas of each")

    def verify(self, value: Array, clocks: int) -> str:
        """Is this the sum of the first value and of so many clocks of every worker? Returns a digest of all its bits.

        Raises:
            Inexact: it is not.
        """
        expected = np.resize(clocks * sum(_pattern(worker) for worker in range(self._count)) + 3, self._elements)
        groups = self._grouped(expected)
        groups[:, : self._count] = clocks
        stamps = sum(_stamp(worker, self._count, clock) for worker in range(self._count) for clock in range(clocks))
        groups[:, self._count] = self._factor * stamps
        groups[:, self._rough] = self._grouped(value)[:, self._rough]
        if not np.array_equal(value, expected):
            wrong = np.flatnonzero(value != expected)
            i = int(wrong[0])
            raise Inexact(f"{len(wrong)} of {len(value)} sums are wrong; element {i} is {value[i]}, not {expected[i]}")
        return hashlib.sha256(value.tobytes()).hexdigest()

    def _grouped(self, value: Array) -> NDArray[Any]:
        return value[: self._groups * self._stride].reshape(self._groups, self._stride)


def _pattern(worker: int) -> Array:
    """Small integers, another pattern for each worker."""
    return (1 + (np.arange(_PATTERN) * 7 + worker * 3) % 5).astype(np.float32)


def _stamp(worker: int, count: int, clock: int) -> int:
    return (clock * count + worker) % _STAMPS + 1
