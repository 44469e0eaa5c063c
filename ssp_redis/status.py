"""What can be seen of a job from outside, at one moment."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .connection import Wire, command
from .joining import Record
from .keys import JobKeys


@dataclass(frozen=True)
class MemberStatus:
    """A member as the job knows it."""

    worker: str
    clock: int
    #: Clocks ahead of the slowest.
    lead: int
    host: str
    pid: int
    incarnation: int
    #: Seconds since the server last heard of it, and until its lease runs out.
    last_seen: float
    expires_in: float
    #: Is it further ahead than it may be, so that it waits for the slowest? (The test comes after the increment.)
    waits: bool


@dataclass(frozen=True)
class Departed:
    """An id that has been a member in this run."""

    worker: str
    clock: int
    #: done, left, evicted or lost.
    why: str


@dataclass(frozen=True)
class TableStatus:
    """A table: the shape is in elements, ``nbytes`` of its values."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    #: Only the rows that were touched are stored.
    sparse: bool = False
    #: Of a dense table, the bytes of each block that it is cut into.
    block_bytes: tuple[int, ...] = ()


@dataclass(frozen=True)
class JobStatus:
    """One moment of a job."""

    job: str
    #: Name of the run, and the id that the server's keys carry.
    run: str
    run_id: str
    epoch: int
    #: Current staleness, inf when unbounded, and as created.
    staleness: float
    created_staleness: float
    #: Start quorum.
    workers: int
    #: Seconds.
    lease: float
    min_clock: int
    stopped: bool
    started: bool
    #: "yes", "no", or "broken": somebody left a reproducible run before it was done.
    reproducible: str
    members: list[MemberStatus]
    departed: list[Departed]
    tables: list[TableStatus]

    @property
    def slowest(self) -> list[str]:
        """Whom those that wait wait for: the members at the min clock."""
        return [member.worker for member in self.members if member.clock == self.min_clock]


def read_status(wire: Wire, keys: JobKeys, tables: list[TableStatus]) -> JobStatus | None:
    """Read a job at one moment; None when there is no such job."""
    config, clocks, ids, leases, graced, order, moment = wire.call_all(
        [
            command("MULTI"),
            command("HGETALL", keys.config),
            command("HGETALL", keys.clocks),
            command("HGETALL", keys.ids),
            command("ZRANGE", keys.leases, 0, -1, "WITHSCORES"),
            command("ZRANGE", keys.graced, 0, -1, "WITHSCORES"),
            command("ZRANGE", keys.order, 0, -1, "WITHSCORES"),
            command("TIME"),
            command("EXEC"),
        ]
    )[-1]
    setting = {key.decode(): value.decode() for key, value in _pairs(config)}
    if "run" not in setting:
        return None
    lease = int(setting["lease"]) / 1000
    now = int(moment[0]) + int(moment[1]) / 1e6
    expiry = {worker: float(score) / 1000 for worker, score in _pairs(leases)}
    # where a lease was renewed for a silence of the server, the one before tells when its holder was heard of
    asked = expiry | {worker: float(score) / 1000 for worker, score in _pairs(graced)}
    clock_of = {worker: int(clock) for worker, clock in _pairs(clocks)}
    records = {worker: Record.of(text) for worker, text in _pairs(ids)}
    low = int(setting["floor"])
    if setting["started"] == "1":
        low = min((int(score) for _, score in _pairs(order)), default=low)
    members, bound = [], int(setting["staleness"])
    for worker, clock in _pairs(order):
        record = records[worker]
        members.append(
            MemberStatus(
                worker.decode(),
                int(clock),
                int(clock) - low,
                record.host,
                record.pid,
                record.incarnation,
                max(0.0, lease + now - asked.get(worker, now)),
                max(0.0, expiry.get(worker, now) - now),
                setting["started"] != "1" or 0 <= bound < int(clock) - low,
            )
        )
    departed = [
        Departed(worker.decode(), clock_of[worker], record.why)
        for worker, record in records.items()
        if record.why != "-"
    ]
    return JobStatus(
        job=keys.job,
        run=setting["name"],
        run_id=setting["run"],
        epoch=int(setting["epoch"]),
        staleness=_bound(setting["staleness"]),
        created_staleness=_bound(setting["created"]),
        workers=int(setting["workers"]),
        lease=lease,
        min_clock=low,
        stopped=setting["stop"] == "1",
        started=setting["started"] == "1",
        reproducible={"0": "no", "1": "yes"}.get(setting["reproducible"], "broken"),
        members=sorted(members, key=lambda member: _natural(member.worker)),
        departed=sorted(departed, key=lambda gone: _natural(gone.worker)),
        tables=tables,
    )


def _pairs(reply: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(reply[::2], reply[1::2], strict=True))


def _bound(text: str) -> float:
    return math.inf if text == "-1" else int(text)


def _natural(worker: str) -> tuple[int, int, str]:
    return (0, int(worker), "") if worker.isdigit() else (1, 0, worker)
