"""The workers of a ``launch``: processes of their own, started, watched and ended together.

Each is a fresh interpreter (never a fork) in a session of its own, so that Ctrl-C reaches only ``launch``, which then
asks them to leave, once. What they print is passed on a line at a time, with the worker's id in front.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ssp_redis.cli.account import Account
from ssp_redis.cli.channel import Lines
from ssp_redis.cli.exits import Interrupted

#: Seconds between two looks at what no file descriptor tells.
_LOOK = 0.1
#: Seconds that workers get to leave when asked.
_GRACE = 10.0
#: Seconds that a dead worker's output is still read: a process that it started may hold the pipe open for ever.
_LINGER = 0.5


@dataclass
class Child:
    """One worker process."""

    worker: str
    process: subprocess.Popen[bytes]
    account: Account
    #: Its exit code once it has ended; 128 + number when a signal killed it, as in a shell.
    code: int | None = None
    #: What it said was wrong.
    error: str | None = None
    #: It got to say how it ended; else it died where it stood, still a member.
    said_end: bool = False
    ended_at: float = 0.0
    #: It was asked to leave, so that it does is no failure.
    asked: bool = False
    open: set[Any] = field(default_factory=set)

    @property
    def failed(self) -> bool:
        """Whether it ended badly, and not because it was asked to."""
        return bool(self.code) and not self.asked

    @property
    def fate(self) -> str:
        """How it ended, in words."""
        if self.error:
            return self.error
        if self.process.returncode is not None and self.process.returncode < 0:
            return f"killed by {signal.Signals(-self.process.returncode).name}"
        return f"ended with exit code {self.code}"


class Fleet:
    """Starts workers and watches over them until the last one has ended.

    ``on_look`` is told of a child whose account changed, ``on_line`` of a line (child, text, came on stderr),
    ``on_end`` of a child that ended. Leaving the ``with`` block leaves no process behind.
    """

    def __init__(
        self,
        on_look: Callable[[Child], None],
        on_line: Callable[[Child, str, bool], None],
        on_end: Callable[[Child], None],
    ) -> None:
        self.children: list[Child] = []
        #: Signals received so far.
        self.signals: list[int] = []
        self._on_look, self._on_line, self._on_end = on_look, on_line, on_end
        self._selector = selectors.DefaultSelector()
        self._deadline: float | None = None
        self._handlers: dict[int, Any] = {}

    def start(self, worker: str, command: Sequence[str], environment: dict[str, str], descriptor: str) -> None:
        """Start one worker; the variable ``descriptor`` tells it the number of its end of the channel."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                command,
                env=environment | {descriptor: str(theirs.fileno())},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        child = Child(worker, process, Account(worker))
        self.children.append(child)
        self._watch(child, ours, lambda line: self._heard(child, line))
        self._watch(child, process.stdout, lambda line: self._on_line(child, line.decode(errors="replace"), False))
        self._watch(child, process.stderr, lambda line: self._on_line(child, line.decode(errors="replace"), True))

    def watch(self, check: Callable[[], None] = lambda: None) -> None:
        """Return when the last worker has ended. ``check`` is called now and then; what it raises ends all workers.

        Raises:
            Interrupted: at the second signal.
        """
        while any(child.open or child.code is None for child in self.children):
            for key, _ in self._selector.select(_LOOK):
                key.data()
            for child in self.children:
                self._look_after(child)
            check()
            if self._deadline is not None and time.monotonic() > self._deadline:
                self._kill()

    def ask_to_leave(self, children: Sequence[Child] | None = None) -> None:
        """Ask workers, all unless told which, to leave the job and end; after a while they are killed."""
        for child in self.children if children is None else children:
            # who has ended by itself, even if nobody has looked yet, was not asked to
            if child.code is None and not child.asked and child.process.poll() is None:
                child.asked = True
                self._signal(child, signal.SIGTERM)
                self._deadline = self._deadline or time.monotonic() + _GRACE

    def __enter__(self) -> Fleet:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._handlers[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._kill()
            for child in self.children:
                child.process.wait()
                for stream in list(child.open):
                    self._drop(child, stream)
            self._selector.close()
        finally:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: object) -> None:
        self.signals.append(number)
        if len(self.signals) > 1:
            raise Interrupted(number, "forced")
        self.ask_to_leave()

    def _watch(self, child: Child, stream: Any, take: Callable[[bytes], None]) -> None:
        lines = Lines()
        os.set_blocking(stream.fileno(), False)

        def ready() -> None:
            try:
                data = os.read(stream.fileno(), 65536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            for line in lines.feed(data) if data else lines.flush():
                take(line)
            if not data:
                self._drop(child, stream)

        child.open.add(stream)
        self._selector.register(stream, selectors.EVENT_READ, ready)

    def _drop(self, child: Child, stream: Any) -> None:
        child.open.discard(stream)
        with contextlib.suppress(KeyError):
            self._selector.unregister(stream)
        stream.close()

    def _heard(self, child: Child, line: bytes) -> None:
        try:
            message = json.loads(line)
            child.account = Account.of_json(message["account"])
        except (ValueError, KeyError, TypeError):
            return  # a line cut short by its writer's death
        if message["event"] == "end":
            child.said_end = True
            child.error = message["error"]
        self._on_look(child)

    def _look_after(self, child: Child) -> None:
        if child.code is None:
            status = child.process.poll()
            if status is None:
                return
            child.code = 128 - status if status < 0 else status
            child.ended_at = time.monotonic()
        if child.open and time.monotonic() > child.ended_at + _LINGER:
            for stream in list(child.open):
                self._drop(child, stream)
        if not child.open and child.ended_at:
            child.ended_at = 0.0
            if child.code and not child.said_end:
                child.account.how = "died"
            self._on_end(child)

    def _kill(self) -> None:
        for child in self.children:
            if child.process.poll() is None:
                child.asked = True
                self._signal(child, signal.SIGKILL)

    def _signal(self, child: Child, number: int) -> None:
        """To the worker alone when it is asked; with whatever it started when it is killed."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if number == signal.SIGKILL:
                os.killpg(child.process.pid, number)
            else:
                child.process.send_signal(number)
