"""How it went, at the end: as text for people, as one JSON object for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ssp_redis import Job
from ssp_redis.cli import format
from ssp_redis.cli.account import Account, Total
from ssp_redis.cli.exits import trace_of
from ssp_redis.cli.options import staleness_out
from ssp_redis.cli.target import Target
from ssp_redis.errors import StateLost

#: Elements of a table up to which its values are printed.
_SMALL = 16


@dataclass
class Outcome:
    """What came out of a run."""

    #: Name of the run.
    run: str | None = None
    #: Start quorum of the job.
    workers: int = 1
    #: The task's own judgement of the tables as they stand, and the values of small ones.
    result: dict[str, Any] = field(default_factory=dict)
    #: Why the task could not judge them.
    trace: str | None = None
    #: Why there is nothing to look at.
    missing: str | None = None


def outcome(target: Target, url: str, job: str) -> Outcome:
    """Look at the job as it stands now."""
    try:
        with Job(url, job) as view:
            standing = view.status()
            tables = {table.name: view.table(table.name).get() for table in view.tables() if not table.sparse}
    except StateLost:
        return Outcome(missing=elsewhere(job))
    result: dict[str, Any] = {}
    trace = None
    if target.task is not None and tables:
        task = target.make()
        try:
            task.load()
            result = dict(task.result(tables))
        except Exception as error:  # the user's own code: what else there is to tell shall still be told
            trace = trace_of(error)
    small = {name: array.tolist() for name, array in tables.items() if array.size <= _SMALL}
    if small:
        result.setdefault("parameters", small)
    return Outcome(standing.run, standing.workers, {name: _plain(value) for name, value in result.items()}, trace)


def as_object(
    target: Target, job: str, run: str | None, clocks: int, accounts: Sequence[Account], result: Mapping[str, Any]
) -> dict[str, Any]:
    """What ``launch`` and ``worker`` have in common. ``clocks`` is per worker, ``total_clocks`` all of them."""
    total = Total(accounts)
    ran = next((account for account in accounts if account.admitted), None)
    return {
        "task": target.name,
        "job": job,
        "run": run,
        "workers": len(accounts),
        "staleness": staleness_out(ran.staleness) if ran else None,
        "clocks": clocks,
        "total_clocks": total.ticks,
        "seconds": round(total.seconds, 6),
        "clocks_per_second": round(total.rate, 1),
        "loss": None,
        **result,
        "compute_seconds": round(total.sum("compute_seconds"), 6),
        "wait_seconds": round(total.sum("wait_seconds"), 6),
        "push_seconds": round(total.sum("push_seconds"), 6),
        "pull_seconds": round(total.sum("pull_seconds"), 6),
        "bytes_in": int(total.sum("bytes_in")),
        "bytes_out": int(total.sum("bytes_out")),
        "lost_clocks": int(total.sum("lost_clocks")),
        "by_worker": [
            {
                "worker": account.worker,
                "how": account.how,
                "clock": account.clock,
                "seconds": round(account.seconds, 6),
                "compute_seconds": round(account.compute_seconds, 6),
                "wait_seconds": round(account.wait_seconds, 6),
                "push_seconds": round(account.push_seconds, 6),
                "pull_seconds": round(account.pull_seconds, 6),
            }
            for account in accounts
        ],
    }


def as_text(title: str, accounts: Sequence[Account], result: Mapping[str, Any]) -> str:
    """A headline, the result, and where each worker's time went."""
    total = Total(accounts)
    lines = [
        f"{title}: {format.counted(total.ticks, 'clock')} in {format.seconds(total.seconds)}, "
        f"{format.count(total.rate)} clocks/s"
    ]
    lines += ["  " + line for line in _values(result)]
    rows = [["worker", "clock", "compute", "wait", "push", "pull", "ended"]]
    rows += [_row(account.worker, account.clock, account, account.how) for account in accounts]
    if len(accounts) > 1:
        rows.append(_row("all", total.ticks, total, ""))
    lines.append("")
    lines += ["  " + line for line in format.table(rows, left=(0, 6)).splitlines()]
    if lost := int(total.sum("lost_clocks")):
        lines.append(f"  the server forgot {format.counted(lost, 'clock')} that it had acknowledged (see the log)")
    return "\n".join(lines)


def _row(name: str, clock: int, times: Account | Total, how: str) -> list[str]:
    kinds = ("compute_seconds", "wait_seconds", "push_seconds", "pull_seconds")
    spent = [times.sum(kind) if isinstance(times, Total) else getattr(times, kind) for kind in kinds]
    return [name, str(clock), *(f"{value:.2f} s" for value in spent), how]


def _values(result: Mapping[str, Any]) -> list[str]:
    """What came out: in one line, but for a matrix, which stands by itself."""
    shown = {**result, **result.get("parameters", {})}
    shown.pop("parameters", None)
    matrices = {name: value for name, value in shown.items() if np.ndim(value) > 1}
    line = "   ".join(_named(name, value) for name, value in shown.items() if name not in matrices)
    lines = [line] if line else []
    for name, value in matrices.items():
        lines += _named(name, value).splitlines()
    return lines


def _named(name: str, value: Any) -> str:
    if name == "accuracy":
        return f"{name} {value:.1%}"
    if isinstance(value, float):
        return f"{name} {format.number(value)}"
    if isinstance(value, list):
        array, head = np.array(value), f"{name} "
        return head + np.array2string(array, precision=4, separator=", ", max_line_width=10**6, prefix=head)
    return f"{name} {value}"


def _plain(value: Any) -> Any:
    """As JSON can say it: numpy's numbers and arrays become Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        array: NDArray[Any] = value
        return array.tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value


def nothing_left(job: str, clocks: int) -> str:
    """What to say when a job had been done before."""
    return (
        f"job {job} was at clock {clocks} already: nothing was left to do. To run it again from zero, name a new run "
        f"(--run NAME or SSP_REDIS_RUN=NAME) or delete it (ssp-redis delete --job {job}); to go on, raise --clocks."
    )


def elsewhere(job: str) -> str:
    """What to say when workers have run, and their job is not where it should be."""
    return (
        f"there is no job {job} on the server that the workers were given, so nothing is known of what came out: it "
        "was deleted, or the script tells join() another job or server, which comes before what it was given."
    )


def stopped(job: str) -> str:
    """What to say when somebody stopped the job."""
    return f"job {job} was stopped before its end. To go on: ssp-redis stop --resume --job {job}, and start it again."
