"""A table is made once: claimed by one under a lease, written as scratch, published whole; the others wait for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Protocol

from ..connection import Wire
from ..keys import StoreKeys
from ..link import persist
from ..lua import Code, Refusal
from ..scripts import Claim, StoreScripts
from ..subscriber import Subscriber
from .host import Host

#: How long a claim to make a table holds (ms); whoever waits takes it over then.
_LEASE = 10_000


class Asker(Protocol):
    """A store, or a reader of one."""

    host: Host
    keys: StoreKeys
    scripts: StoreScripts


def look(asker: Asker, name: str) -> Claim | None:
    """The table of that name, None when nobody has made it yet."""
    try:
        claim = asker.host.run(lambda wire: asker.scripts.claim(wire, asker.host.caller.run, name, "-", 0, 0))
    except Refusal as refusal:
        if refusal.code is not Code.CLAIMED:
            raise
        return None
    return claim if claim.state == "ready" else None


def obtain(asker: Asker, name: str, description: str, make: Callable[[Wire, int], None]) -> Claim:
    """The table of that name, which is made if nobody has made it yet.

    Args:
        make: writes the table of that number as scratch, and publishes it.
    """
    caller = asker.host.caller
    while True:
        try:
            claim = asker.host.run(
                lambda wire: asker.scripts.claim(wire, caller.run, name, description, caller.incarnation, _LEASE)
            )
        except Refusal as refusal:
            if refusal.code is not Code.CLAIMED:
                raise
            _await(asker, name, int(refusal.words[0]) / 1000)
            continue
        if claim.state == "ready":
            return claim
        asker.host.run(lambda wire, number=claim.number: make(wire, number))  # type: ignore[misc]


def _await(asker: Asker, name: str, limit: float) -> None:
    """Somebody else is making it: wait for its announcement, or until the claim runs out."""
    endpoint = asker.host.endpoint
    ear = persist(endpoint, limit, lambda: Subscriber(endpoint, asker.keys.commits))
    try:
        # subscribed first, then asked: what was announced before is there now
        if look(asker, name) is None:
            with contextlib.suppress(OSError):  # whoever lost the connection asks again
                ear.last(limit)
    finally:
        ear.close()


def publish(asker: Asker, wire: Wire, name: str, shares: int, scratch: list[str], bases: list[str]) -> None:
    """What was written as scratch becomes the table's first base, all of it at once."""
    caller = asker.host.caller
    try:
        asker.scripts.publish(wire, caller.run, name, caller.incarnation, shares, scratch, bases)
    except Refusal as refusal:
        if refusal.code is not Code.CHANGED:  # else the claim ran out and is another's: claim again, and see
            raise
