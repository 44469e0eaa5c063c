"""Which server is the master now? The Sentinels know; redis-py asks them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

from .replies import ReplyError, refused
from .tls import distrusted
from .url import Address

#: Seconds that one Sentinel gets to answer: others may know, and be quicker.
_PATIENCE = 2.0


class Sentinels:
    """Asks anew each time, over connections that do not outlive the question: nothing to go stale, nothing to fork."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def master(self, patience: float) -> tuple[str, int]:
        """Where the master is.

        Raises:
            ConnectionError: nobody answers, or there is no master at the moment.
            ServerRefused: they do not know the service, or do not let us ask.
        """
        with self._ask(patience) as sentinel:
            try:
                host, port = sentinel.discover_master(self._address.service)  # type: ignore[no-untyped-call]
            except (redis.ResponseError, redis.AuthenticationError) as error:
                raise refused(ReplyError(str(error)), self._address.label) from None
            except MasterNotFoundError:
                raise self._explain(sentinel) from None
            except (redis.ConnectionError, redis.TimeoutError) as error:
                raise ConnectionError(f"{self._address.label}: {error}") from None
        return str(host), int(port)

    def all(self, patience: float) -> list[tuple[str, int]]:
        """Every server that takes writes: the one."""
        return [self.master(patience)]

    @contextlib.contextmanager
    def _ask(self, patience: float) -> Iterator[Sentinel]:
        limit = min(patience, _PATIENCE)
        arguments: dict[str, Any] = {
            "socket_timeout": limit,
            "socket_connect_timeout": limit,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "client_name": "ssp-redis",
        } | self._address.sentinel
        sentinel = Sentinel(self._address.hosts, sentinel_kwargs=arguments)  # type: ignore[no-untyped-call]
        try:
            yield sentinel
        finally:
            for client in sentinel.sentinels:
                client.close()

    def _explain(self, sentinel: Sentinel) -> Exception:
        label, service = self._address.label, self._address.service
        troubles: list[str] = []
        known: set[str] | None = None
        for client in sentinel.sentinels:
            try:
                names = {str(name) for name in client.sentinel_masters()}
            except (redis.AuthenticationError, redis.ResponseError) as error:
                return refused(ReplyError(f"NOAUTH a Sentinel: {error}"), label)
            except (redis.ConnectionError, redis.TimeoutError) as error:
                if (failure := distrusted(error, label)) is not None:
                    return failure
                troubles.append(str(error))
            else:
                known = names | (known or set())
        if known is None:
            return ConnectionError(f"{label}: no Sentinel answers: {'; '.join(troubles)}")
        if service not in known:
            names_text = ", ".join(sorted(known)) or "none"
            return refused(ReplyError(f"NOSERVICE the Sentinels know no master {service}, but: {names_text}"), label)
        return ConnectionError(f"{label}: {service} has no master at the moment")
