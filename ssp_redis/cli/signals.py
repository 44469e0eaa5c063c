"""Leaving on a signal: the first one asks, the second one forces.

The first SIGINT, SIGTERM or SIGHUP raises in the main thread, wherever it is, blocked in a wait included; on its way
out the worker leaves the job, so that nobody waits for its lease. The second ends the process on the spot.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from types import FrameType

from ssp_redis.cli.exits import Interrupted, by_signal

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Seconds that leaving may take once whoever started this process is gone.
_GRACE = 5.0


class _Leaving:
    asked = False

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            os._exit(by_signal(number))
        self.asked = True
        raise Interrupted(number)


def leave_on_signals() -> None:
    """From now on a signal raises :class:`Interrupted` in the main thread; a second one ends the process."""
    leaving = _Leaving()
    for number in _SIGNALS:
        signal.signal(number, leaving.on_signal)


def leave_with(descriptor: int) -> None:
    """Leave when the other end of ``descriptor`` closes: whoever started this process is gone, however it went."""

    def watch() -> None:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        with contextlib.suppress(OSError):
            while poller.poll() and os.read(descriptor, 4096):
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        # The server may be gone as well, and a wait for it would outlast the point.
        time.sleep(_GRACE)
        os._exit(by_signal(signal.SIGTERM))

    threading.Thread(target=watch, name="ssp-redis-lifeline", daemon=True).start()
