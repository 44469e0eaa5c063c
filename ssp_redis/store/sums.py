"""The sum of a small table, said aloud: who completes a clock adds it up, and the others hear it instead of adding.

With many members that takes off most of what a clock costs: one of them asks for the deltas, and the others get one
value that nobody has to ask for. It is a shortcut and no more. What is said is the exact sum of a prefix of the log,
and its header names the tick that this ends with; whoever does not hear it in time, or knows another tick in that
place, because the server was rolled back, asks for the deltas.
"""

from __future__ import annotations

import contextlib
import time

from ..connection import ReplyError, Wire, encode
from ..subscriber import Subscriber
from .blob import HEADER_SIZE, sum_header, table_of
from .making import Writer
from .view import View, as_bytes

#: An ear that nobody has used for so many clocks is closed: what it would hear piles up in the server.
EVERY = 64
#: Of so many tables what was heard is kept until it is read.
_KEPT = 16


class Sums:
    """What is said and heard of the small tables of one member's store."""

    def __init__(self, store: Writer) -> None:
        self._store = store
        self._ear: Subscriber | None = None
        #: The last clock at which somebody listened.
        self._read_at = 0
        #: Of tables that nobody has read yet: what was heard last.
        self._heard: dict[int, bytes] = {}

    def listen(self) -> None:
        """Hear what is said from now on."""
        self._read_at = self._store.host.local
        if self._ear is None:
            with contextlib.suppress(OSError, ReplyError):  # deaf, it sums by itself
                self._ear = Subscriber(self._store.host.endpoint, self._store.keys.sums)

    def rest(self) -> None:
        """Stop listening, if nobody has listened for long."""
        if self._store.host.local - self._read_at >= EVERY:
            self.close()

    def close(self) -> None:
        """Stop listening."""
        if self._ear is not None:
            self._ear.close()
            self._ear = None
        self._heard.clear()

    def say(self, view: View) -> None:
        """Tell the others the master of a table of one block."""
        self._store.host.run(lambda wire: self._say(wire, view))

    def _say(self, wire: Wire, view: View) -> None:
        version = view.versions[0]
        if not self._known(version):
            return  # a new epoch has begun meanwhile
        head = b"*3\r\n" + encode(("PUBLISH", self._store.keys.sums)) + b"$%d\r\n" % (HEADER_SIZE + view.layout.nbytes)
        wire.send_parts((head + self._header(view, version), as_bytes(view.master), b"\r\n"))
        wire.read()

    def hear(self, view: View, version: int, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for the sum of the log's first ``version`` entries; it is the master then.

        False: it did not come. The view is as it was.
        """
        if not self._known(version):
            return False
        expected, number = self._header(view, version), view.layout.number
        found = self._heard.pop(number, b"")
        if found[:HEADER_SIZE] == expected:
            self._store.replace(view, version, memoryview(found)[HEADER_SIZE:])
            return True
        deadline, left = time.monotonic() + timeout, timeout
        header, incoming = bytearray(HEADER_SIZE), as_bytes(view.scratch)
        while self._ear is not None and left >= 0:
            try:
                come = self._ear.take(left, header, incoming)
            except (OSError, ReplyError):
                self.close()
                break
            if come is None:
                if header == expected:
                    self._store.replace(view, version, incoming)
                    return True
                come = bytes(header) + incoming
            if (other := table_of(come)) != number and len(self._heard) < _KEPT:
                self._heard[other] = come
            left = deadline - time.monotonic()
        return False

    def _known(self, version: int) -> bool:
        """Is it known here which tick a prefix of the log ends with?"""
        store = self._store
        return store.epoch == store.host.caller.epoch and store.log.start < version <= store.log.end

    def _header(self, view: View, version: int) -> bytes:
        last = self._store.log.tags[version - 1 - self._store.log.start]
        return sum_header(view.layout.block(0), last.incarnation, last.clock, version, self._store.epoch)
