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
from ssp_redis.cli.options import TWINS, id_option, option, twin, workers_option
from ssp_redis.cli.progress import Board, Row
from ssp_redis.cli.report import Reporter
from ssp_redis.cli.run import run_task
from ssp_redis.cli.script import run_script
from ssp_redis.cli.signals import leave_on_signals, leave_with
from ssp_redis.cli.summary import Outcome, as_object, as_text, nothing_left, outcome, stopped
from ssp_redis.cli.target import Target, TargetCommand
from ssp_redis.cli.work import Work, work_options
from ssp_redis.config import resolve_url
from ssp_redis.errors import Evicted, SSPError


@click.command(cls=TargetCommand, epilog=TWINS)
@id_option
@workers_option
@work_options
@option("--report-fd", type=int, hidden=True)
def worker(work: Work, worker_id: str | None, workers: int | None, report_fd: int | None) -> None:
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
    leave_on_signals()
    target, clocks, url = work.target, work.clocks, resolve_url(work.url)
    place: dict[str, Any] = {
        "url": url,
        "job": work.job,
        "worker": worker_id,
        "workers": workers,
        "lease": work.lease,
        "progress_timeout": work.progress_timeout,
        "run": work.run,
    }
    place = {name: value for name, value in place.items() if value is not None}
    if work.timeout is not None:
        # A server that is away is also something that one waits for.
        place["reconnect_timeout"] = min(work.timeout, 30.0)
    if work.staleness is not None:
        place["staleness"] = None if math.isinf(work.staleness) and not target.is_script else work.staleness
    account = Account(worker_id or "?")
    with contextlib.ExitStack() as stack:
        show: _Show
        if report_fd is not None:
            os.environ.pop(twin("report-fd"), None)  # it is not for processes that a script starts
            show = stack.enter_context(_Tell(report_fd, account))
        else:
            show = stack.enter_context(_Draw(f"{target.title} · job {work.job}", clocks, work.quiet))
        reporter = stack.enter_context(Reporter(account, show))
        if target.is_script:
            run_script(target.name, target.arguments, place, clocks, reporter, work.timeout)
        else:
            clocks = run_task(target.make(), place, clocks, work.straggle, reporter, work.timeout)
    if report_fd is None:
        _conclude(target, url, work.job, clocks, account, work.as_json)


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
    if found.missing:
        click.echo(found.missing, err=True)
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
