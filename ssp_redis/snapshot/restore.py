"""Making a new run of a snapshot.

The tables' parts are written first, under a run that nobody knows of and with an expiry, so that an attempt that dies
leaves nothing to be seen and nothing for long. One script then makes run, clocks and tables the job's, all at
once; it refuses while the job has members, and a name that was used.
"""

from __future__ import annotations

import contextlib
import math
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from ..connection import ReplyError, Wire, command
from ..errors import JobMismatch, ServerRefused, SSPError, StateLost, UsageError
from ..keys import JobKeys, StoreKeys, check_name
from ..link import Link
from ..lua import SCHEMA, Code, Refusal
from ..store import sweep
from ..store.layout import Layout
from ..store.sparse.layout import RowLayout
from .parts import Part, Write, blocks, shares
from .script import RestoreScript
from .state import PROMISES, Snapshot

#: How long parts of an attempt that died are kept (ms), and how much longer for each MiB: 64 KiB a second is enough.
_ABANDONED, _PER_MIB = 3_600_000, 16_000
#: How many bytes may be unacknowledged at once.
_WINDOW = 4 << 20
#: How often to look again when somebody was faster.
_TRIES = 16
_NUMBERED = re.compile(r"-restored-\d+\Z")


@dataclass(frozen=True)
class Wanted:
    """What the new run shall be, where that is said; None: as the job is, and where there is none, as in the file."""

    run: str | None = None
    workers: int | None = None
    #: Clocks, −1 unbounded.
    staleness: int | None = None
    #: Seconds.
    lease: float | None = None


@dataclass(frozen=True)
class _Present:
    """The job as it is before."""

    config: dict[str, str]
    members: list[str]
    runs: set[str]

    @classmethod
    def read(cls, wire: Wire, keys: JobKeys) -> _Present:
        reply = wire.call_all(
            [
                command("MULTI"),
                command("HGETALL", keys.config),
                command("ZRANGE", keys.order, 0, -1),
                command("SMEMBERS", keys.runs),
                command("EXEC"),
            ]
        )[-1]
        for part in reply:
            if isinstance(part, ReplyError):
                raise part
        config, members, runs = ([word.decode() for word in part] for part in reply)
        return cls(dict(zip(config[::2], config[1::2], strict=True)), sorted(members), set(runs))


