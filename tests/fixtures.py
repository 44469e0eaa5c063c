"""Fixtures for tests of workers: joined here, in threads of this process, or in processes of their own."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

import pytest
import redis
from proxy import Proxy
from remote import Remote, environment

import ssp_redis
from ssp_redis import Worker

T = TypeVar("T")


def background(function: Callable[..., T], *args: Any, **kwargs: Any) -> Future[T]:
    """Run a call in a thread of its own."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def blocked(future: Future[Any], seconds: float = 0.1) -> bool:
    """Is the call still under way after a while?"""
    try:
        future.exception(seconds)
    except TimeoutError:
        return True
    return False


def in_database(url: str, number: int) -> str:
    """Another database of the same server. What is left there, nobody clears."""
    return f"{url}{'&' if '?' in url else '?'}db={number}"


@contextmanager
def sigint_at(line: int, traced: Callable[[CodeType], bool]) -> Iterator[list[int]]:
    """SIGINT when this thread comes to so many lines of the code that is ``traced``. Gives how many it has come to."""
    seen = [0]

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if not traced(frame.f_code):
            return trace if event == "call" else None
        if event == "line":
            seen[0] += 1
            if seen[0] == line:
                signal.raise_signal(signal.SIGINT)
        return trace

    sys.settrace(trace)
    try:
        yield seen
    finally:
        sys.settrace(None)


@contextmanager
def interrupted_at(number: int, event: str, ours: Callable[[str], bool]) -> Iterator[list[int]]:
    """Raise KeyboardInterrupt at so many a ``line``, or ``call``, in files that are ``ours``; counts them."""
    count = [0]

    def trace(frame: FrameType, what: str, argument: object) -> Any:
        if not ours(frame.f_code.co_filename):
            return None
        if what == event:
            count[0] += 1
            if count[0] == number:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        yield count
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)


@pytest.fixture(autouse=True)
def no_environment_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the shell says must not reach ``join``."""
    for name in set(os.environ) - set(environment()):
        if name != "SSP_REDIS_TEST_SERVER":
            monkeypatch.delenv(name)


def long_ago(client: redis.Redis, job: str, seconds: int) -> None:
    """Nobody has been heard of for so long: as if they had all been killed then, or the server frozen."""
    client.hincrby(f"ssp:{{{job}}}:config", "time", -1000 * seconds)
    for worker in client.zrange(leases := f"ssp:{{{job}}}:leases", 0, -1):
        client.zincrby(leases, -1000 * seconds, worker)


@pytest.fixture
def join(url: str, job: str) -> Iterator[Callable[..., Worker]]:
    """``ssp_redis.join`` on the shared server and this test's job; who is still there at the end is detached."""
    workers: list[Worker] = []

    def make(worker: str | int | None = None, **settings: Any) -> Worker:
        settings = {"timeout": 20.0, "job": job, "url": url} | settings
        workers.append(ssp_redis.join(settings.pop("url"), worker=worker, **settings))
        return workers[-1]

    yield make
    for worker in workers:
        worker.detach()


@pytest.fixture
def together(join: Callable[..., Worker]) -> Callable[..., list[Worker]]:
    """Joins workers 0 … n − 1 at once, so that a quorum is met."""

    def make(count: int, **settings: Any) -> list[Worker]:
        futures = [background(join, i, **({"workers": count} | settings)) for i in range(count)]
        return [future.result(30) for future in futures]

    return make


@pytest.fixture
def remote() -> Iterator[Callable[..., Remote]]:
    """Starts processes; they are killed after the test."""
    children: list[Remote] = []

    def make(**variables: str) -> Remote:
        children.append(Remote(**variables))
        return children[-1]

    yield make
    for child in children:
        child.close()


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    """A proxy in front of the shared server."""
    with Proxy(url) as proxy:
        yield proxy


@pytest.fixture
def collected() -> Iterator[None]:
    """What interruptions leave half-made, an open socket say, is collected after the test, and not in a later one."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


class Past:
    """A server with an AOF that can be put back to an earlier moment, as after a failover or a lost tail."""

    def __init__(self, new_server: Callable[..., Any], tmp_path: Path) -> None:
        self._data, self._copy = tmp_path / "data", tmp_path / "copy"
        self.server = new_server(appendonly=True, directory=self._data, args=["--appendfsync", "always"])
        self.url = self.server.url

    def remember(self) -> None:
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self._data, self._copy)

    def return_to_it(self) -> None:
        self.server.kill()
        shutil.rmtree(self._data)
        shutil.copytree(self._copy, self._data)
        self.server.start()
