"""What is told of many times, and of several rounds of many times."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TypedDict


class Spread(TypedDict):
    """Times in microseconds: medians over the rounds, and the worst of all."""

    median_us: float
    p99_us: float
    worst_us: float


def median(values: Sequence[float]) -> float:
    """The middle one."""
    return statistics.median(values)


def p99(values: Sequence[float]) -> float:
    """The time that 99 of 100 do not exceed."""
    return sorted(values)[min(len(values) - 1, int(0.99 * len(values)))]


def spread(rounds: Sequence[Sequence[float]]) -> Spread:
    """Several rounds of times in seconds."""
    return {
        "median_us": micro(median([median(times) for times in rounds])),
        "p99_us": micro(median([p99(times) for times in rounds])),
        "worst_us": micro(max(max(times) for times in rounds)),
    }


def micro(seconds: float) -> float:
    """Seconds as microseconds, to a tenth."""
    return round(seconds * 1e6, 1)


def ratio(of: Sequence[float], to: Sequence[float]) -> float:
    """Median over the rounds of how many times ``to`` each ``of`` is: what drifts between rounds cancels out."""
    return round(median([a / b for a, b in zip(of, to, strict=True)]), 3)
