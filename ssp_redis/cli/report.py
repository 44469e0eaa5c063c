"""Tells how a worker is getting on, while it works, to whoever wants to know: a terminal, or ``launch``.

A thread looks at the worker a few times a second. The training loop does nothing for it, and a worker that is blocked
in a wait is reported as well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ssp_redis.cli.account import Account

if TYPE_CHECKING:
    from ssp_redis.worker import Worker

#: Seconds between two looks.
PERIOD = 0.2


class Reporter:
    """Keeps an :class:`Account` of one worker and shows it to ``show`` as it changes.

    In use from before the worker joins until it has left; ``joined`` and ``ended`` mark the moments that count.
    """

    def __init__(self, account: Account, show: Callable[[Account], None] | None = None) -> None:
        self.account = account
        self._show = show
        self._worker: Worker | None = None
        self._before: Mapping[str, Any] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ssp-redis-report", daemon=True)

    def joined(self, worker: Worker) -> None:
        """The worker was admitted: its time begins."""
        account = self.account
        account.worker, account.first, account.clock = worker.id, worker.clock, worker.clock
        account.admitted = account.done = time.monotonic()
        # Waiting for the quorum is no part of the work.
        self._before = worker.stats()
        self._worker = worker
        self.look()
        if self._show:
            self._thread.start()

    def look(self) -> None:
        """Bring the account up to date."""
        worker, account = self._worker, self.account
        if worker is None:
            return
        account.take(worker.stats(), self._before)
        account.done = time.monotonic()
        if self._show:
            self._show(account)

    def ended(self, how: str) -> None:
        """The worker has left, or is lost: its time ends."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        self.look()
        self.account.how = how

    def __enter__(self) -> Reporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if error is not None and self.account.how == "running":
            self.look()

    def _watch(self) -> None:
        while not self._over.wait(PERIOD):
            self.look()
