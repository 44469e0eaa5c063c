"""The clock of one worker: advance, then wait until admitted.

A worker's clock is the number of ticks it has completed. It may run while it is at most ``staleness`` clocks ahead of
the slowest member; the test comes *after* the increment (Ho et al., NIPS 2013, §2): before it, a lead of s + 1 would
slip through. The clock knows nothing of tables: what a tick carries is handed to it as a :class:`Push`.

Why every call states what it wants: a command whose answer is lost may have been carried out. "Worker w, at clock c,
has completed c + 1" can be said twice, and late, and changes the clock once.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from . import forks
from .blockers import look
from .config import Settings
from .connection import Endpoint, Packed, ReplyError, Wire, refused
from .errors import (
    Evicted,
    Fenced,
    JobStopped,
    Loss,
    RolledBack,
    ServerUnavailable,
    SSPError,
    StateLost,
    Superseded,
    WaitTimeout,
)
from .heartbeat import Heartbeat
from .joining import Joiner, lost, release
from .keys import JobKeys
from .link import STEP, Link, persist
from .lua import Code, Refusal, words
from .scripts import Caller, ClockScripts, Joined, Standing, Synced, Tags
from .signals import held_back
from .silence import settle
from .subscriber import Subscriber

T = TypeVar("T")
logger = logging.getLogger("ssp_redis")


class Push(Protocol):
    """What a tick makes count: the deltas of a clock, already frozen."""

    @property
    def note(self) -> str:
        """What the tag says of it: "ring:tables"."""

    @property
    def known(self) -> int:
        """Log position after which the tick shall bring the tags, or −1."""

    def commands(self) -> list[Packed] | None:
        """Few bytes: commands for one transaction with the tick. None: use ``send``."""

    def send(self, wire: Wire) -> None:
        """Many bytes: write them, and return when all are acknowledged."""

    def committed(self, end: int) -> None:
        """The tick has happened, and is among the first ``end`` entries of the log. May be said again."""

    def moved(self, clock: int) -> None:
        """The tick will take the worker to another clock than was said."""

    def renew(self, wire: Wire) -> None:
        """The last attempt's fate is unknown: the next one goes to a fresh ring, where no late duplicate can land.

        Raises:
            StateLost: the server fell back meanwhile, to before a table was made that is pushed to.
        """


@dataclass(slots=True)
class _Pending:
    """A tick that was begun and whose answer is not in yet."""

    clock: int
    wanted: int
    push: Push | None
    attempts: int = 0

    def move(self, clocks: int) -> None:
        """Begin and end so many clocks later."""
        self.clock += clocks
        self.wanted += clocks
        if self.push is not None:
            self.push.moved(self.wanted)


@dataclass
class Waits:
    """How often and how long the clock waited (seconds)."""

    ticks: int = 0
    waits: int = 0
    seconds: float = 0.0


class Clock:
    """A worker's clock, a member's once it has joined; belongs to one thread and one process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.keys = JobKeys(settings.job)
        self.scripts = ClockScripts(self.keys)
        step = min(STEP, settings.reconnect_timeout)
        self.endpoint = Endpoint(settings.url, timeout=step, name=f"ssp-redis:{settings.job}", key=self.keys.config)
        self.link = Link(self.endpoint, settings.reconnect_timeout)
        self.waits = Waits()
        #: What the server acknowledged and forgot, as far as this worker knew of it.
        self.losses: list[Loss] = []
        #: How many of them the log has named, and, of a strict worker, errors.
        self._logged = self._told = 0
        #: Called after a new epoch with (first lost clock, clock); returns what became of the deltas.
        self.on_rollback: Callable[[int, int], list[Loss]] = lambda first, clock: []
        #: Called on every new connection: what is at its other end may have forgotten what this worker knows of.
        self.on_connect: Callable[[], None] = lambda: None
        #: Called with the end of the log, its last tags, the min and the membership when they were announced.
        self.on_tags: Callable[[int, list[str], int, int], None] | None = None
        #: Called when the connections are closed for good.
        self.on_detach: Callable[[], None] = lambda: None
        #: Called when the membership changed.
        self.on_members: Callable[[], None] | None = None
        #: Called over a connection of its own when an exchange finds that this incarnation is out.
        self.on_fenced: Callable[[Wire], None] | None = None
        #: The same when it finds that the job's state is gone.
        self.on_lost: Callable[[Wire], None] | None = None
        self._subscriber: Subscriber | None = None
        self._heartbeat: Heartbeat | None = None
        #: Ticks completed, as the store knows, and with those that are not flushed yet.
        self.clock = self.local = 0
        #: Is the staleness 0?
        self.bulk = False
        #: A tick that was begun and whose end is not known yet; the next :meth:`advance` finishes it.
        self.pending: _Pending | None = None
        self._refused: Refusal | None = None
        self._member = False
        self._closed = False
        self._depth = forks.depth
        self._pid = os.getpid()
        self._restored = "-"
        #: Members at the last sync.
        self._present = 0
        self._waited = 0
        #: While blocked: ms after which whoever holds the min is to be taken out, 0 for never, and the lead allowed.
        self._tired: tuple[int, int | None] = (0, None)
        #: When the next sync of a wait that is not over is due (monotonic); None: no wait has begun.
        self._check: float | None = None
        self._deferred: list[Callable[[], object]] = []

    # -- joining and leaving -----------------------------------------------------------------------------------------

    def join(self, timeout: float | None = None) -> None:
        """Become a member, and return when the quorum is there and the worker is admitted.

        Raises:
            WaitTimeout: not within ``timeout`` seconds; the id is free again.
            JobMismatch, StateLost, ServerUnavailable, ServerRefused: see :mod:`ssp_redis.errors`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        joiner = Joiner(self.settings, self.keys, self.scripts)
        try:
            with self.link.within(timeout):
                # before anything is read or written: what changes after this is heard
                with contextlib.suppress(OSError):
                    self._subscriber = Subscriber(self.endpoint, self.keys.min, self.link.patience())
                if self.settings.run:  # which can begin only when nobody is left in the one before
                    settle(self.link, self.keys, self.scripts, timeout, self.settings.run)
                self._adopt(*self.link.run(joiner))
                self._heartbeat = Heartbeat(
                    self.endpoint, self.scripts, self.lease, self._statement, self._note_refusal
                )
                self._heartbeat.start()
                self._wait(deadline, None, joining=True)
        except BaseException as error:
            self.leave("left")
            joiner.abandon()
            if isinstance(error, ReplyError):
                raise refused(error, self.endpoint.label) from None
            raise

    def _adopt(self, caller: Caller, joined: Joined) -> None:
        self.caller = caller
        self.workers = joined.workers
        self.lease = joined.lease
        self.reproducible = joined.reproducible
        self.dropped = joined.dropped
        self.clock = self.local = joined.standing.clock
        self.standing, self.bulk = joined.standing, joined.standing.staleness == 0
        self._known(joined.position, joined.tag)
        self.link.greet = self._meet
        self._member = True

    def leave(
        self,
        why: str = "left",
        after: Callable[[Wire, int], None] = lambda wire, left: None,
        owes: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Leave the job; idempotent, quick, and silent when the server is away (the lease ends the membership then).

        From a reproducible run that has started one only leaves when done: to leave early would take its deltas out of
        the sum. The others wait for its return.

        Args:
            why: done or left.
            after: called when it is said, with the number of members left.
            owes: is there something to push again, because the server turned out to have forgotten it? Then this
                answers False, and does not leave yet.
        """
        if self._closed:
            return True
        stays = self._member and self.reproducible and self.standing.started and why != "done"
        while self._member and not stays and self._refused is None and forks.depth == self._depth:
            if self.link.busy:
                self.link.drop()  # called in the middle of an exchange, by a signal handler
            try:
                if not self.run(lambda wire: self._say_leave(wire, why, after, owes), limit=min(2.0, self.link.limit)):
                    return False
            except RolledBack:
                continue  # the log has told it: that it leaves has not been said yet
            except (SSPError, Refusal) as error:
                logger.warning("worker %s could not say that it leaves: %s", self.caller.worker, error)
            break
        self.detach()
        return True

    def _say_leave(self, wire: Wire, why: str, after: Callable[[Wire, int], None], owes: Callable[[], bool]) -> bool:
        if owes():
            return False
        caller = self.caller
        said = self.scripts.leave(wire, caller.run, caller.epoch, caller.worker, caller.incarnation, self.clock, why)
        after(wire, said[1])
        return True

    def detach(self) -> None:
        """Close the connections without leaving: the lease goes on, and whoever joins under the id takes over."""
        self._closed = True
        self.on_detach()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._subscriber is not None:
            self._subscriber.close()
            self._subscriber = None
        self.link.drop()
        if self._member:
            release(self.keys.job, self.caller.worker, self.caller.nonce)

    # -- what is known -----------------------------------------------------------------------------------------------

    def _known(self, position: int, tag: str) -> None:
        """Remember the last entry of the log that this worker has seen: its evidence against a rollback."""
        self._evidence = (self.caller.epoch, position, tag)

    def seen(self, position: int, tag: str) -> None:
        """A reader of the log tells what it has seen."""
        if position > self._evidence[1]:
            self._known(position, tag)

    def _statement(self) -> tuple[Caller, int, int, str]:
        """What this worker states in a sync; evidence of one epoch says nothing about another."""
        caller = self.caller
        epoch, position, tag = self._evidence
        return (caller, self.clock, position, tag) if epoch == caller.epoch else (caller, self.clock, -1, "-")

    def _note_refusal(self, refusal: Refusal) -> None:
        self._refused = refusal

    def usable(self) -> None:
        """Raise what makes this clock unusable, if anything does."""
        if self._closed:
            raise SSPError("this worker has left its job: join again")
        if forks.depth != self._depth:
            raise SSPError(f"this worker belongs to process {self._pid}: process {os.getpid()} must join by itself")
        if self._refused is not None:
            raise self.failure(self._refused)

    def failure(self, refusal: Refusal) -> SSPError:
        """The exception for a refusal: the one place where codes become exceptions."""
        worker = self.caller.worker
        if refusal.code is Code.SUPERSEDED:
            self._refused = refusal
            host, pid = refusal.words[0], int(refusal.words[1])
            return Superseded(
                f"worker {worker} of job {self.keys.job} runs elsewhere now: pid {pid} on {host}", worker, host, pid
            )
        if refusal.code is Code.DEPARTED:
            self._refused = refusal
            why = refusal.words[0]
            reason = f"its lease of {self.lease:g} s ran out" if why == "lost" else f"it was {why}"
            return Evicted(
                f"worker {worker} is no longer a member of job {self.keys.job}: {reason}; join again", worker
            )
        if refusal.code is Code.LOST:
            return lost(self.keys.job)
        return SSPError(f"job {self.keys.job} answered {refusal}, which should not happen here")

    def _note(self, standing: Standing) -> None:
        changed = standing.membership != self.standing.membership
        self.standing, self.bulk = standing, standing.staleness == 0
        if changed and self.on_members is not None:
            self.on_members()

    # -- sync --------------------------------------------------------------------------------------------------------

    def _meet(self, wire: Wire) -> None:
        """What is said first on a new connection."""
        self.on_connect()
        self._greet(wire)

    def _greet(self, wire: Wire) -> None:
        """Sync: first on every new connection, and whenever the store and this worker disagree."""
        try:
            synced = self.scripts.sync(wire, *self._statement(), *self._tired)
        except Refusal as refusal:
            raise self.failure(refusal) from None
        if synced.standing.epoch == self.caller.epoch and synced.restored == self._restored:
            self._reconcile(synced)
        else:
            try:
                with held_back():  # half of it done would leave out deltas that can still be pushed again
                    self._reconcile(synced)
            finally:
                self._log()  # Ctrl-C comes as the block ends
        self._tell()

    def _reconcile(self, synced: Synced) -> None:
        pending, standing = self.pending, synced.standing
        fresh = standing.epoch != self.caller.epoch
        restored = synced.restored != self._restored
        if pending is not None and standing.clock == pending.wanted and not restored:
            # it had happened, only the answer was lost
            self._completed(pending, standing.end)
        if fresh:
            self.caller = replace(self.caller, epoch=standing.epoch)
        self._known(synced.position, synced.tag)
        if fresh or restored:
            self._restored = synced.restored
            first = int(synced.restored.split(":")[1]) if restored else self.clock
            self.losses += self.on_rollback(first, self.clock)
            self._rebase(standing.clock)
        self._note(standing)
        self.next_expiry, self._present = synced.next_expiry, synced.members

    def _rebase(self, clock: int) -> None:
        """After a rollback the store may be ahead under this id, by ticks of a process that this one had superseded.

        A tick that stated a clock below would pass for a replay of those, and what it carries would be lost.
        """
        if clock > self.clock:
            if self.pending is not None:
                self.pending.move(clock - self.clock)
            self.local += clock - self.clock
            self.clock = clock

    def note_losses(self, losses: list[Loss]) -> None:
        """Name what the server acknowledged and forgot: in the log, in the accounting, and if strict as an error."""
        self.losses += losses
        if min(self._logged, self._told) < len(self.losses):
            self._tell()

    def _log(self) -> None:
        for loss in self.losses[self._logged :]:
            logger.warning("job %s: the server was rolled back: %s", self.keys.job, loss)
            self._logged += 1

    def _tell(self) -> None:
        self._log()
        if self.settings.strict and (losses := self.losses[self._told :]):
            named = "; ".join(map(str, losses))
            told = f"job {self.keys.job}: the server forgot what it had acknowledged: {named}"
            error = RolledBack(told, losses)
            self._told = len(self.losses)  # not before: an interruption leaves it to the next exchange
            raise error

    def sync(self) -> None:
        """Heartbeat and re-check over the command connection."""
        self.link.run(self._greet)

    def run(self, operation: Callable[[Wire], T], limit: float | None = None) -> T:
        """Run a repeatable exchange on the command connection, syncing first wherever the store asks for it."""
        self.usable()
        try:
            try:
                return self.link.run(operation, limit)
            except Refusal as refusal:
                return self._agree(refusal, operation, limit)
        except Fenced:
            self._out(self.on_fenced)
            raise
        except StateLost:
            self._out(self.on_lost)
            raise

    def _agree(self, refusal: Refusal, operation: Callable[[Wire], T], limit: float | None) -> T:
        """What was refused is said again after a sync, if that is what the refusal asks for."""
        for _ in range(8):
            if refusal.code in _FINAL:
                raise self.failure(refusal) from None
            if refusal.code is not Code.RESYNC:
                raise refusal
            self.link.run(self._greet, limit)
            try:
                return self.link.run(operation, limit)
            except Refusal as again:
                refusal = again
        raise SSPError(f"job {self.keys.job} and this worker cannot agree on where they stand: is it being deleted?")

    def _out(self, sweep: Callable[[Wire], None] | None) -> None:
        if sweep is None:
            return
        # it is a courtesy: whoever is out has an error to raise, and no time for others
        with contextlib.suppress(OSError, ReplyError, SSPError, Refusal):
            wire = self.endpoint.connect(self.link.patience(), "leaving")
            wire.hurry(self.link.patience())
            try:
                sweep(wire)
            finally:
                wire.close()

    # -- ticking -----------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Has this worker left, or detached?"""
        return self._closed

    @property
    def alive(self) -> bool:
        """May this incarnation still act, as far as it knows?"""
        return not self._closed and self._refused is None and forks.depth == self._depth

    def defer(self, action: Callable[[], object]) -> None:
        """Do something that talks to the server as soon as no exchange is under way."""
        self._deferred.append(action)

    def _catch_up(self) -> None:
        while self._deferred and not self.link.busy:
            self._deferred.pop(0)()

    @property
    def ahead(self) -> int:
        """Ticks that are not flushed yet."""
        return self.local - self.clock

    @property
    def admitted(self) -> bool:
        """May this worker run, as last heard?"""
        return self.standing.admits(self.local)

    def advance(self, push: Push | None = None, limit: float | None = None) -> Tags | None:
        """Commit the ticks that are ahead: c becomes c + ``ahead``. Does not wait for admission.

        After an interruption it finishes the tick that was under way, whatever ``push`` is.

        Args:
            limit: seconds to go on trying while the server is away; None: the reconnect timeout.

        Returns the tags that ``push.known`` asked for.
        """
        if self.pending is None:
            self.pending = _Pending(self.clock, self.local, push)
        try:
            tags = self.run(self._state_tick, limit)
        except (Fenced, StateLost):
            if self.pending is not None and self.pending.attempts <= 1:
                self.local = self.clock  # refused, so it has not happened
            raise
        self.waits.ticks += 1
        if self.waits.ticks % _QUIET == 0:
            self._cover_ear()
        if self._deferred:
            self._catch_up()
        return tags

    def _cover_ear(self) -> None:
        """Who has not waited lately need not be told: it costs the server a write a message, which piles up unread."""
        if self._waited == self.waits.waits and self._subscriber is not None:
            self._subscriber.close()
            self._subscriber = None  # the next wait makes another, and asks
        self._waited = self.waits.waits

    def _state_tick(self, wire: Wire) -> Tags | None:
        pending = self.pending
        if pending is None:  # the greeting found that it had happened
            return None
        push = pending.push
        if pending.attempts and push is not None:
            push.renew(wire)
        note = push.note if push is not None else "-:"
        known = push.known if push is not None else -1
        pending.attempts += 1
        standing, tags = self.scripts.ticked(self._send_tick(wire, pending, note, known), known)
        self._completed(pending, standing.end)
        if pending.attempts == 1:
            self._known(standing.end - 1, f"t:{self.caller.worker}:{self.caller.incarnation}:{self.clock}:{note}")
        self._note(standing)
        return tags

    def _completed(self, pending: _Pending, end: int) -> None:
        # First what was pushed, then the clock, all at once: an interruption in between finds a tick that is still
        # under way, which is said again and changes nothing.
        if pending.push is not None:
            pending.push.committed(end)
        self.clock, self.pending = pending.wanted, None

    def _send_tick(self, wire: Wire, pending: _Pending, note: str, known: int) -> list[str]:
        push = pending.push
        small = push.commands() if push is not None else None
        if push is not None and small is None:
            push.send(wire)
        if not small:
            return self.scripts.call_tick(wire, self.caller, pending.clock, pending.wanted, note, known)
        tick = self.scripts.pack_tick(self.caller, pending.clock, pending.wanted, note, known)
        reply = wire.transact([*small, tick])
        if isinstance(reply, ReplyError):
            if reply.code != "NOSCRIPT":
                raise self.scripts.explain(reply)
            # the values are in; only the script was unknown (restart, SCRIPT FLUSH)
            return self.scripts.call_tick(wire, self.caller, pending.clock, pending.wanted, note, known)
        return words(reply)

    # -- waiting -----------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> None:
        """Block until admitted.

        Raises:
            WaitTimeout: not within ``timeout`` seconds; ``blockers`` names who is in the way.
            JobStopped: the job was stopped meanwhile.
        """
        self._wait(None if timeout is None else time.monotonic() + timeout, None)

    def briefly(self, seconds: float) -> bool:
        """Wait up to ``seconds`` to be admitted; False, and no error, when that was not long enough."""
        self._wait(time.monotonic() + seconds, None, quiet=True)
        return self.admitted

    def barrier(self, timeout: float | None = None) -> None:
        """Block until every member's clock is at least mine."""
        self._wait(None if timeout is None else time.monotonic() + timeout, 0)

    def _enough(self, lead: int | None) -> bool:
        if lead is None:
            return self.standing.admits(self.local)
        return self.standing.started and self.local - self.standing.min_clock <= lead

    def _wait(self, deadline: float | None, lead: int | None, joining: bool = False, quiet: bool = False) -> None:
        self.usable()
        if self.standing.stopped:
            self.sync()  # it may have been taken back meanwhile
        standing = self.standing
        if not (self._enough(lead) or (joining and standing.stopped)):
            begun = time.monotonic()
            self._tired = (round(1000 * (self.settings.progress_timeout or 0)), lead)
            try:
                self._listen(deadline, lead, joining, quiet)
            finally:
                self._tired = (0, None)
                self.waits.waits += not quiet
                self.waits.seconds += time.monotonic() - begun
        if self._deferred:
            self._catch_up()

    def _listen(self, deadline: float | None, lead: int | None, joining: bool, quiet: bool) -> None:
        # the time of whoever holds the min begins with the first look
        told = False
        recheck = min(self.settings.recheck, (self.settings.progress_timeout or math.inf) / 4)
        check = time.monotonic() + recheck if self._check is None else self._check
        # Whatever ends this early (Ctrl-C) owes a sync: what was on its way may have been lost with it.
        self._check = 0.0
        looked = False
        while not self._enough(lead):
            if self.standing.stopped:
                if joining:
                    break
                raise self.stopped()
            self.usable()
            now = time.monotonic()
            if looked and deadline is not None and now >= deadline:
                self._check = check  # the same wait goes on with the next call
                if quiet:
                    return
                raise self._timed_out(lead)
            looked = True
            if now >= check or self._subscriber is None:
                # covers lost messages, half-open sockets, frozen servers, and members whose lease has run out
                known = self.standing
                if self._subscriber is None:
                    self._resubscribe()
                else:
                    self.sync()
                    self._doubt(known)
                if joining and not told and not self.standing.started:
                    told = True
                    logger.warning(
                        "job %s has not begun: %d of %d workers have joined; waiting for the others",
                        self.keys.job,
                        self._present,
                        self.workers,
                    )
                expiry = self.next_expiry
                check = time.monotonic() + min(recheck, recheck if expiry is None else expiry + 0.001)
                continue
            try:
                message = self._subscriber.last(max(0.0, min(check, deadline or check) - now), self.caller.run)
            except (OSError, ReplyError):
                self._resubscribe()
                continue
            if message is not None:
                self._hear(message)
        self._check = None

    def _doubt(self, known: Standing) -> None:
        """Close a subscription on which nothing came of what a re-check found changed: it may lead to a server that is
        frozen, or was left behind by a failover. The next wait makes another.
        """
        if self._subscriber is None or self.standing.announced == known.announced:
            return
        heard = None
        with contextlib.suppress(OSError, ReplyError):
            heard = self._subscriber.last(0.0, self.caller.run)
        if heard is None:
            self._subscriber.close()
            self._subscriber = None
        else:
            self._hear(heard)

    def _resubscribe(self) -> None:
        """A new subscription, confirmed, then a sync: what was announced in between is read, not missed."""
        if self._subscriber is not None:
            self._subscriber.close()
            self._subscriber = None
        self._subscriber = persist(
            self.endpoint,
            self.link.left(),
            lambda: Subscriber(self.endpoint, self.keys.min, self.link.patience()),
        )
        self.sync()

    def _hear(self, message: str) -> None:
        _, epoch, low, staleness, membership, stop, started, *more = message.split(" ")
        if int(epoch) != self.caller.epoch:
            self.sync()
            return
        self._note(
            Standing(
                self.caller.epoch,
                max(int(low), self.standing.min_clock),  # it never falls within an epoch; a late message is older
                int(staleness),
                int(membership),
                stop == "1",
                started == "1",
                self.clock,
                self.standing.end,
            )
        )
        if more and self.on_tags is not None:
            # of the moment of the message: this worker may know of a later min, but not of the log at that time
            self.on_tags(int(more[0]), more[1:], int(low), int(membership))

    def stopped(self) -> JobStopped:
        """The exception for a stopped job."""
        return JobStopped(
            f"job {self.keys.job} was stopped; ssp-redis stop --resume --job {self.keys.job} lets it go on"
        )

    def _timed_out(self, lead: int | None) -> WaitTimeout:
        standing, caller = self.standing, self.caller
        bound = standing.staleness if lead is None else lead
        try:
            crowd = self.link.run(lambda wire: look(wire, self.keys, self.lease), limit=1.0)
        except (ServerUnavailable, StateLost, Fenced) as error:
            return WaitTimeout(f"worker {caller.worker} timed out, and the job cannot be asked why: {error}")
        if not standing.started:
            return WaitTimeout(f"job {self.keys.job} has not begun: {crowd.count} of {self.workers} joined")
        blockers = [member for member in crowd.slowest if member.clock < self.local - bound]
        names = "; ".join(map(str, blockers)) or "nobody any more"
        return WaitTimeout(
            f"worker {caller.worker} at clock {self.local} may be {bound} ahead and waits for: {names}", blockers
        )


#: Ticks without a wait after which the subscription is given up.
_QUIET = 256
#: Refusals that end a membership.
_FINAL = (Code.LOST, Code.SUPERSEDED, Code.DEPARTED)
