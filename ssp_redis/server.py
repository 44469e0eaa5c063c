"""A private Redis or Valkey server that lives exactly as long as the program that started it.

It listens on a unix socket in a fresh directory that only this user can enter (or, when asked, on a free port of
127.0.0.1, never 6379), keeps nothing on disk unless told to, and is ready when the constructor returns. It ends with
``stop()``, with the ``with`` block, when the object is collected and when the process ends in whatever way, SIGKILL
included: ``supervised.py`` says how. Ctrl-C in the terminal does not reach it, so that the program can still use it
while it cleans up.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from .binary import ServerNotFound, find_binary, named_binary
from .errors import ServerUnavailable, UsageError
from .supervised import SupervisedProcess

__all__ = ["EmbeddedServer", "ServerFailed", "ServerNotFound", "find_binary"]

#: Seconds the server may take to write its files and exit when it keeps data.
_GRACE = 10.0
#: Bytes of a socket's path; the systems' limits are 103 (macOS) and 107 (Linux).
_LONGEST_PATH = 100
_PORT_ATTEMPTS = 20


class ServerFailed(ServerUnavailable):
    """The server exited, or did not answer, before it was ready; ``log`` is what it had to say."""

    def __init__(self, message: str, log: str) -> None:
        tail = "\n".join(log.rstrip().splitlines()[-20:])
        super().__init__(f"{message}; its log:\n{tail}" if tail else f"{message}; its log is empty")
        self.log = log


class EmbeddedServer:
    """A server of one's own; ready when the constructor returns.

    ``binary`` is a path or a name on PATH (:func:`find_binary` when None), ``args`` are further arguments of the server
    (``["--maxmemory", "64mb"]``). ``appendonly=True`` keeps data in ``directory`` for the next server that is given it;
    without ``directory``, only as long as this object. ``tcp=True`` also listens on 127.0.0.1, where other users of the
    machine can reach it. ``timeout`` (seconds) bounds the start, loading of kept data included.

    Raises :class:`ServerNotFound` and :class:`ServerFailed`.

    >>> with EmbeddedServer() as server:
    ...     worker = ssp_redis.join(server.url, job="demo")
    """

    def __init__(
        self,
        binary: str | os.PathLike[str] | None = None,
        *,
        args: Sequence[str] = (),
        appendonly: bool = False,
        directory: str | os.PathLike[str] | None = None,
        tcp: bool = False,
        timeout: float = 30.0,
    ) -> None:
        if directory is not None and not appendonly:
            raise UsageError("directory is given, but nothing would be kept in it: add appendonly=True")
        self.binary = find_binary() if binary is None else named_binary(os.fspath(binary), "binary")
        self._args = list(args)
        self._appendonly = appendonly
        self._timeout = timeout
        self._tcp = tcp
        self._port = 0
        #: Process id of the server.
        self.pid = 0
        self._owner = os.getpid()
        self._log = ""
        self._process: SupervisedProcess | None = None
        self._scratch = _scratch_directory()
        self._socket = self._scratch / "redis.sock"
        self._log_file = self._scratch / "server.log"
        self._directory = self._scratch if directory is None else Path(directory).absolute()
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self.start()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        """Where clients connect: ``unix:///…`` or ``redis://127.0.0.1:PORT``. It outlives a restart."""
        return f"redis://127.0.0.1:{self._port}" if self._tcp else f"unix://{quote(str(self._socket))}"

    @property
    def running(self) -> bool:
        """Whether the server process is there (frozen counts)."""
        return not self.wait_exit(0)

    def start(self) -> None:
        """Start the server again at the same address after it died; without effect while it runs."""
        if not self._scratch.exists():
            raise UsageError("this server was stopped; make a new one")
        if self.running:
            return
        deadline = time.monotonic() + self._timeout
        for attempts_left in reversed(range(_PORT_ATTEMPTS)):
            chosen = self._tcp and self._port == 0
            if chosen:
                self._port = _free_port()
            known = len(self.log())
            self._end(keep=True)
            self._process = SupervisedProcess(self._command(), self._scratch, self._log_file)
            self.pid = self._process.pid
            if self._becomes_ready(deadline):
                return
            died = not self.running
            self._end(keep=True)
            said = self.log()[known:]
            # Between the choice of a port and its use somebody else may have taken it.
            if not (chosen and attempts_left and "ddress already in use" in said):
                fate = "exited" if died else f"did not answer within {self._timeout:g} s"
                raise ServerFailed(f"{self.binary} {fate} before it was ready", said)
            self._port = 0

    def log(self) -> str:
        """What the server has logged so far, also after it stopped."""
        with contextlib.suppress(FileNotFoundError):
            self._log = self._log_file.read_text(errors="replace")
        return self._log

    def wait_exit(self, timeout: float) -> bool:
        """Wait until the server process is gone; False when ``timeout`` seconds were not enough."""
        return self._process is None or self._process.wait_exit(timeout)

    def stop(self) -> None:
        """End the server and remove its scratch directory; may be repeated. A forked child's call does nothing."""
        if os.getpid() != self._owner:
            return
        if self._appendonly and self.running:
            os.kill(self.pid, signal.SIGTERM)
            self.wait_exit(_GRACE)
        self.log()
        self._end(keep=False)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def __enter__(self) -> EmbeddedServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _end(self, *, keep: bool) -> None:
        if self._process is not None:
            self._process.end(keep=keep)
            self._process = None

    def _command(self) -> list[str]:
        # In this order, so that the user's arguments win.
        options = {
            "--port": str(self._port),
            "--bind": "127.0.0.1",
            "--unixsocket": str(self._socket),
            "--unixsocketperm": "700",
            "--dir": str(self._directory),
            "--logfile": str(self._log_file),
            "--save": "",
            "--appendonly": "yes" if self._appendonly else "no",
        }
        return [str(self.binary), *(word for option in options.items() for word in option), *self._args]

    def _becomes_ready(self, deadline: float) -> bool:
        """Whether the server answers before it exits and before ``deadline``.

        The question goes to the socket in our own directory, even with ``tcp``: on a port somebody else may answer.
        """
        pause = 0.001
        while time.monotonic() < deadline and not self.wait_exit(pause):
            pause = min(2 * pause, 0.01)
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
                client.settimeout(max(0.001, deadline - time.monotonic()))
                client.connect(str(self._socket))
                client.sendall(b"PING\r\n")
                reply = client.recv(64)
                if reply and not reply.startswith(b"-LOADING"):
                    return True
        return False


def _scratch_directory() -> Path:
    """A new directory for this user alone, with a path short enough for a socket in it."""
    scratch = tempfile.mkdtemp(prefix="ssp-redis-")
    if len(os.fsencode(scratch)) + len("/redis.sock") > _LONGEST_PATH:
        os.rmdir(scratch)
        scratch = tempfile.mkdtemp(prefix="ssp-redis-", dir="/tmp")
    return Path(scratch).absolute()


def _free_port() -> int:
    """A port of 127.0.0.1 that nobody listened on a moment ago, and not the usual one."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port != 6379:
            return port
