"""Servers of every shape, started by the tests: masters with replicas and Sentinels, clusters, TLS."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import certificates
from clusters import Cluster
from fixtures import join, no_environment_of_ours, proxy, remote, together
from remote import environment
from sentinels import Watched

__all__ = ["join", "no_environment_of_ours", "proxy", "remote", "together"]


@dataclass
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def findings(self) -> dict[str, dict[str, str]]:
        """Of ``check --json``: the last of each name."""
        return {finding["name"]: finding for finding in self.json["findings"]}


@pytest.fixture
def watched(server_binary: str) -> Iterator[Watched]:
    """A master, two replicas and three Sentinels."""
    with Watched(server_binary) as watched:
        yield watched


@pytest.fixture(scope="module")
def cluster(server_binary: str) -> Iterator[Cluster]:
    """Three masters with a replica each; whole again before each test of the module."""
    with Cluster(server_binary) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def certs(tmp_path_factory: pytest.TempPathFactory) -> certificates.Certificates:
    """A CA with a server's and a client's certificate, and a CA that signed neither."""
    if shutil.which("openssl") is None:
        absent("openssl is not installed")
    return certificates.Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def tls_binary(server_binary: str) -> str:
    """A server that speaks TLS: the one under test, else Debian's."""
    for binary in filter(None, (server_binary, shutil.which("redis-server"), shutil.which("valkey-server"))):
        told = subprocess.run([binary, "--tls-port", "1", "--port", "0", "-"], input="", capture_output=True, text=True)
        if "No tls-cert-file configured" in told.stdout:
            return binary
    absent("no server with TLS is installed")


@pytest.fixture
def ssp(tmp_path: Path) -> Callable[..., Done]:
    """Runs ``ssp-redis WORDS``; keywords become environment variables."""

    def run(*words: str, code: int | None = 0, **variables: str) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "ssp_redis", *words],
            cwd=tmp_path,
            env=environment(**variables),
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert code is None or done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return Done(done.returncode, done.stdout, done.stderr)

    return run


def absent(what: str) -> Any:
    """Skip the test here; fail it where everything must be there."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must test this: {what}")
    pytest.skip(what)
