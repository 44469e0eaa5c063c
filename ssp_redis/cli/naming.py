"""Which job a command is about: ``--job NAME``, or the name by itself as the command's first word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import click
from click.core import ParameterSource

from ssp_redis import Job, list_jobs
from ssp_redis.cli.exits import Failure
from ssp_redis.cli.options import Name, job_option
from ssp_redis.config import resolve_url
from ssp_redis.errors import UsageError
from ssp_redis.keys import check_name

Command = Callable[..., None]
#: Of a command's words, and whether the job is named elsewhere: the job, if it is among them, and the rest.
Split = Callable[[Sequence[str], bool], tuple[str | None, Any]]

#: What is taken where no job is named.
THE_ONLY_ONE = "the only one on the server"


def job_named(default: str | None = THE_ONLY_ONE) -> Callable[[Command], Command]:
    """``[JOB]`` and ``--job``, of which the command gets one as ``job``, or None."""

    def decorate(function: Command) -> Command:
        @wraps(function)
        def named(job_name: str | None, job: str | None, **others: Any) -> None:
            function(job=_one_of(job_name, job), **others)

        argument = click.argument("job_name", required=False, type=Name("job"), metavar="[JOB]")
        return argument(job_option(default)(named))

    return decorate


def job_before(
    name: str, metavar: str, split: Split, default: str | None = THE_ONLY_ONE
) -> Callable[[Command], Command]:
    """The same in front of other words, which the command gets as ``name``."""

    def decorate(function: Command) -> Command:
        @wraps(function)
        def named(words: tuple[str, ...], job: str | None, **others: Any) -> None:
            first, rest = split(words, job is not None)
            function(job=_one_of(first, job), **{name: rest}, **others)

        argument = click.argument("words", nargs=-1, required=True, metavar=f"[JOB] {metavar}")
        return argument(job_option(default)(named))

    return decorate


def job_and_path(words: Sequence[str], named: bool) -> tuple[str | None, str]:
    """``[JOB] PATH``."""
    if len(words) > 2:
        raise UsageError(f"unexpected argument {words[2]!r} after the path {words[1]}")
    return (check_name("job", words[0]) if len(words) == 2 else None), words[-1]


def job_and_ids(words: Sequence[str], named: bool) -> tuple[str | None, list[str]]:
    """``[JOB] ID...``: a word that stands alone is an id, and so are all where ``--job`` names the job."""
    job = None if named or len(words) == 1 else check_name("job", words[0])
    return job, [check_name("worker", word) for word in words[job is not None :]]


def the_job(url: str | None, name: str | None) -> Job:
    """The job of that name, or the only one there is."""
    url = resolve_url(url)
    if name is None:
        jobs = list_jobs(url)
        if len(jobs) != 1:
            known = f"there are {', '.join(jobs)}" if jobs else "and the server has none"
            raise UsageError(f"which job? Name it with --job; {known}")
        name = jobs[0]
    job = Job(url, name)
    if not job.exists():
        raise Failure(f"no job {name!r} on this server (ssp-redis jobs lists those there are)")
    return job


def needed(job: str | None) -> str:
    """The job's name, where none is taken for granted."""
    if not job:
        raise UsageError("which job? Name it with --job")
    return job


def _one_of(word: str | None, option: str | None) -> str | None:
    source = click.get_current_context().get_parameter_source("job")
    if word and option and word != option and source is ParameterSource.COMMANDLINE:
        raise UsageError(f"which job? {word} stands by itself, and --job says {option}: name one")
    return word or option
