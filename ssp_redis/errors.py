"""What can go wrong, by name.

One root, :class:`SSPError`; every child carries as attributes what a program needs to decide what to do next, and its
message names the culprit and the way out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class SSPError(Exception):
    """Root of everything this package raises on purpose."""


class UsageError(SSPError, ValueError):
    """An argument is wrong; nothing was sent."""


@dataclass(frozen=True)
class Blocker:
    """A worker that others wait for."""

    worker: str
    #: Clocks it has completed.
    clock: int
    #: Seconds since the server last heard of it, or None when unknown.
    last_seen: float | None

    def __str__(self) -> str:
        seen = "" if self.last_seen is None else f", last seen {self.last_seen:.1f} s ago"
        return f"worker {self.worker} at clock {self.clock}{seen}"


class WaitTimeout(SSPError, TimeoutError):
    """The time a caller gave ran out before it was admitted; ``blockers`` says who is in the way."""

    def __init__(self, message: str, blockers: Sequence[Blocker] = ()) -> None:
        super().__init__(message)
        self.blockers = list(blockers)


class Fenced(SSPError):
    """This incarnation of the worker no longer belongs to the job; nothing it sends counts."""

    def __init__(self, message: str, worker: str) -> None:
        super().__init__(message)
        self.worker = worker


class Evicted(Fenced):
    """The worker was removed: its lease ran out, or somebody evicted it. Join again to go on."""


class Superseded(Fenced):
    """Another process has joined under the same id; ``host`` and ``pid`` say which."""

    def __init__(self, message: str, worker: str, host: str, pid: int) -> None:
        super().__init__(message, worker)
        self.host = host
        self.pid = pid


class StateLost(SSPError):
    """The job's state is gone from the server: deleted, flushed, evicted by memory policy, or never written to disk."""


@dataclass(frozen=True)
class Loss:
    """Deltas that the server acknowledged and then forgot."""

    worker: str
    #: First and last clock (timestamps of the deltas) that were lost, inclusive.
    first: int
    last: int
    #: True when this process still held them and pushes them again.
    repushed: bool

    def __str__(self) -> str:
        clocks = f"clock {self.first}" if self.first == self.last else f"clocks {self.first}..{self.last}"
        fate = "pushed again" if self.repushed else "lost"
        return f"worker {self.worker}, {clocks}: {fate}"


class RolledBack(SSPError):
    """The server came back without ticks it had acknowledged (failover, lost tail of the AOF); ``lost`` names them."""

    def __init__(self, message: str, lost: Sequence[Loss]) -> None:
        super().__init__(message)
        self.lost = list(lost)


class JobStopped(SSPError):
    """Somebody stopped the job (``ssp-redis stop``, :meth:`Job.stop`)."""


class JobMismatch(SSPError):
    """The job exists with another value; ``field``, ``stored`` and ``given`` say which."""

    def __init__(self, message: str, field: str, stored: str, given: str) -> None:
        super().__init__(message)
        self.field = field
        self.stored = stored
        self.given = given


class TableMismatch(SSPError):
    """The table exists with another shape or dtype, or a stored blob is not what its key says."""


class NonFinite(SSPError, ValueError):
    """A delta holds NaN or infinity; it was refused before anything was sent."""


class ServerUnavailable(SSPError, ConnectionError):
    """The server did not answer until ``reconnect_timeout`` ran out."""


class ServerRefused(SSPError):
    """The server answered, and refuses (full memory, read-only, no permission, …); the message says what to do."""
