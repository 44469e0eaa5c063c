"""Which server is the master now? The Sentinels know; redis-py asks them."""

from __future__ import annotations

from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from .replies import ReplyError, refused
from .tls import distrusted
from .url import Address
from .witnesses import Place, Witnesses


class Sentinels:
    """Asks anew each time, over connections that do not outlive the question: nothing to go stale, nothing to fork."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._witnesses = Witnesses()

    def master(self, patience: float) -> Place:
        """Where the master is, asked of one after the other, ``patience`` seconds at the most.

        Raises:
            ConnectionError: nobody answers, or there is no master at the moment.
            ServerRefused: they do not know the service, or do not let us ask.
        """
        label, service = self._address.label, self._address.service
        refusal: Exception | None = None
        troubles: list[str] = []
        known: set[str] | None = None
        for place, seconds in self._witnesses.within(self._address.hosts, patience):
            try:
                masters = self._ask(place, seconds)
            except redis.AuthenticationError as error:
                refusal = refusal or refused(ReplyError(f"NOAUTH a Sentinel: {error}"), label)
            except redis.ResponseError as error:
                refusal = refusal or refused(ReplyError(str(error)), label)
            except (redis.ConnectionError, redis.TimeoutError) as error:
                refusal = refusal or distrusted(error, label)
                troubles.append(str(error))
            else:
                self._witnesses.answered(place)
                master = masters.get(service)
                if master and master["is_master"] and not master["is_sdown"] and not master["is_odown"]:
                    return str(master["ip"]), int(master["port"])
                known = {*masters, *(known or ())}
        if refusal is not None:
            raise refusal
        if known is None:
            raise ConnectionError(f"{label}: no Sentinel answers: {'; '.join(troubles)}")
        if service not in known:
            names = ", ".join(sorted(known)) or "none"
            raise refused(ReplyError(f"NOSERVICE the Sentinels know no master {service}, but: {names}"), label)
        raise ConnectionError(f"{label}: {service} has no master at the moment")

    def all(self, patience: float) -> list[Place]:
        """Every server that takes writes: the one."""
        return [self.master(patience)]

    def _ask(self, place: Place, seconds: float) -> dict[str, dict[str, Any]]:
        """All masters that this one knows, by name."""
        arguments: dict[str, Any] = {
            "socket_timeout": seconds,
            "socket_connect_timeout": seconds,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "client_name": "ssp-redis",
        } | self._address.sentinel
        client = redis.Redis(*place, **arguments)
        try:
            return {str(name): state for name, state in client.sentinel_masters().items()}  # type: ignore[union-attr]
        finally:
            client.close()
