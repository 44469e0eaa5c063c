"""A Redis Cluster of three masters with a replica each: real processes, quick to decide."""

from __future__ import annotations

import contextlib
from types import TracebackType

from certificates import Certificates
from nodes import Node, free_port
from redis.crc import key_slot
from remote import eventually

_SLOTS = 16384


class Cluster:
    """Nodes 0 to 2 begin as masters, 3 to 5 as their replicas."""

    def __init__(self, binary: str, tls: Certificates | None = None) -> None:
        self._stack = contextlib.ExitStack()
        self._tls = tls
        self._bus: dict[Node, int] = {}
        try:
            self.nodes = [self._start(binary) for _ in range(6)]
            self.ids = {node: node.do("CLUSTER", "MYID").decode() for node in self.nodes}
            for i, node in enumerate(self.nodes[:3]):
                node.do("CLUSTER", "ADDSLOTSRANGE", i * _SLOTS // 3, (i + 1) * _SLOTS // 3 - 1)
                node.do("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            for node in self.nodes[1:]:
                self.nodes[0].do("CLUSTER", "MEET", "127.0.0.1", node.port, self._bus[node])
            eventually(lambda: all(len(self._view(node)) == 6 for node in self.nodes), "everybody knows all six", 30)
            for master, replica in zip(self.nodes[:3], self.nodes[3:], strict=True):
                eventually(lambda r=replica, m=master: self._replicate(r, m), "a replica", 10)
            self.settle()
        except BaseException:
            self._stack.close()
            raise

    def _start(self, binary: str) -> Node:
        bus = free_port()  # by default it is the port + 10000, which may be beyond the last
        args = [
            *("--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-node-timeout", "2000"),
            *("--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"),
            *(("--tls-cluster", "yes") if self._tls is not None else ()),
        ]
        node = self._stack.enter_context(Node(binary, args, tls=self._tls))
        self._bus[node] = bus
        return node

    def _replicate(self, replica: Node, master: Node) -> bool:
        with contextlib.suppress(Exception):
            return bool(replica.do("CLUSTER", "REPLICATE", self.ids[master]) == b"OK")
        return False

    @staticmethod
    def _view(node: Node) -> list[list[str]]:
        return [line.split() for line in node.do("CLUSTER", "NODES").decode().splitlines()]

    @property
    def url(self) -> str:
        """What a user would give: some of the nodes."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[:3])
        if self._tls is not None:
            return f"rediss+cluster://{hosts}?ssl_ca_certs={self._tls.ca}"
        return f"redis+cluster://{hosts}"

    @property
    def masters(self) -> list[Node]:
        """Those that are alive and hold slots."""
        return [node for node in self.nodes if node.running and self.slots(node)]

    def slots(self, node: Node) -> str:
        """The slots a node says it has, as CLUSTER NODES writes them."""
        mine = next(words for words in self._view(node) if "myself" in words[2])
        return " ".join(word for word in mine[8:] if not word.startswith("["))

    def replica(self, master: Node) -> Node:
        """Who would take its place."""
        told = {node: node.told("replication") for node in self.nodes if node.running}
        return next(node for node, of in told.items() if of.get("master_port") == str(master.port))

    def owner(self, job: str) -> Node:
        """The master that holds a job."""
        slot = slot_of(job)
        for node in self.masters:
            for word in self.slots(node).split():
                first, _, last = word.partition("-")
                if int(first) <= slot <= int(last or first):
                    return node
        raise LookupError(job)

    def job_on(self, node: Node, stem: str) -> str:
        """A name for a job that lives on that node."""
        return next(job for i in range(10_000) if self.owner(job := f"{stem}{i}") is node)

    def settle(self) -> None:
        """Wait until every node is there, agrees with the others, and has what it should."""
        for node in self.nodes:
            node.start()
        eventually(self._settled, "a whole cluster", 60)

    def _settled(self) -> bool:
        views = set()
        for node in self.nodes:
            if b"cluster_state:ok" not in node.do("CLUSTER", "INFO"):
                return False
            told = node.told("replication")
            if told["role"] == "slave" and told["master_link_status"] != "up":
                return False
            if told["role"] == "master" and told["connected_slaves"] != "1":
                return False
            lines = [(words[0], words[3], *words[8:]) for words in self._view(node)]
            views.add(tuple(sorted(lines)))
            if any("fail" in words[2] for words in self._view(node)):
                return False
        return len(views) == 1

    def failed_over(self, old: Node, job: str) -> Node:
        """Wait until another has the job, and return it."""

        def other() -> bool:
            with contextlib.suppress(LookupError):
                return self.owner(job) is not old
            return False

        eventually(other, "another master", 40)
        return self.owner(job)

    def begin_migration(self, job: str, target: Node) -> None:
        """From here on the job's slot is open on both sides."""
        source, slot = self.owner(job), slot_of(job)
        target.do("CLUSTER", "SETSLOT", slot, "IMPORTING", self.ids[source])
        source.do("CLUSTER", "SETSLOT", slot, "MIGRATING", self.ids[target])

    def migrate_keys(self, job: str, source: Node, target: Node, most: int = 10_000) -> int:
        """Move some keys of the slot; how many were moved."""
        keys = source.do("CLUSTER", "GETKEYSINSLOT", slot_of(job), most)
        if keys:
            source.do("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "REPLACE", "KEYS", *keys)
        return len(keys)

    def end_migration(self, job: str, source: Node, target: Node) -> None:
        """Move what is left, and give the slot to the target."""
        while self.migrate_keys(job, source, target):
            pass
        for node in (target, source, *self.masters):
            node.do("CLUSTER", "SETSLOT", slot_of(job), "NODE", self.ids[target])

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def slot_of(job: str) -> int:
    """The slot of a job's keys."""
    return int(key_slot(f"ssp:{{{job}}}:config".encode()))
