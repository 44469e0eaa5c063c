"""The machine's line between ``launch`` and a worker it started: a socket, one JSON object a line.

The worker tells how far it is and how it ended. ``launch`` says nothing; that its end closes tells the worker that
``launch`` is gone (see ``signals.py``). Standard output stays free for what a script prints.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

#: Seconds that the last word may wait for a reader.
_LAST_WORD = 2.0


class Channel:
    """The worker's end, on a file descriptor that it inherited."""

    def __init__(self, descriptor: int) -> None:
        # A script's own children must not hold the line open.
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._lock = threading.Lock()
        self._unsent = b""
        self._open = True

    def fileno(self) -> int:
        """For :func:`ssp_redis.cli.signals.leave_with`."""
        return self._socket.fileno()

    def send(self, event: str, **fields: Any) -> None:
        """Say how far it is; dropped while the other side does not read (a ``launch`` that was stopped with Ctrl-Z)."""
        with self._lock:
            self._push()
            if self._open and not self._unsent:
                self._unsent = _line(event, fields)
                self._push()

    def send_last(self, event: str, **fields: Any) -> None:
        """Say how it ended: worth a moment's waiting."""
        with self._lock, contextlib.suppress(OSError):
            if self._open:
                self._open = False
                self._socket.settimeout(_LAST_WORD)
                self._socket.sendall(self._unsent + _line(event, fields))

    def _push(self) -> None:
        try:
            if self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._open = False


def _line(event: str, fields: dict[str, Any]) -> bytes:
    return json.dumps({"event": event, **fields}).encode() + b"\n"


class Lines:
    """Bytes as they come, in whole lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that ``data`` completes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        yield from lines

    def flush(self) -> Iterator[bytes]:
        """What the end of the stream left without a newline."""
        if self._rest:
            yield self._rest
        self._rest = b""
