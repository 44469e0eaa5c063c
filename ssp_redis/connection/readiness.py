"""Waiting for a socket: a moment awake, then asleep.

A processor with nothing to do goes to sleep, too, and on a virtual machine takes some 20 us to wake up, often longer
than a server nearby takes to answer. So whoever waits for it looks a few times first, and lets others run in between.
Where that is in vain, since the server is far away or the others are late, or where somebody computes on the same
processor, it is hardly done any more.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable

#: How long one is awake at the most (seconds).
_MOMENT = 100e-6
#: After n times more in vain than not, the next 2^n − 1 are left out, n up to this.
_MOST = 8
_LOOK = socket.MSG_PEEK | getattr(socket, "MSG_DONTWAIT", 0)
_let_others_run: Callable[[], None] | None = getattr(os, "sched_yield", None)


class Readiness:
    """Of one socket, whether there is something to read."""

    def __init__(self, sock: socket.socket) -> None:
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        self._socket = sock
        self._poll = poller.poll
        self._vain = self._left_out = 0

    def within(self, timeout: float) -> bool:
        """Is there something to read within ``timeout`` seconds? Awake for a moment of them, then asleep."""
        return (timeout > 0 and self.moment()) or bool(self._poll(max(0.0, timeout) * 1000))

    def moment(self, size: int = 1) -> bool:
        """Stay awake until so many bytes are there, which are few, but not longer than a moment; True: they are."""
        if self._left_out:
            self._left_out -= 1
            return False
        if _let_others_run is None:
            return False
        if self._there(size):
            return True
        until = time.perf_counter() + _MOMENT
        there = False
        while not there and time.perf_counter() < until:
            _let_others_run()
            there = self._there(size)
        # others who compute may run for long: there, it is slept better, for who is woken up comes before them
        in_vain = not there or time.perf_counter() > until
        self._vain = min(_MOST, self._vain + 1) if in_vain else max(0, self._vain - 1)
        self._left_out = (1 << self._vain) - 1
        return there

    def _there(self, size: int) -> bool:
        if not self._poll(0):
            return False
        return size == 1 or not 0 < len(self._socket.recv(size, _LOOK)) < size
