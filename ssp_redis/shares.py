"""Each worker's share of the samples of an epoch, dealt anew when the membership changes; nothing is sent for it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .config import parse_count
from .errors import UsageError
from .worker import Worker


class Shares:
    """Deals the numbers 0 … count − 1 to the members, in another order each epoch.

    ::

        shares = Shares(worker, len(x), batch=32, seed=0)
        for epoch in range(10):
            for rows in shares.epoch(epoch):
                train(x[rows], y[rows])
                replica.tick()

    The order is a permutation by (seed, epoch), the same for all, cut into rounds of one batch for each member. A round
    is one clock when there is a tick for each batch. As all are within ``staleness`` clocks of each other, each knows
    without asking how far the others are: when somebody joins or leaves, what is left of the order is dealt to those
    who are there. At staleness 0 every sample comes once an epoch, but for what a lost worker had in hand; else up to
    ``staleness`` rounds may be dealt twice or not at all at such a change. Who joins begins with the next epoch.
    """

    def __init__(self, worker: Worker, count: int, *, batch: int, seed: int = 0, drop_last: bool = False) -> None:
        """Ask who the members are.

        Args:
            worker: a member.
            count: number of samples.
            batch: samples for one member in one round.
            seed: of the order; the same everywhere.
            drop_last: leave out a last round that is not full. Else it is dealt evenly, so that all members get a batch
                of nearly the same size, or, if there are fewer samples than members, some none: an empty array, so that
                all tick equally often.
        """
        self.count = parse_count("count", count)
        self.batch = parse_count("batch", batch)
        self.seed = parse_count("seed", seed, 0)
        self.drop_last = drop_last
        self._id = worker.id
        self._members = worker.members
        worker.on_members(self._changed)

    def epoch(self, number: int) -> Iterator[NDArray[np.intp]]:
        """The batches of this member: arrays of numbers of samples."""
        order = np.random.default_rng([self.seed, parse_count("epoch", number, 0)]).permutation(self.count)
        at = 0
        while at < self.count:
            members = self._members
            if self._id not in members:
                raise UsageError(f"worker {self._id} is not a member any more: it has no share")
            mine = members.index(self._id)
            dealt = order[at : at + self.batch * len(members)]
            if len(dealt) == self.batch * len(members):
                yield dealt[mine * self.batch : (mine + 1) * self.batch]
            elif not self.drop_last:
                yield np.array_split(dealt, len(members))[mine]
            at += len(dealt)

    def _changed(self, members: list[str]) -> None:
        self._members = members
