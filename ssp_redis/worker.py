"""A worker: its clock and its tables together."""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .clock import Clock
from .config import UNSET, Settings, Unset, check_timeout, parse_count, resolve
from .connection import Wire
from .errors import (
    Fenced,
    JobStopped,
    Loss,
    ServerUnavailable,
    SSPError,
    StateLost,
    TableMismatch,
    UsageError,
    WaitTimeout,
)
from .given import Array, as_array
from .keys import StoreKeys, check_name
from .link import GRACE
from .memory import warn_of_eviction
from .sparse import SparseTable, described
from .store import sweep
from .store.blob import DTYPES
from .store.lifting import EVERY, lift
from .store.passes import finite
from .store.sparse import folding, making, reading
from .store.sparse.view import RowView
from .store.store import Store
from .store.view import View
from .table import Table

logger = logging.getLogger("ssp_redis")
#: Seconds of waiting after which a worker looks for something to fold.
_IDLE = 0.003
#: A wait of so many pushes' time is a long one.
_LONG = 8
#: Seconds that leaving may take, the commit of what is open apart; and that this may take without getting on.
_LEAVE = 2.0


def join(
    url: str | None = None,
    *,
    job: str | None = None,
    worker: str | int | None = None,
    workers: int | None = None,
    staleness: float | Unset | None = UNSET,
    lease: float | None = None,
    run: str | None = None,
    timeout: float | None = None,
    retain: float | None = None,
    refresh: int | None = None,
    flush_every: int = 1,
    reconnect_timeout: float = 30.0,
    recheck: float = 2.0,
    strict: bool = False,
    reproducible: bool | None = None,
    progress_timeout: float | None = None,
) -> Worker:
    """Join a job, which is made if there is none, and return when the start quorum is there and the worker admitted.

    What is left out is taken from the environment (``SSP_REDIS_URL``, ``REDIS_URL``; ``SSP_REDIS_JOB``, ``_ID``,
    ``_WORKERS``, ``_STALENESS``, ``_RUN``; ``RANK``, ``WORLD_SIZE``), else adopted from the job, else a default.

    Args:
        url: redis://, rediss:// or unix://.
        job: the job's name.
        worker: this worker's id; None claims the lowest that is free. A live id is taken over at once. Containers that
            share a host name and have pids of their own look like one process that comes back: give them ids.
        workers: start quorum: nobody passes ``join`` before so many members are there. Default 1.
        staleness: clocks that a worker may be ahead of the slowest; 0 bulk-synchronous, None or inf asynchronous.
            Default 0.
        lease: seconds a silent member is waited for. Default 10.
        run: name of the run; another one than the job's begins from zero, when nobody is left in the old one. Where
            none of its members has been heard of, this waits until their leases have run out.
        timeout: seconds to wait at the most, None: for ever.
        retain: seconds that a job without members is kept. Default 7 days.
        refresh: clocks after which a read is renewed even if it could still serve: fresher reads converge better
            (Wei et al., SoCC 2015). Default (staleness + 1) // 2, at least ``flush_every``. Of a large table, parts are
            renewed to where their owners brought them, about a clock ago.
        flush_every: clocks whose deltas are pushed as one, at most staleness + 1; others see this worker's clock move
            in such steps. Whatever is unflushed is flushed before a wait and before leaving.
        reconnect_timeout: seconds to go on trying while the server is away.
        recheck: seconds between looks at the clocks while waiting, in case a notification is lost.
        reproducible: at staleness 0, bit-identical parameters whatever the speeds: deltas are summed in the order
            (clock, worker), the ids are fixed, and whoever is missing is waited for until it returns or is evicted,
            which ends the promise. Programs must seed by clock.
        progress_timeout: seconds after which this worker, while it is blocked by a min that does not move, evicts
            whoever has held that min for so long: one that is alive and has stopped ticking. It counts from its first
            look, a quarter of that time after it was blocked, at most 2 s. None: never. Longer than any step, and
            than any ``flush_every`` of them: only what is flushed moves the min.
        strict: raise :class:`RolledBack` when the server forgot what it had acknowledged (else: logged and counted).

    Raises:
        UsageError: a bad argument; nothing was sent.
        WaitTimeout, JobMismatch, StateLost, ServerUnavailable, ServerRefused: see :mod:`ssp_redis.errors`.
    """
    settings = resolve(
        url,
        job,
        worker,
        workers,
        staleness,
        lease,
        run,
        retain,
        reconnect_timeout,
        recheck,
        strict,
        reproducible,
        progress_timeout,
    )
    timeout = check_timeout(timeout)
    refresh = None if refresh is None else parse_count("refresh", refresh)
    flush = parse_count("flush_every", flush_every)
    if settings.staleness is not None and 0 <= settings.staleness < flush - 1:
        raise UsageError(f"flush_every {flush} is more than staleness + 1 = {settings.staleness + 1} allows")
    if reproducible and flush > 1:
        raise UsageError("a reproducible run flushes every clock: leave flush_every out")
    return Worker(settings, timeout, refresh, flush)


