"""How the built-in tasks choose a step size.

Every worker's gradient goes into the same parameters, so the steps of a clock add up over the workers; and an estimate
made with a constant step keeps jittering around the optimum. Hence, unless told otherwise, the workers share one step
size, and it falls linearly to zero over the run. A rate that the user gives is used as it is: plain SGD.
"""

from __future__ import annotations

from dataclasses import dataclass

from ssp_redis.errors import UsageError


@dataclass(frozen=True)
class Rate:
    """Step size of one worker at a clock: ``first * (1 - clock / clocks)``, or constant where ``falls`` is False."""

    first: float
    clocks: int
    falls: bool

    def at(self, clock: int) -> float:
        """Step size of the clock after ``clock`` completed ones."""
        if not self.falls:
            return self.first
        return self.first * max(0.0, 1.0 - clock / self.clocks)


def check(given: float | None, seed: int) -> None:
    """Refuse a learning rate or a seed that cannot work, before anything is started."""
    if given is not None and not 0 < given < float("inf"):
        raise UsageError(f"--learning-rate {given:g} must be above 0")
    if seed < 0:
        raise UsageError(f"--seed {seed} must be at least 0")


def choose(given: float | None, shared: float, workers: int, clocks: int) -> Rate:
    """``given`` as it is, constant; else ``shared`` divided among ``workers``, falling to zero at ``clocks``."""
    if given is None:
        return Rate(shared / workers, clocks, True)
    return Rate(given, clocks, False)
