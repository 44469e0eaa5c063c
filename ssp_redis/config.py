"""What a worker is told: arguments first, then the environment, then what the job already has.

An explicit argument beats the environment; of the environment, our own names beat those of a launcher
(``RANK``, ``WORLD_SIZE``). What nobody says is adopted from the job, or a default where the job is new.
"""

from __future__ import annotations

import logging
import math
import os
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from .errors import UsageError
from .keys import check_name

logger = logging.getLogger("ssp_redis")

#: URL of the server; ``REDIS_URL`` is the second choice.
ENV_URL = "SSP_REDIS_URL"
#: Name of the job.
ENV_JOB = "SSP_REDIS_JOB"
#: Id of this worker; ``RANK`` is the second choice.
ENV_ID = "SSP_REDIS_ID"
#: Start quorum; ``WORLD_SIZE`` is the second choice.
ENV_WORKERS = "SSP_REDIS_WORKERS"
#: Clocks, or ``inf``.
ENV_STALENESS = "SSP_REDIS_STALENESS"
#: Seconds.
ENV_LEASE = "SSP_REDIS_LEASE"
#: Name of the run.
ENV_RUN = "SSP_REDIS_RUN"


class Unset(Enum):
    """Tells "not given" from None, which for staleness means unbounded."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


@dataclass(frozen=True)
class Settings:
    """A checked set of what ``join`` was told; None: adopt from the job, or take the default."""

    #: May hold a password.
    url: str = field(repr=False)
    job: str
    worker: str | None
    workers: int | None
    #: Clocks, −1 unbounded.
    staleness: int | None
    #: Seconds a silent member is waited for.
    lease: float | None
    run: str
    #: Seconds a job without members is kept.
    retain: float | None
    #: Seconds to go on trying when the server is away.
    reconnect_timeout: float
    #: Seconds between re-checks of a wait.
    recheck: float
    strict: bool
    reproducible: bool | None
    #: Seconds after which a blocked worker takes out who holds the min and does not tick; None: never.
    progress_timeout: float | None = None


#: Longest time that may be given (seconds): thirty years.
LONGEST = 1e9


def first_of(*names: str) -> str | None:
    """The first of these environment variables that is set and not empty."""
    return next((value for name in names if (value := os.environ.get(name, "").strip())), None)


def resolve_url(url: str | None) -> str:
    """``url``, or the environment's, or an error that says how to give one."""
    found = url or first_of(ENV_URL, "REDIS_URL")
    if not found:
        raise UsageError(f"no server: give its URL (redis://HOST:PORT) or set {ENV_URL}")
    return found


def parse_staleness(value: object) -> int:
    """Clocks of staleness as the scripts know them: −1 for None or infinity."""
    if value is None or (isinstance(value, str) and value.strip().lower() in ("inf", "infinite", "none", "-1")):
        return -1
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if number == math.inf:
        return -1
    if not number.is_integer() or not 0 <= number < 2**31:
        raise UsageError(f"staleness {value!r} is not a number of clocks: use 0, 1, 2, … or inf")
    return int(number)


def parse_count(kind: str, value: object, least: int = 1) -> int:
    """A whole number from ``least`` up."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not number.is_integer() or not least <= number < 2**31:
        raise UsageError(f"{kind} {value!r} is not a whole number from {least} up, below 2^31")
    return int(number)


def parse_seconds(kind: str, value: object, least: float = 0.0) -> float:
    """A positive, finite time in seconds."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not 0 < number <= LONGEST or number < least:
        raise UsageError(
            f"{kind} {value!r} is not a time: use a number of seconds {f'from {least:g}' if least else 'above 0'} "
            f"to {LONGEST:g}"
        )
    return number


def check_timeout(timeout: object) -> float | None:
    """A time to wait in seconds, None for ever."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise UsageError(f"timeout {timeout!r} is not a number of seconds from 0 up, or None")
    return float(min(timeout, LONGEST))


def check_flag(kind: str, value: object) -> None:
    """Raise UsageError unless it is True, False or None."""
    if value not in (None, True, False) or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        raise UsageError(f"{kind} {value!r} is neither True nor False")


def resolve(
    url: str | None,
    job: str | None,
    worker: str | int | None,
    workers: int | None,
    staleness: float | Unset | None,
    lease: float | None,
    run: str | None,
    retain: float | None,
    reconnect_timeout: float,
    recheck: float,
    strict: bool,
    reproducible: bool | None = None,
    progress_timeout: float | None = None,
) -> Settings:
    """Check everything and fill in from the environment.

    Raises:
        UsageError: naming the culprit; nothing was sent.
    """
    check_flag("reproducible", reproducible)
    check_flag("strict", strict)
    if isinstance(worker, (bool, float)):
        raise UsageError(f"worker {worker!r} is not an id: use a number or a name")
    if url is not None and not isinstance(url, str):
        raise UsageError(f"url {url!r} is not a text: use redis://HOST:PORT")
    job = job or first_of(ENV_JOB)
    if not job:
        raise UsageError(f"no job: give its name (job=…) or set {ENV_JOB}")
    chosen = first_of(ENV_ID, "RANK") if worker is None else worker
    asked = first_of(ENV_WORKERS, "WORLD_SIZE") if workers is None else workers
    quorum = None if asked is None else parse_count("workers", asked)
    started = first_of(ENV_WORKERS) or ""
    if quorum is not None and started.isdecimal() and quorum > int(started):
        logger.warning(
            "join() is told workers=%s, which comes before %s=%s: it waits for more than that; leave workers out to go "
            "by the variable",
            quorum,
            ENV_WORKERS,
            started,
        )
    silent = first_of(ENV_LEASE) if lease is None else lease
    bound: object = staleness
    if isinstance(bound, Unset):
        bound = first_of(ENV_STALENESS) or UNSET
    if reproducible:
        if isinstance(bound, Unset):
            bound = 0
        if parse_staleness(bound) != 0:
            raise UsageError(f"a reproducible run has staleness 0, not {bound}")
    return Settings(
        url=resolve_url(url),
        job=check_name("job", job),
        worker=None if chosen is None else check_name("worker", chosen),
        workers=quorum,
        staleness=None if isinstance(bound, Unset) else parse_staleness(bound),
        lease=None if silent is None else parse_seconds("lease", silent, 0.05),
        run=check_name("run", run or first_of(ENV_RUN)) if run or first_of(ENV_RUN) else "",
        retain=None if retain is None else parse_seconds("retain", retain, 1.0),
        reconnect_timeout=parse_seconds("reconnect_timeout", reconnect_timeout),
        recheck=parse_seconds("recheck", recheck, 0.01),
        strict=strict,
        reproducible=reproducible,
        progress_timeout=None
        if progress_timeout is None
        else parse_seconds("progress_timeout", progress_timeout, 0.01),
    )
