"""A command connection that comes back: reconnects with back-off, and greets before it says anything else.

The greeting is the clock's ``sync``: on a new connection nothing is written before the job has said where this worker
stands. What is run over a link must be repeatable, for after a lost connection it is run again from its beginning.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from .connection import Backoff, Endpoint, ReplyError, Wire, refused
from .errors import ServerUnavailable, SSPError
from .lua import Refusal

logger = logging.getLogger("ssp_redis")
T = TypeVar("T")
#: Seconds after which it is said that the server is away.
_PATIENT = 1.0
#: What a caller's deadline leaves the server to answer in (seconds): a timeout of 0 asks once.
GRACE = 1.0
#: A connection's own timeout, for each read and write (seconds).
STEP = 5.0
_AS_USUAL = nullcontext()


def persist(
    endpoint: Endpoint,
    limit: float,
    attempt: Callable[[], T],
    failed: Callable[[], None] = lambda: None,
    failure: Exception | None = None,
) -> T:
    """Run ``attempt`` until it succeeds, as long as the server is away or unwell in a way that passes.

    Whoever waits for it reads in the log what for.

    Args:
        endpoint: the server.
        limit: seconds to go on trying.
        failed: called after each attempt that a lost connection, an error of the server or an interruption ended.
        failure: what ended an attempt that was made before.

    Raises:
        ServerUnavailable: it was away for longer than the limit.
        ServerRefused: it answered with an error that waiting does not cure.
        Refusal: a script refused.
    """
    # the time of the first attempt counts too, unless it came before this
    backoff = Backoff(limit) if failure is None else None
    begun, said = time.monotonic(), False
    while True:
        if failure is not None:
            failed()
            if isinstance(failure, ReplyError) and not endpoint.passes(failure):
                raise refused(failure, endpoint.label) from None
            if backoff is None:
                backoff = Backoff(limit)
            if not backoff.pause():
                if isinstance(failure, ReplyError):
                    raise refused(failure, endpoint.label) from None
                what = "no answer" if isinstance(failure, BlockingIOError) else str(failure).rstrip(".")
                if not limit or isinstance(failure, TimeoutError):
                    what = f"{endpoint.label} was not done in time: {what}"
                elif endpoint.label in what:
                    what = f"{what}; given up after {limit:.3g} s"
                else:
                    what = f"{endpoint.label} was away for {limit:.3g} s: {what}"
                raise ServerUnavailable(what) from failure
            if not said and time.monotonic() - begun > _PATIENT:
                said = True
                what = str(failure).rstrip(".")
                named = what if endpoint.label in what else f"{endpoint.label}: {what}"
                logger.warning("%s; trying again for up to %.3g s", named, limit)
        try:
            return attempt()
        except Refusal:
            raise
        except SSPError:
            failed()
            raise
        except (ReplyError, OSError) as error:
            failure = error
        except BaseException:
            failed()
            raise


class Link:
    """One wire at a time to one server.

    Args:
        limit: seconds to go on trying while the server is away.
        greet: called with every new wire before its first use.
    """

    def __init__(self, endpoint: Endpoint, limit: float, greet: Callable[[Wire], None] = lambda wire: None) -> None:
        self.endpoint = endpoint
        self.limit = limit
        self.greet = greet
        self._wire: Wire | None = None
        self._bytes = [0, 0]
        #: Only as long as somebody is inside: an interruption may come when that ends.
        self._bounds: weakref.ref[_Bounds] | None = None
        #: True while an exchange is under way: a signal handler must not use the wire then.
        self.busy = False

    def within(self, timeout: float | None, moving: bool = False) -> AbstractContextManager[None]:
        """Inside, no exchange outlives ``timeout`` seconds and a little grace, whatever the limits; None: as usual.

        Args:
            moving: one of which something is sent or received in each such time may go on.
        """
        return _AS_USUAL if timeout is None else _Bounds(self, timeout, moving)

    @property
    def bounds(self) -> _Bounds | None:
        """What exchanges are within."""
        return self._bounds() if self._bounds is not None else None

    @bounds.setter
    def bounds(self, bounds: _Bounds | None) -> None:
        self._bounds = None if bounds is None else weakref.ref(bounds)
        if bounds is None and self._wire is not None:
            self._wire.hurry(None)

    def left(self, limit: float | None = None) -> float:
        """Seconds to go on trying from now."""
        limit = self.limit if limit is None else limit
        bounds = self.bounds
        return limit if bounds is None else max(0.0, min(limit, bounds.deadline - time.monotonic()))

    def patience(self) -> float | None:
        """Seconds that there are left; None: any number."""
        bounds = self.bounds
        return None if bounds is None else max(0.02, bounds.deadline - time.monotonic())

    def _hurry(self, wire: Wire) -> None:
        bounds = self.bounds
        if bounds is None:
            self._bounds = None
            wire.hurry(None)
        else:
            wire.hurry(bounds.step or self.patience(), bounds.step is not None)

    def run(self, operation: Callable[[Wire], T], limit: float | None = None) -> T:
        """Run ``operation`` on the wire; again, on a new one, if the connection or the server fails meanwhile.

        Raises as :func:`persist` does.
        """
        # Whatever ends an exchange early leaves its reply behind, which would answer the next question: drop the wire.
        failure: Exception | None = None
        self.busy = True
        try:
            if self._wire is not None:
                if self._bounds is not None:
                    self._hurry(self._wire)
                return operation(self._wire)
        except Refusal:
            raise
        except SSPError:
            self.drop()
            raise
        except (ReplyError, OSError) as error:
            failure = error
        except BaseException:
            self.drop()
            raise
        finally:
            self.busy = False
        return persist(
            self.endpoint,
            self.left(limit),
            lambda: self._again(operation),
            self.drop,
            failure,
        )

    def _again(self, operation: Callable[[Wire], T]) -> T:
        self.busy = True
        try:
            if self._wire is None:
                self._wire = self.endpoint.connect(self.patience())
                self._hurry(self._wire)
                self.greet(self._wire)
            return operation(self._wire)
        finally:
            self.busy = False

    def drop(self) -> None:
        """Close the wire; the next use makes a new one."""
        if self._wire is not None:
            self._bytes[0] += self._wire.bytes_in
            self._bytes[1] += self._wire.bytes_out
            self._wire.close()
            self._wire = None

    def traffic(self) -> tuple[int, int]:
        """Bytes received and sent over this link so far."""
        wire = self._wire
        return self._bytes[0] + (wire.bytes_in if wire else 0), self._bytes[1] + (wire.bytes_out if wire else 0)


class _Bounds(AbstractContextManager[None]):
    """What :meth:`Link.within` enters: a tick with a timeout does so each time."""

    def __init__(self, link: Link, timeout: float, moving: bool) -> None:
        self._link = link
        self._outer = outer = link.bounds
        own = time.monotonic() + timeout + GRACE
        #: The moment (monotonic) that no exchange outlives.
        self.deadline: float = own if outer is None else min(outer.deadline, own)
        #: Seconds that a read or a write may take instead.
        self.step = timeout + GRACE if moving else None

    def __enter__(self) -> None:
        self._link.bounds = self

    def __exit__(self, *reason: object) -> None:
        self._link.bounds = self._outer
