"""Which measurements there are, and how large each is unless somebody says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from . import dense, idle, rate, tick, wake
from .dense import Cell
from .load import MOST_CLOCKS
from .scene import scene

KIB, MIB = 1 << 10, 1 << 20

#: Measurement → what it says, in the order in which they run.
KINDS: Mapping[str, str] = {
    "tick": "a tick that need not wait, beside a bare script",
    "wake": "tick to wake-up in another process, beside a raw publish and a poll",
    "idle": "commands that an idle waiter sends",
    "rate": "clocks a second of the smallest job (linreg, two floats)",
    "dense": "a clock of a dense table, beside SET+GET of the same bytes",
    "small": "the same with a table of 40 KiB",
    "straggler": "the same with 20 ms of computing, and one worker at a third of the speed",
}
_TABLES = ("dense", "small", "straggler")


@dataclass(frozen=True)
class Wish:
    """What the user asked for; None and empty take the measurement's own."""

    workers: tuple[int, ...] = ()
    #: Bytes.
    sizes: tuple[int, ...] = ()
    #: Clocks; −1 unbounded.
    staleness: tuple[int, ...] = ()
    #: Clocks; 0 is half of the staleness.
    flush_every: tuple[int, ...] = ()
    clocks: int | None = None
    #: Seconds of pause in a clock, and how many times as long worker 0's is.
    compute: float | None = None
    slowest: float | None = None
    #: Members of the large job of ``tick``.
    members: int | None = None
    rounds: int | None = None
    quick: bool = False
    #: Seconds for each run.
    timeout: float = 300.0

    def times(self) -> int:
        """Rounds."""
        return self.rounds or (1 if self.quick else 3)


def cells(kind: str, wish: Wish) -> list[Cell]:
    """The combinations of a measurement of tables.

    Raises:
        UsageError: nothing is left of them, or a table is too small.
    """
    quick = wish.quick
    workers = wish.workers or {"dense": (2,) if quick else (2, 4), "small": (2,) if quick else (2, 4, 8)}.get(
        kind, (2,) if quick else (2, 4)
    )
    sizes = (
        wish.sizes
        or {
            "dense": (MIB if quick else 4 * MIB,),
            "small": (40 * KIB,),
            "straggler": (40 * KIB,) if quick else (40 * KIB, 4 * MIB),
        }[kind]
    )
    bounds = wish.staleness or {"dense": (0, 3) if quick else (0, 3, 10), "small": (0,)}.get(
        kind, (0,) if quick else (0, 3)
    )
    busy = kind == "straggler"
    compute = (0.02 if busy else 0.0) if wish.compute is None else wish.compute
    slowest = (3.0 if busy else 1.0) if wish.slowest is None else wish.slowest
    found = []
    for size in sizes:
        for count in workers:
            if size < 64 * (count + 16):
                raise UsageError(f"a table of {size} bytes is too small to tell {count} workers apart")
            for bound in bounds:
                for flush in wish.flush_every or (0,):
                    flush = flush or max(1, (bound + 1) // 2)
                    if bound >= 0 and flush > bound + 1:
                        continue
                    clocks = wish.clocks or _clocks(count, size, compute, quick)
                    cell = Cell(count, size, None if bound < 0 else bound, flush, clocks, compute, slowest)
                    if cell not in found:
                        found.append(cell)
    if not found:
        raise UsageError("flush_every can be staleness + 1 at the most: nothing is left to measure")
    return found


def _clocks(workers: int, size: int, compute: float, quick: bool) -> int:
    if compute:
        return 5 if quick else 20
    if size <= 256 * KIB:
        # the first few hundred are slower: processor, allocator and interpreter come up to speed
        return 40 if quick else min(2000, max(1, MOST_CLOCKS // workers - 20))
    if size <= 8 * MIB:
        return 8 if quick else 60
    return 4 if quick else 15


def run(
    kind: str, url: str | None, wish: Wish, tcp: bool = False, progress: Callable[[str], object] = lambda text: None
) -> Any:
    """One measurement on the server at ``url``, or on a private one; what ``measure`` of its module returns."""
    quick, rounds = wish.quick, wish.times()
    progress(KINDS[kind])
    # connections of one process can be told apart by their port, not on a unix socket
    with scene(url, tcp=tcp or kind == "idle") as where:
        if kind == "tick":
            members = wish.members or (500 if quick else 10_000)
            return tick.measure(where, rounds=rounds, calls=100 if quick else 1000, members=members)
        if kind == "wake":
            return wake.measure(where, rounds=rounds, hops=20 if quick else 200, timeout=wish.timeout)
        if kind == "idle":
            return idle.measure(where, seconds=4.0 if quick else 20.0, timeout=wish.timeout)
        if kind == "rate":
            bound = wish.staleness[0] if wish.staleness else 10
            return rate.measure(
                where,
                rounds=rounds,
                workers=wish.workers[0] if wish.workers else 2,
                staleness=None if bound < 0 else bound,
                clocks=wish.clocks or (300 if quick else 5000),
                timeout=wish.timeout,
            )
        return dense.measure(
            where,
            cells(kind, wish),
            rounds=rounds,
            timeout=wish.timeout,
            progress=lambda cell: progress(
                f"{cell.nbytes / MIB:g} MiB, {cell.workers} worker{'s' * (cell.workers > 1)}, "
                f"staleness {cell.staleness}, flush_every {cell.flush_every}"
            ),
        )


def check(kinds: tuple[str, ...], wish: Wish) -> None:
    """Raise what would only be found out after the measurements before it."""
    for kind in kinds:
        if kind in _TABLES:
            cells(kind, wish)
