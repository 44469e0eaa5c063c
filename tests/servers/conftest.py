"""Servers of every shape, started by the tests: masters with replicas and Sentinels, clusters, TLS."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import certificates
from clusters import Cluster
from commands import ssp
from fixtures import join, no_environment_of_ours, proxy, remote, together
from sentinels import Watched

__all__ = ["join", "no_environment_of_ours", "proxy", "remote", "ssp", "together"]


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


def absent(what: str) -> Any:
    """Skip the test here; fail it where everything must be there."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must test this: {what}")
    pytest.skip(what)
