"""A master, its replicas, and Sentinels that watch over them: real processes, quick to decide."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from certificates import Certificates
from nodes import Node, ask, free_port
from remote import eventually

from ssp_redis.connection import ReplyError
from ssp_redis.supervised import SupervisedProcess

SERVICE = "mymaster"
#: How often they look and tell each other, in milliseconds: a tenth of what they do otherwise.
_OFTEN = ("INFO-PERIOD", 1000, "ASK-PERIOD", 100, "PUBLISH-PERIOD", 200, "ELECTION-TIMEOUT", 1000)


class SentinelProcess:
    """One Sentinel; ``lines`` go to its configuration."""

    def __init__(self, binary: str, lines: Sequence[str], tls: bool = False) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="ssp-sentinel-"))
        config, log = self._folder / "sentinel.conf", self._folder / "log"
        self.port = free_port()
        where = ["port 0", f"tls-port {self.port}"] if tls else [f"port {self.port}"]
        places = [f"dir {self._folder}", f"logfile {log}", "bind 127.0.0.1"]
        config.write_text("\n".join([*where, *places, *lines]) + "\n")
        self._process = SupervisedProcess([binary, str(config), "--sentinel"], self._folder, log)
        eventually(self._listens, log.read_text())

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def freeze(self) -> None:
        """SIGSTOP: whoever connects hears nothing."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def stop(self) -> None:
        self._process.end(keep=False)
        shutil.rmtree(self._folder, ignore_errors=True)


class Watched:
    """One master, two replicas, three Sentinels.

    Args:
        password: of the servers; ``sentinel_password``: of the Sentinels.
        tls: certificates, when all of them shall speak TLS.
    """

    def __init__(
        self, binary: str, password: str = "", sentinel_password: str = "", tls: Certificates | None = None
    ) -> None:
        self._stack = contextlib.ExitStack()
        self._tls = tls
        self._auth = f"default:{password}@" if password else ""
        self._sentinel_auth = f"default:{sentinel_password}@" if sentinel_password else ""
        # replication that begins at once, and notices soon when it has ended
        quick = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"]
        try:
            self.nodes = [self._stack.enter_context(Node(binary, quick, password=password, tls=tls)) for _ in range(3)]
            for node in self.nodes[1:]:
                node.do("REPLICAOF", "127.0.0.1", self.nodes[0].port)
            lines = [
                f"sentinel monitor {SERVICE} 127.0.0.1 {self.nodes[0].port} 2",
                f"sentinel down-after-milliseconds {SERVICE} 500",
                f"sentinel failover-timeout {SERVICE} 1000",
                f"sentinel parallel-syncs {SERVICE} 2",
                *([f"sentinel auth-pass {SERVICE} {password}"] if password else []),
                *([f"requirepass {sentinel_password}"] if sentinel_password else []),
            ]
            if tls is not None:
                words = ["--tls-replication", "yes", *tls.listen()]
                lines = [f"{name[2:]} {value}" for name, value in zip(words[::2], words[1::2], strict=True)] + lines
            self.sentinels = [SentinelProcess(binary, lines, tls is not None) for _ in range(3)]
            for sentinel in self.sentinels:
                self._stack.callback(sentinel.stop)
            for which in range(3):
                with contextlib.suppress(ReplyError):  # before Redis 7 they cannot be told
                    self.ask_sentinel("SENTINEL", "DEBUG", *_OFTEN, which=which)
            eventually(self._ready, "the Sentinels know each other and both replicas", 30)
        except BaseException:
            self._stack.close()
            raise

    @property
    def hosts(self) -> str:
        return ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)

    @property
    def url(self) -> str:
        """What a user would give."""
        if self._tls is not None:
            return f"rediss+sentinel://{self._auth}{self.hosts}/{SERVICE}?ssl_ca_certs={self._tls.ca}"
        return f"redis+sentinel://{self._auth}{self.hosts}/{SERVICE}"

    def ask_sentinel(self, *words: Any, which: int = 0) -> Any:
        place = f"{self._sentinel_auth}127.0.0.1:{self.sentinels[which].port}"
        if self._tls is not None:
            return ask(f"rediss://{place}?ssl_ca_certs={self._tls.ca}", *words)
        return ask(f"redis://{place}", *words)

    def link(self, node: Node) -> str:
        """Is this replica connected to its master? up, down, or "" for a master, or when it does not say."""
        lines: list[str] = []
        with contextlib.suppress(OSError):
            lines = node.do("INFO", "replication").decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line).get("master_link_status", "")

    @property
    def master(self) -> Node:
        """As the last Sentinel says."""
        _, port = self.ask_sentinel("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE, which=-1)
        return next(node for node in self.nodes if node.port == int(port))

    def failed_over(self, old: Node) -> Node:
        """Wait until another is the master, and return it."""
        eventually(lambda: self.master is not old, "another master", 40)
        return self.master

    def _ready(self) -> bool:
        for which in range(3):
            reply = self.ask_sentinel("SENTINEL", "MASTER", SERVICE, which=which)
            told = dict(zip(reply[::2], reply[1::2], strict=True))
            if (told[b"num-slaves"], told[b"num-other-sentinels"], told[b"flags"]) != (b"2", b"2", b"master"):
                return False
        return all(self.link(node) == "up" for node in self.nodes[1:])

    def __enter__(self) -> Watched:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
