"""What the server does when its memory is full: it must refuse writes, not throw parameters away."""

from __future__ import annotations

import logging

from .connection import ReplyError, Wire

logger = logging.getLogger("ssp_redis")


def warn_of_eviction(wire: Wire, job: str) -> None:
    """Log a warning if the server deletes keys that have no expiry once ``maxmemory`` is reached."""
    try:
        info = wire.call("INFO", "memory").decode()
    except ReplyError:
        return  # this user may not ask
    found = dict(line.split(":", 1) for line in info.split("\r\n") if ":" in line)
    policy = found.get("maxmemory_policy", "")
    if policy.startswith("allkeys") and found.get("maxmemory", "0") != "0":
        logger.warning(
            "job %s: the server's maxmemory-policy is %s: when memory is full it deletes live parameters, and the job "
            "is lost; set maxmemory-policy noeviction",
            job,
            policy,
        )
