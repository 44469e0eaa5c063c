"""Starts Python programs quickly: a process that has imported everything already, and forks once for each of them.

Each is a process of its own all the same, in a session of its own; only the half second in which Python starts and
imports is saved. All end when whoever started them is gone.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

#: What a program finds imported.
_LOADED = ("numpy", "ssp_redis.cli")
_lock = threading.Lock()
_mine: Nursery | None = None


class Child:
    """A process that the nursery has started: as much of ``subprocess.Popen`` as tests need."""

    def __init__(self, pid: int, fate: int) -> None:
        self.pid = pid
        self._fate: int | None = fate
        self._lock = threading.Lock()
        #: How it ended: an exit code, or minus a signal's number; None while it lives, or nobody has looked.
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Has it ended, and how?"""
        with self._lock, contextlib.suppress(subprocess.TimeoutExpired):
            self._wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        with self._lock:
            return self._wait(timeout)

    def kill(self) -> None:
        """SIGKILL, if it lives."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _wait(self, timeout: float | None) -> int:
        if self._fate is not None:
            deadline = None if timeout is None else time.monotonic() + timeout
            line = b""
            while not line.endswith(b"\n"):
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not select.select([self._fate], [], [], left)[0]:
                    raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
                if not (read := os.read(self._fate, 16)):
                    line = f"{-signal.SIGKILL}\n".encode()  # the nursery is gone, and takes all with it
                line += read
            os.close(self._fate)
            self._fate, self.returncode = None, int(line)
        assert self.returncode is not None
        return self.returncode


class Nursery:
    """The process that forks, as its parent sees it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._control, its = socket.socketpair()
        with its:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(its.fileno())],
                env=environment,
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.owner = os.getpid()
        atexit.register(self.close)

    def close(self) -> None:
        """End the process, and all that it has started."""
        if self.owner == os.getpid():
            self._control.close()
            self._process.wait()

    def start(self, words: Sequence[str], environment: dict[str, str], streams: Sequence[int], folder: str) -> Child:
        """Fork."""
        message = json.dumps([list(words), environment, folder]).encode()
        fate, fate_end = os.pipe()
        try:
            with _lock:
                socket.send_fds(self._control, [len(message).to_bytes(4, "big")], [*streams, fate_end])
                self._control.sendall(message)
                pid = b""
                while not pid.endswith(b"\n"):
                    if not (digit := os.read(fate, 1)):
                        raise RuntimeError("the process that starts others is gone")
                    pid += digit
        except BaseException:
            os.close(fate)
            raise
        finally:
            os.close(fate_end)
        return Child(int(pid), fate)


def start(
    words: Sequence[str], environment: dict[str, str], streams: tuple[int, int, int], folder: str = "."
) -> Child | subprocess.Popen[bytes]:
    """Run ``python WORDS``, which begin with a file or ``-m``; ``streams`` are standard input, output and error."""
    global _mine
    if sys.platform != "linux":  # where a fork without an exec is not safe
        stdin, stdout, stderr = streams
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env=environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    with _lock:
        if _mine is None or _mine.owner != os.getpid():
            _mine = Nursery(environment)
    return _mine.start(words, environment, streams, os.path.abspath(folder))


def _live(words: list[str], environment: dict[str, str], folder: str, streams: list[int]) -> NoReturn:
    """In the child: be that program, and end."""
    code = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, 256)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        gc.unfreeze()
        if words[0] == "-m":
            sys.argv, sys.path[0] = words[1:], folder
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv, sys.path[0] = words, str(Path(words[0]).parent)
            runpy.run_path(words[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _serve(control: socket.socket) -> None:
    children: dict[int, int] = {}
    wake, wakes = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    gc.collect()
    gc.freeze()
    while True:
        ready, _, _ = select.select([control, wake], [], [])
        if wake in ready:
            os.read(wake, 1000)
        if control in ready:
            head, fds, _, _ = socket.recv_fds(control, 4, 4)
            if not head:
                break
            message = b""
            while len(message) < int.from_bytes(head, "big"):
                message += control.recv(1 << 16)
            *streams, fate = fds
            if (pid := os.fork()) == 0:
                _live(*json.loads(message), streams)
            for stream in streams:
                os.close(stream)
            os.write(fate, f"{pid}\n".encode())
            children[pid] = fate
        while children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            end = children.pop(pid)
            with contextlib.suppress(BrokenPipeError):
                os.write(end, f"{os.waitstatus_to_exitcode(status)}\n".encode())
            os.close(end)
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    for name in _LOADED:
        importlib.import_module(name)
    _serve(socket.socket(fileno=int(sys.argv[1])))
