"""A plain Python script as a worker: it takes its place from the environment and calls ``ssp_redis.join()`` itself.

It runs in this process as ``python script.py`` would run it, so that a signal makes it leave its job and so that its
worker's clock and times can be told to whoever started it.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from typing import Any

import click

import ssp_redis
from ssp_redis.cli.options import staleness_out, twin
from ssp_redis.cli.report import Reporter
from ssp_redis.errors import TableMismatch, UsageError

_PLACE = {"url": "url", "job": "job", "worker": "id", "workers": "workers", "staleness": "staleness", "run": "run"}


#: What the environment does not tell ``join``, and the command line does.
_TOLD = ("lease", "progress_timeout", "reconnect_timeout")


def run_script(
    path: str,
    arguments: list[str],
    place: dict[str, Any],
    clocks: int | None,
    reporter: Reporter,
    timeout: float | None = None,
) -> None:
    """Run ``path`` as the main program, with ``arguments`` as its own. Its exceptions, SystemExit too, come through."""
    for name, flag in _PLACE.items():
        if place.get(name) is not None:
            value = place[name]
            os.environ[twin(flag)] = str(staleness_out(value) if name == "staleness" else value)
    if clocks is not None:
        os.environ[twin("clocks")] = str(clocks)
    sys.argv = [path, *arguments]
    if not getattr(sys.flags, "safe_path", False):
        # As Python itself does it: the script's directory is searched first, not the one we came from.
        sys.path[0] = os.path.dirname(os.path.abspath(path))
    joined: list[ssp_redis.Worker] = []
    real = ssp_redis.join

    told = {name: place[name] for name in _TOLD if name in place}
    if timeout is not None:
        told["timeout"] = timeout

    def join(*args: Any, **options: Any) -> ssp_redis.Worker:
        options = told | {name: value for name, value in options.items() if value is not None or name not in told}
        worker = real(*args, **options)
        if not joined:
            reporter.joined(worker)
        joined.append(worker)
        return worker

    ssp_redis.join = join
    how = "failed"
    try:
        runpy.run_path(path, run_name="__main__")
        how = "done"
        if not joined:
            click.echo(f"{path} ended and has not called ssp_redis.join(): it was no worker", err=True)
    except (UsageError, TableMismatch) as error:
        frames = traceback.extract_tb(error.__traceback__)
        line = next((frame.lineno for frame in reversed(frames) if frame.filename == path), None)
        if line is not None:
            error.args = (f"{path}:{line}: {error}", *error.args[1:])
        raise
    except SystemExit as stop:
        how = "done" if stop.code in (None, 0) else "failed"
        raise
    except KeyboardInterrupt:
        how = "left"
        raise
    finally:
        ssp_redis.join = real
        if joined:
            reporter.ended(how)
        for worker in joined:
            # One that did not leave by itself: nobody shall wait for its lease.
            worker.leave("done" if how == "done" else "left")
