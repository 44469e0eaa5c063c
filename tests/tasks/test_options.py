"""Options of the tasks that come along: wrong ones are refused before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ssp_redis.errors import UsageError
from ssp_redis.tasks.linreg import LinReg
from ssp_redis.tasks.rate import choose
from ssp_redis.tasks.softmax import Softmax


@pytest.mark.parametrize(
    ("task", "options", "complaint"),
    [
        (LinReg, {"learning_rate": 0.0}, "--learning-rate 0 must be above 0"),
        (LinReg, {"seed": -1}, "--seed -1 must be at least 0"),
        (Softmax, {"learning_rate": float("nan")}, "--learning-rate nan must be above 0"),
        (Softmax, {"batch": 0}, "--batch 0 must be at least 1"),
        (Softmax, {"held_out": 1.0}, "--held-out 1 must be between 0 and 1"),
        (Softmax, {"label": "kind"}, "--label names a column of a .csv file"),
        (Softmax, {"data": Path("nowhere.csv")}, "--data nowhere.csv: no such file"),
    ],
)
def test_an_option_that_cannot_work_is_refused_at_once(task: Any, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        task(**options)


def test_a_million_steps_of_the_article_are_shared_out() -> None:
    assert LinReg(article=True).clocks(1) == 1_000_000
    assert LinReg(article=True).clocks(3) == 333_334


def test_workers_share_a_falling_rate_and_a_given_one_is_used_as_it_is() -> None:
    shared = choose(None, 0.2, workers=4, clocks=100)
    assert [shared.at(clock) for clock in (0, 50, 100, 101)] == pytest.approx([0.05, 0.025, 0, 0])
    given = choose(3e-5, 0.2, workers=4, clocks=100)
    assert given.at(0) == given.at(99) == 3e-5
