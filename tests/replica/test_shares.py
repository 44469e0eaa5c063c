"""Shares of an epoch: together they are all samples, once, whoever joins or leaves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from fixtures import background

from ssp_redis import Shares, UsageError, Worker

Together = Callable[..., list[Worker]]


def ticked(workers: list[Worker]) -> None:
    for future in [background(worker.tick, 20) for worker in workers]:
        future.result(30)


def test_an_epoch_is_all_samples_once_and_the_next_is_in_another_order(together: Together) -> None:
    shares = [Shares(worker, 103, batch=8, seed=5) for worker in together(3)]
    epochs = [[list(share.epoch(number)) for share in shares] for number in range(2)]
    for batches in epochs:
        assert [len(of_one) for of_one in batches] == [5, 5, 5], "all tick equally often"
        assert sorted(int(row) for of_one in batches for rows in of_one for row in rows) == list(range(103))
        assert {len(rows) for of_one in batches for rows in of_one[:-1]} == {8}
        assert {len(of_one[-1]) for of_one in batches} == {2, 3}
    assert any((a != b).any() for a, b in zip(epochs[0][0][:-1], epochs[1][0][:-1], strict=True))
    assert all((a == b).all() for a, b in zip(epochs[0][1], shares[1].epoch(0), strict=True)), "by seed and epoch alone"


def test_what_is_left_is_dealt_to_those_who_are_there(together: Together, join: Callable[..., Worker]) -> None:
    workers = together(3, staleness=0)
    shares = [Shares(worker, 120, batch=4, seed=1) for worker in workers]
    seen: list[int] = []
    turns = [share.epoch(0) for share in shares]

    def round_of(count: int) -> None:
        for turn in turns[:count]:
            seen.extend(int(row) for row in next(turn))
        ticked(workers[:count])

    for _ in range(4):
        round_of(3)  # 48
    workers[2].leave()
    ticked(workers[:2])  # both hear of it
    for _ in range(9):
        round_of(2)  # 72
    assert sorted(seen) == list(range(120))
    assert [len(list(turn)) for turn in turns[:2]] == [0, 0]

    newcomer = join("new")
    workers = [*workers[:2], newcomer]
    shares = [*shares[:2], Shares(newcomer, 120, batch=4, seed=1)]
    ticked(workers)
    seen, turns = [], [share.epoch(1) for share in shares]
    for _ in range(10):
        round_of(3)
    assert sorted(seen) == list(range(120))


def test_a_last_round_that_is_not_full_may_be_left_out(together: Together) -> None:
    shares = [Shares(worker, 50, batch=8, drop_last=True) for worker in together(2)]
    assert [[len(rows) for rows in share.epoch(0)] for share in shares] == [[8, 8, 8], [8, 8, 8]]


def test_fewer_samples_than_members_leave_some_with_none(together: Together) -> None:
    shares = [Shares(worker, 1, batch=8) for worker in together(2)]
    assert [[rows.tolist() for rows in share.epoch(0)] for share in shares] == [[[0]], [[]]]


@pytest.mark.parametrize("wrong", [{"count": 0}, {"batch": 0}, {"seed": -1}])
def test_what_makes_no_sense_is_refused(join: Callable[..., Worker], wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        Shares(join(0), **({"count": 10, "batch": 2, "seed": 0} | wrong))


def test_batches_index_arrays(join: Callable[..., Worker]) -> None:
    x = np.arange(20) * 2
    assert sorted(np.concatenate([x[rows] for rows in Shares(join(0), 20, batch=6).epoch(3)])) == x.tolist()
