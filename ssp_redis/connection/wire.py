"""A connection spoken to directly, on the socket that redis-py made.

A tick is one small write and one small read, a block of a table goes from numpy memory to the socket and back without a
copy in between. The call path of redis-py would cost two to three times as much.

A wire that fails in the middle of an exchange is closed at once, whatever failed: a reply that nobody took would answer
the next question. What to do then (reconnect, ``sync``, say it again) is the clock's business, not the wire's.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct
import sys
import time
from collections.abc import Sequence
from functools import cache

import redis

from .. import forks
from ..errors import SSPError
from .readiness import Readiness
from .replies import ReplyError
from .resp import Buffer, Packed, Reply, Word, command, encode
from .values import Values

#: A value at least this large is sent by itself instead of being copied into the command (bytes).
_LARGE = 16384
#: So many parts the kernel takes in one call.
_MOST = 1024
#: Of transactions of up to so many commands the usual reply is shorter than any other.
_FEW = 5
#: What one ``recv`` asks for when it does not know better (bytes).
_CHUNK = 65536


def _kernel_timeout(sock: socket.socket) -> bool:
    """Let the kernel time a socket out instead of Python, which would ask it (poll) before every read and write.

    Returns False where that is not to be had; the socket is then as it was.
    """
    limit = sock.gettimeout()
    if not limit or not sys.platform.startswith("linux"):
        return False
    value = struct.pack("@ll", int(limit), int(limit % 1 * 1e6))
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
    except OSError:
        return False
    sock.settimeout(None)
    return True


class Wire:
    """One connection, in lockstep: whoever sends a command takes its reply."""

    def __init__(self, connection: redis.connection.AbstractConnection, label: str) -> None:
        self._connection = connection
        self._socket: socket.socket = getattr(connection, "_sock")  # noqa: B009 - redis-py has no public name for it
        self._secure = hasattr(self._socket, "pending")
        #: Seconds that one read or write may take; 0: any time.
        self._step = self._socket.gettimeout() or 0.0
        self._flags = 0 if self._secure or not _kernel_timeout(self._socket) else socket.MSG_WAITALL
        self._usual = self._limited = self._socket.gettimeout()
        self._deadline: float | None = None
        self._buffer = bytearray()
        self._at = 0
        #: Of values or messages of a size, what stands before them, and memory for that and for what stands after them.
        self._frames: dict[int, tuple[bytes, bytearray, memoryview, memoryview]] = {}
        self._readiness = Readiness(self._socket)
        self._depth = forks.depth
        self._pid = os.getpid()
        self.label = label
        #: Bytes written to and read from the socket so far.
        self.bytes_out = 0
        self.bytes_in = 0

    def close(self) -> None:
        """Drop the connection; safe to repeat, and after a fork it leaves the parent's alone."""
        with contextlib.suppress(Exception):
            if forks.depth == self._depth:
                self._connection.disconnect()  # type: ignore[no-untyped-call]
            else:
                self._socket.close()

    def hurry(self, seconds: float | None, each: bool = False) -> None:
        """Let what follows fail that is not over in so many seconds; None: each read or write after the usual time.

        It begins to count with the next command, and is looked at with each piece of what is long.

        Args:
            each: they are for each read or write, as the usual time is; all together may take longer.
        """
        self._deadline = None if seconds is None or each else time.monotonic() + seconds
        if self._deadline is None:
            self._limit(self._usual if seconds is None or seconds > self._step > 0 else seconds)

    def _pace(self) -> None:
        """Let the next read or write take no longer than there is time left."""
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            self._limit(self._usual if left > self._step > 0 else left)

    def _limit(self, seconds: float | None) -> None:
        if seconds != self._limited:
            self._limited = seconds
            self._socket.settimeout(seconds)

    # -- writing ---------------------------------------------------------------------------------------------------

    def send(self, data: Buffer) -> None:
        """Send the bytes of one or several commands."""
        self._check_process()
        try:
            if self._deadline is not None:
                self._pace()
            self._socket.sendall(data)
        except BaseException:
            self.close()
            raise
        self.bytes_out += len(data)

    def _check_process(self) -> None:
        if forks.depth != self._depth:
            raise SSPError(f"a connection of process {self._pid} was used in process {os.getpid()}: join there")

    def send_set(self, key: str, header: bytes, data: memoryview) -> None:
        """Send ``SET key header+data``; large data goes from its memory to the socket."""
        size = len(header) + data.nbytes
        head = b"*3\r\n$3\r\nSET\r\n" + encode((key,)) + b"$%d\r\n" % size + header
        if data.nbytes < _LARGE:
            self.send(head + data.tobytes() + b"\r\n")
        else:
            self.send_parts((head, data, b"\r\n"))

    def send_parts(self, parts: Sequence[Buffer]) -> None:
        """Send the bytes of commands that lie in several places, from there to the socket."""
        if self._secure:
            whole = memoryview(b"".join(parts))
            for at in range(0, len(whole), _CHUNK):
                self.send(whole[at : at + _CHUNK])
            return
        self._check_process()
        size = sum(map(len, parts))
        self.bytes_out += size
        try:
            if self._deadline is not None:
                self._pace()
            sent = self._socket.sendmsg(parts[:_MOST])
            if sent == size:
                return
            left = [memoryview(part) for part in parts]
            while True:
                while left and sent >= left[0].nbytes:
                    sent -= left.pop(0).nbytes
                if not left:
                    return
                left[0] = left[0][sent:]
                self._pace()
                sent = self._socket.sendmsg(left[:_MOST])
        except BaseException:
            self.close()
            raise

    # -- reading ---------------------------------------------------------------------------------------------------

    def _receive_up_to(self, size: int, flags: int = 0) -> bytes:
        data = self._socket.recv(size, flags)
        if not data:
            raise ConnectionError(f"{self.label} closed the connection")
        self.bytes_in += len(data)
        return data

    def _fill(self) -> None:
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        self._pace()
        self._buffer += self._receive_up_to(_CHUNK)

    def _line(self) -> bytes:
        while True:
            end = self._buffer.find(b"\r\n", self._at)
            if end >= 0:
                line = bytes(self._buffer[self._at : end])
                self._at = end + 2
                return line
            self._fill()

    def _take(self, size: int) -> bytes:
        while len(self._buffer) - self._at < size + 2:
            self._fill()
        data = bytes(self._buffer[self._at : self._at + size])
        self._at += size + 2
        return data

    def _parse(self) -> Reply:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            return None if rest == b"-1" else self._take(int(rest))
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"-":
            return ReplyError(rest.decode("utf-8", "replace"))
        if kind == b"*":
            return None if rest == b"-1" else [self._parse() for _ in range(int(rest))]
        raise ConnectionError(f"{self.label} sent {line[:40]!r}, which is not RESP2")

    def _quick(self) -> Reply:
        """The reply of a script, alone and whole in one packet, needs no buffer; anything else goes the usual way."""
        data = self._socket.recv(_CHUNK)
        self.bytes_in += len(data)
        if data[:1] == b"$":
            end = data.find(b"\r\n")
            if end > 0 and len(data) == end + 4 + int(data[1:end]):
                return data[end + 2 : -2]
        elif not data:
            raise ConnectionError(f"{self.label} closed the connection")
        self._buffer[:] = data
        self._at = 0
        return self._parse()

    def read(self) -> Reply:
        """The next reply: bytes, int, list or None. An error inside a list stays there; alone it is raised."""
        try:
            if self._at == len(self._buffer):
                if self._flags:
                    self._readiness.moment()
                reply = self._quick()
            else:
                reply = self._parse()
        except BaseException:
            self.close()
            raise
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    def read_all(self, count: int) -> list[Reply]:
        """The next ``count`` replies, all of them taken off the wire before the first error among them is raised."""
        replies: list[Reply] = []
        error: ReplyError | None = None
        for _ in range(count):
            try:
                self._pace()
                replies.append(self.read())
            except ReplyError as caught:
                error = error or caught
        if error:
            raise error
        return replies

    def read_done(self, count: int) -> None:
        """Take the replies to so many ``SET``: as :meth:`read_all`, but waking up once, when all of them are there."""
        if count and not self._expect(_OK * count):
            self.read_all(count)

    def _expect(self, usual: bytes) -> bool:
        """Take what mostly comes next, if that is what comes, which is no shorter in any other course of events.

        To wait for all of it at once saves waking up for each part, where they come while a large value is sent.
        """
        if self._at < len(self._buffer) or not self._flags:
            return False
        try:
            if self._deadline is not None:
                self._pace()
            self._readiness.moment(len(usual))
            data = self._receive_up_to(len(usual), self._flags)
        except BaseException:
            self.close()
            raise
        if data == usual:
            return True
        self._buffer[:] = data
        self._at = 0
        return False

    def read_strings(self, size: int) -> tuple[Reply, list[bytes]]:
        """Read an array whose items but the first are each missing or of ``size`` > 0 bytes.

        Returns the first and the others, ``b""`` for a missing one; thousands of them are found by one pattern at once.
        """
        try:
            line = self._line()
            if line[:1] == b"-":
                raise ReplyError(line[1:].decode("utf-8", "replace"))
            first = self._parse()
            count = int(line[1:]) - 1
            items: list[bytes] = []
            head, pattern = b"$%d\r\n" % size, _strings(size)
            while len(items) < count:
                if self._at == len(self._buffer):
                    self._fill()
                found = pattern.findall(self._buffer, self._at)[: count - len(items)]
                missing = found.count(b"")
                self._at += missing * 5 + (len(found) - missing) * (len(head) + size + 2)
                items += found
                rest = bytes(self._buffer[self._at : self._at + len(head)])
                if len(items) < count:
                    if not head.startswith(rest) and not rest.startswith(b"$-1\r\n"[: len(rest)]):
                        raise ConnectionError(f"{self.label} sent a value of another size than {size} bytes")
                    self._fill()
        except ReplyError:
            raise
        except BaseException:
            self.close()
            raise
        return first, items

    def read_into(self, header: memoryview, data: memoryview) -> bool:
        """Read a bulk string of exactly ``header`` and ``data`` into their memory.

        Returns False, with the reply taken off the wire, when it is missing or of another size.
        """
        try:
            if self._deadline is not None:
                self._pace()
            if self._at == len(self._buffer) and self._flags:
                self._readiness.moment()
                if self._scatter(b"$", header, data):
                    return True
            line = self._line()
            if line[:1] == b"-":
                raise ReplyError(line[1:].decode("utf-8", "replace"))
            size = int(line[1:])
            if size < 0:
                return False
            if size != header.nbytes + data.nbytes:
                self._take(size)
                return False
            for target in (header, data):
                self._copy_into(target)
            while len(self._buffer) - self._at < 2:
                self._fill()
            self._at += 2
        except ReplyError:
            raise
        except BaseException:
            self.close()
            raise
        return True

    def read_values(self, values: Values) -> bool:
        """Read what an ``MGET`` brings; False, when all of it is read, if one is missing or of another size."""
        try:
            if self._deadline is not None:
                self._pace()
            if self._at == len(self._buffer) and self._flags:
                self._readiness.moment()
                got = self._gather(values.parts)
                while got < values.size and values.right(got):
                    self._pace()
                    got += self._gather(values.rest(got))
                if got == values.size and values.came == values.heads:
                    return True
                self._buffer[:] = b"".join(values.parts)[:got]
                self._at = 0
            reply = self._parse()
        except BaseException:
            self.close()
            raise
        if isinstance(reply, ReplyError):
            raise reply
        return values.put(reply)

    def _gather(self, targets: list[memoryview], flags: int = 0) -> int:
        got = self._socket.recvmsg_into(targets, 0, flags)[0]
        if not got:
            raise ConnectionError(f"{self.label} closed the connection")
        self.bytes_in += got
        return got

    def read_message(self, head: bytes, header: memoryview, data: memoryview) -> Reply:
        """As :meth:`read`, but None for a message of exactly ``header`` and ``data``, which then is in their memory.

        Args:
            head: what stands before the size of each message of the channel.
        """
        try:
            if self._at == len(self._buffer) and self._flags and self._scatter(head, header, data):
                return None
        except BaseException:
            self.close()
            raise
        return self.read()

    def _scatter(self, before_size: bytes, header: memoryview, data: memoryview) -> bool:
        """Let the kernel put a bulk string where it belongs; False, with what has come in the buffer, if it is no such.

        What comes first tells the size; only then is it safe to wait for the rest.
        """
        size = header.nbytes + data.nbytes
        frame = self._frames.get(size)
        if frame is None:
            head = before_size + b"%d\r\n" % size
            first, last = bytearray(len(head)), bytearray(2)
            frame = self._frames[size] = (head, first, memoryview(first), memoryview(last))
        head, first, before, after = frame
        targets = [before, header, data, after]
        got = self._gather(targets)
        if got == len(head) + size + 2 and first == head:
            return True
        if got < len(head) or first != head:
            self._buffer[:] = b"".join(targets)[:got]
            self._at = 0
            return False
        while True:
            while targets and got >= targets[0].nbytes:
                got -= targets.pop(0).nbytes
            if not targets:
                return True
            targets[0] = targets[0][got:]
            if self._deadline is not None:
                self._pace()
            got = self._gather(targets, self._flags)

    def _receive(self, target: memoryview) -> None:
        have = 0
        while have < target.nbytes:
            self._pace()
            got = self._socket.recv_into(target[have:], 0, self._flags)
            if not got:
                raise ConnectionError(f"{self.label} closed the connection")
            have += got
            self.bytes_in += got

    def _copy_into(self, target: memoryview) -> None:
        have = min(len(self._buffer) - self._at, target.nbytes)
        if have:
            target[:have] = self._buffer[self._at : self._at + have]
            self._at += have
        self._receive(target[have:])

    def ready(self, timeout: float) -> bool:
        """Is there something to read within ``timeout`` seconds?"""
        if self._at < len(self._buffer) or (self._secure and self._socket.pending()):  # type: ignore[attr-defined]
            return True
        if self._socket.fileno() < 0:
            raise ConnectionError(f"the connection to {self.label} was closed in the middle of an exchange")
        return self._readiness.within(timeout)

    def payloads(self, head: bytes) -> list[bytes] | None:
        """All messages of a channel that have come, where something has; None if it is not just whole messages.

        Args:
            head: what stands before the size of each of them.
        """
        if self._at < len(self._buffer) or self._secure:
            return None
        try:
            data = self._receive_up_to(_CHUNK)
        except BaseException:
            self.close()
            raise
        before, *messages = data.split(head)
        found = []
        for message in messages:
            size, _, text = message.partition(b"\r\n")
            if size.isdigit() and len(text) == int(size) + 2:
                found.append(text[:-2])
        if before or len(found) < len(messages) or len(data) == _CHUNK:
            self._buffer[:] = data
            self._at = 0
            return None
        return found

    # -- both ------------------------------------------------------------------------------------------------------

    def call(self, *words: Word) -> Reply:
        """One command, one reply."""
        self.send(command(*words))
        return self.read()

    def transact(self, commands: Sequence[Packed]) -> Reply:
        """Several commands as one MULTI/EXEC: the reply to the last. Only that may be an error, and is returned."""
        count = len(commands)
        parts: list[Buffer] = [_MULTI]
        for packed in commands:
            if type(packed) is tuple:
                parts += packed
            else:
                parts.append(packed)  # type: ignore[arg-type]
        parts.append(_EXEC)
        if len(parts) > count + 2:
            self.send_parts(parts)
        else:
            self.send(b"".join(parts))
        # a longer one that is refused as a whole has a shorter reply
        if count <= _FEW and self._expect(_transacted(count)):
            try:
                return self._quick()
            except BaseException:
                self.close()
                raise
        results = self.read_all(count + 2)[-1]
        for result in results[:-1]:
            if isinstance(result, ReplyError):
                raise result
        return results[-1]

    def call_all(self, commands: Sequence[bytes]) -> list[Reply]:
        """Several commands in one write; their replies in order."""
        self.send(b"".join(commands))
        return self.read_all(len(commands))


@cache
def _strings(size: int) -> re.Pattern[bytes]:
    """A string of that size, or a missing one, in a reply."""
    return re.compile(rb"\$(?:-1|%d\r\n(.{%d}))\r\n" % (size, size), re.DOTALL)


_OK = b"+OK\r\n"
_MULTI = command("MULTI")
_EXEC = command("EXEC")


@cache
def _transacted(count: int) -> bytes:
    """What precedes the last reply of a transaction of so many commands, all but the last answered OK."""
    return _OK + b"+QUEUED\r\n" * count + b"*%d\r\n" % count + _OK * (count - 1)
