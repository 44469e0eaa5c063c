"""Servers and job names for the tests.

The suite runs against one real server, on which every test uses jobs of its own; tests that kill, freeze or restart a
server start another. ``SSP_REDIS_TEST_SERVER`` names the binary (``/usr/bin/redis-server``); without it the tests run
on what ``ssp-redis launch`` would start.
"""

from __future__ import annotations

import os
import re
import signal
import uuid
from collections.abc import Callable, Iterator

import pytest
import redis

from ssp_redis.server import EmbeddedServer, ServerNotFound, find_binary


class ControlledServer(EmbeddedServer):
    """A server that a test may mistreat. ``start()`` brings it back at the same address after ``kill()``."""

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        assert self.wait_exit(10)

    def restart(self) -> None:
        """Kill it and start it again: without its data, unless it is ``appendonly``."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


@pytest.fixture(scope="session")
def server_binary() -> str:
    """The server under test; without one the test is skipped here and fails in CI."""
    if chosen := os.environ.get("SSP_REDIS_TEST_SERVER"):
        return chosen
    try:
        return str(find_binary())
    except ServerNotFound as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI must test against a server: {error}")
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def shared_server(server_binary: str) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(server_binary) as server:
        yield server


@pytest.fixture(scope="session")
def _admin(shared_server: EmbeddedServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(shared_server.url) as client:
        yield client


@pytest.fixture
def url(shared_server: EmbeddedServer) -> str:
    """URL of the server that all tests share: use a job of your own (``job``), and leave the server as it was."""
    return shared_server.url


@pytest.fixture
def client(url: str) -> Iterator[redis.Redis]:
    """A plain redis-py client of the shared server, for looking at keys."""
    with redis.Redis.from_url(url) as client:
        yield client


@pytest.fixture
def new_job(url: str, _admin: redis.Redis, request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """Makes fresh job names on the shared server; what the jobs leave is deleted after the test."""
    stem = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:40].strip("-")
    jobs: list[str] = []

    def make() -> str:
        jobs.append(f"{stem}.{uuid.uuid4().hex[:10]}")
        return jobs[-1]

    yield make
    for job in jobs:
        if keys := list(_admin.scan_iter(match=f"ssp:{{{job}}}:*", count=1000)):
            _admin.delete(*keys)


@pytest.fixture
def job(new_job: Callable[[], str]) -> str:
    """A job name that nobody else uses."""
    return new_job()


@pytest.fixture(autouse=True)
def no_foreign_keys(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves keys outside its jobs on the shared server."""
    if "url" not in request.fixturenames:
        yield
        return
    admin: redis.Redis = request.getfixturevalue("_admin")
    yield
    if left := admin.keys("*"):
        admin.delete(*left)
        pytest.fail(f"left on the server: {sorted(left)[:10]}")


@pytest.fixture
def own_server(new_server: Callable[..., ControlledServer]) -> ControlledServer:
    """A server for this test alone, without persistence."""
    return new_server()


@pytest.fixture
def new_server(server_binary: str) -> Iterator[Callable[..., ControlledServer]]:
    """Starts servers for this test alone: ``new_server(appendonly=True, args=[...])``."""
    servers: list[ControlledServer] = []

    def start(**options: object) -> ControlledServer:
        servers.append(ControlledServer(server_binary, **options))  # type: ignore[arg-type]
        return servers[-1]

    yield start
    for server in servers:
        if server.running:
            server.thaw()  # a frozen one cannot end cleanly
        server.stop()
