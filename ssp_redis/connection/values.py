"""Memory for the values that one ``MGET`` brings, laid out as they come, so that the kernel puts each in its place."""

from __future__ import annotations

from collections.abc import Sequence

from .resp import Reply


class Values:
    """Values of one size, each a header and data; see ``Wire.read_values``."""

    def __init__(self, headers: Sequence[bytearray], data: Sequence[memoryview]) -> None:
        self._headers, self._data = headers, data
        size = len(headers[0]) + data[0].nbytes
        head = b"$%d\r\n" % size
        #: What has to stand before each of them, and what has come there.
        self.heads = [b"*%d\r\n%b" % (len(data), head), *[head] * (len(data) - 1)]
        self.came = [bytearray(len(head)) for head in self.heads]
        #: All of the reply, in order.
        self.parts: list[memoryview] = []
        for came, header, part in zip(self.came, headers, data, strict=True):
            self.parts += (memoryview(came), memoryview(header), part, memoryview(bytearray(2)))
        self.size = sum(part.nbytes for part in self.parts)
        #: Bytes from the end of a head to the next one.
        self._step = size + 2

    def right(self, got: int) -> bool:
        """Do the first bytes of the reply say that it is as expected? Only then is it safe to wait for the rest."""
        for head, came in zip(self.heads, self.came, strict=True):
            if got < len(head):
                return came[:got] == head[:got]
            if came != head:
                return False
            got = max(0, got - len(head) - self._step)
        return True

    def rest(self, got: int) -> list[memoryview]:
        """Where what follows the first bytes of the reply belongs."""
        for at, part in enumerate(self.parts):
            if got < part.nbytes:
                return [part[got:], *self.parts[at + 1 :]]
            got -= part.nbytes
        return []

    def put(self, reply: Reply) -> bool:
        """Put what came in another way where it belongs; False when one is missing or of another size."""
        for value, header, data in zip(reply, self._headers, self._data, strict=True):
            if value is None or len(value) != len(header) + data.nbytes:
                return False
            header[:], data[:] = value[: len(header)], value[len(header) :]
        return True
