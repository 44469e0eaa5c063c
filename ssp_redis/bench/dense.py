"""What a clock costs that adds to a whole table and reads it, beside the limit of a passive store (``limits``).

So many processes, each a worker: ``get``, perhaps a pause that stands for computing, ``inc`` of the whole table, tick.
The limit is measured by the same processes over the same kind of connection before and after, with the same pauses,
nobody waiting for anybody. A run counts only if every read held what it must and the sums at the end are exact
(``load``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TypedDict

from .crew import BenchFailed, Inexact, together
from .dense_worker import WARM, Cell, work
from .load import MOST_CLOCKS
from .samples import median
from .scene import Scene

__all__ = ["Cell", "Dense", "measure", "run", "summary"]


class Timed(TypedDict):
    """Median over the rounds, and the least and most."""

    median: float
    least: float
    most: float


class Dense(TypedDict):
    """What came out for a cell; medians over the rounds. Times are those of the slowest worker."""

    workers: int
    nbytes: int
    staleness: int | None
    flush_every: int
    clocks: int
    compute: float
    slowest: float
    #: A clock, and SET+GET of the same bytes as one blob and by blocks.
    clock_ms: Timed
    blob_ms: Timed
    blocks_ms: Timed
    #: A clock in multiples of the limits of the same round.
    blob_ratio: Timed
    blocks_ratio: Timed
    #: Bytes into and out of the server per worker and clock, in multiples of the table.
    in_tables: Timed
    out_tables: Timed
    #: Of a clock, by the mean of the workers.
    wait_ms: Timed
    push_ms: Timed
    pull_ms: Timed


class Run(TypedDict):
    """One round of one cell: seconds a clock, table sizes."""

    clock: float
    blob: float
    blocks: float
    into: float
    out: float
    wait: float
    push: float
    pull: float


def measure(
    scene: Scene,
    cells: Sequence[Cell],
    *,
    rounds: int,
    timeout: float,
    progress: Callable[[Cell], object] = lambda cell: None,
) -> list[Dense]:
    """Measure the cells in turns, ``rounds`` times; ``timeout`` seconds for each run."""
    runs: list[list[Run]] = [[] for _ in cells]
    for _ in range(rounds):
        for cell, mine in zip(cells, runs, strict=True):
            progress(cell)
            mine.append(run(scene, cell, timeout))
    return [summary(cell, mine) for cell, mine in zip(cells, runs, strict=True)]


def run(scene: Scene, cell: Cell, timeout: float) -> Run:
    """One round of a cell.

    Raises:
        Inexact: a read lacked something, or a sum is wrong.
        BenchFailed: it did not come to an end.
    """
    clocks = cell.rounded(cell.clocks)
    if cell.workers * (clocks + cell.rounded(WARM)) > MOST_CLOCKS:
        raise BenchFailed(f"sums stay exact for {MOST_CLOCKS} clocks of all workers together: take fewer")
    with scene.job() as job:
        shares = together(work, cell.workers, timeout, scene, job, cell)
    if len({share["digest"] for share in shares}) > 1:
        raise Inexact("the workers' copies differ in their bits: they were not summed in one order")
    into, out = (shares[0]["after"][i] - shares[0]["before"][i] for i in (0, 1))
    moved = cell.workers * clocks * cell.nbytes
    return {
        "clock": max(share["clock"] for share in shares),
        "blob": _limit(shares, "blob"),
        "blocks": _limit(shares, "blocks"),
        "into": into / moved,
        "out": out / moved,
        "wait": _mean(shares, "wait"),
        "push": _mean(shares, "push"),
        "pull": _mean(shares, "pull"),
    }


def _limit(shares: list[dict[str, Any]], way: str) -> float:
    """The slowest process's time, mean of before and after."""
    times = [max(share[way][i] for share in shares) for i in (0, 1)]
    return float(sum(times) / len(times))


def _mean(shares: list[dict[str, Any]], name: str) -> float:
    return float(sum(share[name] for share in shares) / len(shares))


def summary(cell: Cell, runs: Sequence[Run]) -> Dense:
    """Medians over the rounds."""

    def ms(name: str) -> Timed:
        return _timed([float(one[name]) * 1e3 for one in runs])  # type: ignore[literal-required]

    return {
        **asdict(cell),  # type: ignore[typeddict-item]
        "clocks": cell.rounded(cell.clocks),
        "clock_ms": ms("clock"),
        "blob_ms": ms("blob"),
        "blocks_ms": ms("blocks"),
        "blob_ratio": _timed([one["clock"] / one["blob"] for one in runs]),
        "blocks_ratio": _timed([one["clock"] / one["blocks"] for one in runs]),
        "in_tables": _timed([one["into"] for one in runs]),
        "out_tables": _timed([one["out"] for one in runs]),
        "wait_ms": ms("wait"),
        "push_ms": ms("push"),
        "pull_ms": ms("pull"),
    }


def _timed(values: Sequence[float]) -> Timed:
    return {"median": round(median(values), 4), "least": round(min(values), 4), "most": round(max(values), 4)}
