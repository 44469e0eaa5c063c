"""TLS: with the right CA everything works, and what is wrong is named at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from clusters import Cluster
from crews import Crew
from nodes import free_port
from remote import Remote
from sentinels import Watched

import ssp_redis
from ssp_redis import Job, ServerRefused, ServerUnavailable, UsageError
from ssp_redis.server import EmbeddedServer

Processes = Callable[..., Remote]


@pytest.fixture
def listen(tls_binary: str, certs: Certificates) -> Iterator[Callable[..., str]]:
    """Starts a server with TLS; its URL, without options."""
    servers: list[EmbeddedServer] = []

    def start(*args: str) -> str:
        port = free_port()
        servers.append(EmbeddedServer(tls_binary, args=["--tls-port", str(port), *(args or certs.listen())]))
        return f"rediss://localhost:{port}"

    yield start
    for server in servers:
        server.stop()


def refuses(url: str, match: str) -> None:
    with pytest.raises(ServerRefused, match=match):
        ssp_redis.join(url, job="j", worker=0)


def test_a_job_with_tables(listen: Callable[..., str], certs: Certificates, remote: Processes) -> None:
    crew = Crew(remote, f"{listen()}?ssl_ca_certs={certs.ca}", "j")
    crew.advance()
    assert crew.check()[1] == []


def test_the_wrong_ca_and_none_at_all(listen: Callable[..., str], certs: Certificates) -> None:
    url = listen()
    refuses(f"{url}?ssl_ca_certs={certs.other_ca}", "not from a CA that is trusted here.*ssl_ca_certs=FILE")
    refuses(url, "not from a CA that is trusted here.*ssl_ca_certs=FILE")
    # whoever asks for no check gets none
    with ssp_redis.join(f"{url}?ssl_cert_reqs=none", job="j", worker=0) as worker:
        assert worker.tick() == 1


def test_a_certificate_for_another_host(listen: Callable[..., str], certs: Certificates) -> None:
    url = f"{listen(*certs.listen('elsewhere'))}?ssl_ca_certs={certs.ca}"
    refuses(url, "another name.*ssl_check_hostname=false")
    refuses(url.replace("localhost", "127.0.0.1"), "another address.*ssl_check_hostname=false")
    with ssp_redis.join(url + "&ssl_check_hostname=false", job="j", worker=0) as worker:
        assert worker.tick() == 1


def test_a_server_that_wants_our_certificate(listen: Callable[..., str], certs: Certificates) -> None:
    url = f"{listen(*certs.listen(clients='yes'))}?ssl_ca_certs={certs.ca}"
    refuses(url, "wants a certificate of ours: add ssl_certfile=FILE&ssl_keyfile=FILE")
    with ssp_redis.join(
        f"{url}&ssl_certfile={certs.client}&ssl_keyfile={certs.client_key}", job="j", worker=0
    ) as worker:
        assert worker.tick() == 1


def test_tls_to_a_port_that_speaks_none(new_server: Callable[..., Any]) -> None:
    url = new_server(tcp=True).url.replace("redis:", "rediss:") + "?socket_connect_timeout=0.3&socket_timeout=0.3"
    # some servers say nothing at all
    with pytest.raises((ServerRefused, ServerUnavailable), match="speak TLS at this port"):
        ssp_redis.join(url, job="j", worker=0, reconnect_timeout=0.1)


def test_plain_words_to_a_port_that_speaks_tls(listen: Callable[..., str]) -> None:
    with pytest.raises(ServerUnavailable, match="speak TLS at this port.*rediss://"):
        ssp_redis.join(listen().replace("rediss:", "redis:"), job="j", worker=0, reconnect_timeout=0.1)


@pytest.mark.parametrize("option", ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])
@pytest.mark.parametrize("scheme", ["rediss", "valkeys", "rediss+sentinel", "rediss+cluster"])
def test_a_file_that_is_not_there_is_named_before_anything_is_sent(scheme: str, option: str, tmp_path: Path) -> None:
    service = "/m" if "sentinel" in scheme else ""
    with pytest.raises(UsageError, match=f"{option}: there is no file {tmp_path}/none.pem"):
        Job(f"{scheme}://localhost:1{service}?{option}={tmp_path}/none.pem", "j")


def test_sentinels_with_tls(tls_binary: str, certs: Certificates, remote: Processes) -> None:
    with Watched(tls_binary, tls=certs) as watched:
        crew = Crew(remote, watched.url, "j")
        crew.advance()
        old = watched.master
        old.kill()
        watched.failed_over(old)
        crew.advance()
        crew.check()
        refuses(watched.url.replace(str(certs.ca), str(certs.other_ca)), "not from a CA that is trusted here")


def test_a_cluster_with_tls(tls_binary: str, certs: Certificates, remote: Processes) -> None:
    with Cluster(tls_binary, tls=certs) as cluster:
        crew = Crew(remote, cluster.url, "j")
        crew.advance()
        old = cluster.owner("j")
        old.kill()
        cluster.failed_over(old, "j")
        crew.advance()
        crew.check()
        refuses(cluster.url.replace(str(certs.ca), str(certs.other_ca)), "not from a CA that is trusted here")
