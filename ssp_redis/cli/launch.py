"""``ssp-redis launch``: a whole run on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from collections import Counter
from typing import Any

import click

from ssp_redis import Job
from ssp_redis.cli import exits
from ssp_redis.cli.fleet import Child, Fleet
from ssp_redis.cli.options import (
    TWINS,
    Staleness,
    job_option,
    json_option,
    lease_option,
    option,
    quiet_option,
    run_option,
    staleness_out,
    timeout_option,
    twin,
    url_option,
)
from ssp_redis.cli.progress import Board, Row
from ssp_redis.cli.straggle import Straggle, StraggleType
from ssp_redis.cli.summary import as_object, as_text, outcome
from ssp_redis.cli.target import Target, TargetCommand, target_argument
from ssp_redis.connection import Endpoint
from ssp_redis.errors import ServerUnavailable, SSPError
from ssp_redis.keys import fit_name
from ssp_redis.server import EmbeddedServer

#: Exit codes that say more than "failed", when every worker that failed gave the same one.
_TELLING = (exits.USAGE, exits.NO_SERVER, exits.TIMED_OUT, exits.SUPERSEDED)


@click.command(cls=TargetCommand, epilog=TWINS)
@target_argument
@option(
    "--workers", "-n", type=click.IntRange(min=1), default=4, show_default=True, metavar="N", help="Workers to start."
)
@option(
    "--staleness",
    "-s",
    type=Staleness(),
    metavar="CLOCKS|inf",
    help="Clocks that the fastest worker may lead the slowest: 0 is lock-step, inf unbounded.  [default: 0]",
)
@option("--clocks", "-c", type=click.IntRange(min=1), metavar="N", help="Clocks of each worker.  [default: the task's]")
@option(
    "--straggle",
    type=StraggleType(),
    metavar="[ID:]HOW",
    multiple=True,
    help="Slow a worker down: 0:3x makes worker 0's clocks take three times as long, 0:20ms adds 20 ms, 20ms@10% does "
    "so to everybody in one clock of ten. Several with commas.",
)
@url_option
@job_option
@run_option
@lease_option
@timeout_option
@json_option
@quiet_option
def launch(
    target: Target,
    workers: int,
    staleness: float | None,
    clocks: int | None,
    straggle: tuple[list[Straggle], ...],
    url: str | None,
    job: str | None,
    run: str | None,
    lease: float | None,
    timeout: float | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run a whole job on this machine: so many worker processes, and a server for them.

    TASK is linreg (the default), softmax, or a class of your own as module:Class. SCRIPT is a Python file that calls
    ssp_redis.join(); what stands behind it is the script's.

    Without a URL a private server is started, and ended with the job.

    \b
      ssp-redis launch
      ssp-redis launch softmax -n 4 --staleness 3 --straggle 0:3x
      ssp-redis launch -n 2 train.py --lr 0.1
    """
    if target.is_script and straggle:
        raise click.UsageError("--straggle slows tasks; a script has to be slow by itself")
    if target.task is not None:
        task = target.make()
        clocks = task.clocks(workers) if clocks is None else clocks
    with contextlib.ExitStack() as stack:
        server: EmbeddedServer | None = None
        if not url:
            server = stack.enter_context(EmbeddedServer())
            url = server.url
        job = job or target.job
        _refuse_a_running_job(url, job)
        title = " · ".join(
            [
                target.title,
                f"{workers} worker{'s' * (workers > 1)}",
                *([] if staleness is None else [f"staleness {staleness_out(staleness)}"]),
                "private server" if server else Endpoint(url).label,
            ]
        )
        board = Board(title, clocks, quiet)
        watch = Watch(board, url, job, workers, as_json)
        with Fleet(watch.on_look, watch.on_line, watch.on_end) as fleet:
            watch.fleet = fleet
            settings = {
                "url": url,
                "job": job,
                "workers": workers,
                "staleness": None if staleness is None else staleness_out(staleness),
                "clocks": clocks,
                "run": run,
                "lease": lease,
                "timeout": timeout,
                "straggle": ",".join(rule.text for rules in straggle for rule in rules) or None,
            }
            for number in range(workers):
                board.rows[str(number)] = Row(_start(fleet, str(number), target, settings, workers).account)
            board.draw()
            try:
                fleet.watch(lambda: _alive_or_raise(server))
            finally:
                board.close()
        _conclude(target, url, job, clocks, fleet, as_json)


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