class Worker:
    """A member of a job, made by :func:`join`: ``id`` and ``job`` name it.

    Use it with ``with``, in one thread: one that does not leave holds the others up as long as its process lives.
    """

    def __init__(
        self,
        settings: Settings,
        timeout: float | None = None,
        refresh: int | None = None,
        flush_every: int = 1,
    ) -> None:
        self._store: Store | None = None
        self._refresh = refresh
        self._flush_every = flush_every
        self._callbacks: list[Callable[[list[str]], object]] = []
        self._push_seconds = self._last_push = 0.0
        self._pull_seconds = 0.0
        #: Seconds that the last tick waited.
        self._idled = 0.0
        #: Has a tick advanced that has not returned yet?
        self._half = False
        #: Has the open clock added anything?
        self._added = False
        #: Reads of tables, and by how many clocks the others' min that they show was behind.
        self._reads = self._behind = self._most_behind = 0
        #: Clocks from which on, and up to which, a tick brings the tags along.
        self._renew_at = self._renew_until = sys.maxsize
        #: Length of the log from which on it is looked whether some base has stayed behind.
        self._lift_at = EVERY
        self._why = "left"
        #: Name of the job.
        self.job = settings.job
        self._clock = clock = Clock(settings)
        clock.on_members = self._members_changed
        clock.on_rollback = self._rolled_back
        with clock.link.within(timeout):
            try:
                clock.join(timeout)
                #: Id of this worker, a text.
                self.id = clock.caller.worker
                self._begin()
            except BaseException:
                clock.leave()
                raise

    def _begin(self) -> None:
        """Tables that were about to expire are kept; a new run sweeps the one it replaces."""
        clock = self._clock
        if clock.dropped:
            old = StoreKeys(clock.keys.prefix, clock.dropped)
            clock.run(lambda wire: sweep.erase(wire, old))
            clock.run(lambda wire: wire.call("HDEL", clock.keys.config, "dropped"))
        keys = StoreKeys(clock.keys.prefix, clock.caller.run)
        if clock.run(lambda wire: wire.call("PTTL", keys.tables)) >= 0:
            clock.run(lambda wire: sweep.expire(wire, keys, None))
        clock.run(lambda wire: warn_of_eviction(wire, self.job))

    def __repr__(self) -> str:
        return f"<Worker {self.id} of job {self.job} at clock {self.clock}>"

    # -- where it stands ---------------------------------------------------------------------------------------------

    @property
    def clock(self) -> int:
        """Ticks completed in this run."""
        return self._clock.local

    @property
    def min_clock(self) -> int:
        """The smallest clock of the members, as last heard."""
        return self._clock.standing.min_clock

    @property
    def staleness(self) -> float:
        """Clocks that a worker may be ahead of the slowest; inf when unbounded."""
        bound = self._clock.standing.staleness
        return math.inf if bound < 0 else bound

    @property
    def workers(self) -> int:
        """The start quorum of the job."""
        return self._clock.workers

    @property
    def incarnation(self) -> int:
        """Number of this membership, never reused in the job."""
        return self._clock.caller.incarnation

    @property
    def members(self) -> list[str]:
        """The ids of the members, asked of the server."""
        reply = self._clock.run(lambda wire: wire.call("ZRANGE", self._clock.keys.order, 0, -1))
        return sorted(member.decode() for member in reply)

    @property
    def stopped(self) -> bool:
        """Has somebody stopped the job, as last heard?"""
        return self._clock.standing.stopped

    def on_members(self, callback: Callable[[list[str]], object]) -> None:
        """Call ``callback`` with the ids whenever a call of this worker hears that the membership changed."""
        self._callbacks.append(callback)

    def _members_changed(self) -> None:
        if self._callbacks:
            # heard in the middle of an exchange: ask when it is over
            self._clock.defer(lambda: [callback(self.members) for callback in self._callbacks])

    # -- clock -------------------------------------------------------------------------------------------------------

    def tick(self, timeout: float | None = None) -> int:
        """Commit this clock's deltas, advance, and block until admitted. Returns the new clock.

        After an error in the middle (``ServerUnavailable``, Ctrl-C) ``clock`` counts the tick that was under way, whose
        fate is not known yet; the next ``tick`` finds out, and completes that one only, its wait included.

        Args:
            timeout: seconds that all of it may take, and a little grace; None: any number. A push that it cuts short
                (``ServerUnavailable``) is made again as a whole by the next ``tick``: give that one longer.

        Raises:
            WaitTimeout: not admitted within ``timeout`` seconds. The clock has advanced, and the next tick finishes the
                wait first; or this one had to finish the last one's, and has not begun: ``clock`` tells which.
            JobStopped: the job was stopped; the clock has advanced.
            Evicted, Superseded, StateLost, RolledBack, ServerUnavailable, ServerRefused: :mod:`ssp_redis.errors`.
        """
        if timeout is None:
            self._tick(None, None)
        else:
            timeout = check_timeout(timeout) or 0.0
            deadline = time.monotonic() + timeout
            with self._clock.link.within(timeout):
                self._tick(timeout, deadline)
        self._half = False  # last of all: an interruption before this is one of this tick
        return self._clock.local

    def _tick(self, timeout: float | None, deadline: float | None) -> None:
        self._advance(timeout)
        clock = self._clock
        if not clock.admitted or clock.standing.stopped:
            try:
                self._wait(deadline)
            except (WaitTimeout, JobStopped):
                self._half = False  # told: the next tick finishes the wait, and is another
                raise

    def advance(self, timeout: float | None = None) -> int:
        """The first half of a tick: commit and advance; what is still owed of the last tick is finished first."""
        timeout = check_timeout(timeout)
        with self._clock.link.within(timeout):
            self._advance(timeout)
        self._half = False
        return self._clock.local

    def _advance(self, timeout: float | None) -> None:
        clock = self._clock
        owed = clock.pending is not None or clock.ahead >= self._flush_every
        if owed:
            self._commit()  # an interruption ended the last call half-way
        if self._half and (owed or not self._added):
            return  # that was a tick, which this one completes, or which had advanced: the same call once more
        if not clock.admitted:
            # a second tick after a timed-out wait would take the lead to s + 2
            self.wait(timeout)
        clock.usable()
        clock.local, self._half, self._added = clock.local + 1, True, False
        if clock.ahead >= self._flush_every or not clock.admitted:
            self._commit()

    def wait(self, timeout: float | None = None) -> None:
        """The second half of a tick: block until admitted."""
        timeout = check_timeout(timeout)
        with self._clock.link.within(timeout):
            self._wait(None if timeout is None else time.monotonic() + timeout)
        self._half = False

    def _wait(self, deadline: float | None) -> None:
        clock, before = self._clock, self._clock.waits.seconds
        if not clock.admitted:
            if clock.ahead:
                self._commit()  # others may be waiting for what is unflushed
            store = self._store
            if store is not None and store.folder.idles and not clock.admitted:
                self._fold_while_waiting(store, deadline)
                clock.waits.waits += clock.admitted  # else it is counted below
        clock.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        self._idled = clock.waits.seconds - before
        if clock.standing.stopped:
            raise clock.stopped()

    def _fold_while_waiting(self, store: Store, deadline: float | None) -> None:
        """A wait that is not over at once is time to sum what is in, for oneself and for those who are late."""
        pause, long = max(_IDLE, 2 * self._last_push), False
        while store.folder.idles:
            left = math.inf if deadline is None else deadline - time.monotonic()
            if left <= 0 or self._clock.briefly(min(pause, left)) or self._clock.standing.stopped:
                return
            begun = time.perf_counter()
            try:
                with self._clock.link.within(None if deadline is None else max(0.0, left - GRACE)):
                    busy = store.folder.idle(self.clock, long)
            except ServerUnavailable:
                if deadline is None:
                    raise
                return  # it took too long: what the wait itself finds is what is told
            self._pull_seconds += time.perf_counter() - begun
            if not busy and long:
                return
            pause, long = 2 * pause, True

    def barrier(self, timeout: float | None = None) -> None:
        """Block until every member's clock is at least mine. The next reads hold all that they added up to there."""
        timeout = check_timeout(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._clock.link.within(timeout):
            if self._clock.ahead:
                self._commit()  # the others wait for the clock they know of
            self._clock.barrier(None if deadline is None else max(0.0, deadline - time.monotonic()))
        for view in self._store.opened() if self._store is not None else ():
            view.taken = None

    def clocks(self, count: int) -> Iterator[int]:
        """Run until clock ``count`` or until the job is stopped: yields the clock, ticks at the end of each turn."""
        count = parse_count("clocks", count, 0)
        with contextlib.suppress(JobStopped):
            if self.clock < count:
                self.wait()  # one that is owed: a tick may have ended in a timeout or a stop
        clock = self._clock
        if clock.local >= count > 0:
            logger.warning(
                "worker %s of job %s is at clock %d already: clocks(%d) has nothing left to do; name another run to "
                "start from zero",
                self.id,
                self.job,
                clock.local,
                count,
            )
        told = False
        while clock.local < count and not clock.standing.stopped:
            at = clock.local
            yield at
            if clock.local != at and not told:
                told = True
                logger.warning("clocks() ticks by itself: that the body did so, too, at clock %d skips one", at)
            try:
                self.tick()
            except JobStopped:
                return
        if clock.local >= count:
            self._why = "done"

    def _commit(self) -> None:
        begun = time.perf_counter()
        clock, store = self._clock, self._store
        push = None
        if store is not None and clock.pending is None:
            # the next read will need the tags, if there is one
            push = store.prepare(self._renew_at <= clock.local <= self._renew_until)
        tags = clock.advance(push)
        if store is not None and tags is not None:
            store.hear(tags, clock.standing.membership)
        if clock.standing.end >= self._lift_at:
            self._lift_at = lift(store or Store(clock, clock.keys, clock.workers))
        self._last_push = time.perf_counter() - begun
        self._push_seconds += self._last_push

    # -- tables ------------------------------------------------------------------------------------------------------

    def table(self, name: str, init: ArrayLike | None = None) -> Table:
        """A shared table, made with ``init`` if nobody has made it: created once, the same for everyone.

        Args:
            name: 1 to 64 of A-Z a-z 0-9 . _ -
            init: first value, an array of float16, float32, float64, int32, int64 or bfloat16; the shape and dtype
                must be the same everywhere, the values are those of whoever comes first. None: the table must be there
                already.

        Raises:
            UsageError: a bad name or value; nothing was sent.
            TableMismatch: it is there with another shape or dtype, or is not there and ``init`` is None.
        """
        check_name("table", name)
        self.usable()
        if init is None:
            view = self._tables().ask(name)
            if view is None:
                raise TableMismatch(f"job {self.job} has no table {name}: give its first value, table({name!r}, array)")
            return Table(self, view)
        if isinstance(init, tuple) and init and all(type(size) is int for size in init):
            raise UsageError(
                f"table {name}: its first value, not its shape: np.zeros({init}), or np.array({init}) for these numbers"
            )
        array = as_array(f"table {name}: its first value", init)
        array = np.ascontiguousarray(array).reshape(array.shape)
        if array.dtype.name not in DTYPES:
            raise UsageError(f"table {name}: {array.dtype} is not supported, use one of {', '.join(DTYPES)}")
        if array.size == 0:
            raise UsageError(f"table {name}: a table of shape {array.shape} holds nothing")
        if not finite(array):
            raise UsageError(f"table {name}: its first value has NaN or infinity in it")
        return Table(self, self._tables().create(name, array))

    def sparse_table(
        self,
        name: str,
        shape: Sequence[int] | None = None,
        dtype: DTypeLike = np.float32,
        initializer: str = "zeros",
        *,
        seed: int = 0,
        scale: float = 1.0,
    ) -> SparseTable:
        """A shared table of many rows, each of which is made when it is first touched: the same for everyone.

        Args:
            name: 1 to 64 of A-Z a-z 0-9 . _ -
            shape: number of rows, then the shape of a row. None: the table must be there already.
            dtype: as for :meth:`table`.
            initializer: what a row begins as: ``zeros``; ``uniform``, in [−scale, scale); ``normal``, of mean 0 and
                standard deviation ``scale``. A row's values depend on ``seed`` and its number only.

        Raises:
            UsageError: a bad argument; nothing was sent.
            TableMismatch: it is there and is another, or is not there and ``shape`` is None.
        """
        check_name("table", name)
        self.usable()
        workers = self._clock.workers
        wanted = None if shape is None else described(name, shape, dtype, initializer, seed, scale, workers)
        view = making.create(self._tables(), wanted) if wanted else making.ask(self._tables(), name)
        if view is None:
            if self._tables().ask(name) is not None:
                raise TableMismatch(f"table {name} is dense: use it as table({name!r})")
            raise TableMismatch(f"job {self.job} has no sparse table {name}: give its shape, sparse_table({name!r}, …)")
        return SparseTable(self, view)

    def _tables(self) -> Store:
        if self._store is None:
            clock = self._clock
            self._store = store = Store(clock, clock.keys, clock.workers)
            clock.on_tags, clock.on_connect = store.overhear, store.doubt
            clock.on_fenced, clock.on_lost = store.fenced, store.orphaned
            clock.on_detach = store.folder.close
        return self._store

    def _renewal(self) -> int:
        """Clocks after which a view is brought forward."""
        bound = self._clock.standing.staleness
        return self._refresh or max(self._flush_every, (bound + 1) // 2)

    def usable(self) -> None:
        """Raise what makes this worker unusable, if anything does."""
        self._clock.usable()

    def adds(self) -> None:
        """The open clock adds something: what is not flushed yet is not all that leaving has to commit."""
        self._clock.usable()
        self._added = True

    def fresh(self, view: View) -> None:
        """Bring the view forward if it does not hold what a read at this clock must hold, or is due for renewal."""
        clock, store = self._clock, self._store
        clock.usable()
        assert store is not None
        span = self._renewal()
        if self._serves(view, span):
            self._count(view)
            return
        if not view.layout.small:
            self._give_way()
        begun = time.perf_counter()
        least = None if clock.bulk else self._enough(span)
        store.folder.refresh(view, not self._knows(store, view), clock.clock, least)
        if store.due:
            clock.note_losses(store.inquest())
            store.folder.tend()
            if view.taken is None:
                # some of its shares were folded, and so brought further than the others
                store.refresh(view, learn=False)
            store.tidy()
        self._plan_renewal(span)
        self._count(view)
        self._pull_seconds += time.perf_counter() - begun

    def _give_way(self) -> None:
        """Who waited long lets the slowest read first, alone: on when it goes on depends when all can."""
        idled, self._idled = self._idled, 0.0
        if idled > _LONG * self._last_push:
            time.sleep(min(2 * self._last_push, idled / _LONG))

    def _enough(self, span: int) -> int:
        """The min clock of the others that a view must show to serve until it is renewed."""
        bound = self._clock.standing.staleness
        return -1 if bound < 0 else self._clock.local + span - 1 - bound

    def _serves(self, view: View | RowView, span: int) -> bool:
        """Does the view hold what a read at this clock must hold, and is it not due for renewal?"""
        clock, taken = self._clock, view.taken
        standing = clock.standing
        return (
            taken is not None
            and clock.local - taken.clock < span
            and taken.serves(clock.caller.epoch, standing.membership, clock.local, standing.staleness)
        )

    def _knows(self, store: Store, view: View | RowView) -> bool:
        """Is the log as it is known enough for a read at this clock?"""
        clock, standing = self._clock, self._clock.standing
        return (
            view.taken is not None
            and store.at == clock.local
            and store.serves(clock.caller.epoch, standing.membership, clock.local, standing.staleness)
        )

    def _count(self, view: View | RowView) -> None:
        """How stale is what is read?"""
        self._reads += 1
        taken = view.taken
        if taken is not None and taken.others is not None and (behind := self._clock.local - taken.others) > 0:
            self._behind += behind
            self._most_behind = max(self._most_behind, behind)

    def rows(self, view: RowView, wanted: Array) -> Array:
        """Rows of a sparse table by their numbers, ascending, each once, as fresh as a read must be or is due to be."""
        clock, store = self._clock, self._store
        clock.usable()
        assert store is not None
        span = self._renewal()
        renew = not self._serves(view, span)
        begun = time.perf_counter()
        values = reading.read(store, view, wanted, renew, not self._knows(store, view))
        if renew:
            clock.note_losses(store.inquest())
            folding.tend(store)
            store.tidy()
            self._plan_renewal(span)
        self._count(view)
        self._pull_seconds += time.perf_counter() - begun
        return values

    def _plan_renewal(self, span: int) -> None:
        """From which clock on will a read need the tags? The tick that leads there brings them along.

        What was not renewed when it was due is not read at every clock, and may ask by itself.
        """
        assert self._store is not None
        now = self._clock.local
        if span == 1:  # whichever view it was, the next clock is the one
            self._renew_at, self._renew_until = now + 1, now + 3
            return
        taken = [view.taken.clock for view in self._store.opened() if view.taken is not None]
        self._renew_at = min((clock for clock in taken if clock > now - 2 * span), default=now) + span
        self._renew_until = self._renew_at + 2 * span

    def _rolled_back(self, first: int, clock: int) -> list[Loss]:
        return self._store.rolled_back(first, clock) if self._store is not None else []

    # -- accounting and leaving --------------------------------------------------------------------------------------

    def stats(self) -> dict[str, float | int | str]:
        """What happened so far, flat: counts, seconds, bytes."""
        received, sent = self._clock.link.traffic()
        waits, standing = self._clock.waits, self._clock.standing
        return {
            "worker": self.id,
            "clock": self.clock,
            "min_clock": standing.min_clock,
            "lead": self.clock - standing.min_clock,
            "staleness": self.staleness,
            "epoch": standing.epoch,
            "ticks": waits.ticks,
            "waits": waits.waits,
            "wait_seconds": waits.seconds,
            "push_seconds": self._push_seconds,
            "pull_seconds": self._pull_seconds,
            "reads": self._reads,
            "mean_staleness": self._behind / max(1, self._reads),
            "most_staleness": self._most_behind,
            "bytes_in": received,
            "bytes_out": sent,
            "lost_clocks": sum(loss.last - loss.first + 1 for loss in self._clock.losses if not loss.repushed),
            "repushed_clocks": sum(loss.last - loss.first + 1 for loss in self._clock.losses if loss.repushed),
        }

    @property
    def losses(self) -> list[Loss]:
        """What the server acknowledged and forgot, as far as this worker knew of it."""
        return list(self._clock.losses)

    def leave(self, why: str | None = None, *, commit: bool = True) -> None:
        """Leave the job; what was ``inc``ed in the open clock is committed first. Idempotent.

        It takes a few seconds at the most while the server is away; what it commits takes as long as it gets on.

        Args:
            why: "done" or "left", for the record; None: done after ``clocks`` ran to its end.
            commit: False drops the open clock.
        """
        # once more where the server turns out, on the way out, to have forgotten what is still held here
        while not (self._clock.closed or self._try_to_leave(why, commit)):
            pass

    def _try_to_leave(self, why: str | None, commit: bool) -> bool:
        # what is committed may be large, and is not cut off while it gets on
        with self._clock.link.within(_LEAVE, moving=True):
            self._commit_last(commit)
        with self._clock.link.within(_LEAVE):
            return self._say_leave(why, commit)

    def _commit_last(self, commit: bool) -> None:
        clock, store = self._clock, self._store
        try:
            if commit and clock.alive:
                if clock.pending is not None:
                    self._commit()
                if store is not None and store.unpushed:
                    clock.local = max(clock.local + self._added, clock.clock + 1)
                if clock.ahead:
                    self._commit()
        except BaseException as error:
            clock.leave("left")
            if not isinstance(error, SSPError) or isinstance(error, (Fenced, StateLost)):
                raise
            raise SSPError(
                f"worker {self.id} left, and whether its open clock was committed is not known: {error}"
            ) from error

    def _say_leave(self, why: str | None, commit: bool) -> bool:
        clock, store = self._clock, self._store
        with contextlib.suppress(SSPError), clock.link.within(_LEAVE / 2):  # it saves others work, no more
            if commit and store is not None and clock.alive and store.opened() and len(self.members) == 1:
                store.finish()

        def after(wire: Wire, left: int) -> None:
            if store is not None:
                store.gone(wire)
            if left == 0:
                sweep.retire(wire, clock.keys, StoreKeys(clock.keys.prefix, clock.caller.run))

        return clock.leave(why or self._why, after, lambda: commit and store is not None and store.unpushed)

    def detach(self) -> None:
        """Close the connections without leaving: the lease goes on until it runs out or somebody joins as this id."""
        self._clock.detach()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.leave()
        else:
            # the open clock may hold half a step: it is dropped
            self.leave("left", commit=False)
