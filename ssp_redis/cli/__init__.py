"""The ``ssp-redis`` command. One file per command or pair of commands; ``exits.py`` says what the exit codes mean."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import click

from ssp_redis.cli.bench import bench
from ssp_redis.cli.check import check
from ssp_redis.cli.completion import completion
from ssp_redis.cli.control import delete, evict, set_, stop
from ssp_redis.cli.exits import Commands
from ssp_redis.cli.launch import launch
from ssp_redis.cli.options import TWINS
from ssp_redis.cli.snapshot import restore, snapshot
from ssp_redis.cli.tick import tick
from ssp_redis.cli.view import jobs, status
from ssp_redis.cli.worker import worker


def _version() -> str:
    try:
        return version("ssp-redis")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=TWINS)
@click.version_option(_version(), prog_name="ssp-redis")
def main() -> None:
    """Keep parallel workers within a few clocks of each other, and their parameters in Redis.

    \b
      ssp-redis launch                        four workers train on this machine
      ssp-redis launch softmax -s 3           another task, at most 3 clocks apart
      ssp-redis launch -n 2 train.py          your own script
      ssp-redis check --url redis://host      is that server fit?

    Exit codes: 0 done, 1 failed, 2 wrong usage, 69 no server, 75 timed out, 76 another process has taken this worker's
    id, 130 interrupted by Ctrl-C, 143 by SIGTERM.
    """


for command in (
    launch,
    worker,
    status,
    jobs,
    stop,
    set_,
    evict,
    delete,
    snapshot,
    restore,
    tick,
    check,
    bench,
    completion,
):
    main.add_command(command)
