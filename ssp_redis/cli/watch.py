"""What ``launch`` does about its workers: before it starts them, and when it hears from them."""

from __future__ import annotations

import contextlib
import os
import socket

import click

from ssp_redis import Job
from ssp_redis.cli import exits
from ssp_redis.cli.fleet import Child, Fleet
from ssp_redis.cli.format import seconds
from ssp_redis.cli.progress import Board
from ssp_redis.errors import JobMismatch, SSPError
from ssp_redis.keys import fit_name
from ssp_redis.status import MemberStatus


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
        if child.code and not child.said_end:
            self._evict(child)
        if not child.failed:
            return
        at = f" at clock {child.account.clock}" if child.account.admitted else ""
        others = [other for other in self._children() if other.code is None]
        waiting = [other for other in others if not other.account.admitted]
        if child.fate not in self._said:
            self._said.add(child.fate)
            goes_on = "; the others go on" if len(others) > len(waiting) else ""
            who = click.style(f"worker {child.worker}", bold=True)
            if child.account.how == "evicted":
                self.board.say(f"{who}, at clock {child.account.clock}, was evicted{_because(child.fate)}{goes_on}")
            elif "\n" in child.fate:  # a traceback
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


def meet(url: str, name: str, run: str | None, workers: int, clocks: int | None) -> str | None:
    """Before workers are started: refuse a job that runs, and let those of an idle one wait for each other.

    Returns what to say where they go on in a run that had begun.
    """
    with Job(url, name) as job:
        if not job.exists():
            return None
        standing = job.status()
        _refuse_a_running_job(name, standing.members)
        if standing.members or run not in (None, standing.run):
            return None  # their leases last, or it is another run that begins
        with contextlib.suppress(JobMismatch):  # somebody has joined meanwhile; what else is wrong is told by join
            job.gather(workers)
        if not standing.min_clock or standing.stopped or (clocks is not None and standing.min_clock >= clocks):
            return None
        return f"job {name} goes on at clock {standing.min_clock} of run {standing.run}; --run NAME begins another"


def _refuse_a_running_job(name: str, members: list[MemberStatus]) -> None:
    """Worker ids are taken over by whoever joins last, so two launches of one job would chase each other away."""
    here = fit_name(socket.gethostname())
    live = [member for member in members if member.host != here or _alive(member.pid)]
    if live:
        who = ", ".join(
            f"worker {member.worker} (pid {member.pid} on {member.host}, last seen {seconds(member.last_seen)} ago)"
            for member in live[:3]
        )
        raise exits.Failure(
            f"job {name} is running: {who}{', …' if len(live) > 3 else ''}. Name another one with --job, add workers "
            f"to this one with `ssp-redis worker --job {name}`, or end it with `ssp-redis stop --job {name}`."
        )


def _because(fate: str) -> str:
    """The reason, where nobody asked for the eviction."""
    reason = fate.partition(": ")[2].partition(";")[0]
    return f": {reason}" if reason.startswith("its lease") else ""


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
