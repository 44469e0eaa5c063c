"""Waiting for a socket: a moment awake, then asleep.

A processor with nothing to do goes to sleep, too, and on a virtual machine takes some 20 us to wake up, often longer
than a server nearby takes to answer. So whoever waits for it looks a few times first, and lets others run in between.
Where that is in vain, since the server is far away or the others are late, it is hardly done any more.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable

#: How long one is awake at the most (seconds).
_MOMENT = 100e-6
#: After n times in vain in a row the next 2^n − 1 are left out, n up to this.
_MOST = 6
_let_others_run: Callable[[], None] | None = getattr(os, "sched_yield", None)


class Readiness:
    """Of one socket, whether there is something to read."""

    def __init__(self, sock: socket.socket) -> None:
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        self._poll = poller.poll
        self._vain = self._left_out = 0

    def within(self, timeout: float) -> bool:
        """Is there something to read within ``timeout`` seconds? Awake for a moment of them, then asleep."""
        return (timeout > 0 and self.moment()) or bool(self._poll(max(0.0, timeout) * 1000))

    def moment(self) -> bool:
        """Stay awake until there is something to read, but not longer than a moment; True: there is."""
        if self._left_out:
            self._left_out -= 1
            return False
        poll = self._poll
        if poll(0):
            self._vain = 0
            return True
        if _let_others_run is None:
            return False
        until = time.perf_counter() + _MOMENT
        while time.perf_counter() < until:
            _let_others_run()
            if poll(0):
                self._vain = 0
                return True
        self._vain = min(_MOST, self._vain + 1)
        self._left_out = (1 << self._vain) - 1
        return False
