"""A server with a port, which a test may mistreat and ask anything."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Sequence
from typing import Any

from certificates import Certificates

from ssp_redis.connection import Endpoint
from ssp_redis.server import EmbeddedServer


def free_port() -> int:
    """A port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(url: str, *words: Any) -> Any:
    """One command over a connection of its own; its answer as it comes."""
    wire = Endpoint(url).connect()
    try:
        return wire.call(*words)
    finally:
        wire.close()


class Node(EmbeddedServer):
    """A server with a TCP port.

    Args:
        password: for whoever asks it; ``auth`` is how a URL writes it.
        tls: certificates; then ``port`` speaks TLS, and another one, for the tests' own questions, does not.
    """

    def __init__(
        self, binary: str, args: Sequence[str] = (), password: str = "", auth: str = "", tls: Certificates | None = None
    ) -> None:
        self._auth = f"default:{auth or password}@" if password else ""
        if password:
            args = [*args, "--requirepass", password, "--masterauth", password]
        secure = free_port()
        if tls is not None:
            also = ["--tls-port", str(secure), "--tls-replication", "yes", *tls.listen()]
            args = [*args, *also]
        super().__init__(binary, tcp=True, args=args)
        self.port = secure if tls is not None else int(self.url.rpartition(":")[2])

    def do(self, *words: Any) -> Any:
        """One command; its answer as it comes."""
        return ask(self.url.replace("://", f"://{self._auth}"), *words)

    def told(self, section: str) -> dict[str, str]:
        """A section of INFO."""
        lines = self.do("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def errors(self, code: str) -> int:
        """How often it has answered with that error."""
        return int(self.told("errorstats").get(f"errorstat_{code}", "count=0").removeprefix("count="))

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        assert self.wait_exit(10)

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End it, frozen or not."""
        if os.getpid() == self._owner and self.running:
            self.thaw()
        super().stop()
