"""The proxy does to connections what it is told, and to no others."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import redis
from proxy import COMMAND, HEARTBEAT, SUBSCRIBER, Proxy
from remote import eventually

import ssp_redis

PING, PONG = b"PING\r\n", b"+PONG\r\n"


@pytest.fixture(params=["tcp", "unix"])
def proxy(url: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Proxy]:
    with Proxy(url, tmp_path / "p" if request.param == "unix" else None) as proxy:
        yield proxy


@pytest.fixture
def line(proxy: Proxy) -> Iterator[socket.socket]:
    """A connection through the proxy, and nothing but a connection."""
    with redis.Redis.from_url(proxy.url, socket_timeout=0.3) as client:
        connection = client.connection_pool.get_connection()
        yield connection._sock
        connection.disconnect()


def test_a_worker_has_a_connection_of_each_role(proxy: Proxy, job: str, client: redis.Redis) -> None:
    """CLIENT LIST tells what each is for."""
    with ssp_redis.join(proxy.url, job=job, worker=0, lease=0.1) as worker:
        worker.table("w", np.zeros(3)).inc(np.ones(3))
        worker.tick()
        # the heartbeat's is made by a thread of its own, and named a moment after
        names = [f"ssp-redis:{job}{use}" for use in ("", ":heartbeat", ":waiting")]
        eventually(lambda: sorted(one["name"] for one in client.client_list() if job in one["name"]) == names)
        for role in (COMMAND, SUBSCRIBER, HEARTBEAT):
            [pair] = proxy.pairs(role=role)
            proxy.cut(role=role)
            eventually(lambda pair=pair: pair not in proxy.pairs())
            worker.tick()
        assert worker.table("w").get().tolist() == [1] * 3


def test_cut_after_so_many_bytes(proxy: Proxy, line: socket.socket) -> None:
    [pair] = proxy.pairs()
    pair.cut_after(up=2 * len(PING))
    for _ in range(2):
        line.sendall(PING)
        assert line.recv(100) == PONG
    line.sendall(PING)
    assert line.recv(100) == b""


def test_cut_after_so_many_bytes_of_the_reply(proxy: Proxy, line: socket.socket) -> None:
    [pair] = proxy.pairs()
    pair.cut_after(down=len(PONG) + 3)
    for reply in (PONG, PONG[:3], b""):
        if reply:
            line.sendall(PING)
        assert line.recv(100) == reply


def test_held_and_released(proxy: Proxy, line: socket.socket) -> None:
    [pair] = proxy.pairs()
    pair.hold()
    line.sendall(PING)
    with pytest.raises(TimeoutError):
        line.recv(100)
    pair.release()
    assert line.recv(100) == PONG


def test_half_open(proxy: Proxy, line: socket.socket, client: redis.Redis, job: str) -> None:
    proxy.mute()
    line.sendall(f"SET ssp:{{{job}}}:x 1\r\n".encode())
    with pytest.raises(TimeoutError):
        line.recv(100)
    assert client.get(f"ssp:{{{job}}}:x") == b"1"


def test_said_once_more(proxy: Proxy, client: redis.Redis, job: str) -> None:
    for count in (1, 2):
        assert proxy.replay(f"INCR ssp:{{{job}}}:x\r\n".encode()) == b":%d\r\n" % count
