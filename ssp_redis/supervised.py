"""A child process that lives no longer than this one; ``watchdog.py`` is the other half."""

from __future__ import annotations

import contextlib
import inspect
import os
import select
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

from . import watchdog


class SupervisedProcess:
    """Run ``command`` (its program an absolute path) under a watchdog, which kills it when this process is gone.

    The watchdog then removes ``scratch`` too. Both write what they have to say to ``log``. They stand in a session of
    their own, so that a signal from the terminal does not reach them, and inherit no file descriptor.
    """

    def __init__(self, command: Sequence[str], scratch: Path, log: Path) -> None:
        life_read, life_write = os.pipe()
        exit_read, exit_write = os.pipe()
        self._life = life_write
        self._exit: int | None = exit_read
        # Closing it ends the process. Nobody else may hold it: programs that we start do not inherit it, and
        # _let_go_after_fork closes it in forked children.
        self._let_go = weakref.finalize(self, os.close, life_write)
        _held.add(self)
        try:
            source = inspect.getsource(watchdog)
            with open(log, "ab") as errors:
                self._watchdog = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", source, str(scratch), *command],
                    stdin=life_read,
                    stdout=exit_write,
                    stderr=errors,
                    cwd="/",
                    start_new_session=True,
                )
        except BaseException:
            self._let_go()
            os.close(exit_read)
            raise
        finally:
            os.close(life_read)
            os.close(exit_write)
        with open(exit_read, "rb", buffering=0, closefd=False) as pipe:
            #: Process id; 0 when not even the watchdog started.
            self.pid = int(pipe.readline() or 0)

    def wait_exit(self, timeout: float) -> bool:
        """Wait until the process is gone; False when ``timeout`` seconds were not enough."""
        if self._exit is None:
            return True
        deadline = time.monotonic() + timeout
        poller = select.poll()
        poller.register(self._exit, select.POLLIN)
        while poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
            if not os.read(self._exit, 4096):
                return True
        return False

    def end(self, *, keep: bool) -> None:
        """Kill the process if it still runs, wait for it, and remove its scratch directory unless ``keep``."""
        if self._exit is None:
            return
        if keep:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._life, b"k")
        self._let_go()
        self._watchdog.wait()
        if not self.wait_exit(0):  # the watchdog was killed where its child does not die with it
            os.kill(self.pid, signal.SIGKILL)
        os.close(self._exit)
        self._exit = None


#: What this process holds the lifeline of, or did.
_held: weakref.WeakSet[SupervisedProcess] = weakref.WeakSet()


def _let_go_after_fork() -> None:
    """A forked child must not keep alive what belongs to a parent that is gone."""
    for process in list(_held):
        process._let_go()


os.register_at_fork(after_in_child=_let_go_after_fork)
