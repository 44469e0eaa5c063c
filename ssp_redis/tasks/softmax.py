"""Multinomial logistic regression on real data: a small model whose accuracy says whether training worked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ssp_redis.errors import UsageError
from ssp_redis.tasks.data import Split, load_digits, load_file, split
from ssp_redis.tasks.rate import check, choose
from ssp_redis.tasks.task import Parameters, Task, draws, option

if TYPE_CHECKING:
    from ssp_redis.worker import Worker

#: First step size of all workers together.
_SHARED_RATE = 0.2
#: Clocks for which mini-batches are drawn at once.
_DRAWN = 256


@dataclass
class Softmax(Task):
    """Tell classes apart by multinomial logistic regression: handwritten digits, or your own --data.

    Mini-batch SGD on the cross-entropy; features are standardized by the training part's means and deviations. The
    workers share a step size of 0.2 that falls linearly to zero over the run. Every worker draws its mini-batches from
    the whole training part by (seed, worker, clock); rows held out for the test are the same for everyone.
    """

    data: Path | None = field(
        default=None,
        metadata={"help": "file to train on: .npz with X and y, .csv, .svm [default: handwritten digits]"},
    )
    label: str | None = option(None, "column of a .csv that holds the class [default: the last]")
    held_out: float = option(0.2, "share of the rows kept for the test")
    batch: int = option(32, "rows in a mini-batch")
    learning_rate: float | None = option(
        None, "step size of every worker, constant [default: 0.2 over all workers, falling to 0]"
    )
    seed: int = option(0, "seed of the split and of the mini-batches")
    _split: Split | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check(self.learning_rate, self.seed)
        if not 0 < self.held_out < 1:
            raise UsageError(f"--held-out {self.held_out:g} must be between 0 and 1")
        if self.batch < 1:
            raise UsageError(f"--batch {self.batch} must be at least 1")
        if self.label is not None and self.data is None:
            raise UsageError("--label names a column of a .csv file: give one with --data")
        if self.data is not None and not self.data.is_file():
            raise UsageError(f"--data {self.data}: no such file")

    def clocks(self, workers: int) -> int:
        """500 each."""
        return 500

    def load(self) -> None:
        """Read the data."""
        rows = load_digits() if self.data is None else load_file(self.data, self.label)
        self._split = split(rows, self.held_out, self.seed)

    def setup(self, worker: Worker, clocks: int) -> None:
        """One table: a row a feature, a column a class."""
        data = self._loaded()
        self._rate = choose(self.learning_rate, _SHARED_RATE, len(worker.members), max(1, clocks))
        self._w = worker.table("w", np.zeros((data.train_x.shape[1], len(data.classes)), np.float32))
        self._worker = worker.id
        self._part = -1
        self._row = np.arange(self.batch)

    def step(self, clock: int) -> float:
        """One mini-batch."""
        data = self._loaded()
        if clock // _DRAWN != self._part:
            self._part = clock // _DRAWN
            random = draws(self.seed, self._worker, self._part)
            self._drawn = random.integers(len(data.train_y), size=(_DRAWN, self.batch))
        batch = self._drawn[clock % _DRAWN]
        x, y = data.train_x[batch], data.train_y[batch]
        chance = _softmax(x @ self._w.get())
        hit = chance[self._row, y]
        chance[self._row, y] -= 1.0
        self._w.inc((-self._rate.at(clock) / self.batch) * (x.T @ chance))
        return float(-np.log(np.maximum(hit, 1e-12)).mean())

    def result(self, parameters: Parameters) -> Mapping[str, Any]:
        """Loss and accuracy over the rows held out."""
        data = self._loaded()
        chance = _softmax(data.test_x @ parameters["w"])
        hit = chance[np.arange(len(data.test_y)), data.test_y]
        return {
            "loss": float(-np.log(np.maximum(hit, 1e-12)).mean()),
            "accuracy": float(np.mean(chance.argmax(axis=1) == data.test_y)),
            "train_rows": len(data.train_y),
            "test_rows": len(data.test_y),
        }

    def _loaded(self) -> Split:
        if self._split is None:
            raise UsageError("softmax has no data yet: call load() first")
        return self._split


def _softmax(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    scores = scores - scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores
