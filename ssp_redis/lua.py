"""Lua files as commands: read once, their includes resolved, packed, called, and their answer's code made an exception.

The protocol is the Lua (``lua/README.md``). Every script answers one line of words, the first being the code.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from enum import IntEnum
from functools import cache
from importlib import resources
from pathlib import Path

from .connection import ReplyError, Wire, Word, denied, encode

#: Version of keys, scripts and blobs: clients of another version are refused at join.
SCHEMA = 1

#: Where in a script an error came from, and what is called there.
_LINE, _CALL = re.compile(r"@user_script:\s?(\d+)"), re.compile(r"redis\.call\('(\w+)'")
_INCLUDE = re.compile(r"^--@include (\w+)$", re.MULTILINE)


class Code(IntEnum):
    """First word of an answer."""

    OK = 0
    LOST = -1
    SUPERSEDED = -2
    DEPARTED = -3
    RESYNC = -4
    MISMATCH = -5
    HELD = -6
    SCHEMA = -7
    CHANGED = -8
    CLAIMED = -9
    TRIMMED = -10
    SCRATCH = -11
    BAD = -12


class Refusal(Exception):
    """A script refused, before any write; the layer that asked knows what it means there."""

    def __init__(self, code: Code, words: list[str]) -> None:
        super().__init__(f"{code.name} {' '.join(words)}".strip())
        self.code = code
        self.words = words


@cache
def source(name: str) -> str:
    """The text of ``lua/NAME.lua`` with its ``--@include`` lines replaced by ``lua/lib/``'s files."""
    shipped = resources.files("ssp_redis") / "lua"
    # an editable install and a checkout have the folder beside the package, a wheel has it inside
    root = shipped if shipped.is_dir() else Path(__file__).resolve().parent.parent / "lua"
    text = (root / f"{name}.lua").read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda match: (root / "lib" / f"{match[1]}.lua").read_text(encoding="utf-8"), text)


@cache
def digest(name: str) -> str:
    """The SHA-1 by which a server that has run the script knows it."""
    return hashlib.sha1(source(name).encode()).hexdigest()


class Script:
    """One Lua file with its keys bound, and perhaps its first arguments: ``pack`` makes a command, ``call`` runs it."""

    def __init__(self, name: str, keys: list[str]) -> None:
        self.name = name
        self.source = source(name)
        self._bound = encode((len(keys), *keys))
        self._verb = encode(("EVALSHA", digest(name)))
        self._head = self._verb + self._bound
        #: Words of the command so far: verb, script, number of keys, keys.
        self._count = len(keys) + 3

    def bind(self, *arguments: Word) -> Script:
        """The same script with its first arguments fixed and encoded once: what a hot path calls."""
        bound = object.__new__(Script)
        bound.__dict__.update(self.__dict__)
        bound._bound += encode(arguments)
        bound._head += encode(arguments)
        bound._count += len(arguments)
        return bound

    def pack(self, *arguments: Word) -> bytes:
        """The command, for a pipeline or a transaction."""
        return b"*%d\r\n%b%b" % (self._count + len(arguments), self._head, encode(arguments))

    def call(self, wire: Wire, *arguments: Word, first: Sequence[bytes] = (), due: int = 0) -> list[str]:
        """Run the script; a server that does not know it (restart, SCRIPT FLUSH) is told it in the same breath.

        ``first`` are ``SET``s that go before it in the same packet, ``due`` is how many were sent already whose replies
        have not been read; the script has to see to it that they succeeded.
        Returns the words of the answer after the code. Raises :class:`Refusal` for every code but 0.
        """
        packed = self.pack(*arguments)
        wire.send(b"".join((*first, packed)) if first else packed)
        try:
            if first or due:
                wire.read_done(due + len(first))
            reply = wire.read()
        except ReplyError as error:
            if error.code != "NOSCRIPT":
                raise self.explain(error) from None
            head = b"*%d\r\n" % (self._count + len(arguments)) + encode(("EVAL", self.source))
            wire.send(head + self._bound + encode(arguments))
            try:
                reply = wire.read()
            except ReplyError as again:
                raise self.explain(again) from None
        return words(reply)

    def explain(self, error: ReplyError) -> ReplyError:
        """Redis 7 says of a command that a user may not run in a script only where it stands: say which it is."""
        line = _LINE.search(str(error)) if denied(str(error)) == "" else None
        if line is None:
            return error
        names = _CALL.findall(self.source.splitlines()[int(line[1]) - 1])
        called = " or ".join(f"the '{name.lower()}' command" for name in names)
        return ReplyError(f"{error} (no permissions to run {called})")


def words(reply: bytes) -> list[str]:
    """The words of an answer after its code; every code but 0 is raised as :class:`Refusal`."""
    answer = reply.decode().split(" ")
    code = answer.pop(0)
    if code != "0":
        raise Refusal(Code(int(code)), answer)
    return answer
