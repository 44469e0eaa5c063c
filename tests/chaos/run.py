"""One schedule from beginning to end."""

from __future__ import annotations

from .checks import Checker
from .faults import inject
from .plan import schedule
from .stage import Stage

#: Seconds that a schedule may take.
LIMIT = 60.0


def play(seed: int, binary: str | None = None, limit: float = LIMIT) -> Stage:
    """Play the schedule of a seed and check what must hold; ``outcome`` of what is returned says what does not."""
    stage = Stage(schedule(seed), inject, binary, limit)
    try:
        stage.run()
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
