"""What ``launch`` and ``worker`` have in common: TASK|SCRIPT, and the options that say how it is to be worked on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any

import click

from ssp_redis.cli.options import (
    job_option,
    json_option,
    lease_option,
    option,
    progress_timeout_option,
    quiet_option,
    run_option,
    staleness_option,
    timeout_option,
    together,
    url_option,
)
from ssp_redis.cli.straggle import Straggle, StraggleType
from ssp_redis.cli.target import Target, target_argument


@dataclass(frozen=True)
class Work:
    """What is to be done, and how."""

    target: Target
    #: Clocks; None: as the job has it.
    staleness: float | None
    #: Clock at which the work is done; None: the task's own.
    clocks: int | None
    straggle: list[Straggle]
    url: str | None
    job: str
    run: str | None
    #: Seconds, as the next two.
    lease: float | None
    progress_timeout: float | None
    timeout: float | None
    as_json: bool
    quiet: bool


_options: Callable[[Callable[..., None]], Callable[..., None]] = together(
    staleness_option,
    option(
        "--clocks",
        "-c",
        type=click.IntRange(min=1),
        metavar="N",
        help="Clock at which the work is done; a script finds it in $SSP_REDIS_CLOCKS.  [default: the task's]",
    ),
    option(
        "--straggle",
        type=StraggleType(),
        metavar="[ID:]HOW",
        multiple=True,
        help="Slow a worker down: 0:3x makes worker 0's clocks take three times as long, 0:20ms adds 20 ms, 20ms@10% "
        "does so to everybody in one clock of ten. Several with commas. Tasks only.",
    ),
    url_option,
    job_option("the task's or script's name"),
    run_option,
    lease_option,
    progress_timeout_option,
    timeout_option,
    json_option,
    quiet_option,
)


def work_options(function: Callable[..., None]) -> Callable[..., None]:
    """The arguments and options of a :class:`Work`, for a :class:`~ssp_redis.cli.target.TargetCommand`."""

    @wraps(function)
    def command(target: Target, straggle: tuple[list[Straggle], ...], job: str | None, **given: Any) -> None:
        if target.is_script and straggle:
            raise click.UsageError("--straggle slows tasks; a script has to be slow by itself")
        rules = [rule for rules in straggle for rule in rules]
        named = {field.name: given.pop(field.name) for field in fields(Work) if field.name in given}
        function(Work(target=target, straggle=rules, job=job or target.job, **named), **given)

    return target_argument(_options(command))
