"""The limit of a passive store: so many processes that each SET their bytes and GET them back, and nothing else.

Each process has a key of its own, waits for nobody and adds nothing up. Once as one blob, the obvious way; once in
blocks of 1 MiB with two GETs under way, the fastest way found. Written on the bare socket of a redis-py connection and
independent of the client's own reader and writer, so that it stays the same when those change.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import numpy as np
import redis

from ..connection import command
from .crew import Inexact

#: Bytes of a block.
BLOCK = 1 << 20
#: GETs under way at once when it goes by blocks.
_WINDOW = 2
#: Up to so many bytes go out in one piece with their command.
_SMALL = 1 << 16


class Passive:
    """A process that puts bytes into the server and gets them back.

    Args:
        prefix: of the keys that it writes.
        timeout: seconds that the server may be silent.
    """

    def __init__(self, url: str, prefix: str, nbytes: int, timeout: float) -> None:
        pool = redis.ConnectionPool.from_url(url, socket_timeout=timeout, protocol=2)
        self._connection = pool.make_connection()
        self._connection.connect()  # type: ignore[no-untyped-call]
        self._socket: socket.socket = getattr(self._connection, "_sock")  # noqa: B009 - redis-py has no public name
        self._prefix = prefix
        self._data = memoryview(np.random.default_rng(1).bytes(nbytes))
        self._back = memoryview(bytearray(nbytes + 64))

    def blob(self) -> None:
        """All bytes as one value."""
        self._exchange(max(1, len(self._data)), 1)

    def blocks(self) -> None:
        """In blocks, two GETs under way."""
        self._exchange(BLOCK, _WINDOW)

    def check(self) -> None:
        """Did what was read last arrive whole?

        Raises:
            Inexact: it did not.
        """
        if self._back[: len(self._data)] != self._data:
            raise Inexact("SET and GET gave other bytes back")

    def close(self) -> None:
        """Drop the connection; the keys are the caller's to delete."""
        self._connection.disconnect()  # type: ignore[no-untyped-call]

    def _exchange(self, block: int, window: int) -> None:
        extents = [(first, min(first + block, len(self._data))) for first in range(0, len(self._data), block)]
        for first, last in extents:
            self._set(first, self._data[first:last])
        self._expect(b"+OK\r\n" * len(extents))
        asked = 0
        for i, (first, last) in enumerate(extents):
            while asked < min(len(extents), i + window):
                self._socket.sendall(command("GET", f"{self._prefix}:{extents[asked][0]}"))
                asked += 1
            self._expect(b"$%d\r\n" % (last - first))
            self._fill(self._back[first:last])
            self._expect(b"\r\n")

    def _set(self, first: int, data: memoryview) -> None:
        key = f"{self._prefix}:{first}".encode()
        head = b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n" % (len(key), key, len(data))
        if len(data) <= _SMALL:
            self._socket.sendall(head + data + b"\r\n")
        else:
            self._socket.sendall(head)
            self._socket.sendall(data)
            self._socket.sendall(b"\r\n")

    def _expect(self, text: bytes) -> None:
        got = bytearray(len(text))
        self._fill(memoryview(got))
        if got != text:
            raise Inexact(f"the server answered {bytes(got)!r}, not {text!r}")

    def _fill(self, target: memoryview) -> None:
        while target:
            got = self._socket.recv_into(target)
            if not got:
                raise ConnectionError("the server closed the connection")
            target = target[got:]


def pace(act: Callable[[], object], count: int) -> float:
    """Seconds of each of ``count`` calls."""
    begun = time.perf_counter()
    for _ in range(count):
        act()
    return (time.perf_counter() - begun) / count