class Watch:
    """What ``launch`` does when it hears from its workers."""

    def __init__(self, board: Board, url: str, job: str, workers: int, as_json: bool) -> None:
        self.board = board
        self.fleet: Fleet | None = None
        self._url, self._job, self._workers, self._as_json = url, job, workers, as_json
        self._said: set[str] = set()

    def on_look(self, child: Child) -> None:
        """A worker told how far it is."""
        row = self.board.rows[child.worker]
        row.account = child.account
        row.note = child.account.how
        self.board.draw()

    def on_line(self, child: Child, text: str, err: bool) -> None:
        """A worker printed a line."""
        # Standard output belongs to the one JSON object.
        self.board.say(f"[{child.worker}] {text}" if self._workers > 1 else text, err=err or self._as_json)

    def on_end(self, child: Child) -> None:
        """A worker ended."""
        self.on_look(child)
        if not child.failed:
            return
        if not child.said_end:
            self._evict(child)
        at = f" at clock {child.account.clock}" if child.account.admitted else ""
        others = [other for other in self._children() if other.code is None]
        waiting = [other for other in others if not other.account.admitted]
        if child.fate not in self._said:
            self._said.add(child.fate)
            goes_on = "; the others go on" if len(others) > len(waiting) else ""
            who = click.style(f"worker {child.worker}", bold=True)
            if "\n" in child.fate:  # a traceback
                self.board.say(f"{who} failed{at}{goes_on}:\n{child.fate}")
            else:
                self.board.say(f"{who}{at}: {child.fate}{goes_on}")
        if not child.account.admitted and self.fleet is not None:
            # They wait for a quorum that cannot come together any more.
            self.fleet.ask_to_leave(waiting)

    def _children(self) -> list[Child]:
        return self.fleet.children if self.fleet else []

    def _evict(self, child: Child) -> None:
        """It died where it stood: nobody needs to wait for its lease, for here its death is known."""
        with contextlib.suppress(SSPError, OSError), Job(self._url, self._job) as job:
            for member in job.status().members:
                if (member.worker, member.pid) == (child.worker, child.process.pid):
                    job.evict(child.worker)


def _refuse_a_running_job(url: str, name: str) -> None:
    """Worker ids are taken over by whoever joins last, so two launches of one job would chase each other away."""
    with Job(url, name) as job:
        members = job.status().members if job.exists() else []
    here = fit_name(socket.gethostname())
    live = [member for member in members if member.host != here or _alive(member.pid)]
    if live:
        who = ", ".join(f"worker {member.worker} (pid {member.pid} on {member.host})" for member in live[:3])
        raise exits.Failure(
            f"job {name} is running: {who}{', …' if len(live) > 3 else ''}. Name another one with --job, add workers "
            f"to this one with `ssp-redis worker --job {name}`, or end it with `ssp-redis stop --job {name}`."
        )


def _alive_or_raise(server: EmbeddedServer | None) -> None:
    """The workers would go on trying to reach a private server that is gone."""
    if server is not None and not server.running:
        tail = "\n".join(server.log().splitlines()[-10:])
        raise ServerUnavailable(f"the private server died; the end of its log:\n{tail}")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _conclude(target: Target, url: str, job: str, clocks: int | None, fleet: Fleet, as_json: bool) -> None:
    """Print how it went, and exit with the code that says so."""
    accounts = [child.account for child in fleet.children]
    failed = [child for child in fleet.children if child.failed]
    reached = clocks if clocks is not None else max(account.clock for account in accounts)
    if any(account.admitted for account in accounts):
        found = outcome(target, url, job)
        if as_json:
            document = as_object(target, job, found.run, reached, accounts, found.result)
            document["failed"] = [
                {"worker": child.worker, "why": child.fate.rpartition("\n")[2], "code": child.code} for child in failed
            ]
            click.echo(json.dumps(document))
        else:
            click.echo(as_text(target.title, accounts, found.result))
        if found.trace:
            raise exits.Failure(f"the result could not be judged:\n{found.trace}")
    if fleet.signals:
        raise exits.Failure("interrupted; the workers have left the job", exits.INTERRUPTED)
    if failed:
        codes = Counter(child.code for child in failed)
        code = failed[0].code if len(codes) == 1 and failed[0].code in _TELLING else exits.FAILED
        raise exits.Failure(f"{len(failed)} of {len(accounts)} workers failed", code or exits.FAILED)
    if accounts and all(account.how == "nothing" for account in accounts):
        click.echo(nothing_left(job, reached), err=True)
    elif any(account.how == "stopped" for account in accounts):
        click.echo(stopped(job), err=True)


def nothing_left(job: str, clocks: int) -> str:
    """What to say when a job had been done before."""
    return (
        f"job {job} was at clock {clocks} already: nothing was left to do. To run it again from zero, name a new run "
        f"(--run NAME or SSP_REDIS_RUN=NAME) or delete it (ssp-redis delete --job {job}); to go on, raise --clocks."
    )


def stopped(job: str) -> str:
    """What to say when somebody stopped the job."""
    return f"job {job} was stopped before its end. To go on: ssp-redis stop --resume --job {job}, and start it again."
