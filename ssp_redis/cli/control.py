"""``evict``, ``stop``, ``set`` and ``delete``: to change a job from outside."""

from __future__ import annotations

import click

from ssp_redis import Job
from ssp_redis.cli.exits import Failure
from ssp_redis.cli.format import counted
from ssp_redis.cli.naming import job_and_ids, job_before, job_named, needed, the_job
from ssp_redis.cli.options import TWINS, Staleness, option, staleness_out, url_option
from ssp_redis.config import resolve_url
from ssp_redis.errors import UsageError


@click.command(epilog=TWINS)
@job_before("workers", "ID...", job_and_ids)
@url_option
def evict(workers: list[str], job: str | None, url: str | None) -> None:
    """Remove workers from a job, so that nobody waits for them.

    It is no ban: a worker may join again under its id. One that is gone already is no error. A word by itself is an id
    in the only job on the server; of several, the first is the job unless --job names it.
    """
    view = the_job(url, job)
    standing = view.status()
    members = {member.worker: member for member in standing.members}
    known = members.keys() | {one.worker for one in standing.departed}
    for worker in workers:
        if worker not in known:
            raise UsageError(f"job {view.name} has no worker {worker!r}; it has {', '.join(sorted(known)) or 'none'}")
    for worker in workers:
        if worker not in members:
            click.echo(f"worker {worker} is no member of job {view.name} any more")
            continue
        if view.evict(worker):
            click.echo(f"worker {worker} evicted from job {view.name} at clock {members[worker].clock}")


@click.command(epilog=TWINS)
@job_named()
@url_option
@option("--resume", is_flag=True, help="Take it back: workers may start again.")
def stop(job: str | None, url: str | None, resume: bool) -> None:
    """End a job: every worker leaves at the end of its clock. Parameters and clocks stay."""
    view = the_job(url, job)
    if resume:
        view.resume()
        click.echo(f"job {view.name} may go on: start its workers again")
        return
    view.stop()
    click.echo(f"job {view.name} stopped; to go on later: ssp-redis stop --resume --job {view.name}")


@click.command(name="set", epilog=TWINS)
@job_named()
@url_option
@option(
    "--staleness",
    "-s",
    type=Staleness(),
    metavar="CLOCKS|inf",
    required=True,
    help="The new bound: a number of clocks, or inf.",
)
def set_(job: str | None, url: str | None, staleness: float) -> None:
    """Change a running job's staleness. Whoever it admits wakes up at once."""
    view = the_job(url, job)
    before = view.status().staleness
    view.set_staleness(staleness)
    click.echo(f"job {view.name}: staleness {staleness_out(before)} -> {staleness_out(staleness)}")


@click.command(epilog=TWINS)
@job_named(None)
@url_option
@option("--force", is_flag=True, help="Also when workers are at work on it; they fail with StateLost.")
def delete(job: str | None, url: str | None, force: bool) -> None:
    """Delete a job: its clocks, its tables, everything.

    Refused while it has workers. Where none of them has been heard of, it waits until their leases have run out.
    """
    name = needed(job)
    view = Job(resolve_url(url), name)
    there = view.exists()
    try:
        count = view.delete(force=force)
    except UsageError as error:
        raise Failure(f"{error} (ssp-redis stop {name}, ssp-redis delete --force {name})") from None
    if there:
        click.echo(f"job {name} deleted")
    elif count:
        click.echo(f"job {name} was gone but for {counted(count, 'key')}: deleted")
    else:
        click.echo(f"no job {name!r} on this server: nothing to delete")
