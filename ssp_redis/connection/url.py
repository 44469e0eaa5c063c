"""What a server's URL says: redis-py reads it; where it names several servers, one after the other.

``redis://``, ``rediss://`` (TLS) and ``unix://`` name one server, ``redis+sentinel://HOST,HOST/SERVICE/DB`` Sentinels
that know the master, ``redis+cluster://HOST,HOST`` some nodes of a cluster; ``rediss+…`` is the same with TLS.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import redis

from ..errors import UsageError

_ESCAPES = "a password in it is written with %2F for /, %3F for ?, %23 for # and %40 for @"
_SCHEME = re.compile(r"(?P<base>rediss?|valkeys?|unix)(?:\+(?P<kind>sentinel|cluster))?\Z")
_PORTS = {"sentinel": 26379, "cluster": 6379}
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


@dataclass(frozen=True)
class Address:
    """A URL as it was understood. Nothing in its repr is secret."""

    #: The URL without user, password and options: what may stand in messages.
    label: str
    #: "" for one server, "sentinel" or "cluster".
    kind: str
    #: Sentinels, or nodes of the cluster, to ask.
    hosts: list[tuple[str, int]]
    #: What the Sentinels call the master.
    service: str
    #: Connection class of redis-py, and its arguments.
    connection: type[Any]
    options: dict[str, Any] = field(repr=False)
    #: Arguments of connections to Sentinels.
    sentinel: dict[str, Any] = field(repr=False)

    @property
    def secure(self) -> bool:
        """Is it TLS?"""
        return self.label.startswith("rediss")


def parse(url: str) -> Address:
    """Understand ``url``.

    Raises:
        UsageError: naming what is wrong, and no password.
    """
    scheme, mark, rest = url.partition("://")
    match = _SCHEME.match(scheme) if mark else None
    if match is None or (match["base"] == "unix" and match["kind"]):
        # any other part of it may be a password
        wrong = f", not with {scheme!r}" if mark and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme) else ""
        if re.fullmatch(r"[\w.-]+:\d{1,5}", url):
            wrong = f": for {url} write redis://{url}"
        raise UsageError(
            "a server's URL begins with redis://, rediss:// or unix://, with redis+sentinel:// or redis+cluster:// "
            f"(and rediss+ for TLS){wrong}"
        )
    base = match["base"].replace("valkey", "redis") if match["base"] != "valkeys" else "rediss"
    kind = match["kind"] or ""
    # an @ beyond the host may end a password with a /, ? or # in it, or be one's own: then nothing here is sure
    authority, *beyond = re.split("(?=[/?#])", rest, maxsplit=1)
    path = re.split("[?#]", "".join(beyond), maxsplit=1)[0]
    where = "…" if "@" in "".join(beyond) else authority.rpartition("@")[2] + path
    label = f"{base}{f'+{kind}' if kind else ''}://{where}"
    try:
        parts = urlsplit(f"{base}://{rest}")
    except ValueError:
        raise UsageError(f"{label} is not a server's URL") from None
    doubtful = [parts.fragment, *(word for word in parts.query.split("&") if "=" not in word)]
    if any("@" in word for word in [*doubtful, *([parts.path] if base != "unix" else [])]):
        raise UsageError(f"{label} is not a server's URL: {_ESCAPES}")
    try:
        hosts: list[tuple[str, int]] = []
        service, sentinel = "", dict[str, Any]()
        if kind:
            hosts = [_host(text, _PORTS[kind]) for text in parts.netloc.rpartition("@")[2].split(",")]
        if kind == "sentinel":
            service, parts, sentinel = _take_service(parts)
        text = f"{base}://{rest}"
        if kind:
            user = "".join(parts.netloc.rpartition("@")[:2])
            text = f"{base}://{user}{_joined(*hosts[0])}{parts.path}?{parts.query}"
        pool = redis.ConnectionPool.from_url(text, protocol=2)
    except Exception as error:
        # what could not be understood may be a piece of the password
        detail = _ESCAPES if "@" in rest and not isinstance(error, UsageError) else str(error)
        raise UsageError(f"{label} is not a server's URL: {detail}") from None
    options = dict(pool.connection_kwargs)
    _check_files(label, options)
    if kind == "cluster" and options.get("db"):
        raise UsageError(f"{label}: a cluster has no database but 0")
    if base == "rediss":
        # the default differs from one redis-py to the next
        unchecked = str(options.get("ssl_cert_reqs", "required")).lower() in ("none", "0")
        options.setdefault("ssl_check_hostname", not unchecked)
        sentinel |= {"ssl": True} | {name: value for name, value in options.items() if name.startswith("ssl_")}
    return Address(label, kind, hosts, service, pool.connection_class, options, sentinel)


def _host(text: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise UsageError("it names no host")
    return parts.hostname, parts.port or port


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _take_service(parts: Any) -> tuple[str, Any, dict[str, Any]]:
    """Split off what belongs to the Sentinels: /SERVICE/DB and the options sentinel_username and sentinel_password."""
    service, _, database = unquote(parts.path).strip("/").partition("/")
    if not service or (database and not database.isdecimal()):
        raise UsageError("after the Sentinels comes the name that they know the master by: …:26379/mymaster/0")
    query = parse_qsl(parts.query, keep_blank_values=True)
    own = {name[9:]: value for name, value in query if name in ("sentinel_username", "sentinel_password")}
    rest = [(name, value) for name, value in query if not name.startswith("sentinel_")]
    if len(rest) + len(own) != len(query):
        raise UsageError("of the options for Sentinels there are sentinel_username and sentinel_password")
    return service, parts._replace(path=f"/{database}", query=urlencode(rest)), own


def _check_files(label: str, options: dict[str, Any]) -> None:
    for name in _FILES:
        if (path := options.get(name)) is not None and not os.path.isfile(path):
            raise UsageError(f"{label}: {name}: there is no file {path}")
