"""A file that takes another one's place when it is whole and on disk, and never before."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[BinaryIO]:
    """Write to the file given; what is at ``target`` stands until the end of the block, and if that fails.

    Where the system can (Linux), the file has no name until it is whole, so that not even SIGKILL leaves one behind.
    """
    spare = f".ssp-redis-{secrets.token_hex(8)}.part"
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        descriptor = nameless(folder)
        named = descriptor is None
        if descriptor is None:
            descriptor = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(descriptor)
                if not named:
                    # with a folder given, link follows the symbolic link that /proc shows
                    os.link(f"/proc/self/fd/{descriptor}", spare, src_dir_fd=folder, dst_dir_fd=folder)
            os.replace(spare, target.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(spare, dir_fd=folder)
            raise
        with contextlib.suppress(OSError):  # not every file system knows this
            os.fsync(folder)
    finally:
        os.close(folder)


def nameless(folder: int) -> int | None:
    """A new file in a folder that has no name yet; None where there is no such thing."""
    flag: int = getattr(os, "O_TMPFILE", 0)
    if not flag or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.open(".", os.O_WRONLY | flag, 0o666, dir_fd=folder)
    except OSError:
        return None  # the file system cannot; what else is wrong the next attempt says
