"""Where the server is: redis-py knows URLs, passwords, TLS and unix sockets, and makes every connection."""

from __future__ import annotations

import time
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ..errors import UsageError
from .cluster import Cluster
from .replies import TRANSIENT, ReplyError, refused
from .sentinel import Sentinels
from .tls import distrusted, hint
from .url import parse
from .wire import Wire


class Endpoint:
    """Where the server is and how to get there. Making one touches no network.

    Args:
        key: any of the keys that it is for: on a cluster it tells the node.
    """

    def __init__(self, url: str, *, timeout: float = 5.0, name: str = "ssp-redis", key: str | None = None) -> None:
        address = parse(url)
        #: The URL without user, password and options: what may stand in messages.
        self.label = address.label
        #: "" for one server, "sentinel" or "cluster".
        self.kind = address.kind
        #: What the URL asks for; RESP2 is what is spoken.
        self.asked_protocol = int(address.options.get("protocol", 2))
        #: The user's name, which is no secret.
        self.user = str(address.options.get("username") or "default")
        self._class = address.connection
        # after from_url: options in the URL would beat keyword arguments, and these are not the user's to change
        self._options: dict[str, Any] = address.options | {
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "decode_responses": False,
            "client_name": name,
            "health_check_interval": 0,
        }
        self._options.setdefault("socket_timeout", timeout)
        self._options.setdefault("socket_connect_timeout", timeout)
        for option in list(self._options):
            # retries are ours to decide; maintenance notifications of redis-py 8 need RESP3 and its own parser
            if option.startswith("retry_on") or "maint_notifications" in option:
                del self._options[option]
        self._finder: Sentinels | Cluster | None = None
        if address.kind == "sentinel":
            self._finder = Sentinels(address)
        elif address.kind == "cluster":
            self._finder = Cluster(address, key)
        try:
            self._class(**self._options)
        except Exception as error:
            raise UsageError(f"{self.label}: an option of the URL is wrong: {error}") from None

    def __repr__(self) -> str:
        return f"Endpoint({self.label})"

    def passes(self, error: ReplyError) -> bool:
        """Will this error go away by itself, if one connects again?"""
        return error.code in TRANSIENT or (self.kind == "cluster" and error.code in ("MOVED", "ASK"))

    def connect(self, patience: float | None = None, use: str = "") -> Wire:
        """A new wire; behind Sentinels to the master of the moment, on a cluster to the node that has the key.

        Args:
            patience: seconds that it may take; None: each step of it the usual time.
            use: what it is for, to be told in ``CLIENT LIST``; "": commands.

        Raises:
            OSError: the server cannot be reached (redis-py's connection errors included).
            ServerRefused: it can, and will not have us (password, permission, certificate).
        """
        if self._finder is None:
            return self._open(None, patience, use)
        begun = time.monotonic()
        place = self._finder.master(self._patience(patience))
        if patience is not None:
            patience = max(0.02, patience - (time.monotonic() - begun))
        return self._open(place, patience, use)

    def connect_all(self) -> list[Wire]:
        """A new wire to each server that holds keys: on a cluster to each master, else to the one.

        Raises as :meth:`connect`.
        """
        if self._finder is None:
            return [self.connect()]
        wires: list[Wire] = []
        try:
            for place in self._finder.all(self._patience(None)):
                wires.append(self._open(place))
        except BaseException:
            for wire in wires:
                wire.close()
            raise
        return wires

    def _patience(self, patience: float | None) -> float:
        """Seconds to find the server in: half of those that there are, for one has to get there as well."""
        limit = self._options["socket_connect_timeout"] or 5.0
        return float(limit if patience is None else min(patience, limit)) / 2

    def _open(self, place: tuple[str, int] | None, patience: float | None = None, use: str = "") -> Wire:
        label, options = self.label, self._options
        if place is not None:
            label = f"{place[0]}:{place[1]} of {label}"
            options = options | {"host": place[0], "port": place[1]}
        if use:
            options = options | {"client_name": f"{options['client_name']}:{use}"}
        if patience is not None:
            limits = {name: options[name] for name in ("socket_timeout", "socket_connect_timeout")}
            options = options | {name: min(patience, limit or patience) for name, limit in limits.items()}
        connection = self._class(**options)
        try:
            connection.connect()
            if patience is not None:
                getattr(connection, "_sock").settimeout(self._options["socket_timeout"])  # noqa: B009
        except redis.AuthenticationError as error:
            raise refused(ReplyError(_with_code(str(error), "WRONGPASS")), label) from None
        except redis.BusyLoadingError:
            raise ConnectionError(f"{label} is loading its data") from None
        except (redis.ConnectionError, redis.TimeoutError) as error:
            if (failure := distrusted(error, label)) is not None:
                raise failure from None
            raise ConnectionError(f"{label} cannot be reached: {error}{hint(error, self.label)}") from None
        except redis.InvalidResponse as error:
            raise ConnectionError(f"{label} does not speak RESP: {error}{hint(error, self.label)}") from None
        except redis.ResponseError as error:
            raise refused(ReplyError(_with_code(str(error), "NOPERM" if _denied(error) else "")), label) from None
        return Wire(connection, label)


def _denied(error: redis.ResponseError) -> bool:
    return isinstance(error, redis.exceptions.NoPermissionError)


def _with_code(text: str, code: str) -> str:
    if text.startswith("Authentication required"):
        return f"NOAUTH {text}"
    return text if not code or text.split(" ", 1)[0].isupper() else f"{code} {text}"
