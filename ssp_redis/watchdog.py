"""The process that stands between an embedded server and the program that started it.

Whoever starts a server may be killed at any moment, and a killed process cleans nothing up. So the server is the child
of this small process, which holds the read end of a pipe whose only write end the program holds: end of file means that
the program is gone, however it went, and then the server and its scratch directory go too. As the server's parent it
has not reaped it before that moment, so the process id that it kills cannot have become somebody else's.

File descriptors: 0 is that pipe; 1 is a pipe in the other direction that carries the server's process id and is then
left to the server alone, so that its end of file tells the program that the server exited; 2 is the server's log.

It runs from its source text (``python -c``) rather than as ``-m ssp_redis.watchdog``, which would import the whole
package and what it depends on first; hence it imports the standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import sys

_PR_SET_PDEATHSIG = 1
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _become_server(command: list[str], watchdog: int) -> None:
    """In the forked child: turn into the server, which dies with the watchdog where the system offers that."""
    try:
        for number in _IGNORED:
            signal.signal(number, signal.SIG_DFL)
        os.setpgid(0, 0)  # so that the children it forks to rewrite its files are killed with it
        if sys.platform == "linux":
            # Tied to the thread that forked: safe here, where the watchdog has no other thread.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != watchdog:
                return
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.execv(command[0], command)
    except BaseException as error:
        os.write(2, f"cannot run {command[0]}: {error}\n".encode())
    finally:
        os._exit(127)


def main() -> None:
    """``watchdog SCRATCH SERVER [ARGUMENT ...]``: run the server until file descriptor 0 ends.

    A byte on file descriptor 0 also ends it, but keeps the scratch directory for the server's next start.
    """
    scratch, *command = sys.argv[1:]
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    watchdog = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_server(command, watchdog)
    keep = b""
    try:
        with contextlib.suppress(OSError):  # nobody reads it any more: end of file follows at once
            os.write(1, b"%d\n" % pid)
        os.dup2(2, 1)
        keep = os.read(0, 1)
    finally:
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(OSError):
                kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        if not keep:
            shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
