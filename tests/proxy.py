"""A proxy, on TCP or a unix socket, between workers and a server, that misbehaves on request.

It sees what a client sends chunk by chunk and asks its ``fate`` what shall become of each: a command may get through
whole, or not at all, or in part, or its reply may be lost, or it may arrive long after the client has given it up.
Connections can also be cut (at once, or after so many bytes), held, or left half-open, all of them or those of one
*role*: a worker has one for commands, one to wait on and one for its heartbeat, told apart by what is sent on them.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike, fspath
from types import TracebackType
from urllib.parse import quote, unquote, urlsplit

_CHUNK = 1 << 16


@dataclass(frozen=True)
class Fate:
    """What becomes of a chunk of a client's bytes."""

    #: How much of it the server gets, 0 … 1.
    deliver: float = 1.0
    #: How much of the first chunk of the reply the client gets before the connection is cut; None: no cut.
    reply: float | None = None
    #: Cut the client off at once; the server gets the bytes only so many seconds later.
    late: float | None = None
    #: Seconds to hold the bytes back.
    delay: float = 0.0


PASS = Fate()
#: The command never arrives.
CUT = Fate(deliver=0.0, reply=0.0)
#: The server carries the command out; the answer is lost with the connection.
LOSE_REPLY = Fate(reply=0.0)

Chooser = Callable[[bytes], Fate]


def once(match: bytes, fate: Fate, count: int = 1) -> Chooser:
    """``fate`` for the first ``count`` chunks that hold ``match``."""
    left = [count]

    def choose(chunk: bytes) -> Fate:
        if left[0] and match in chunk:
            left[0] -= 1
            return fate
        return PASS

    return choose


def chaos(seed: int, probability: float) -> Chooser:
    """Every kind of trouble, at random."""
    rng = random.Random(seed)

    def choose(chunk: bytes) -> Fate:
        if rng.random() > probability:
            return PASS
        return rng.choice(
            [
                CUT,
                LOSE_REPLY,
                Fate(deliver=rng.random(), reply=0.0),
                Fate(reply=rng.random()),
                Fate(late=rng.uniform(0.0, 0.05)),
                Fate(delay=rng.uniform(0.0, 0.01)),
            ]
        )

    return choose


#: What the connections of a worker are for.
COMMAND, SUBSCRIBER, HEARTBEAT = ROLES = ("command", "subscriber", "heartbeat")


