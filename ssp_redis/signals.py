"""Signals that wait: what must not be done by half is done before a handler (Ctrl-C) may end it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_back() -> Iterator[None]:
    """Handlers of SIGINT and SIGTERM run when the block is over. It should be short, and must not wait for anything."""
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread alone
        return
    handlers, came = {}, []
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, lambda signum, frame: came.append(signum))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for signum in came:
            signal.raise_signal(signum)
