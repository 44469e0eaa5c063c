"""Options that several commands share, each with its twin in the environment: ``--job`` is ``SSP_REDIS_JOB``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ssp_redis.config import LONGEST
from ssp_redis.errors import UsageError
from ssp_redis.keys import check_name

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # generic from click 8.4 on only

F = TypeVar("F", bound=Callable[..., Any])

TWINS = "Every flag has a twin in the environment: --job NAME is SSP_REDIS_JOB=NAME. The flag wins."

_SECONDS = re.compile(r"(\d+\.?\d*|\.\d+)(ms|s|m|h)?\Z")
_UNITS = {"ms": 1e-3, "s": 1.0, None: 1.0, "m": 60.0, "h": 3600.0}


def twin(flag: str) -> str:
    """Name of a flag's twin in the environment."""
    return "SSP_REDIS_" + flag.split("/")[0].strip().lstrip("-").upper().replace("-", "_")


def option(*declarations: str, **attributes: Any) -> Callable[[F], F]:
    """:func:`click.option` with the environment twin that belongs to its long flag."""
    flag = next(text for text in declarations if text.startswith("--"))
    attributes.setdefault("envvar", twin(flag))
    return click.option(*declarations, **attributes)


def parse_seconds(text: str) -> float:
    """``10``, ``10s``, ``500ms``, ``2m``, ``1h`` in seconds; raises ValueError."""
    match = _SECONDS.match(text.strip())
    if not match:
        raise ValueError(text)
    return float(match[1]) * _UNITS[match[2]]


class Seconds(ParamType):
    """A time above zero."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Called by click."""
        try:
            seconds = parse_seconds(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a time: use 10, 10s, 500ms or 2m", param, ctx)
        if seconds <= 0:
            self.fail(f"{value!r} must be above 0", param, ctx)
        if seconds > LONGEST:
            self.fail(f"{value!r} is longer than {LONGEST:g} s", param, ctx)
        return seconds


class Staleness(ParamType):
    """A whole number of clocks from 0 up, or ``inf``."""

    name = "clocks|inf"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Called by click."""
        text = str(value).strip().lower()
        if text in ("inf", "infinite", "none", "async"):
            return math.inf
        if not text.isdecimal() or len(text) > 10 or int(text) >= 2**31:
            self.fail(f"{value!r} is not a staleness: use 0 (lock-step), a number of clocks, or inf", param, ctx)
        return float(int(text))


class Name(ParamType):
    """A name of a job, worker or run, fit to stand in a key."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.name = {"worker": "id", "job": "name"}.get(kind, "name")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Called by click."""
        try:
            return check_name(self.kind, value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


def staleness_out(staleness: float) -> int | str:
    """Staleness as JSON and people read it: JSON has no infinity."""
    return "inf" if math.isinf(staleness) else int(staleness)


url_option = option(
    "--url",
    envvar=["SSP_REDIS_URL", "REDIS_URL"],
    metavar="URL",
    help="Server: redis://HOST:PORT, rediss://…, unix:///PATH, redis+sentinel://HOST:PORT/SERVICE, redis+cluster://…. "
    "Also taken from REDIS_URL.",
)


def job_option(default: str | None) -> Callable[[F], F]:
    """``--job``; ``default`` says what is taken where it is not given, None: it must be."""
    text = "Name of the job." + (f"  [default: {default}]" if default else "")
    return option("--job", "-j", type=Name("job"), help=text)


id_option = option("--id", "-i", "worker_id", type=Name("worker"), help="Id of the worker.")
workers_option = option(
    "--workers",
    "-n",
    type=click.IntRange(min=1),
    metavar="N",
    help="Start quorum: nobody starts before so many workers have joined.  [default: the job's; 1 in a new one]",
)
staleness_option = option(
    "--staleness",
    "-s",
    type=Staleness(),
    metavar="CLOCKS|inf",
    help="Clocks that the fastest worker may lead the slowest: 0 is lock-step, inf unbounded.  [default: the job's; 0 "
    "in a new one]",
)
lease_option = option(
    "--lease",
    type=Seconds(),
    help="Time after which a silent worker no longer holds the others up.  [default: the job's; 10 in a new one]",
)
progress_timeout_option = option(
    "--progress-timeout",
    type=Seconds(),
    help="Evict a worker that is alive and holds the others up without ticking for so long.  [default: never]",
)
run_option = option("--run", type=Name("run"), help="Name of the run; a new name starts from zero.")
timeout_option = option("--timeout", type=Seconds(), help="Give up after waiting this long; exit code 75.")
json_option = option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
quiet_option = option("--quiet", "-q", is_flag=True, help="No progress, even on a terminal.")


def together(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """Several option decorators as one, in the order of the help."""

    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate
