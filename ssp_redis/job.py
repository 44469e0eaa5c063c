"""A job seen from outside: its state, its parameters, and what an operator may do to it. No membership is needed."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .config import UNSET, Unset, check_timeout, parse_count, parse_seconds, parse_staleness, resolve_url
from .connection import Endpoint, Wire
from .errors import JobMismatch, SSPError, StateLost, TableMismatch, UsageError
from .given import Rows, as_rows
from .joining import Record, lost, observe
from .keys import CONTROL, JobKeys, StoreKeys, check_name
from .link import STEP, Link, persist
from .loading import load
from .lua import Code, Refusal
from .scripts import Caller, ClockScripts
from .silence import settle
from .snapshot import file
from .snapshot.restore import Restorer, Wanted
from .snapshot.state import Snapshot
from .snapshot.take import take
from .sparse import pick
from .status import JobStatus, TableStatus, read_status
from .store import sweep
from .store.blob import dtype_of
from .store.reader import Reader
from .store.sparse import making, reading
from .store.sparse.view import RowView
from .store.view import View

T = TypeVar("T")

#: Bytes up to which all rows of a sparse table are put into one array, whether they were ever touched or not.
_MOST = 1 << 30
#: How often a deletion looks whether more has come: it ends when nothing has.
_LOOKS = 16


class _Onlooker:
    """Whom a :class:`Reader` works for when no member asks."""

    def __init__(self, link: Link, job: str, caller: Caller, reproducible: bool) -> None:
        self.reproducible = reproducible
        self.bulk = False
        self.endpoint = link.endpoint
        self.caller = caller
        self._job = job
        self.clock = self.local = 0
        self._link = link

    def run(self, operation: Callable[[Wire], T]) -> T:
        for _ in range(4):
            try:
                return self._link.run(operation)
            except Refusal as refusal:
                if refusal.code is Code.LOST:
                    raise lost(self._job) from None
                if refusal.code is not Code.RESYNC:
                    raise
        raise SSPError("the log keeps being trimmed faster than it is read: try again")

    def seen(self, position: int, tag: str) -> None:
        """An onlooker gives no evidence."""


class JobTable:
    """A table read from outside: always the newest value, copied out. ``name``, ``shape`` and ``dtype`` are its own."""

    _view: View | RowView

    def __init__(self, reader: Reader, view: View | RowView) -> None:
        self._reader = reader
        self._view = view
        self.name = view.layout.name
        self.shape = view.layout.shape
        self.dtype: np.dtype[Any] = dtype_of(view.layout.dtype)

    def get(self, rows: Rows | None = None) -> NDArray[Any]:
        """All committed deltas so far, as a new array; with ``rows``, those rows in that order.

        Raises:
            UsageError: a row out of range.
        """
        assert isinstance(self._view, View)
        chosen = None if rows is None else as_rows(self.name, self.shape, rows)
        self._reader.refresh(self._view)
        value = self._view.value().reshape(self.shape) if chosen is None else self._view.rows(chosen)
        return value.astype(self.dtype, copy=False)


class JobSparseTable(JobTable):
    """A sparse table read from outside: what :meth:`Job.table` gives for a name of ``Worker.sparse_table``."""

    _view: RowView

    def get(self, rows: Rows | None = None) -> NDArray[Any]:
        """Those rows, in that order, with all committed deltas so far, as a new array; None: every row.

        A row that nobody touched is what the initializer makes of it. :meth:`Job.snapshot` has those that were touched,
        and their numbers.

        Raises:
            UsageError: a row out of range, or all of more than 1 GiB.
        """
        if rows is None:
            nbytes = math.prod(self.shape) * self.dtype.itemsize
            if nbytes > _MOST:
                raise UsageError(
                    f"table {self.name} is sparse, and as one array its {self.shape[0]:,} rows would take "
                    f"{nbytes / 2**30:,.1f} GiB: ask for some of them, get(rows=[…]), or take a snapshot, which has "
                    "those that were touched"
                )
            rows = np.arange(self.shape[0])
        return pick(self._view, rows, lambda wanted: reading.read(self._reader, self._view, wanted, True, True))


class Job:
    """A job by name. Making one touches no network.

    Args:
        url: as for :func:`ssp_redis.join`; None takes it from the environment.
        name: the job's name.
        timeout: seconds to go on trying while the server is away.
    """

    def __init__(self, url: str | None, name: str, *, timeout: float = 5.0) -> None:
        self.url = resolve_url(url)
        self.keys = JobKeys(name)
        self.name = name
        self._scripts = ClockScripts(self.keys)
        limit = parse_seconds("timeout", timeout)
        self._link = Link(Endpoint(self.url, timeout=min(STEP, limit), key=self.keys.config), limit)
        self._reader: Reader | None = None

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next call makes a new one."""
        self._link.drop()

    # -- looking -----------------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Is there such a job?"""
        return bool(self._link.run(lambda wire: wire.call("EXISTS", self.keys.config)))

    def status(self) -> JobStatus:
        """Everything about the job at one moment; members whose lease has run out are removed first.

        Raises:
            StateLost: there is no such job.
        """
        self._reap()
        tables = self.tables()
        found = self._link.run(lambda wire: read_status(wire, self.keys, tables))
        if found is None:
            raise self._absent()
        return found

    def tables(self) -> list[TableStatus]:
        """The tables that are there."""
        reader = self._read()
        views = [making.ask(reader, name) or reader.ask(name) for name, _ in sorted(reader.describe())]
        return [
            TableStatus(
                view.layout.name,
                view.layout.dtype,
                view.layout.shape,
                view.layout.nbytes,
                isinstance(view, RowView),
                () if isinstance(view, RowView) else view.layout.block_bytes,
            )
            for view in views
            if view is not None
        ]

    def table(self, name: str) -> JobTable:
        """A table, to read; a :class:`JobSparseTable` if it is sparse.

        Raises:
            TableMismatch: there is no such table.
        """
        reader = self._read()
        if (sparse := making.ask(reader, name)) is not None:
            return JobSparseTable(reader, sparse)
        view = reader.ask(name)
        if view is None:
            names = ", ".join(sorted(known for known, _ in reader.describe())) or "none"
            raise TableMismatch(f"job {self.name} has no table {name}; there are: {names}")
        return JobTable(reader, view)

    # -- acting ------------------------------------------------------------------------------------------------------

    def evict(self, worker: str | int) -> bool:
        """Remove a member, by the incarnation it has now; it may join again. False: it is not a member.

        Raises:
            UsageError: no such id was ever in this run.
        """
        run, epoch = self._current()
        text = self._link.run(lambda wire: wire.call("HGET", self.keys.ids, str(worker)))
        if text is None:
            raise UsageError(f"job {self.name} has no worker {worker}: see its members with ssp-redis status")
        record = Record.of(text)
        if record.why != "-":
            return False
        try:
            _, left = self._link.run(
                lambda wire: self._scripts.leave(wire, run, epoch, str(worker), record.incarnation, 0, "evicted")
            )
        except Refusal as refusal:
            if refusal.code is Code.SUPERSEDED:
                return False  # who was meant is gone: another process has taken the id meanwhile
            raise self._changed(refusal) from None
        if not left:
            self._retire(run)
        return True

    def set_staleness(self, staleness: float | None) -> None:
        """Change the bound while the job runs; whoever a higher one admits goes on at once.

        Raises:
            UsageError: the job is reproducible, which it can be at staleness 0 only.
        """
        self._configure("staleness", str(parse_staleness(staleness)))

    def stop(self) -> None:
        """End ``clocks()`` everywhere; a worker that waits wakes."""
        self._configure("stop", "1")

    def resume(self) -> None:
        """Take a stop back."""
        self._configure("stop", "0")

    def gather(self, workers: int) -> None:
        """Let the next workers of a job that nobody is in wait until so many have joined, as the first ones did.

        Without it, whoever comes to a run that had begun goes on at once, alone if need be.

        Raises:
            JobMismatch: the job has members, or is reproducible and has another number of workers for good.
        """
        self._configure("workers", str(parse_count("workers", workers)))

    def load(self, arrays: Mapping[str, ArrayLike]) -> None:
        """Set tables to values from outside; a table that is not there is made.

        Exactly these values, unless members push meanwhile: that is added on top. The job must have begun.

        Raises:
            TableMismatch: another shape or dtype.
        """
        if not self.status().started:
            raise UsageError(f"job {self.name} has not begun: give first values to worker.table() instead")
        load(self.url, self.name, arrays)

    def snapshot(self, path: str | os.PathLike[str]) -> Snapshot:
        """Write all tables, and the clocks that belong to exactly these values, to a file, while the job runs.

        Of a sparse table NAME the file has the rows that were ever touched: which, under ``NAME@rows``, and their
        elements, under ``NAME@values``.

        Args:
            path: ``.npz``, which ``numpy.load`` reads, or ``.safetensors``. What was there is replaced when the new
                file is whole and on disk, not before.

        Raises:
            UsageError: no file can go there. Nothing was asked of the server then.
            StateLost: there is no such job, or part of it is gone.
        """
        target = file.check_target(path)
        try:
            taken = take(self.name, self.keys, self._onlooker)
        except Refusal as refusal:
            raise self._changed(refusal) from None
        file.save(target, taken)
        return taken

    def restore(
        self,
        path: str | os.PathLike[str],
        *,
        run: str | None = None,
        workers: int | None = None,
        staleness: float | Unset | None = UNSET,
        lease: float | None = None,
        timeout: float | None = None,
    ) -> JobStatus:
        """Begin a new run with the tables and clocks of a snapshot; the job is made if there is none.

        Every id resumes at its clock, a new one enters at the snapshot's min clock. The job is seen with all of it or
        not at all.

        Args:
            path: what :meth:`snapshot` wrote, here or for another job on another server.
            run: name of the new run. None: RUN-restored-1, or the next number that was not used.
            workers: start quorum, whatever it was before. This and what follows: left out, as the job has it; where
                there is no job, as the file has it.
            staleness: as for :func:`ssp_redis.join`.
            lease: seconds.
            timeout: seconds to wait where the members may all be dead, and have a lease; None: as long as that lasts.

        Raises:
            UsageError: the file is damaged, or something else. Nothing was sent.
            JobMismatch: the job has members, or the name was used. Nothing was changed.
            WaitTimeout: none of the members has been heard of, and their leases last for longer than ``timeout``.
        """
        snapshot = file.load(path)
        wanted = Wanted(
            None if run is None else check_name("run", run),
            None if workers is None else parse_count("workers", workers),
            None if isinstance(staleness, Unset) else parse_staleness(staleness),
            None if lease is None else parse_seconds("lease", lease, 0.05),
        )
        timeout = check_timeout(timeout)
        if self.exists():
            self._reap()
        settle(self._link, self.keys, self._scripts, timeout)
        try:
            Restorer(self._link, self.keys, snapshot, wanted)()
            self._reader = None
            return self.status()
        except Refusal as refusal:
            raise self._changed(refusal) from None

    def delete(self, *, force: bool = False, timeout: float | None = None) -> int:
        """Delete every key of the job; returns how many there were.

        Args:
            force: also when it has members; their next call raises :class:`StateLost`.
            timeout: seconds to wait where the members may all be dead, and have a lease; None: as long as that lasts.

        Raises:
            UsageError: it has members, and ``force`` is not given.
            WaitTimeout: none of them has been heard of, and their leases last for longer than ``timeout``.
        """
        if not force and (members := settle(self._link, self.keys, self._scripts, check_timeout(timeout))):
            names = ", ".join(member.worker for member in members)
            raise UsageError(f"job {self.name} has members ({names}): stop it first, or force the deletion")
        self._reader = None
        return self._link.run(lambda wire: _delete(wire, self.keys))

    # -- inside ------------------------------------------------------------------------------------------------------

    def _current(self) -> tuple[str, int]:
        run, epoch = self._link.run(lambda wire: wire.call("HMGET", self.keys.config, "run", "epoch"))
        if run is None:
            raise self._absent()
        return run.decode(), int(epoch)

    def _reap(self) -> None:
        run, epoch = self._current()
        try:
            left = self._link.run(lambda wire: observe(wire, self._scripts, run, epoch)).members
        except Refusal as refusal:
            raise self._changed(refusal) from None
        if not left:
            self._retire(run)

    def _retire(self, run: str) -> None:
        """The last member did not say goodbye itself: its tables expire all the same."""
        keys = StoreKeys(self.keys.prefix, run)
        if self._link.run(lambda wire: wire.call("PTTL", keys.tables)) == -1:
            self._link.run(lambda wire: sweep.retire(wire, self.keys, keys))

    def _read(self) -> Reader:
        run, _ = self._current()
        if self._reader is None or self._reader.host.caller.run != run:
            self._reader = self._onlooker()
        return self._reader

    def _onlooker(self) -> Reader:
        run, epoch = self._current()
        caller = Caller(run, epoch, "", 0, "-", "-", 0)
        kept = self._link.run(lambda wire: wire.call("HGET", self.keys.config, "reproducible"))
        return Reader(_Onlooker(self._link, self.name, caller, kept != b"0"), self.keys)

    def _configure(self, field: str, value: str) -> None:
        run, _ = self._current()

        def change(wire: Wire) -> None:
            while True:
                changes = wire.call("HGET", self.keys.config, "changes") or b"0"
                try:
                    self._scripts.configure(wire, run, field, changes.decode(), value)
                    return
                except Refusal as refusal:
                    if refusal.code is Code.BAD:
                        raise self._unfit(wire, field, value, refusal.words[0]) from None
                    if refusal.code is not Code.CHANGED:
                        raise
                    # somebody changed it between the look and the change: look again

        try:
            self._link.run(change)
        except Refusal as refusal:
            raise self._changed(refusal) from None

    def _absent(self) -> StateLost:
        return StateLost(f"there is no job {self.name} on {self._link.endpoint.label}: see ssp-redis jobs")

    def _unfit(self, wire: Wire, field: str, value: str, why: str) -> SSPError:
        if field == "staleness":
            why = f"job {self.name} is reproducible, so its staleness stays 0: begin another run without that"
            return UsageError(why)
        reason = "has members" if why == "members" else "is reproducible"
        stored = wire.call("HGET", self.keys.config, "workers").decode()
        text = f"job {self.name} {reason}, so its start quorum stays {stored}: begin another run with another"
        return JobMismatch(text, "workers", stored, value)

    def _changed(self, refusal: Refusal) -> SSPError:
        if refusal.code is Code.LOST:
            return lost(self.name)
        return SSPError(f"job {self.name} changed meanwhile ({refusal}): try again")


def list_jobs(url: str | None = None) -> list[str]:
    """The names of all jobs on a server."""
    endpoint = Endpoint(resolve_url(url))

    def look() -> set[bytes]:
        wires = endpoint.connect_all()
        try:
            return set().union(*(_scan(wire, "ssp:{*}:config") for wire in wires))
        finally:
            for wire in wires:
                wire.close()

    found = persist(endpoint, 5.0, look)
    return sorted(key.decode()[5:].rpartition("}")[0] for key in found)


def _scan(wire: Wire, pattern: str) -> set[bytes]:
    found: set[bytes] = set()
    cursor = b"0"
    while True:
        cursor, keys = wire.call("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
        found.update(keys)
        if cursor == b"0":
            return found


def _delete(wire: Wire, keys: JobKeys) -> int:
    """Delete every key of a job; returns how many there were.

    The clock's keys go first and at once: from then on no script does anything. A worker in the middle of a push writes
    the rest of it all the same, and sweeps that when its tick is refused; what it has written by then, another look
    finds. Whoever joins meanwhile begins the job anew, and what is of its run stays.
    """
    count: int = wire.call("UNLINK", *(keys.prefix + name for name in CONTROL))
    prefix = keys.prefix.encode()
    for _ in range(_LOOKS):
        found = _scan(wire, keys.prefix + "*")
        # on a cluster this is refused while keys are on their way to another node, where they would not be found
        run = wire.call("HGET", keys.config, "run")
        if run is not None:
            of_runs = (key for key in found if b":" in key[len(prefix) :])
            found = {key for key in of_runs if not key.startswith(b"%b%b:" % (prefix, run))}
        if not found:
            break
        doomed = sorted(found)
        for i in range(0, len(doomed), 1000):
            count += wire.call("UNLINK", *doomed[i : i + 1000])
    return count
