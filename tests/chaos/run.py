"""One schedule from beginning to end."""

from __future__ import annotations

import traceback
from typing import Any

from .checks import Checker
from .faults import inject
from .ledger import record
from .plan import Schedule, schedule
from .stage import Stage

#: Seconds that a schedule may take.
LIMIT = 60.0
#: Seconds after which it is told what took so long.
_LONG = 14.0


def play(
    plan: int | Schedule, binary: str | None = None, limit: float = LIMIT, sabotage: str = "", variant: str = ""
) -> Stage:
    """Play a schedule, or that of a seed, and check what must hold; the ``outcome`` says what does not."""
    stage = Stage(schedule(plan, variant) if isinstance(plan, int) else plan, inject, binary, limit, sabotage)
    try:
        stage.run()
        if not stage.outcome.violations:
            checker = Checker(stage)
            checker.check()
        if not stage.outcome.violations:
            checker.garbage()
    except Exception:
        stage.violation(f"the check itself failed: {traceback.format_exc()}")
    finally:
        stage.close()
    return stage


def report(stage: Stage) -> str:
    """What a failed schedule says."""
    outcome = stage.outcome
    return "\n".join(
        [
            str(outcome.schedule),
            *outcome.log,
            *(f"violated: {text}" for text in outcome.violations[:20]),
            f"again: python -m tests.chaos --seeds {outcome.schedule.seed}",
        ]
    )


def result(seed: int, binary: str | None, limit: float, told: bool, variant: str = "") -> tuple[dict[str, Any], str]:
    """What the schedule of a seed came to, to be kept, and a report if it failed, took long, or that was asked for."""
    stage = play(seed, binary, limit, variant=variant)
    return record(stage), report(stage) if told or stage.outcome.violations or stage.outcome.seconds > _LONG else ""
