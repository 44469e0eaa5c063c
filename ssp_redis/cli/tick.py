"""``ssp-redis tick``: the clock for a shell script, one call a clock."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from ssp_redis import join
from ssp_redis.cli.naming import job_named, needed
from ssp_redis.cli.options import (
    TWINS,
    Name,
    json_option,
    lease_option,
    option,
    run_option,
    staleness_option,
    staleness_out,
    timeout_option,
    url_option,
    workers_option,
)
from ssp_redis.cli.signals import leave_on_signals

#: Clocks beyond it are no longer told apart by the scripts, whose numbers are doubles.
_MOST = 2**53


@click.command(epilog=TWINS)
@job_named(None)
@option("--id", "-i", "worker_id", type=Name("worker"), required=True, help="Id of the worker.")
@option(
    "--clock", "-c", type=click.IntRange(0, _MOST), required=True, metavar="N", help="Clocks that it has completed."
)
@url_option
@workers_option
@staleness_option
@lease_option
@run_option
@timeout_option
@option("--leave", is_flag=True, help="Leave the job afterwards: the worker is done.")
@json_option
def tick(
    worker_id: str,
    clock: int,
    job: str | None,
    url: str | None,
    workers: int | None,
    staleness: float | None,
    lease: float | None,
    run: str | None,
    timeout: float | None,
    leave: bool,
    as_json: bool,
) -> None:
    """Say that a worker has completed so many clocks, and wait until it may go on.

    It begins the job if there is none, with -n workers (default 1), so a job's name that is mistyped is a job of its
    own: it cannot be checked.

    For shell scripts: it joins if need be, and ends without leaving, so that the lease (make it longer than a clock
    takes) goes on until the next call. The clock is stated, not counted: a call may be repeated, after a timeout (exit
    code 75) too.

    \b
      ssp-redis tick --job j --id 0 -n 2 -s 1 --lease 10m --clock 0   # wait for the start
      for clock in $(seq 100); do
        ./work.sh && ssp-redis tick --job j --id 0 --clock $clock || break
      done
      ssp-redis tick --job j --id 0 --clock 100 --leave
    """
    name = needed(job)
    leave_on_signals()
    begun = time.monotonic()
    options: dict[str, Any] = {"workers": workers, "lease": lease, "run": run}
    if timeout is not None:
        options["reconnect_timeout"] = min(timeout, 30.0)
    if staleness is not None:
        options["staleness"] = staleness
    worker = join(url, job=name, worker=worker_id, timeout=timeout, **options)
    try:
        while worker.clock < clock:
            worker.advance(_left(begun, timeout))
        if leave:
            worker.leave("done")
        else:
            worker.wait(_left(begun, timeout))
    finally:
        worker.detach()
    if worker.clock > clock:
        click.echo(f"worker {worker_id} is at clock {worker.clock}, beyond {clock} already", err=True)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "job": name,
                    "worker": worker.id,
                    "clock": worker.clock,
                    "min_clock": worker.min_clock,
                    "staleness": staleness_out(worker.staleness),
                    "waited_seconds": round(time.monotonic() - begun, 6),
                }
            )
        )


def _left(begun: float, timeout: float | None) -> float | None:
    return None if timeout is None else max(0.0, begun + timeout - time.monotonic())
