"""A few schedules of faults; ``make chaos`` plays more. And that the checks find what is broken on purpose."""

from __future__ import annotations

from collections import Counter

import pytest

from .plan import KINDS, PHASES, Schedule, pairs, schedule
from .run import play, report

SEEDS = (1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_breaks_in_a_schedule_of_faults(seed: int, server_binary: str) -> None:
    stage = play(seed, server_binary)
    assert not stage.outcome.violations, report(stage)
    assert len({fault.kind for fault in stage.outcome.injected}) >= 3, report(stage)


def test_the_same_seed_gives_the_same_schedule() -> None:
    assert schedule(7) == schedule(7) != schedule(8)


def test_every_kind_is_planned_for_every_phase_equally_often_and_all_groups_in_every_schedule() -> None:
    planned: Counter[tuple[str, str]] = Counter()
    for seed in range(1, 1001):
        dealt = pairs(seed)
        planned.update(dealt)
        assert {KINDS[kind].group for kind, _ in dealt} >= {"wire", "process", "server"}
        faults = [(fault.kind, fault.phase) for fault in schedule(seed).faults]
        assert Counter(dealt) <= Counter(faults)
        assert len({kind for kind, _ in faults}) >= 3
    assert set(planned) == {(kind, phase) for kind in KINDS for phase in PHASES}
    assert 25 <= min(planned.values()) <= max(planned.values()) <= 36


#: What is broken, in each worker, and words of the violation.
PLANTED = {
    "admitted too early": (
        "from ssp_redis.scripts import Standing\nStanding.admits = lambda self, clock: self.started",
        "ahead, staleness 0",
    ),
    "deaf": (
        "import time\n"
        "from ssp_redis.subscriber import Subscriber\n"
        "ssp_redis.Worker._fold_while_waiting = lambda *words: None\n"
        "advance = ssp_redis.Worker.advance\n"
        "def deafen(self):\n"
        "    Subscriber.last = lambda self, timeout, run: time.sleep(5.5)\n"
        "    return advance(self)\n"
        "ssp_redis.Worker.advance = deafen",
        "and could have gone on",
    ),
    "reads what is stale": (
        "fresh = ssp_redis.Worker.fresh\n"
        "ssp_redis.Worker.fresh = lambda self, view: None if view.taken else fresh(self, view)",
        "lacks what it must hold",
    ),
    "counts twice": (
        "inc = ssp_redis.Table.inc\n"
        "def twice(self, delta):\n"
        "    for _ in range(2 if self._owner.clock == 5 else 1):\n"
        "        inc(self, delta)\n"
        "ssp_redis.Table.inc = twice",
        "is in it 2 times, ",
    ),
    "drops what is open": (
        "leave = ssp_redis.Worker.leave\n"
        "ssp_redis.Worker.leave = lambda self, why=None, *, commit=True: leave(self, why, commit=False)",
        "and its tick had returned",
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_what_is_broken_on_purpose_is_found(fault: str, server_binary: str) -> None:
    sabotage, words = PLANTED[fault]
    clocks = 1 if fault == "deaf" else 12
    calm = Schedule(1, 3, 0, clocks, work=0.01, keeps=False, unix=False, loops=())
    stage = play(calm, server_binary, sabotage=sabotage)
    assert any(words in text for text in stage.outcome.violations), report(stage)


def test_a_job_that_hangs_is_shown_with_its_stacks(server_binary: str) -> None:
    sabotage = "import time\nssp_redis.Worker.advance = lambda self, timeout=None: time.sleep(100)"
    calm = Schedule(1, 3, 0, 4, work=0.001, keeps=False, unix=False, loops=())
    text = report(play(calm, server_binary, limit=4, sabotage=sabotage))
    assert "violated: not over after 4 s" in text
    assert text.count('File "<string>", line 2 in <lambda>') >= 3
    assert "again: python -m tests.chaos --seeds 1" in text
