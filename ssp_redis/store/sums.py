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

#: Clocks after which an ear is emptied, or closed if nobody has used it: what it does not hear piles up in the server.
EVERY = 16
#: Clocks after which it is tried again to listen, where that failed.
_AGAIN = 32
#: Of what was heard and is not read yet, so many bytes are kept.
_KEPT = 4 << 20


class Sums:
    """What is said and heard of the small tables of one member's store."""

    def __init__(self, store: Writer) -> None:
        self._store = store
        self._ear: Subscriber | None = None
        #: The last clock at which somebody listened, and the first at which it is worth trying to.
        self._read_at = self._again_at = 0
        #: Of tables that nobody has read yet: what was heard last.
        self._heard: dict[int, bytes] = {}

    def listen(self) -> None:
        """Hear what is said from now on."""
        self._read_at = self._store.host.local
        if self._ear is None and self._read_at >= self._again_at:
            try:
                self._ear = Subscriber(self._store.host.endpoint, self._store.keys.sums)
            except (OSError, ReplyError):
                self._again_at = self._read_at + _AGAIN  # deaf, it sums by itself

    def rest(self) -> None:
        """Between two clocks: stop listening, if nobody has listened for long; else let go of what nobody waited for.

        Who completes every clock hears what it says, and never waits for it.
        """
        if self._store.host.local - self._read_at >= EVERY:
            self.close()
        elif self._ear is not None:
            try:
                self._ear.drain()
            except (OSError, ReplyError):
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
        with contextlib.suppress(ReplyError):  # a user without the right to: nobody needs it
            wire.read()

    def hear(self, view: View, version: int, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for the sum of the log's first ``version`` entries; it is the master then.

        False: it is not among what has come by then. The view is as it was.
        """
        if not self._known(version):
            return False
        expected, number = self._header(view, version), view.layout.number
        deadline = time.monotonic() + timeout
        header, incoming = bytearray(HEADER_SIZE), as_bytes(view.scratch)
        come: bytes | None = self._heard.pop(number, b"")
        while True:
            found, values = (bytes(header), incoming) if come is None else (come[:HEADER_SIZE], come[HEADER_SIZE:])
            if found == expected and len(values) == incoming.nbytes:
                self._store.replace(view, version, memoryview(values))
                return True
            if (other := table_of(found)) not in (number, -1):
                self._keep(other, found + values)
            if self._ear is None:
                return False
            try:
                come = self._ear.take(deadline - time.monotonic(), header, incoming)
            except (OSError, ReplyError):
                self.close()
                return False
            if come == b"":
                return False

    def _keep(self, table: int, come: bytes) -> None:
        self._heard.pop(table, None)
        self._heard[table] = come
        while sum(map(len, self._heard.values())) > _KEPT:
            del self._heard[next(iter(self._heard))]  # the oldest

    def _known(self, version: int) -> bool:
        """Is it known here which tick a prefix of the log ends with?"""
        store = self._store
        return store.epoch == store.host.caller.epoch and store.log.start < version <= store.log.end

    def _header(self, view: View, version: int) -> bytes:
        last = self._store.log.tags[version - 1 - self._store.log.start]
        return sum_header(view.layout.block(0), last.incarnation, last.clock, version, self._store.epoch)
