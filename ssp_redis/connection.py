"""Connections to the server: made by redis-py, spoken to directly.

redis-py knows URLs, passwords, TLS and unix sockets, and makes every connection. A :class:`Wire` then speaks RESP2 on
that connection's own socket: a tick is one small write and one small read, a block of a table goes from numpy memory to
the socket and back without a copy in between. The call path of redis-py would cost two to three times as much.

A wire that fails in the middle of an exchange is closed at once, whatever failed: a reply that nobody took would answer
the next question. What to do then (reconnect, ``sync``, say it again) is the clock's business, not the wire's.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from . import forks
from .errors import ServerRefused, SSPError, UsageError

Buffer = bytes | bytearray | memoryview
Word = bytes | str | int
Reply = Any

#: A value at least this large is sent by itself instead of being copied into the command (bytes).
_LARGE = 16384
#: What one ``recv`` asks for when it does not know better (bytes).
_CHUNK = 65536


class ReplyError(Exception):
    """The server answered a command with an error; ``code`` is its first word."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = text.split(" ", 1)[0]


#: Errors that go away by themselves: wait and connect again.
TRANSIENT = {"LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "UNBLOCKED", "NOREPLICAS"}

#: What the server says, and what to do about it.
_CURES = {
    "OOM": "the server's memory is full (maxmemory): raise maxmemory, or delete what is not needed",
    "MISCONF": "the server cannot write its snapshot to disk: free disk space, or see `save` in its configuration",
    "READONLY": "this server is a read-only replica: give the URL of the master",
    "NOPERM": "the user lacks a right; a user for ssp-redis needs: ~ssp:* &ssp:* +@all -@admin -@dangerous +info",
    "NOAUTH": "the server wants a password: put it into the URL, redis://:PASSWORD@HOST:PORT",
    "WRONGPASS": "the user name or password in the URL is wrong",
    "LOADING": "the server is still loading its data",
    "BUSY": "a script of somebody else is blocking the server",
    "NOREPLICAS": "the server has too few replicas to accept writes (min-replicas-to-write)",
    "MASTERDOWN": "the replica has lost its master",
    "CLUSTERDOWN": "the cluster is down",
}


def refused(error: ReplyError, label: str) -> ServerRefused:
    """The exception for an error the server answered: its cause and what to do, in one place."""
    text = str(error)
    code = "NOPERM" if "permission" in text.lower() or "can't publish" in text else error.code
    cure = _CURES.get(code)
    return ServerRefused(f"{label} refused: {text}" + (f" — {cure}" if cure else ""))


def encode(words: Iterable[Word]) -> bytes:
    """The words of a command as RESP bulk strings, without the count in front."""
    parts: list[bytes] = []
    for word in words:
        data = word if type(word) is bytes else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


def command(*words: Word) -> bytes:
    """A whole command in RESP."""
    return b"*%d\r\n" % len(words) + encode(words)


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
        self._flags = 0 if self._secure or not _kernel_timeout(self._socket) else socket.MSG_WAITALL
        self._usual = self._socket.gettimeout()
        self._buffer = bytearray()
        self._at = 0
        self._depth = forks.depth()
        self._pid = os.getpid()
        self.label = label
        #: Bytes written to and read from the socket so far.
        self.bytes_out = 0
        self.bytes_in = 0

    def close(self) -> None:
        """Drop the connection; safe to repeat, and after a fork it leaves the parent's alone."""
        with contextlib.suppress(Exception):
            if forks.depth() == self._depth:
                self._connection.disconnect()  # type: ignore[no-untyped-call]
            else:
                self._socket.close()

    def hurry(self, seconds: float | None) -> None:
        """Let a read or a write fail after so many seconds; None: after the usual time."""
        self._socket.settimeout(self._usual if seconds is None else seconds)

    # -- writing ---------------------------------------------------------------------------------------------------

    def send(self, data: Buffer) -> None:
        """Send the bytes of one or several commands."""
        self._check_process()
        try:
            self._socket.sendall(data)
        except BaseException:
            self.close()
            raise
        self.bytes_out += len(data)

    def _check_process(self) -> None:
        if forks.depth() != self._depth:
            raise SSPError(f"a connection of process {self._pid} was used in process {os.getpid()}: join there")

    def send_set(self, key: str, header: bytes, data: memoryview) -> None:
        """Send ``SET key header+data``; large data goes from its memory to the socket."""
        size = len(header) + data.nbytes
        head = b"*3\r\n$3\r\nSET\r\n" + encode((key,)) + b"$%d\r\n" % size + header
        if data.nbytes < _LARGE or self._secure:
            self.send(head + data.tobytes() + b"\r\n")
            return
        self._check_process()
        left: list[memoryview] = [memoryview(head), data.cast("B"), memoryview(b"\r\n")]
        self.bytes_out += len(head) + data.nbytes + 2
        try:
            while left:
                sent = self._socket.sendmsg(left)
                while left and sent >= left[0].nbytes:
                    sent -= left.pop(0).nbytes
                if sent:
                    left[0] = left[0][sent:]
        except BaseException:
            self.close()
            raise

    # -- reading ---------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        data = self._socket.recv(_CHUNK)
        if not data:
            raise ConnectionError(f"{self.label} closed the connection")
        self._buffer += data
        self.bytes_in += len(data)

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
            reply = self._quick() if self._at == len(self._buffer) else self._parse()
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
                replies.append(self.read())
            except ReplyError as caught:
                error = error or caught
        if error:
            raise error
        return replies

    def read_strings(self, size: int) -> tuple[Reply, bytes, list[int]]:
        """Read an array whose items but the first are each missing or of ``size`` bytes.

        Returns the first, bytes in which the others are, and where in these each begins, −1 for a missing one.
        """
        try:
            line = self._line()
            if line[:1] == b"-":
                raise ReplyError(line[1:].decode("utf-8", "replace"))
            first = self._parse()
            del self._buffer[: self._at]
            self._at = at = 0
            buffer, head = self._buffer, b"$%d\r\n" % size
            begins: list[int] = []
            for _ in range(int(line[1:]) - 1):
                while len(buffer) < at + 5:
                    self._fill()
                if buffer[at + 1] == 45:  # $-1
                    begins.append(-1)
                    at += 5
                else:
                    begins.append(at + len(head))
                    at += len(head) + size + 2
            while len(buffer) < at:
                self._fill()
            data = bytes(buffer[:at])
            self._at = at
            if not all(begin < 0 or data.startswith(head, begin - len(head)) for begin in begins):
                raise ConnectionError(f"{self.label} sent values of another size than {size} bytes")
        except ReplyError:
            raise
        except BaseException:
            self.close()
            raise
        return first, data, begins

    def read_into(self, header: memoryview, data: memoryview) -> bool:
        """Read a bulk string of exactly ``header`` and ``data`` into their memory.

        Returns False, with the reply taken off the wire, when it is missing or of another size.
        """
        try:
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

    def _copy_into(self, target: memoryview) -> None:
        have = min(len(self._buffer) - self._at, target.nbytes)
        if have:
            target[:have] = self._buffer[self._at : self._at + have]
            self._at += have
        while have < target.nbytes:
            got = self._socket.recv_into(target[have:], 0, self._flags)
            if not got:
                raise ConnectionError(f"{self.label} closed the connection")
            have += got
            self.bytes_in += got

    def ready(self, timeout: float) -> bool:
        """Is there something to read within ``timeout`` seconds?"""
        if self._at < len(self._buffer) or (self._secure and self._socket.pending()):  # type: ignore[attr-defined]
            return True
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        return bool(poller.poll(max(0.0, timeout) * 1000))

    # -- both ------------------------------------------------------------------------------------------------------

    def call(self, *words: Word) -> Reply:
        """One command, one reply."""
        self.send(command(*words))
        return self.read()

    def transact(self, commands: Sequence[bytes]) -> Reply:
        """Several commands as one MULTI/EXEC: the reply to the last. Only that may be an error, and is returned."""
        count = len(commands)
        self.send(b"%b%b%b" % (_MULTI, b"".join(commands), _EXEC))
        usual = _transacted(count)
        if self._at == len(self._buffer):
            # a whole, uneventful reply in one packet needs no parsing but for its end
            try:
                data = self._socket.recv(_CHUNK)
                if not data:
                    raise ConnectionError(f"{self.label} closed the connection")
            except BaseException:
                self.close()
                raise
            self.bytes_in += len(data)
            if data.startswith(usual):
                end = data.find(b"\r\n", len(usual))
                if end > 0 and len(data) == end + 4 + int(data[len(usual) : end]):
                    return data[end + 2 : -2]
            self._buffer[:] = data
            self._at = 0
        results = self.read_all(count + 2)[-1]
        for result in results[:-1]:
            if isinstance(result, ReplyError):
                raise result
        return results[-1]

    def call_all(self, commands: Sequence[bytes]) -> list[Reply]:
        """Several commands in one write; their replies in order."""
        self.send(b"".join(commands))
        return self.read_all(len(commands))


_MULTI = command("MULTI")
_EXEC = command("EXEC")


@cache
def _transacted(count: int) -> bytes:
    """What precedes the last reply of a transaction of so many commands, all but the last answered OK."""
    return b"+OK\r\n" + b"+QUEUED\r\n" * count + b"*%d\r\n" % count + b"+OK\r\n" * (count - 1) + b"$"


class Endpoint:
    """Where the server is and how to get there. Making one touches no network."""

    def __init__(self, url: str, *, timeout: float = 5.0, name: str = "ssp-redis") -> None:
        text = url
        for ours, theirs in (("valkey://", "redis://"), ("valkeys://", "rediss://")):
            if text.startswith(ours):
                text = theirs + text[len(ours) :]
        try:
            parts = urlsplit(text)
        except ValueError:
            raise UsageError(f"{text.rpartition('@')[2]} is not a server's URL") from None
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise UsageError(f"a server's URL begins with redis://, rediss:// or unix://, not with {parts.scheme!r}")
        #: The URL without user, password and options: what may stand in messages.
        self.label = f"{parts.scheme}://" + (
            parts.netloc.rpartition("@")[2] + parts.path
            if parts.scheme == "unix"
            else (parts.netloc + parts.path).rpartition("@")[2]  # of a password with a / in it, a part is in the path
        )
        self.url = url
        try:
            pool = redis.ConnectionPool.from_url(text, protocol=2)
        except Exception as error:
            # what could not be understood may be a piece of the password
            detail = "a password in it is written with %2F for / and %40 for @" if "@" in text else str(error)
            raise UsageError(f"{self.label} is not a server's URL: {detail}") from None
        self._class = pool.connection_class
        # after from_url: options in the URL would beat keyword arguments, and these are not the user's to change
        self._options = pool.connection_kwargs | {
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "decode_responses": False,
            "client_name": name,
            "health_check_interval": 0,
        }
        self._options.setdefault("socket_timeout", timeout)
        self._options.setdefault("socket_connect_timeout", timeout)
        for option in list(self._options):
            # retries are ours to decide; maintenance notifications of redis-py 8 need RESP3 and its own parser
            if option.startswith("retry_on") or "maint_notifications" in option:
                del self._options[option]
        try:
            self._class(**self._options)
        except Exception as error:
            raise UsageError(f"{self.label}: an option of the URL is wrong: {error}") from None

    def __repr__(self) -> str:
        return f"Endpoint({self.label})"

    def connect(self, patience: float | None = None) -> Wire:
        """A new wire.

        Args:
            patience: seconds that each step of it may take at the most; None: the usual time.

        Raises:
            OSError: the server cannot be reached (redis-py's connection errors included).
            ServerRefused: it can, and will not have us (password, permission).
        """
        options = self._options
        if patience is not None:
            limits = {name: options[name] for name in ("socket_timeout", "socket_connect_timeout")}
            options = options | {name: min(patience, limit or patience) for name, limit in limits.items()}
        connection = self._class(**options)
        try:
            connection.connect()
            if patience is not None:
                getattr(connection, "_sock").settimeout(self._options["socket_timeout"])  # noqa: B009
        except redis.AuthenticationError as error:
            raise refused(ReplyError(_with_code(str(error), "WRONGPASS")), self.label) from None
        except redis.BusyLoadingError:
            raise ConnectionError(f"{self.label} is loading its data") from None
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise ConnectionError(f"{self.label} cannot be reached: {error}") from None
        except redis.ResponseError as error:
            raise refused(ReplyError(str(error)), self.label) from None
        return Wire(connection, self.label)


def _with_code(text: str, code: str) -> str:
    if text.startswith("Authentication required"):
        return f"NOAUTH {text}"
    return text if text.split(" ", 1)[0].isupper() else f"{code} {text}"


class Backoff:
    """Pauses between attempts, growing from 5 ms to ``most`` seconds, until a deadline."""

    def __init__(self, limit: float, most: float = 0.5) -> None:
        self.deadline = time.monotonic() + limit
        self._pause = 0.005
        self._most = most

    def pause(self) -> bool:
        """Sleep a little; False when the deadline has passed."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(self._pause, left))
        self._pause = min(self._pause * 2, self._most)
        return True
