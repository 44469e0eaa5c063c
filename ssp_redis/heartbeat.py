"""Says "I live" for a worker that is busy computing: a thread with a connection of its own that syncs every lease/3."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from .connection import Endpoint, ReplyError, Wire
from .errors import SSPError
from .lua import Refusal
from .scripts import Caller, ClockScripts


class Heartbeat(threading.Thread):
    """Renews the lease until stopped, or until the job refuses this incarnation, which it reports.

    Args:
        statement: gives (caller, clock, log position, tag) as one consistent tuple.
        refused: told of a refusal; the worker's next call raises it.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        scripts: ClockScripts,
        lease: float,
        statement: Callable[[], tuple[Caller, int, int, str]],
        refused: Callable[[Refusal], None],
    ) -> None:
        super().__init__(name="ssp-redis-heartbeat", daemon=True)
        self._endpoint = endpoint
        self._scripts = scripts
        self._lease = lease
        # a beat that is not answered leaves time for another, over a new connection
        self._patience = lease / 4
        self._statement = statement
        self._refused = refused
        self._done = threading.Event()
        self._wire: Wire | None = None

    def run(self) -> None:
        """Beat until stopped or refused."""
        due = time.monotonic() + self._lease / 3
        while not self._done.wait(max(0.0, due - time.monotonic())):
            try:
                if self._wire is None:
                    self._wire = self._endpoint.connect(self._patience, "heartbeat")
                self._wire.hurry(self._patience)
                self._scripts.sync(self._wire, *self._statement())
                pause = self._lease / 3
            except Refusal as refusal:
                self._refused(refusal)
                break
            except (OSError, ReplyError, SSPError):
                # the server is away or unwell: the worker's own calls report it; here only try again, and soon
                self._drop()
                pause = min(self._lease / 10, 1.0)
            due = time.monotonic() + pause
        self._drop()

    def stop(self) -> None:
        """Ask it to end; does not wait for an exchange that is under way."""
        self._done.set()

    def _drop(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None
