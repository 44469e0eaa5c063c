"""Starts lives quickly: a process that has imported everything already, and forks once for each life.

Each life is a process of its own all the same; only the half second in which Python starts and imports is saved. The
process ends, and every life with it, when whoever started it is gone.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, NoReturn

_ROOT = Path(__file__).parents[2]
_lock = threading.Lock()
_mine: Nursery | None = None


class Child:
    """A life's process."""

    def __init__(self, pid: int, fate: int) -> None:
        self.pid = pid
        self._fate = os.fdopen(fate, "rb")
        self._lock = threading.Lock()
        #: How it ended: an exit code, or minus a signal's number; None while it lives.
        self.returncode: int | None = None

    def wait(self) -> int:
        """Wait for its end."""
        with self._lock:
            if self.returncode is None:
                self.returncode = int(self._fate.readline() or -signal.SIGKILL)
                self._fate.close()
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
        """End the process, and every life with it."""
        if self.owner == os.getpid():
            self._control.close()
            self._process.wait()

    def start(self, told: dict[str, Any], errors: Path) -> tuple[Child, int]:
        """A new life, and the end of a pipe from which to read what it writes."""
        out, out_end = os.pipe()
        fate, fate_end = os.pipe()
        error = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with _lock:
                socket.send_fds(self._control, [json.dumps(told).encode() + b"\n"], [out_end, error, fate_end])
                pid = b""
                while not pid.endswith(b"\n"):
                    if not (digit := os.read(fate, 1)):
                        raise RuntimeError("the process that starts lives is gone")
                    pid += digit
        finally:
            for end in (out_end, error, fate_end):
                os.close(end)
        return Child(int(pid), fate), out


def nursery(environment: dict[str, str]) -> Nursery:
    """The one of this process."""
    global _mine
    with _lock:
        if _mine is None or _mine.owner != os.getpid():
            _mine = Nursery(environment)
        return _mine


def _live(told: str, out: int, error: int) -> NoReturn:
    """In the child: run the program, and end."""
    from tests.chaos import worker

    code = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(out, 1)
        os.dup2(error, 2)
        os.closerange(3, 256)
        worker.main(told)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
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
            message, fds, _, _ = socket.recv_fds(control, 1 << 16, 3)
            if not message:
                break
            while not message.endswith(b"\n"):
                message += control.recv(1 << 16)
            out, error, fate = fds
            if (pid := os.fork()) == 0:
                _live(message.decode(), out, error)
            os.close(out)
            os.close(error)
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
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.path.insert(0, str(_ROOT))
    importlib.import_module("tests.chaos.worker")  # what a life needs, before it is born
    _serve(socket.socket(fileno=int(sys.argv[1])))
