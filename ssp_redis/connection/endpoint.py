"""Where the server is: redis-py knows URLs, passwords, TLS and unix sockets, and makes every connection."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ..errors import UsageError
from .replies import ReplyError, refused
from .wire import Wire

_ESCAPES = "a password in it is written with %2F for /, %3F for ?, %23 for # and %40 for @"


class Endpoint:
    """Where the server is and how to get there. Making one touches no network."""

    def __init__(self, url: str, *, timeout: float = 5.0, name: str = "ssp-redis") -> None:
        text = url
        for ours, theirs in (("valkey://", "redis://"), ("valkeys://", "rediss://")):
            if text.startswith(ours):
                text = theirs + text[len(ours) :]
        try:
            parts = urlsplit(text)
        except ValueError:
            raise UsageError(f"{text.rpartition('@')[2]} is not a server's URL") from None
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise UsageError(f"a server's URL begins with redis://, rediss:// or unix://, not with {parts.scheme!r}")
        #: The URL without user, password and options: what may stand in messages.
        # of a password with a /, ? or # in it, a part stands beyond what a parser takes for the host
        rest = text.partition("://")[2].rpartition("@")[2]
        self.label = f"{parts.scheme}://" + re.split("[?#]", rest, maxsplit=1)[0]
        self.url = url
        try:
            pool = redis.ConnectionPool.from_url(text, protocol=2)
        except Exception as error:
            # what could not be understood may be a piece of the password
            detail = _ESCAPES if "@" in text else str(error)
            raise UsageError(f"{self.label} is not a server's URL: {detail}") from None
        self._class = pool.connection_class
        # after from_url: options in the URL would beat keyword arguments, and these are not the user's to change
        self._options = pool.connection_kwargs | {
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
        try:
            self._class(**self._options)
        except Exception as error:
            raise UsageError(f"{self.label}: an option of the URL is wrong: {error}") from None

    def __repr__(self) -> str:
        return f"Endpoint({self.label})"

    def connect(self, patience: float | None = None, use: str = "") -> Wire:
        """A new wire.

        Args:
            patience: seconds that each step of it may take at the most; None: the usual time.
            use: what it is for, to be told in ``CLIENT LIST``; "": commands.

        Raises:
            OSError: the server cannot be reached (redis-py's connection errors included).
            ServerRefused: it can, and will not have us (password, permission).
        """
        options = self._options
        if patience is not None:
            limits = {name: options[name] for name in ("socket_timeout", "socket_connect_timeout")}
            options = options | {name: min(patience, limit or patience) for name, limit in limits.items()}
        if use:
            options = options | {"client_name": f"{options['client_name']}:{use}"}
        connection = self._class(**options)
        try:
            connection.connect()
            if patience is not None:
                getattr(connection, "_sock").settimeout(self._options["socket_timeout"])  # noqa: B009
        except redis.AuthenticationError as error:
            raise refused(ReplyError(_with_code(str(error), "WRONGPASS")), self.label) from None
        except redis.BusyLoadingError:
            raise ConnectionError(f"{self.label} is loading its data") from None
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise ConnectionError(f"{self.label} cannot be reached: {error}") from None
        except redis.ResponseError as error:
            raise refused(ReplyError(str(error)), self.label) from None
        return Wire(connection, self.label)


def _with_code(text: str, code: str) -> str:
    if text.startswith("Authentication required"):
        return f"NOAUTH {text}"
    return text if text.split(" ", 1)[0].isupper() else f"{code} {text}"
