"""Where it is measured: on the server given, else on a private one, under names of its own that are deleted again."""

from __future__ import annotations

import contextlib
import os
import platform
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import redis

from ..connection import Endpoint, Wire
from ..errors import ServerUnavailable, SSPError, UsageError
from ..job import Job
from ..server import EmbeddedServer
from .counters import info


@dataclass(frozen=True)
class Scene:
    """A server to measure on."""

    url: str
    #: Did we start it, so that nobody else is on it?
    private: bool

    def connect(self) -> Wire:
        """A connection, held as a worker holds its own.

        Raises:
            ServerUnavailable: there is none to be had.
            UsageError: it is a cluster, of which it would be chance what is measured.
        """
        endpoint = Endpoint(self.url, name="ssp-redis:bench")
        if endpoint.kind == "cluster":
            raise UsageError("bench measures one server: give the URL of one that is not in a cluster")
        try:
            return endpoint.connect()
        except OSError as error:
            raise ServerUnavailable(str(error)) from None

    @contextlib.contextmanager
    def job(self) -> Iterator[str]:
        """A name for a job of its own; whatever was written under its tag is deleted afterwards."""
        name = f"bench-{uuid.uuid4().hex[:12]}"
        try:
            yield name
        finally:
            with contextlib.suppress(SSPError), Job(self.url, name) as job:
                job.delete(force=True)

    def describe(self) -> dict[str, str | int | float | bool | None]:
        """What a reader must know to compare figures."""
        wire = self.connect()
        try:
            told = info(wire, "server")
        finally:
            wire.close()
        kind = "valkey" if "valkey_version" in told else "redis"
        return {
            "url": Endpoint(self.url).label.partition(":")[0] if self.private else Endpoint(self.url).label,
            "private": self.private,
            "server": f"{kind} {told.get(f'{kind}_version', '?')}",
            "python": platform.python_version(),
            "numpy": np.__version__,
            "redis_py": redis.__version__,
            "machine": f"{platform.system()} {platform.machine()}",
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "load": round(os.getloadavg()[0], 2),
        }


@contextlib.contextmanager
def scene(url: str | None, *, tcp: bool = False) -> Iterator[Scene]:
    """The server at ``url``, or a private one: on a unix socket, or on 127.0.0.1 with ``tcp``."""
    if url:
        yield Scene(url, private=False)
        return
    with EmbeddedServer(tcp=tcp) as server:
        yield Scene(server.url, private=True)
