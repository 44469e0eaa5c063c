"""``ssp-redis launch``: a whole run on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections import Counter
from typing import Any

import click

from ssp_redis.cli import exits, format
from ssp_redis.cli.fleet import Child, Fleet
from ssp_redis.cli.options import TWINS, option, staleness_out, twin
from ssp_redis.cli.progress import Board, Row
from ssp_redis.cli.summary import as_object, as_text, nothing_left, outcome, stopped
from ssp_redis.cli.target import Target, TargetCommand
from ssp_redis.cli.watch import Watch, meet
from ssp_redis.cli.work import Work, work_options
from ssp_redis.connection import Endpoint
from ssp_redis.errors import ServerUnavailable
from ssp_redis.server import EmbeddedServer

#: Exit codes that say more than "failed", when every worker that failed gave the same one.
_TELLING = (exits.USAGE, exits.NO_SERVER, exits.TIMED_OUT, exits.SUPERSEDED)


@click.command(cls=TargetCommand, epilog=TWINS)
@option(
    "--workers", "-n", type=click.IntRange(min=1), default=4, show_default=True, metavar="N", help="Workers to start."
)
@work_options
def launch(work: Work, workers: int) -> None:
    """Run a whole job on this machine: so many worker processes, and a server for them.

    TASK is linreg (the default), softmax, or a class of your own as module:Class. SCRIPT is a Python file that calls
    ssp_redis.join(); what stands behind it is the script's. The flags are what join() takes where it is not told
    otherwise; --timeout limits join() and the wait for a server, for ticks have a timeout= of their own.

    Without a URL a private server is started, and ended with the job.

    \b
      ssp-redis launch
      ssp-redis launch softmax -n 4 --staleness 3 --straggle 0:3x
      ssp-redis launch -n 2 train.py --lr 0.1
    """
    target, clocks = work.target, work.clocks
    started = {None, *map(str, range(workers))}
    if strangers := [rule.text for rule in work.straggle if rule.worker not in started]:
        raise click.UsageError(f"--straggle {strangers[0]}: the workers started here are 0 to {workers - 1}")
    if target.task is not None:
        task = target.make()
        clocks = task.clocks(workers) if clocks is None else clocks
    with contextlib.ExitStack() as stack:
        server: EmbeddedServer | None = None
        url = work.url
        if not url:
            server = stack.enter_context(EmbeddedServer())
            url = server.url
        going_on = meet(url, work.job, work.run, workers, clocks)
        title = " · ".join(
            [
                target.title,
                format.counted(workers, "worker"),
                *([] if work.staleness is None else [f"staleness {staleness_out(work.staleness)}"]),
                "private server" if server else Endpoint(url).label,
            ]
        )
        board = Board(title, clocks, work.quiet)
        watch = Watch(board, url, work.job, workers, work.as_json)
        if (misplaced := _misplaced(target)) and not work.quiet:
            board.say(f"{', '.join(misplaced)} after {target.name}: the script's, for launch's own come before it")
        if going_on:
            board.say(going_on)
        with Fleet(watch.on_look, watch.on_line, watch.on_end) as fleet:
            watch.fleet = fleet
            settings = {
                "url": url,
                "job": work.job,
                "workers": workers,
                "staleness": None if work.staleness is None else staleness_out(work.staleness),
                "clocks": clocks,
                "run": work.run,
                "lease": work.lease,
                "progress-timeout": work.progress_timeout,
                "timeout": work.timeout,
                "straggle": ",".join(rule.text for rule in work.straggle) or None,
            }
            for number in range(workers):
                board.rows[str(number)] = Row(_start(fleet, str(number), target, settings, workers).account)
            board.draw()
            try:
                fleet.watch(lambda: _alive_or_raise(server))
            finally:
                board.close()
        _conclude(target, url, work.job, clocks, fleet, work.as_json)


def _misplaced(target: Target) -> list[str]:
    """What the script gets though it looks like a flag of this command."""
    own = {flag for option in click.get_current_context().command.params for flag in option.opts if flag[0] == "-"}
    return [word for word in target.arguments if word.partition("=")[0] in own]


def _start(fleet: Fleet, worker: str, target: Target, settings: dict[str, Any], workers: int) -> Child:
    environment = os.environ | {twin(name): str(value) for name, value in settings.items() if value is not None}
    # What was said to launch about its own output is not meant for its workers.
    for name in ("json", "quiet", "task", *(name for name, value in settings.items() if value is None)):
        environment.pop(twin(name), None)
    environment.setdefault("PYTHONUNBUFFERED", "1")
    if workers > 1:
        # Several processes that each start a thread for every core only get in each other's way.
        environment.setdefault("OMP_NUM_THREADS", "1")
    command = [sys.executable, "-m", "ssp_redis", "worker", "--id", worker, *target.words()]
    fleet.start(worker, command, environment, twin("report-fd"))
    return fleet.children[-1]


def _alive_or_raise(server: EmbeddedServer | None) -> None:
    """The workers would go on trying to reach a private server that is gone."""
    if server is not None and not server.running:
        tail = "\n".join(server.log().splitlines()[-10:])
        raise ServerUnavailable(f"the private server died; the end of its log:\n{tail}")


def _conclude(target: Target, url: str, job: str, clocks: int | None, fleet: Fleet, as_json: bool) -> None:
    """Print how it went, and exit with the code that says so."""
    accounts = [child.account for child in fleet.children]
    failed = [child for child in fleet.children if child.failed]
    reached = clocks if clocks is not None else max(account.clock for account in accounts)
    done_before = bool(accounts) and all(account.how == "nothing" for account in accounts)
    if any(account.admitted for account in accounts):
        found = outcome(target, url, job)
        if found.missing:
            click.echo(found.missing, err=True)
        if as_json:
            document = as_object(target, job, found.run, reached, accounts, found.result)
            document["failed"] = [
                {"worker": child.worker, "why": child.fate.rpartition("\n")[2], "code": child.code} for child in failed
            ]
            click.echo(json.dumps(document))
        elif not done_before:
            click.echo(as_text(target.title, accounts, found.result))
        if found.trace:
            raise exits.Failure(f"the result could not be judged:\n{found.trace}")
    if fleet.signals:
        begun = [child for child in fleet.children if child.account.admitted]
        killed = [child.worker for child in begun if child.asked and not child.said_end]
        fate = "the workers have left the job" if begun else "no worker had begun"
        if killed:
            fate = f"killed because they did not leave: {', '.join(killed)}"
        raise exits.Failure(f"interrupted; {fate}", exits.by_signal(fleet.signals[0]))
    if failed:
        waited = sum(child.asked for child in fleet.children)
        rest = f"; {format.count(waited)} waited for the quorum in vain" if waited else ""
        codes = Counter(child.code for child in failed)
        code = failed[0].code if len(codes) == 1 and failed[0].code in _TELLING else exits.FAILED
        told = f"{len(failed)} of {format.counted(len(accounts), 'worker')} failed{rest}"
        raise exits.Failure(told, code or exits.FAILED)
    if done_before:
        click.echo(nothing_left(job, reached), err=True)
    elif any(account.how == "stopped" for account in accounts):
        click.echo(stopped(job), err=True)
