"""``ssp-redis status`` and ``ssp-redis jobs``: how jobs stand, seen from outside."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from ssp_redis import Job, JobStatus, list_jobs
from ssp_redis.cli import format
from ssp_redis.cli.naming import job_named, the_job
from ssp_redis.cli.options import TWINS, Seconds, json_option, option, staleness_out, url_option
from ssp_redis.config import resolve_url
from ssp_redis.errors import StateLost
from ssp_redis.status import TableStatus

interval_option = option("--interval", type=Seconds(), metavar="SECONDS", help="Look again and again, this often.")


@click.command(epilog=TWINS)
@job_named()
@url_option
@interval_option
@json_option
def status(job: str | None, url: str | None, interval: float | None, as_json: bool) -> None:
    """Show how a job stands: its workers, their clocks and leases, its tables.

    With --interval and --json, one object a line.
    """
    view = the_job(url, job)

    def look() -> None:
        standing = view.status()
        click.echo(json.dumps(status_object(standing)) if as_json else status_text(standing))

    _again(look, interval, as_json)


@click.command(epilog=TWINS)
@url_option
@interval_option
@json_option
def jobs(url: str | None, interval: float | None, as_json: bool) -> None:
    """List the jobs on a server."""
    url = resolve_url(url)

    def look() -> None:
        found = []
        for name in list_jobs(url):
            with Job(url, name) as view, contextlib.suppress(StateLost):  # deleted meanwhile
                found.append(view.status())
        if as_json:
            click.echo(json.dumps([_job_object(standing) for standing in found]))
            return
        rows = [["job", "run", "state", "members", "quorum", "staleness", "min clock"]]
        rows += [
            [
                standing.job,
                standing.run,
                _state(standing),
                str(len(standing.members)),
                str(standing.workers),
                str(staleness_out(standing.staleness)),
                str(standing.min_clock),
            ]
            for standing in found
        ]
        click.echo(format.table(rows, left=(0, 1, 2)) if found else "no jobs on this server")

    _again(look, interval, as_json)


def _again(look: Callable[[], None], interval: float | None, as_json: bool) -> None:
    while True:
        if interval and not as_json and sys.stdout.isatty():
            click.clear()
        look()
        if not interval:
            return
        sys.stdout.flush()
        time.sleep(interval)


def _state(standing: JobStatus) -> str:
    if standing.stopped:
        return "stopped"
    if not standing.started:
        return "gathering"
    if standing.members:
        return "running"
    return "done" if all(one.why == "done" for one in standing.departed) else "idle"


def _job_object(standing: JobStatus) -> dict[str, Any]:
    return {
        "job": standing.job,
        "run": standing.run,
        "state": _state(standing),
        "members": len(standing.members),
        "workers": standing.workers,
        "staleness": staleness_out(standing.staleness),
        "min_clock": standing.min_clock,
    }


def status_object(standing: JobStatus) -> dict[str, Any]:
    """A job's status as JSON: the fields of :class:`ssp_redis.JobStatus`, and its state in a word."""
    return asdict(standing) | {
        "staleness": staleness_out(standing.staleness),
        "created_staleness": staleness_out(standing.created_staleness),
        "state": _state(standing),
        "slowest": standing.slowest,
    }


def status_text(standing: JobStatus) -> str:
    """A job's status for people."""
    lines = [
        " · ".join(
            [
                f"job {standing.job}",
                f"run {standing.run}",
                _state(standing),
                f"staleness {staleness_out(standing.staleness)}",
                f"min clock {standing.min_clock}",
                format.counted(len(standing.members), "member"),
                f"quorum {standing.workers}",
                f"lease {format.seconds(standing.lease)}",
                *([f"epoch {standing.epoch}"] if standing.epoch != 1 else []),
            ]
        )
    ]
    if standing.members:
        slowest = ", ".join(standing.slowest[:3]) + (", …" if len(standing.slowest) > 3 else "")
        awaited = slowest if standing.started else "the quorum"
        rows = [["worker", "clock", "lead", "last seen", "lease left", "pid", "host", "waits for"]]
        rows += [
            [
                member.worker,
                str(member.clock),
                f"{member.lead:+d}",
                format.seconds(member.last_seen),
                format.seconds(member.expires_in) if member.expires_in > 0 else "expired",
                str(member.pid),
                member.host,
                awaited if member.waits else "",
            ]
            for member in standing.members
        ]
        lines += ["", format.table(rows, left=(0, 6, 7))]
    if standing.departed:
        gone = ", ".join(f"{one.worker} at clock {one.clock} ({one.why})" for one in standing.departed)
        lines += ["", f"departed: {gone}"]
    if standing.tables:
        lines += ["", *(_table_line(table) for table in standing.tables)]
    return "\n".join(lines)


def _table_line(table: TableStatus) -> str:
    blocks = table.block_bytes
    cut = (
        f" in {len(blocks)} blocks of {format.size(min(blocks))} to {format.size(max(blocks))}"
        if len(blocks) > 1
        else ""
    )
    full = "sparse, if all rows were touched " if table.sparse else ""
    return f"table {table.name}: {table.dtype} {tuple(table.shape)}, {full}{format.size(table.nbytes)}{cut}"
