"""The straight line: the smallest task, and the one that costs least per clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ssp_redis.tasks.rate import check, choose
from ssp_redis.tasks.task import Parameters, Task, draws, option

if TYPE_CHECKING:
    from ssp_redis.worker import Worker

_WEIGHT, _BIAS, _NOISE = 2.0, 10.0, 0.33
#: Samples drawn at once, a power of two: one numpy call for so many clocks costs nothing per clock.
_DRAWN = 4096
#: Clocks times step size of a default run: the start is forgotten by a factor of exp(10), whatever the clocks.
_TRAVEL = 10.0
_ARTICLE_RATE = 3e-5
_ARTICLE_STEPS = 1_000_000


@dataclass
class LinReg(Task):
    """Fit y = 2x + 10 + 0.33 N(0,1) by plain SGD on the squared error, one sample a clock.

    The program with which Alex-zhai's article introduces SSP. A clock is a few microseconds of work, so that the run
    shows what the clock itself costs. The workers share a step size of 10/clocks (at most 0.05), which falls linearly
    to zero over the run, so that the last estimate is precise without averaging.
    """

    learning_rate: float | None = option(
        None, "step size of every worker, constant [default: 10/clocks over all workers, falling to 0]"
    )
    article: bool = option(False, "the article's own values: learning rate 3e-5, 1,000,000 steps in all")
    seed: int = option(0, "seed of the samples")

    def __post_init__(self) -> None:
        check(self.learning_rate, self.seed)

    def clocks(self, workers: int) -> int:
        """2,000 each, or the article's million shared out."""
        return -(-_ARTICLE_STEPS // workers) if self.article else 2000

    def setup(self, worker: Worker, clocks: int) -> None:
        """One table of two: weight and bias."""
        given = _ARTICLE_RATE if self.article and self.learning_rate is None else self.learning_rate
        rate = choose(given, min(0.05, _TRAVEL / max(1, clocks)), len(worker.members), max(1, clocks))
        self._w = worker.table("w", np.zeros(2))
        self._worker = worker.id
        self._delta = np.zeros(2)
        # The derivative of the squared error has a factor 2 and a step goes against it.
        self._first = -2.0 * rate.first
        self._slope = self._first / rate.clocks if rate.falls else 0.0
        self._part = -1

    def step(self, clock: int) -> float:
        """One sample."""
        # Plain floats: on two numbers, numpy's own overhead is ten times the arithmetic.
        if clock // _DRAWN != self._part:
            self._draw(clock // _DRAWN)
        x = self._x[clock % _DRAWN]
        weight, bias = self._w.get().tolist()
        error = weight * x + bias - self._y[clock % _DRAWN]
        step = (self._first - self._slope * clock) * error
        delta = self._delta
        delta[0] = step * x
        delta[1] = step
        self._w.inc(delta)
        return float(error * error)

    def result(self, parameters: Parameters) -> Mapping[str, Any]:
        """Loss is the mean squared error over samples that no worker has seen; the noise alone makes 0.1089."""
        weight, bias = parameters["w"].tolist()
        x, y = _samples(np.random.default_rng([self.seed, 1]), 10_000)
        loss = float(np.mean(np.square(weight * x + bias - y)))
        return {"loss": loss, "parameters": {"weight": weight, "bias": bias}}

    def _draw(self, part: int) -> None:
        x, y = _samples(draws(self.seed, self._worker, part), _DRAWN)
        self._x: list[float] = x.tolist()
        self._y: list[float] = y.tolist()
        self._part = part


def _samples(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    x = random.standard_normal(count)
    return x, _WEIGHT * x + _BIAS + _NOISE * random.standard_normal(count)
