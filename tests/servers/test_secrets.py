"""A password in a URL, in whatever form, is shown nowhere."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster
from nodes import Node
from remote import environment, eventually
from sentinels import Watched

import ssp_redis
from ssp_redis import Job, SSPError, config
from ssp_redis.connection import Endpoint
from ssp_redis.connection.url import parse

#: Every character that has a meaning in a URL, written as it must be and as some will write it.
SECRET, WRITTEN = "Xy7/?#@:Zq9", "Xy7%2F%3F%23%40%3AZq9"
_PIECES = re.compile(r"Xy7|Zq9|s3sam3")

FORMS = [
    "redis://:{}@127.0.0.1:1",
    "redis://bob:{}@127.0.0.1:1/2?socket_timeout=1",
    "redis://127.0.0.1:1?username=bob&password={}",
    "valkey://:{}@127.0.0.1:1",
    "rediss://:{}@127.0.0.1:1",
    "valkeys://bob:{}@127.0.0.1:1?ssl_cert_reqs=none",
    "unix://:{}@/nowhere/redis.sock",
    "unix:///nowhere/redis.sock?password={}",
    "redis+sentinel://:{}@127.0.0.1:1,127.0.0.1:2/m/0?sentinel_password=s3sam3",
    "redis+sentinel://127.0.0.1:1/m?password={}&sentinel_username=s&sentinel_password=s3sam3",
    "rediss+sentinel://bob:{}@127.0.0.1:1/m?ssl_cert_reqs=none",
    "redis+cluster://bob:{}@127.0.0.1:1,127.0.0.1:2",
    "rediss+cluster://127.0.0.1:1?password={}",
]
#: What cannot be understood, with the secret in it.
BROKEN = [
    "redis://:{}@h:port",
    "redis://:{}@h:1?db=x",
    "redis://:{}@h:1?no_such_option=1",
    "redis+sentinel://:{}@h:1",
    "redis+sentinel://:{}@h:1/m?sentinel_passwort=s3sam3",
    "redis+cluster://:{}@h:1/3",
    "rediss://:{}@h:1?ssl_ca_certs=/nowhere",
    "rediss://:{}@h:1?ssl_cert_reqs=perhaps",
    "http://:{}@h:1",
    ":{}@h:1",
    "{}@h",
    "{}",
    "{}://h",
]


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    clean(caplog.text)


def clean(text: str) -> None:
    found = _PIECES.search(text)
    assert not found, text[max(0, found.start() - 200) : found.end() + 200]


def raised(act: Callable[[], Any]) -> str:
    """All that a user can see of what it raises."""
    with pytest.raises(SSPError) as caught:
        act()
    error = caught.value
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        seen.append(cause)
        cause = cause.__cause__ or cause.__context__
    return "\n".join(
        [repr(seen), *map(str, seen), repr([vars(each) for each in seen]), *traceback.format_exception(error)]
    )


@pytest.mark.parametrize("form", FORMS)
def test_of_a_server_that_is_away(form: str) -> None:
    url = form.format(WRITTEN)
    clean(raised(lambda: ssp_redis.join(url, job="j", worker=0, reconnect_timeout=0.01)))
    clean(raised(lambda: Job(url, "j", timeout=0.01).exists()))
    endpoint = Endpoint(url)
    clean(repr([endpoint, endpoint.label, str(endpoint), parse(url), Job(url, "j")]))
    settings = config.resolve(url, "j", 0, None, 0, None, None, None, 1.0, 1.0, False)
    clean(repr(settings))


@pytest.mark.parametrize("form", BROKEN)
@pytest.mark.parametrize("secret", [SECRET, WRITTEN])
def test_of_a_url_that_is_not_understood(form: str, secret: str) -> None:
    clean(raised(lambda: Job(form.format(secret), "j")))


@pytest.mark.parametrize("form", FORMS)
def test_written_as_it_must_not_be(form: str) -> None:
    """Whether it is understood or not, nothing of the password is shown."""
    clean(raised(lambda: ssp_redis.join(form.format(SECRET), job="j", worker=0, reconnect_timeout=0.01)))


@pytest.mark.parametrize("form", [*FORMS, *BROKEN])
def test_on_the_command_line(form: str, ssp: Callable[..., Any]) -> None:
    done = ssp("check", "--json", code=None, SSP_REDIS_URL=form.format(WRITTEN))
    assert done.code in (1, 2, 69)
    clean(done.out + done.err)


def test_of_a_wrong_password(server_binary: str, ssp: Callable[..., Any]) -> None:
    with Node(server_binary, password="right") as node:
        for url in (node.url.replace("://", f"://default:{WRITTEN}@"), f"{node.url}?password={WRITTEN}"):
            text = raised(lambda u=url: ssp_redis.join(u, job="j", worker=0))
            assert "password" in text
            clean(text)
            for words in (["check", "--json"], ["status", "-j", "j", "--json"], ["launch", "-n", "1", "--json"]):
                done = ssp(*words, code=1, SSP_REDIS_URL=url)
                clean(done.out + done.err)


def reach(url: str, ssp: Callable[..., Any], tmp_path: Path) -> None:
    """A whole job with that URL: nothing that is printed, written or shown by ``ps`` has the password in it."""
    job = "secret"
    words = ["launch", "-n", "2", "--clocks", "200", "--job", job, "--straggle", "5ms", "--json"]
    log = tmp_path / "launch.log"
    with open(log, "w") as out:
        launch = subprocess.Popen(
            [sys.executable, "-m", "ssp_redis", *words],
            env=environment(SSP_REDIS_URL=url),
            stdout=out,
            stderr=out,
            cwd=tmp_path,
        )
        try:
            with Job(url, job) as seen:
                eventually(lambda: seen.exists() and len(seen.status().members) == 2, "both have joined", 30)
                shown = titles(launch.pid)
                assert sum("worker" in title for title in shown) == 2
                clean("\n".join(shown))
                clean(repr(seen.status()))
                done = ssp("status", "--job", job, "--json", SSP_REDIS_URL=url)
                clean(done.out + done.err)
            assert launch.wait(60) == 0, log.read_text()
        finally:
            launch.kill()
            launch.wait()
    clean(log.read_text())
    assert json.loads(log.read_text().splitlines()[-1])
    for command in (["check", "--json"], ["jobs", "--json"], ["delete", "--job", job, "--force"]):
        done = ssp(*command, code=None, SSP_REDIS_URL=url)
        assert done.code == 0, done
        clean(done.out + done.err)
    with ssp_redis.join(url, job="repr", worker=0) as worker:
        clean(repr([worker, vars(worker).values(), worker.stats()]))
        worker.tick()
    with Job(url, "repr") as seen:
        seen.delete()


def titles(pid: int) -> list[str]:
    """What ``ps`` shows of all processes that descend from one."""
    children: dict[int, list[int]] = {}
    found = [pid]
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(name))
    for each in found:
        found += children.get(each, [])
    shown = []
    for each in found:
        try:
            shown.append(Path(f"/proc/{each}/cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return shown


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
class TestOfARunningJob:
    def test_on_a_server(self, server_binary: str, ssp: Callable[..., Any], tmp_path: Path) -> None:
        with Node(server_binary, password=SECRET, auth=WRITTEN) as node:
            reach(node.url.replace("://", f"://:{WRITTEN}@"), ssp, tmp_path)
            reach(f"{node.url}?password={WRITTEN}", ssp, tmp_path)
            clean(node.do("CLIENT", "LIST").decode())

    def test_behind_sentinels(self, server_binary: str, ssp: Callable[..., Any], tmp_path: Path) -> None:
        with Watched(server_binary, password="Xy7Zq9", sentinel_password="s3sam3") as watched:
            reach(watched.url + "?sentinel_password=s3sam3", ssp, tmp_path)

    def test_on_a_cluster(self, cluster: Cluster, ssp: Callable[..., Any], tmp_path: Path) -> None:
        cluster.settle()
        for node in cluster.nodes:
            node.do("ACL", "SETUSER", "bob", "on", f">{SECRET}", "allkeys", "allchannels", "+@all")
        reach(cluster.url.replace("://", f"://bob:{WRITTEN}@"), ssp, tmp_path)
