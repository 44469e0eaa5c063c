"""Which node of a cluster holds a job? Any node knows; redis-py asks.

All keys of a job carry one hash tag and so live in one slot, on one node: once that is found, a job on a cluster is a
job on a server. When the node changes (failover, resharding) the old one says so (MOVED), and whoever reconnects asks
again. While a slot is on its way, what needs keys of both sides is put off (TRYAGAIN, ASK) and tried again until it is
there: a tick names keys that need not exist, so no node could serve it meanwhile.
"""

from __future__ import annotations

import contextlib
import random

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, NodesManager
from redis.crc import key_slot
from redis.exceptions import RedisClusterException, SlotNotCoveredError
from redis.retry import Retry

from ..errors import ServerRefused
from .replies import ReplyError, refused
from .tls import distrusted
from .url import Address
from .witnesses import Place, Witnesses


class Cluster:
    """Asks anew each time, over connections that do not outlive the question; remembers only whom it may ask.

    Args:
        key: any key of the job; None where it is all the same.
    """

    def __init__(self, address: Address, key: str | None) -> None:
        self._address = address
        self._slot = None if key is None else key_slot(key.encode())
        self._known = list(address.hosts)
        self._witnesses = Witnesses()

    def master(self, patience: float) -> Place:
        """Where the job is.

        Raises:
            ConnectionError: nobody answers, or nobody has the slot at the moment.
            ServerRefused: it is no cluster, or does not let us ask.
        """
        if self._slot is None:
            return self.all(patience)[0]
        found = self._ask(patience)
        try:
            node = found.get_node_from_slot(self._slot)
        except SlotNotCoveredError:
            raise ConnectionError(f"{self._address.label}: no node has slot {self._slot}") from None
        assert node is not None
        return str(node.host), int(node.port)

    def all(self, patience: float) -> list[Place]:
        """The masters."""
        nodes = self._ask(patience).get_nodes_by_server_type("primary")
        return sorted((str(node.host), int(node.port)) for node in nodes)

    def _ask(self, patience: float) -> NodesManager:
        """What one of the nodes knows, asked one after the other, ``patience`` seconds at the most."""
        failure: Exception | None = None
        # nobody is always the first: one that is behind the others would be believed again and again
        for place, seconds in self._witnesses.within(random.sample(self._known, len(self._known)), patience):
            try:
                found = self._ask_node(place, seconds)
            except (OSError, redis.RedisError, RedisClusterException, IndexError) as error:
                failure = failure if isinstance(failure, ServerRefused) else self._explain(error)
            else:
                self._witnesses.answered(place)
                # those that were named stay: after a while they may be the only ones at their old address
                nodes = [(str(node.host), int(node.port)) for node in found.nodes_cache.values()]
                self._known = list(dict.fromkeys([*nodes, *self._address.hosts]))
                return found
        assert failure is not None
        raise failure

    def _ask_node(self, place: Place, seconds: float) -> NodesManager:
        arguments = self._address.options | {
            "connection_class": self._address.connection,
            "socket_timeout": seconds,
            "socket_connect_timeout": seconds,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "client_name": "ssp-redis",
        }
        for name in ("host", "port", "path"):
            arguments.pop(name, None)
        found: NodesManager | None = None
        asked = ClusterNode(*place)  # type: ignore[no-untyped-call]
        try:
            found = NodesManager([asked], from_url=True, require_full_coverage=False, **arguments)
        finally:
            for node in [asked, *(found.nodes_cache.values() if found else ())]:
                if node.redis_connection is not None:
                    with contextlib.suppress(Exception):
                        node.redis_connection.close()
        return found

    def _explain(self, error: BaseException) -> Exception:
        label = self._address.label
        if isinstance(error, OSError):
            return ConnectionError(f"{label}: {error}")
        if isinstance(error, IndexError):
            return ConnectionError(f"{label}: no node of it has any slots")
        cause: BaseException | None = error
        while cause is not None:
            if (failure := distrusted(cause, label)) is not None:
                return failure
            if isinstance(cause, redis.AuthenticationError):
                return refused(ReplyError(f"NOAUTH {cause}"), label)
            if isinstance(cause, redis.ResponseError) and not isinstance(cause, redis.BusyLoadingError):
                return refused(ReplyError(str(cause)), label)
            cause = cause.__cause__ or cause.__context__
        return ConnectionError(f"{label}: {error}")
