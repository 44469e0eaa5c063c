"""Signals that wait: what must not be done by half is done before a handler (Ctrl-C) may end it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType


@contextmanager
def held_back() -> Iterator[None]:
    """Handlers of SIGINT and SIGTERM run when the block is over. It should be short, and must not wait for anything."""
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread alone
        return
    handlers: dict[int, Callable[[int, FrameType | None], object]] = {}
    came: list[int] = []
    holding = True

    def note(signum: int, frame: FrameType | None) -> None:
        if holding:
            came.append(signum)
        else:
            handlers[signum](signum, frame)

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, note)
        yield
    finally:
        holding = False  # a handler that is back may keep the next one from it: `note` does as well
        with ExitStack() as last:  # the last first, and each whatever another raises
            for signum in came:
                last.callback(signal.raise_signal, signum)
            for signum, handler in handlers.items():
                last.callback(signal.signal, signum, handler)
