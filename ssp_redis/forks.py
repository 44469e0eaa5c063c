"""Which process is this? A forked child shares its parent's sockets and must not speak on them.

Asking the kernel for the pid on every exchange costs more than checking a number that only a fork changes.
"""

from __future__ import annotations

import os

#: How many forks lie between the process that imported this and the one that reads it: another number in every child.
depth = 0


def _forked() -> None:
    global depth
    depth += 1


os.register_at_fork(after_in_child=_forked)
