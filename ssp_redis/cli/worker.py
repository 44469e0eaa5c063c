"""``ssp-redis worker``: one worker, on a task or a script."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from typing import Any

import click

from ssp_redis.cli import exits
from ssp_redis.cli.account import Account
from ssp_redis.cli.channel import Channel
from ssp_redis.cli.options import (
    TWINS,
    id_option,
    job_option,
    json_option,
    lease_option,
    option,
    progress_timeout_option,
    quiet_option,
    run_option,
    staleness_option,
    timeout_option,
    twin,
    url_option,
    workers_option,
)
from ssp_redis.cli.progress import Board, Row
from ssp_redis.cli.report import Reporter
from ssp_redis.cli.run import run_task
from ssp_redis.cli.script import run_script
from ssp_redis.cli.signals import leave_on_signals, leave_with
from ssp_redis.cli.straggle import Straggle, StraggleType
from ssp_redis.cli.summary import Outcome, as_object, as_text, nothing_left, outcome, stopped
from ssp_redis.cli.target import Target, TargetCommand, target_argument
from ssp_redis.config import resolve_url
from ssp_redis.errors import Evicted, SSPError


@click.command(cls=TargetCommand, epilog=TWINS)
@target_argument
@id_option
@url_option
@job_option
@workers_option
@staleness_option
@option(
    "--clocks",
    "-c",
    type=click.IntRange(min=1),
    metavar="N",
    help="Clock at which the work is done; a script finds it in $SSP_REDIS_CLOCKS.  [default: the task's]",
)
@option(
    "--straggle",
    type=StraggleType(),
    metavar="[ID:]HOW",
    multiple=True,
    help="Be slow: 3x, 20ms, 20ms@10%; 0:3x only as worker 0. Tasks only.",
)
@run_option
@lease_option
@progress_timeout_option
@timeout_option
@option("--report-fd", type=int, hidden=True)
@json_option
@quiet_option
def worker(
    target: Target,
    worker_id: str | None,
    url: str | None,
    job: str | None,
    workers: int | None,
    staleness: float | None,
    clocks: int | None,
    straggle: tuple[list[Straggle], ...],
    run: str | None,
    lease: float | None,
    progress_timeout: float | None,
    timeout: float | None,
    report_fd: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Be one worker of a job.

    Without --id the lowest free id is taken. A worker that was there before goes on at its clock; one that was done
    says that nothing is left to do, and exits with 0.

    TASK is linreg (the default), softmax, or a class of your own as module:Class. SCRIPT is a Python file that calls
    ssp_redis.join(), which needs no arguments: the flags are what it takes where it is not told otherwise. --timeout
    limits join() and the wait for a server; a script's ticks have a timeout= of their own.

    \b
      ssp-redis worker --id 3 -n 4 --url redis://host:6379 softmax
      ssp-redis worker --id 3 train.py --lr 0.1
    """
    if target.is_script and straggle:
        raise click.UsageError("--straggle slows tasks; a script has to be slow by itself")
    leave_on_signals()
    url, job = resolve_url(url), job or target.job
    place: dict[str, Any] = {
        "url": url,
        "job": job,
        "worker": worker_id,
        "workers": workers,
        "lease": lease,
        "progress_timeout": progress_timeout,
        "run": run,
    }
    place = {name: value for name, value in place.items() if value is not None}
    if timeout is not None:
        # A server that is away is also something that one waits for.
        place["reconnect_timeout"] = min(timeout, 30.0)
    if staleness is not None:
        place["staleness"] = None if math.isinf(staleness) and not target.is_script else staleness
    account = Account(worker_id or "?")
    with contextlib.ExitStack() as stack:
        show: _Show
        if report_fd is not None:
            os.environ.pop(twin("report-fd"), None)  # it is not for processes that a script starts
            show = stack.enter_context(_Tell(report_fd, account))
        else:
            show = stack.enter_context(_Draw(f"{target.title} · job {job}", clocks, quiet))
        reporter = stack.enter_context(Reporter(account, show))
        if target.is_script:
            run_script(target.name, target.arguments, place, clocks, reporter, timeout)
        else:
            rules = [rule for rules in straggle for rule in rules]
            clocks = run_task(target.make(), place, clocks, rules, reporter, timeout)
    if report_fd is None:
        _conclude(target, url, job, clocks, account, as_json)


class _Show:
    """Where a worker's progress goes."""

    def __call__(self, account: Account) -> None:
        raise NotImplementedError

    def __enter__(self) -> _Show:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        raise NotImplementedError


class _Draw(_Show):
    """On the terminal, if there is one."""

    def __init__(self, title: str, clocks: int | None, quiet: bool) -> None:
        self._board = Board(title, clocks, quiet)

    def __call__(self, account: Account) -> None:
        self._board.rows = {account.worker: Row(account)}
        self._board.draw()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._board.close()
        if isinstance(error, Exception) and exits.code_of(error) is None:
            click.echo(exits.trace_of(error), err=True)
            sys.exit(exits.FAILED)


class _Tell(_Show):
    """To ``launch``, which started this process."""

    def __init__(self, descriptor: int, account: Account) -> None:
        self._channel = Channel(descriptor)
        self._account = account
        leave_with(self._channel.fileno())

    def __call__(self, account: Account) -> None:
        self._channel.send("look", account=account.to_json())

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        code = exits.code_of(error) if error else None
        if isinstance(error, Exception) and code is None:
            code = exits.FAILED
            foreseen: str | None = exits.trace_of(error)
        else:
            foreseen = exits.message_of(error) if error and code is not None else None
        if isinstance(error, Evicted):
            self._account.how = "evicted"
        elif self._account.how == "running":
            self._account.how = "left" if isinstance(error, KeyboardInterrupt) else "failed"
        self._channel.send_last("end", account=self._account.to_json(), error=foreseen)
        if error and code is not None:
            sys.exit(code)  # launch says what it was


def _conclude(target: Target, url: str, job: str, clocks: int | None, account: Account, as_json: bool) -> None:
    reached = clocks if clocks is not None else account.clock
    try:
        found = outcome(target, url, job) if account.admitted else Outcome()
    except SSPError as error:
        click.echo(f"the result cannot be read: {error}", err=True)
        found = Outcome()
    if as_json:
        document = as_object(target, job, found.run, reached, [account], found.result)
        document |= {"worker": account.worker, "workers": found.workers}
        click.echo(json.dumps(document))
    elif account.admitted and account.how != "nothing":
        click.echo(as_text(f"{target.title}, worker {account.worker} of job {job}", [account], found.result))
    if found.trace:
        raise exits.Failure(f"the result could not be judged:\n{found.trace}")
    if account.how == "nothing":
        click.echo(f"worker {account.worker}: {nothing_left(job, reached)}", err=True)
    elif account.how == "stopped":
        click.echo(stopped(job), err=True)
