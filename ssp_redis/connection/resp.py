"""Commands in RESP, the protocol that Redis speaks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Buffer = bytes | bytearray | memoryview
Word = bytes | str | int
#: A command as it goes over the wire; in parts where one of them is too large to be copied for nothing.
Packed = bytes | tuple[Buffer, ...]
Reply = Any


def encode(words: Iterable[Word]) -> bytes:
    """The words of a command as RESP bulk strings, without the count in front."""
    parts: list[bytes] = []
    for word in words:
        data = word if type(word) is bytes else b"%d" % word if type(word) is int else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


def command(*words: Word) -> bytes:
    """A whole command in RESP."""
    return b"*%d\r\n" % len(words) + encode(words)