class Pair:
    """A client's connection and the one to the server that serves it."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        #: How much of the next reply gets through before the cut.
        self._doom: float | None = None
        self._late = False
        self._said = b""
        #: Bytes that still get through to the server and to the client before the cut; None: any number.
        self._left: list[int | None] = [None, None]
        self._moving = threading.Event()
        self._moving.set()
        #: Nothing reaches the client any more.
        self.muted = False
        #: That begins, instead of the cut, when what is left has got through.
        self._stalls = False
        for pump in (self._up, self._down):
            threading.Thread(target=pump, daemon=True).start()

    def said(self, match: bytes) -> bool:
        """Has the client sent this?"""
        return match in self._said

    @property
    def role(self) -> str:
        """What the client uses this connection for, as far as it has said."""
        if b"SUBSCRIBE\r\n" in self._said or b":waiting\r\n" in self._said:
            return SUBSCRIBER
        return HEARTBEAT if b":heartbeat\r\n" in self._said else COMMAND

    def close(self) -> None:
        for end in (self._client, self._server):
            self._shut(end)
        self._moving.set()

    @property
    def moving(self) -> bool:
        """Is it not held?"""
        return self._moving.is_set()

    def hold(self) -> None:
        """Nothing moves in either direction, until ``release``; what is sent meanwhile arrives then."""
        self._moving.clear()

    def release(self) -> None:
        self._moving.set()

    def cut_after(self, *, up: int | None = None, down: int | None = None) -> None:
        """Cut once so many more bytes got through to the server, or to the client."""
        self._left = [up, down]

    def stall_after(self, *, down: int) -> None:
        """Once so many more bytes got through to the client nothing does any more, and nothing is closed."""
        self._left[1], self._stalls = down, True

    def _within(self, direction: int, chunk: bytes) -> bytes:
        """What of ``chunk`` gets through before the cut."""
        left = self._left[direction]
        if left is None:
            return chunk
        self._left[direction] = left - len(chunk[:left])
        return chunk[:left]

    @staticmethod
    def _shut(end: socket.socket) -> None:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()

    def _up(self) -> None:
        with contextlib.suppress(OSError):
            while chunk := self._client.recv(_CHUNK):
                self._proxy.open.wait()
                self._said = (self._said + chunk[:200])[:2000]
                fate = self._proxy.judge(self, chunk)
                self._moving.wait()
                if fate.late is not None:
                    self._late = True
                    self._shut(self._client)
                    time.sleep(fate.late)
                    self._server.sendall(chunk)
                    self._server.recv(_CHUNK)  # it has been carried out
                    break
                if fate.delay:
                    time.sleep(fate.delay)
                self._doom = fate.reply
                whole = self._within(0, chunk)
                if part := whole[: round(fate.deliver * len(chunk))]:
                    self._server.sendall(part)
                if fate.deliver < 1.0 or len(whole) < len(chunk):
                    break
        self.close()
        self._proxy.forget(self)

    def _down(self) -> None:
        with contextlib.suppress(OSError):
            while not self._late and (chunk := self._server.recv(_CHUNK)):
                self._proxy.open.wait()
                self._moving.wait()
                if self._late:
                    return
                if self._doom is not None:
                    self._client.sendall(chunk[: round(self._doom * len(chunk))])
                    break
                part = self._within(1, chunk)
                if not self.muted and part:
                    self._client.sendall(part)
                if len(part) < len(chunk):
                    if not self._stalls:
                        break
                    self.muted = True
        if not self._late:
            self.close()


class Proxy:
    """Listens at ``url`` and forwards to another server; ``fate`` decides about each chunk that clients send.

    Args:
        target: URL of the server.
        path: where to listen, a unix socket; None: a port of 127.0.0.1.
    """

    def __init__(self, target: str, path: str | PathLike[str] | None = None) -> None:
        parts = urlsplit(target)
        self._target: str | tuple[str, int]
        self._target = unquote(parts.path) if parts.scheme == "unix" else (parts.hostname or "", parts.port or 6379)
        self._lock = threading.Lock()
        self._pairs: set[Pair] = set()
        self.fate: Chooser | None = None
        #: Told of each chunk, and of the connection it came over, before ``fate``; PASS leaves the choice to that.
        self.watch: Callable[[Pair, bytes], Fate] | None = None
        #: Turn new clients away.
        self.refuse = False
        #: Cleared while frozen.
        self.open = threading.Event()
        self.open.set()
        #: Chunks that did not simply pass.
        self.troubles = 0
        #: Clients that came so far.
        self.clients = 0
        if path is None:
            self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
            self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}"
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(fspath(path))
            self._listener.listen(64)
            self.url = f"unix://{quote(fspath(path))}"
        threading.Thread(target=self._accept, daemon=True).start()

    def judge(self, pair: Pair, chunk: bytes) -> Fate:
        fate = PASS if self.watch is None else self.watch(pair, chunk)
        with self._lock:
            if fate == PASS and self.fate is not None:
                fate = self.fate(chunk)
            self.troubles += fate != PASS
            return fate

    def forget(self, pair: Pair) -> None:
        with self._lock:
            self._pairs.discard(pair)

    def freeze(self) -> None:
        """Connections stay open, and nothing moves."""
        self.open.clear()

    def thaw(self) -> None:
        self.open.set()

    def pairs(self, match: bytes = b"", role: str | None = None) -> list[Pair]:
        """The connections there are, or those of them over which ``match`` was sent, or of one role."""
        with self._lock:
            return [pair for pair in self._pairs if pair.said(match) and role in (None, pair.role)]

    def cut(self, match: bytes = b"", role: str | None = None) -> None:
        """Cut connections."""
        for pair in self.pairs(match, role):
            pair.close()

    def mute(self, match: bytes = b"", role: str | None = None) -> None:
        """Half-open connections: they stay, and nothing comes back over them."""
        for pair in self.pairs(match, role):
            pair.muted = True

    def replay(self, chunk: bytes) -> bytes:
        """Say something once more, over a connection of its own; what the server answers first."""
        with contextlib.closing(self._connect()) as server:
            server.settimeout(5)
            server.sendall(chunk)
            return server.recv(_CHUNK)

    def close(self) -> None:
        self.refuse = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.fate = None
        self.thaw()
        self.cut()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connect(self) -> socket.socket:
        if isinstance(self._target, str):
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._target)
            except OSError:
                server.close()
                raise
            return server
        return socket.create_connection(self._target)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.clients += 1
                try:
                    if self.refuse:
                        raise ConnectionRefusedError
                    server = self._connect()
                except OSError:
                    client.close()
                    continue
                if client.family != socket.AF_UNIX:
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self._pairs.add(Pair(self, client, server))
