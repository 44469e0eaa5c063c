"""``snapshot`` and ``restore``: a job into a file, and a file into a job."""

from __future__ import annotations

import json

import click

from ssp_redis import Job
from ssp_redis.cli import format
from ssp_redis.cli.naming import job_and_path, job_before, needed, the_job
from ssp_redis.cli.options import (
    TWINS,
    Name,
    Seconds,
    Staleness,
    json_option,
    option,
    staleness_out,
    url_option,
)
from ssp_redis.cli.signals import leave_on_signals
from ssp_redis.cli.view import status_object
from ssp_redis.config import UNSET, resolve_url


@click.command(epilog=TWINS)
@job_before("path", "PATH", job_and_path)
@url_option
@json_option
def snapshot(path: str, job: str | None, url: str | None, as_json: bool) -> None:
    """Write a job's tables and clocks to PATH, while it runs.

    PATH ends in .npz, which numpy.load reads, or .safetensors. A file that is there is replaced by a whole one or stays
    as it is.
    """
    leave_on_signals()
    taken = the_job(url, job).snapshot(path)
    if as_json:
        words = {
            "path": path,
            "job": taken.job,
            "run": taken.run,
            "epoch": taken.epoch,
            "version": taken.version,
            "min_clock": taken.min_clock,
            "staleness": staleness_out(taken.staleness),
            "workers": taken.workers,
            "clocks": taken.clocks,
            "bytes": taken.nbytes,
            "tables": [
                {"name": name, "dtype": dtype, "shape": taken.tables[name].shape}
                for name, dtype in sorted(taken.dtypes.items())
            ]
            + [
                {"name": name, "dtype": table.dtype, "shape": table.shape, "rows": len(table.rows)}
                for name, table in sorted(taken.sparse.items())
            ],
        }
        click.echo(json.dumps(words))
        return
    count = len(taken.tables) + len(taken.sparse)
    tables = f"{format.counted(count, 'table')}, {format.size(taken.nbytes)}"
    click.echo(f"job {taken.job}, run {taken.run}, at min clock {taken.min_clock}: {tables} in {path}")


@click.command(epilog=TWINS)
@job_before("path", "PATH", job_and_path, None)
@url_option
@option("--run", type=Name("run"), help="Name of the new run.  [default: RUN-restored-1, or the next number]")
@option("--workers", "-n", type=click.IntRange(min=1), metavar="N", help="Start quorum.")
@option("--staleness", "-s", type=Staleness(), metavar="CLOCKS|inf", help="Clocks that the fastest may lead.")
@option("--lease", type=Seconds(), help="Time after which a silent worker no longer holds the others up.")
@json_option
def restore(
    path: str,
    job: str | None,
    url: str | None,
    run: str | None,
    workers: int | None,
    staleness: float | None,
    lease: float | None,
    as_json: bool,
) -> None:
    """Begin a new run of a job with the tables and clocks in PATH, which `ssp-redis snapshot` wrote.

    On this server or another, for any number of workers: each goes on at its clock, a new one enters at the min clock.
    Quorum, staleness and lease are the job's, or, where there is no such job yet, the file's. Refused while the job has
    workers; where none of them has been heard of, it waits until their leases have run out.
    """
    leave_on_signals()
    name = needed(job)
    with Job(resolve_url(url), name) as view:
        standing = view.restore(
            path, run=run, workers=workers, staleness=UNSET if staleness is None else staleness, lease=lease
        )
    if as_json:
        click.echo(json.dumps(status_object(standing)))
        return
    click.echo(
        f"job {standing.job}: run {standing.run} at min clock {standing.min_clock}, "
        f"begins with {format.counted(standing.workers, 'worker')}"
    )
