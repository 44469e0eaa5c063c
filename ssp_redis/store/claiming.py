"""A table is made once: claimed by one under a lease, written as scratch, published whole; the others wait for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..connection import Wire
from ..link import persist
from ..lua import Code, Refusal
from ..subscriber import Subscriber

if TYPE_CHECKING:
    from ..scripts import Claim
    from .reader import Reader

#: How long a claim to make a table holds (ms); whoever waits takes it over then.
_LEASE = 10_000


def look(reader: Reader, name: str) -> Claim | None:
    """The table of that name, None when nobody has made it yet."""
    try:
        claim = reader.host.run(lambda wire: reader.scripts.claim(wire, reader.host.caller.run, name, "-", 0, 0))
    except Refusal as refusal:
        if refusal.code is not Code.CLAIMED:
            raise
        return None
    return claim if claim.state == "ready" else None


def obtain(reader: Reader, name: str, description: str, make: Callable[[Wire, int], None]) -> Claim:
    """The table of that name, which is made if nobody has made it yet.

    Args:
        make: writes the table of that number as scratch, and publishes it.
    """
    caller = reader.host.caller
    while True:
        try:
            claim = reader.host.run(
                lambda wire: reader.scripts.claim(wire, caller.run, name, description, caller.incarnation, _LEASE)
            )
        except Refusal as refusal:
            if refusal.code is not Code.CLAIMED:
                raise
            _await(reader, name, int(refusal.words[0]) / 1000)
            continue
        if claim.state == "ready":
            return claim
        reader.host.run(lambda wire, number=claim.number: make(wire, number))  # type: ignore[misc]


def _await(reader: Reader, name: str, limit: float) -> None:
    """Somebody else is making it: wait for its announcement, or until the claim runs out."""
    endpoint = reader.host.endpoint
    ear = persist(endpoint, limit, lambda: Subscriber(endpoint, reader.keys.commits))
    try:
        # subscribed first, then asked: what was announced before is there now
        if look(reader, name) is None:
            with contextlib.suppress(OSError):  # whoever lost the connection asks again
                ear.last(limit)
    finally:
        ear.close()


def publish(reader: Reader, wire: Wire, name: str, shares: int, scratch: list[str], bases: list[str]) -> None:
    """What was written as scratch becomes the table's first base, all of it at once."""
    caller = reader.host.caller
    try:
        reader.scripts.publish(wire, caller.run, name, caller.incarnation, shares, scratch, bases)
    except Refusal as refusal:
        if refusal.code is not Code.CHANGED:  # else the claim ran out and is another's: claim again, and see
            raise
