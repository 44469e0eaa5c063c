"""Members that may all be dead: whoever needs them gone waits for their leases, as long as none of them speaks.

A server cannot tell a silence of its own (it was frozen, it failed over) from one of all members: the first sync after
either gives each of them a new lease, so that nobody is evicted for what the server did. Where they have died, they are
members for one more lease from the first look on; and "evict them first" would be no answer to whoever has just looked.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass

from .blockers import look
from .connection import Wire
from .errors import Blocker, WaitTimeout
from .joining import observe
from .keys import JobKeys
from .link import Link
from .lua import Refusal
from .scripts import ClockScripts

logger = logging.getLogger("ssp_redis")

#: Seconds between looks whether one of them has spoken.
_RECHECK = 1.0


@dataclass(frozen=True)
class _Seen:
    """The members at one moment, the slowest ten at the most."""

    members: list[Blocker]
    #: Seconds until the earliest of their leases runs out, if none of them has spoken since it was renewed; else None.
    pause: float | None = None


def settle(
    link: Link, keys: JobKeys, scripts: ClockScripts, timeout: float | None, begins: str | None = None
) -> list[Blocker]:
    """The members of a job that are heard of, the slowest first, not all of them; none where there is no such job.

    Where nobody has been heard of since before somebody looked, this waits until the leases have run out, or until one
    of them speaks.

    Args:
        timeout: seconds to wait at the most; None: as long as the leases last.
        begins: the run that is to begin: where the job's run is that already, nobody needs to be gone.

    Raises:
        WaitTimeout: their leases last for longer.
    """
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    told = False
    while True:
        seen = link.run(lambda wire: _look(wire, keys, scripts, begins))
        if seen.pause is None:
            return seen.members
        names = "; ".join(map(str, seen.members))
        text = f"job {keys.job} has members that may be dead, and a lease for {seen.pause:.1f} s yet: {names}"
        left = deadline - time.monotonic()
        if left <= 0:
            raise WaitTimeout(f"{text}: wait for that, or evict them", seen.members)
        if not told:
            told = True
            logger.warning("%s: waiting for that, unless they are evicted", text)
        time.sleep(min(seen.pause, left, _RECHECK))


def _look(wire: Wire, keys: JobKeys, scripts: ClockScripts, begins: str | None) -> _Seen:
    run, epoch, name, lease, kept = wire.call("HMGET", keys.config, "run", "epoch", "name", "lease", "reproducible")
    if run is None or name.decode() == begins:
        return _Seen([])
    try:
        synced = observe(wire, scripts, run.decode(), int(epoch))
    except Refusal:
        return _Seen([])  # replaced between the two, or part of it is gone: nobody can go on with what is there
    crowd = look(wire, keys, int(lease) / 1000)
    silent = crowd.silent == crowd.count > 0
    # in a reproducible run no lease runs out
    if not silent or kept == b"1" or synced.next_expiry is None:
        return _Seen(crowd.slowest)
    return _Seen(crowd.slowest, synced.next_expiry + 0.001)
