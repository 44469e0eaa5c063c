"""Reading a job at one moment, while it runs.

An ordinary reader brings every share of every dense table to one version V, a length of the log, and reads the deltas
that lead the sparse ones there; their rows, which are many, are marked before and scanned afterwards. The clocks are
read in one step with the length of the log at that moment, E, and taken on to V by the tags between E and V: each of
them says who is at which clock from there on. So the tables hold exactly the deltas that the clocks say, however fast
the job is.

In a reproducible run the tables go no further than the last complete clock, and neither do the clocks then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ..connection import ReplyError, Wire, command
from ..errors import SSPError, StateLost
from ..joining import Record
from ..keys import JobKeys
from ..store.layout import Layout
from ..store.log import Tag
from ..store.reader import Reader
from ..store.sparse import making
from ..store.sparse.frozen import Frozen, Unmarked
from ..store.sparse.layout import KIND, RowLayout
from ..store.view import View
from .marking import Marks
from .rows import TouchedRows
from .state import PROMISES, Snapshot

#: How often to begin again after a change that a snapshot cannot span: a table was made, a rollback.
_TRIES = 8
#: How often to read on, where the log moved while a table was read.
_ROUNDS = 64


def take(job: str, keys: JobKeys, new_reader: Callable[[], Reader]) -> Snapshot:
    """The job as it is at one moment between the call and the return.

    Args:
        new_reader: makes an onlooker's reader of the run and epoch that are current.

    Raises:
        StateLost: a value is gone from the server.
        SSPError: the job never kept still enough.
    """
    gone: StateLost | None = None
    for _ in range(_TRIES):
        try:
            snapshot = _attempt(job, keys, new_reader())
        except StateLost as error:
            if gone is not None:
                raise
            gone = error  # or bases replaced each other faster than they were read: once more
            continue
        if snapshot is not None:
            return snapshot
    raise SSPError(f"job {job} keeps changing its tables or its server: no moment to take a snapshot of, try again")


def _attempt(job: str, keys: JobKeys, reader: Reader) -> Snapshot | None:
    described = reader.describe()
    dense = [name for name, description in described if not description.startswith(KIND + ":")]
    views = [view for name in dense if (view := reader.ask(name)) is not None]
    others = [making.ask(reader, name) for name, _ in described if name not in dense]
    sparse = [Frozen(reader, view) for view in others if view is not None]
    marks = Marks(reader, sparse)
    try:
        return _taken(job, keys, reader, views, sparse, marks)
    except Unmarked:
        return None
    finally:
        marks.drop()


def _taken(
    job: str, keys: JobKeys, reader: Reader, views: list[View], sparse: list[Frozen], marks: Marks
) -> Snapshot | None:
    layouts: list[Layout | RowLayout] = [*(view.layout for view in views), *(table.layout for table in sparse)]
    for _ in range(_ROUNDS):
        bases = marks.make()
        reader.host.run(reader.learn)
        moment = reader.host.run(lambda wire: _Moment.read(wire, keys, reader))
        if not moment.belongs(reader, {layout.name for layout in layouts}):
            return None
        reader.host.run(reader.learn)
        version = reader.horizon()
        # the sparse ones first: what they need is overwritten sooner
        followed = all(_follow(reader, table, base, version) for table, base in zip(sparse, bases, strict=True))
        for view in views:
            reader.bring(view, range(view.layout.shares), learn=False)
        held = [share for view in views for share in view.versions]
        if followed and version == reader.horizon() and all(one == version for one in held):
            break
    else:
        return None
    if not moment.precedes(reader):
        return None
    clocks = moment.clocks
    for tag in reader.log.since(moment.end, reader.log.end):
        if (tag.slots.keys() | tag.values.keys()) - {layout.number for layout in layouts}:
            return None  # a table that was made meanwhile
        clocks.apply(tag)
    if reader.host.reproducible:
        clocks.clamp(reader.complete)
    config = moment.config
    return Snapshot(
        job=job,
        run=config["name"],
        epoch=int(config["epoch"]),
        version=version,
        min_clock=clocks.min,
        staleness=_bound(config["staleness"]),
        created_staleness=_bound(config["created"]),
        workers=int(config["workers"]),
        lease=int(config["lease"]) / 1000,
        retain=int(config["retain"]) / 1000,
        reproducible={number: word for word, number in PROMISES.items()}[config.get("reproducible", "0")],
        clocks=clocks.of,
        departed=clocks.departed,
        dtypes={view.layout.name: view.layout.dtype for view in views},
        tables={view.layout.name: view.master.reshape(view.layout.shape) for view in views},
        sparse={
            table.layout.name: TouchedRows.of(table.layout, *table.read(marks.text, marks.undo)) for table in sparse
        },
    )


def _follow(reader: Reader, table: Frozen, bases: list[int], version: int) -> bool:
    return reader.host.run(lambda wire: table.follow(wire, bases, version))


class _Clocks:
    """The clock vector at one place in the log, and its min.

    Args:
        quorum: how many members it takes to start; 0: it has started.
    """

    def __init__(self, of: dict[str, int], departed: dict[str, str], floor: int, quorum: int) -> None:
        self.of = of
        self.departed = departed
        self._floor = floor
        self._started = not quorum
        self._quorum = quorum
        self._raise_floor()

    def _members(self) -> list[int]:
        return [clock for worker, clock in self.of.items() if worker not in self.departed]

    @property
    def min(self) -> int:
        """Of the members; the floor where there is none, or the run has not started."""
        return min(self._members(), default=self._floor) if self._started else self._floor

    def apply(self, tag: Tag) -> None:
        """Go past one entry of the log."""
        self.of[tag.worker] = tag.clock
        if tag.kind == "l":
            self._raise_floor()
            self.departed[tag.worker] = tag.text.rpartition(":")[2]
        else:
            self.departed.pop(tag.worker, None)
            self._started = self._started or len(self._members()) >= self._quorum
        self._raise_floor()

    def clamp(self, complete: int) -> None:
        """Nobody beyond that clock."""
        self.of = {worker: min(clock, complete) for worker, clock in self.of.items()}
        self._floor = min(self._floor, complete)

    def _raise_floor(self) -> None:
        self._floor = max(self._floor, self.min)


@dataclass(frozen=True)
class _Moment:
    """What the server says in one step."""

    config: dict[str, str]
    clocks: _Clocks
    #: Length of the log, and its last entry.
    end: int
    last: str
    #: Names of the tables that are there.
    tables: set[str]

    @classmethod
    def read(cls, wire: Wire, keys: JobKeys, reader: Reader) -> _Moment:
        reply = wire.call_all(
            [
                command("MULTI"),
                command("HGETALL", keys.config),
                command("HGETALL", keys.clocks),
                command("HGETALL", keys.ids),
                command("LLEN", keys.log),
                command("LINDEX", keys.log, -1),
                command("HGETALL", reader.keys.tables),
                command("EXEC"),
            ]
        )[-1]
        for part in reply:
            if isinstance(part, ReplyError):
                raise part
        config, clocks, ids, tables = (_mapping(reply[i]) for i in (0, 1, 2, 5))
        if not config or not clocks or not ids or not reply[3]:
            raise StateLost(f"job {keys.job}: its state is gone from the server")
        records = {worker: Record.of(text.encode()) for worker, text in ids.items()}
        return cls(
            config,
            _Clocks(
                {worker: int(clock) for worker, clock in clocks.items()},
                {worker: record.why for worker, record in records.items() if record.why != "-"},
                int(config["floor"]),
                0 if config["started"] == "1" else int(config["workers"]),
            ),
            int(config["off"]) + int(reply[3]),
            reply[4].decode(),
            {name for name, record in tables.items() if record.split(" ")[1] == "ready"},
        )

    def belongs(self, reader: Reader, tables: set[str]) -> bool:
        """Is it of the run, epoch and tables that the reader reads?"""
        return (
            self.config["run"] == reader.host.caller.run
            and int(self.config["epoch"]) == reader.epoch
            and self.tables == tables
        )

    def precedes(self, reader: Reader) -> bool:
        """Does the log as the reader knows it go on from this moment?"""
        log = reader.log
        if int(self.config["epoch"]) != reader.epoch or not log.start <= self.end <= log.end:
            return False
        # a server that came back older, which nobody has noticed yet, has another tag there
        return self.end == log.start or log.last(self.end) == self.last


def _mapping(reply: list[bytes]) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in zip(reply[::2], reply[1::2], strict=True)}


def _bound(text: str) -> float:
    return math.inf if text == "-1" else int(text)
