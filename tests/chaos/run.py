"""One schedule from beginning to end."""

from __future__ import annotations

from .checks import Checker
from .faults import inject
from .plan import Schedule, schedule
from .stage import Stage

#: Seconds that a schedule may take.
LIMIT = 60.0


def play(plan: int | Schedule, binary: str | None = None, limit: float = LIMIT, sabotage: str = "") -> Stage:
    """Play a schedule, or that of a seed, and check what must hold; the ``outcome`` says what does not."""
    stage = Stage(schedule(plan) if isinstance(plan, int) else plan, inject, binary, limit, sabotage)
    try:
        stage.run()
        if not stage.outcome.violations:
            checker = Checker(stage)
            checker.check()
        if not stage.outcome.violations:
            checker.garbage()
    except Exception as error:
        stage.violation(f"the check itself failed: {type(error).__name__}: {error}")
        raise
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
            f"again: python -m tests.chaos --seed {outcome.schedule.seed}",
        ]
    )