class Restorer:
    """One restoration, repeatable over a new connection: the new run keeps its id."""

    def __init__(self, link: Link, keys: JobKeys, snapshot: Snapshot, wanted: Wanted) -> None:
        self._link = link
        self._keys = keys
        self._snapshot = snapshot
        self._wanted = wanted
        self._run = secrets.token_hex(8)
        self._store = StoreKeys(keys.prefix, self._run)
        self._layouts: list[Layout | RowLayout] = []

    def __call__(self) -> str:
        """Restore; returns the name of the new run.

        Raises:
            JobMismatch: the job has members, or the name was used. Nothing was written then.
            UsageError: settings that do not go together.
        """
        present = self._link.run(lambda wire: _Present.read(wire, self._keys))
        self._check(present)
        workers = int(self._settings(present)["workers"])
        snapshot, run = self._snapshot, int(self._run, 16)
        for number, name in enumerate(sorted([*snapshot.tables, *snapshot.sparse])):
            if name in snapshot.sparse:
                rows = snapshot.sparse[name].layout(name, workers)
                self._layouts.append(replace(rows, number=number, run=run))
            else:
                cut = Layout.cut(name, snapshot.dtypes[name], snapshot.tables[name].shape, workers)
                self._layouts.append(replace(cut, number=number, run=run))
        self._link.run(lambda wire: _check_memory(wire, self._memory(workers), workers))
        asked = False
        try:
            self._write()
            asked = True
            name, dropped = self._begin(present)
        except BaseException as error:
            # otherwise the script may have run, and only its answer been lost
            if not asked or isinstance(error, JobMismatch | StateLost):
                self._give_up()
            raise
        if dropped:
            old = StoreKeys(self._keys.prefix, dropped)
            self._link.run(lambda wire: sweep.erase(wire, old))
            self._link.run(lambda wire: wire.call("HDEL", self._keys.config, "dropped"))
        return name

    def _memory(self, workers: int) -> int:
        need = 0
        for layout in self._layouts:
            if isinstance(layout, RowLayout):
                need += layout.memory(len(self._snapshot.sparse[layout.name].rows))
            else:
                need += layout.memory(workers)
        return need

    # -- what it shall be --------------------------------------------------------------------------------------------

    def _check(self, present: _Present) -> None:
        job, run = self._keys.job, self._wanted.run
        stored, given = present.config.get("name", "-"), run or self._name(present)
        if present.members and present.config:
            raise JobMismatch(
                f"job {job} has members ({', '.join(present.members)}): nothing is restored under their hands; stop or "
                "evict them first, or restore into another job",
                "run",
                stored,
                given,
            )
        if run in present.runs:
            raise JobMismatch(f"job {job}: run {run} was used before: choose another name", "run", stored, given)
        schema = present.config.get("schema", str(SCHEMA))
        if schema != str(SCHEMA):
            raise self._other_schema(schema)

    def _name(self, present: _Present) -> str:
        if self._wanted.run:
            return self._wanted.run
        stem = _NUMBERED.sub("", self._snapshot.run)
        number = 1
        while True:
            ending = f"-restored-{number}"
            name = check_name("run", stem[: 64 - len(ending)] + ending)
            if name not in present.runs:
                return name
            number += 1

    def _settings(self, present: _Present) -> dict[str, str]:
        """As config holds them: what is said, else as the job has it, else as in the file."""
        snapshot, wanted, job = self._snapshot, self._wanted, present.config
        settings = {
            "workers": job.get("workers") or str(snapshot.workers),
            "created": job.get("created") or _bound(snapshot.created_staleness),
            "staleness": job.get("staleness") or _bound(snapshot.staleness),
            "lease": job.get("lease") or str(round(snapshot.lease * 1000)),
            "retain": job.get("retain") or str(round(snapshot.retain * 1000)),
            "reproducible": job.get("reproducible") or PROMISES[snapshot.reproducible],
        }
        if settings["reproducible"] != "0":
            # the promise that was broken is that of the values, and the values are those of the file
            settings["reproducible"] = "2" if snapshot.reproducible == "broken" else "1"
        if wanted.workers is not None:
            settings["workers"] = str(wanted.workers)
        if wanted.staleness is not None:
            settings["created"] = settings["staleness"] = str(wanted.staleness)
        if wanted.lease is not None:
            settings["lease"] = str(round(wanted.lease * 1000))
        if settings["reproducible"] != "0" and settings["created"] != "0":
            raise UsageError(f"a reproducible run has staleness 0, not {settings['created']}")
        return settings

    # -- writing -----------------------------------------------------------------------------------------------------

    def _parts(self) -> Iterator[Part]:
        snapshot, store = self._snapshot, self._store
        for layout in self._layouts:
            if isinstance(layout, RowLayout):
                yield from shares(layout, store, snapshot.sparse[layout.name])
            else:
                yield from blocks(layout, store, snapshot.tables[layout.name].reshape(-1))

    def _write(self) -> None:
        expiry = _ABANDONED + self._snapshot.nbytes * _PER_MIB // 2**20
        batch: list[Write] = []
        size = 0
        for part in self._parts():
            for write in part.writes(expiry):
                batch.append(write)
                size += write.nbytes
                if size > _WINDOW:
                    self._link.run(partial(_send, writes=batch))
                    batch, size = [], 0
        self._link.run(partial(_send, writes=batch))

    def _begin(self, present: _Present) -> tuple[str, str]:
        script = RestoreScript(self._keys, self._store, self._layouts, self._snapshot, list(self._parts()))
        for _ in range(_TRIES):
            name, run = self._name(present), present.config.get("run", "")
            settings = self._settings(present)
            try:
                dropped = self._link.run(
                    partial(script.call, replaces=run, run=self._run, name=name, settings=settings)
                )
            except Refusal as refusal:
                self._judge(refusal)
                present = self._link.run(lambda wire: _Present.read(wire, self._keys))
                self._check(present)
                continue
            return name, dropped
        raise SSPError(f"job {self._keys.job} keeps changing: try again")

    def _judge(self, refusal: Refusal) -> None:
        """Return if another look, or another attempt, may help."""
        if refusal.code in (Code.CHANGED, Code.MISMATCH):
            return  # somebody was faster: another look says with what
        if refusal.code is Code.SCRATCH:
            self._write()  # deleted together with the job, perhaps
            return
        if refusal.code is Code.SCHEMA:
            raise self._other_schema(refusal.words[0])
        if refusal.code is Code.LOST:
            raise StateLost(
                f"job {self._keys.job}: part of its state is gone from the server; delete the rest first (ssp-redis "
                f"delete {self._keys.job}), or restore into another job"
            )
        raise SSPError(f"job {self._keys.job} cannot be restored: {refusal}")

    def _other_schema(self, stored: str) -> JobMismatch:
        return JobMismatch(
            f"job {self._keys.job} was made by ssp-redis of schema {stored}, this is schema {SCHEMA}: use the same "
            "version, or another job",
            "schema",
            stored,
            str(SCHEMA),
        )

    def _give_up(self) -> None:
        doomed = [part.key for part in self._parts()]
        with contextlib.suppress(SSPError):  # they expire in any case
            for i in range(0, len(doomed), 1000):
                self._link.run(lambda wire, i=i: wire.call("UNLINK", *doomed[i : i + 1000]), 0.5)  # type: ignore[misc]


def _send(wire: Wire, writes: list[Write]) -> None:
    for write in writes:
        for data in write.data:
            wire.send(data)
    wire.read_all(sum(write.replies for write in writes))


def _check_memory(wire: Wire, need: int, workers: int) -> None:
    """All tables together, by the formula by which each is judged when it is made."""
    try:
        info = wire.call("INFO", "memory").decode()
    except ReplyError:
        return  # this user may not ask
    limit = int(next((line[10:] for line in info.split("\r\n") if line.startswith("maxmemory:")), "0"))
    if limit and need > limit:
        raise ServerRefused(
            f"the snapshot's tables may need {need / 2**20:.0f} MiB in Redis with a quorum of {workers}, and maxmemory "
            f"is {limit / 2**20:.0f} MiB: raise it"
        )


def _bound(staleness: float) -> str:
    return "-1" if math.isinf(staleness) else str(int(staleness))
