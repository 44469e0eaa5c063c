"""Who is in the way: the slowest members, for the message of a wait that timed out."""

from __future__ import annotations

from dataclasses import dataclass

from .connection import Wire, command
from .errors import Blocker
from .keys import JobKeys

#: A message that names more is not read.
_NAMED = 10


@dataclass(frozen=True)
class Crowd:
    """The members of a job."""

    count: int
    #: Of them, those that have not been heard of since their lease was renewed for a silence of the server.
    silent: int
    #: The slowest first, not all of them.
    slowest: list[Blocker]


def look(wire: Wire, keys: JobKeys, lease: float) -> Crowd:
    """Read the members; ``lease`` (seconds) tells from an expiry when its holder was last heard of."""
    low, leases, graced, moment, count = wire.call_all(
        [
            command("ZRANGE", keys.order, 0, _NAMED - 1, "WITHSCORES"),
            command("ZRANGE", keys.leases, 0, -1, "WITHSCORES"),
            command("ZRANGE", keys.graced, 0, -1, "WITHSCORES"),
            command("TIME"),
            command("ZCARD", keys.order),
        ]
    )
    now = int(moment[0]) + int(moment[1]) / 1e6
    known = [*leases, *graced]  # a lease that was renewed tells nothing; the one before does
    expiry = {known[i]: float(known[i + 1]) / 1000 for i in range(0, len(known), 2)}
    return Crowd(
        int(count),
        len(graced) // 2,
        [
            Blocker(
                low[i].decode(),
                int(low[i + 1]),
                max(0.0, now + lease - expiry[low[i]]) if low[i] in expiry else None,
            )
            for i in range(0, len(low), 2)
        ],
    )
