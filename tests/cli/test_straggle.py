"""Slowing a worker on purpose."""

from __future__ import annotations

import time

from click.testing import CliRunner

from ssp_redis.cli import main
from ssp_redis.cli.straggle import Drag, Straggle, StraggleType


def rules(text: str) -> list[Straggle]:
    return StraggleType().convert(text, None, None)


def test_a_rule_names_whom_it_slows_and_how() -> None:
    assert rules("0:3x, b:20ms@10%,1.5s") == [
        Straggle("0:3x", "0", 3.0, 0.0, 1.0),
        Straggle("b:20ms@10%", "b", 1.0, 0.02, 0.1),
        Straggle("1.5s", None, 1.0, 1.5, 1.0),
    ]


def test_a_rule_for_somebody_who_is_not_started_is_refused() -> None:
    done = CliRunner().invoke(main, ["launch", "linreg", "-n", "2", "--straggle", "1:2x,9:3x"])
    assert done.exit_code == 2
    assert "--straggle 9:3x: the workers started here are 0 to 1" in done.output


def test_only_those_named_are_slowed() -> None:
    assert Drag(rules("0:3x"), "0", lambda: 0.0)
    assert not Drag(rules("0:3x"), "1", lambda: 0.0)
    assert Drag(rules("3x"), "1", lambda: 0.0)


def work(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_a_factor_multiplies_the_work_and_not_the_waiting() -> None:
    waited = 0.0
    drag = Drag(rules("3x"), "0", lambda: waited)
    begun = time.perf_counter()
    for _ in range(20):
        work(0.002)
        time.sleep(0.03)
        waited += 0.03
        drag.pause()
    total = time.perf_counter() - begun - waited
    # A busy machine adds to it, but never takes away; 20 times 30 ms of waiting would have made 1.2 s more.
    assert 0.9 * 20 * 0.002 * 3 < total < 1.1


def test_even_pauses_too_short_to_sleep_add_up() -> None:
    drag = Drag(rules("0.1ms"), "0", lambda: 0.0)
    begun = time.perf_counter()
    for _ in range(200):
        drag.pause()
    assert 0.015 < time.perf_counter() - begun < 0.2


def test_a_share_slows_about_so_many_clocks() -> None:
    drag = Drag(rules("2ms@20%"), "0", lambda: 0.0)
    begun = time.perf_counter()
    for _ in range(200):
        drag.pause()
    assert 0.03 < time.perf_counter() - begun < 0.3
