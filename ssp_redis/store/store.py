"""A member's store: makes tables, pushes deltas, folds shares into bases, and sweeps what nobody needs any more."""

from __future__ import annotations

import time

from ..connection import Wire
from ..errors import Loss, ServerRefused
from ..joining import read_records
from ..keys import JobKeys
from . import sweep
from .folding import Folder
from .host import Host
from .log import Tag
from .making import Writer, create
from .push import TablePush
from .ring import Ring
from .sparse import folding as rows
from .sparse import sweep as rows_sweep
from .sparse.push import RowPush
from .sparse.view import RowView
from .sums import EVERY
from .view import Array, View

#: Seconds in which what was sent over a connection that is lost may still arrive.
_DOUBT = 60.0
#: Of how many clocks it is remembered which tables they touched, to tell a loss of deltas from one of bare ticks.
_REMEMBERED = 4096


class Store(Writer):
    """The tables of a run as one member uses them."""

    def __init__(self, host: Host, job: JobKeys, workers: int) -> None:
        super().__init__(host, job)
        self.workers = workers
        self.ring = Ring(host.caller.worker, host.caller.incarnation)
        self.folder = Folder(self)
        #: Version that every base must have reached before there may be something to sweep.
        self._sweep_at: int | None = 0
        #: Own rings before this one are past: no tick that names them can happen, no SET to them is on its way.
        self._settled = 0
        #: (when, number): from then on the same is true of the rings before that one.
        self._settling: list[tuple[float, int]] = []
        #: (when, name): rings that were swept here, and are then once more: a SET may have come late.
        self._swept: list[tuple[float, str]] = []
        self._pushed: dict[int, list[View | RowView]] = {}
        #: Timestamps of deltas that the server forgot and that wait for the next push, and those that rode on one.
        self._riding: list[int] = []
        self._riders: dict[int, list[int]] = {}
        #: After a rollback: clocks up to which others had been seen to tick, until it is known what has become of them.
        self._suspects: dict[str, int] = {}

    def create(self, name: str, init: Array) -> View:
        """The view of a table, which is made with ``init`` if nobody has made it yet."""
        return create(self, name, init, self.workers)

    @property
    def unpushed(self) -> bool:
        """Has the open clock added anything?"""
        return any(view.open is not None or view.frozen is not None for view in self.opened())

    # -- pushing -----------------------------------------------------------------------------------------------------

    def prepare(self, known: bool) -> TablePush | RowPush | None:
        """Freeze what the open clock has added, and make sure that there are slots for it.

        Args:
            known: the tick shall bring the tags since the end of the log as known here.
        """
        if self.host.local % EVERY == 0:
            self.folder.sums.rest()
        touched = [view for view in self.views.values() if view.thaw()]
        sparse = [view for view in self.sparse.values() if view.thaw()]
        if self.unsure and (touched or sparse):
            self.host.run(self._sure)
        for view in touched:
            self._make_room(view)
        for rowed in sparse:
            rows.make_room(self, rowed)
        for view in touched:
            view.freeze()
        for rowed in sparse:
            rowed.freeze()
        # making room may have read the log further
        position = self.log.end if known and self.log.known and self.epoch == self.host.caller.epoch else -1
        if not touched and not sparse and position < 0:
            return None
        # clocks that are pushed as one share the fate of the last
        riding = [*self._riding, *range(self.host.clock, self.host.local - 1)]
        if riding and (touched or sparse):
            self._riders[self.host.local], self._riding = riding, []
        push = TablePush(self.keys, self.ring, touched, self.host.local, position, self._remember, self._sure)
        if not sparse:
            return push
        return RowPush(push, self.keys, self.ring, sparse, lambda view: rows.spent(self, view), self._remember)

    def _sure(self, wire: Wire) -> None:
        if self.unsure:
            self.recognize(wire)

    def _remember(self, push: TablePush | RowPush) -> None:
        self._pushed[push.clock] = list(push.views)
        if self.ring.number > (self._settling[-1][1] if self._settling else self._settled):
            self._settling.append((time.monotonic() + _DOUBT, self.ring.number))
        if len(self._pushed) > 2 * _REMEMBERED:
            for clock in sorted(self._pushed)[:_REMEMBERED]:
                del self._pushed[clock]

    def _make_room(self, view: View) -> None:
        layout = view.layout
        if len(view.held) > layout.slots:
            view.release(min(self.folder.base(view, share) for share in range(layout.shares)))
        for attempt in range(64):
            need = self.ring.needs(layout.number, layout.slots)
            if need == 0:
                return
            if self.doubted:
                self.host.run(self.learn)
            late = [share for share in range(layout.shares) if self.folder.base(view, share) < need]
            if not late:
                return
            if attempt % 2 == 0:
                self.host.run(self.learn)  # somebody may have folded it meanwhile
            else:
                self.folder.fold(view, late)
                self.trim()
        raise ServerRefused(f"table {layout.name}: its bases do not advance, so there is no free slot to push to")

    @property
    def due(self) -> bool:
        """Is there something to be folded, swept or told after a read? Mostly not."""
        swept = self._sweep_at is None and not self._settling and not self._swept
        return self.folder.due or not swept or bool(self._suspects)

    # -- sweeping ----------------------------------------------------------------------------------------------------

    def notice(self, tags: list[Tag]) -> None:
        """Whoever left, leaves a ring."""
        ticked = self.folder.ticked
        for tag in tags:
            if tag.kind in "tr":
                ticked[tag.worker] = tag.clock
            elif tag.kind == "l":
                self._sweep_at = self.log.end

    def tidy(self) -> None:
        """Delete what departed workers left, and the own rings that were given up, once they are folded."""
        while self._settling and self._settling[0][0] <= time.monotonic():
            self._settled, self._sweep_at = self._settling.pop(0)[1], self.log.end
        if self._sweep_at is None and self._swept and self._swept[0][0] <= time.monotonic():
            self._sweep_at = 0
        if self._sweep_at is None or min((base for base, _ in self.bases.values()), default=0) < self._sweep_at:
            return
        self._sweep_at = None
        self.host.run(self._sweep_now)

    def _sweep_now(self, wire: Wire) -> None:
        registered = sweep.rings(wire, self.keys)
        live = {str(record.incarnation) for record in read_records(wire, self.job).values() if record.why == "-"}
        own = str(self.host.caller.incarnation)
        now = time.monotonic()
        doubtful = {ring for when, ring in self._swept if when <= now}
        for ring in registered:
            _, incarnation, number = ring.split(":")
            if int(number) < self._settled if incarnation == own else incarnation not in live:
                doubtful.add(ring)
        if not doubtful:
            return
        # The dead push no more, so what the log does not name now, it never will.
        read = self.scripts.read(wire, self.host.caller.run, self.host.caller.epoch, "", -1)
        named = {Tag.parse(text).ring for text in read.tags}
        if doubtful & named:
            self._sweep_at = read.end
        doomed = doubtful - named
        removed = sweep.delete_rings(wire, self.keys, sorted(doomed))
        self._swept = [(when, ring) for when, ring in self._swept if ring not in doomed]
        self._swept += [(now + _DOUBT, ring) for ring in removed]

    # -- ending ------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """The last member folds everything, so that a base is all there is to read."""
        for view in list(self.views.values()):
            self.refresh(view)
            self.folder.publish(view, list(range(view.layout.shares)))
        self.host.run(self.learn)
        for rowed in self.sparse.values():
            rows.fold(self, rowed, list(range(rowed.layout.shares)))
        self._sweep_at = 0
        self.tidy()

    def gone(self, wire: Wire) -> None:
        """After leaving: delete own rings if nothing needs them."""
        own = f"{self.ring.worker}:{self.ring.incarnation}:"
        names = {ring for ring in sweep.rings(wire, self.keys) if ring.startswith(own)}
        # rings that were given up or swept of late are named still: what comes late is found by the next sweep
        doubtful = names - {self.ring.name} if self._settling else set()
        doubtful |= {ring for _, ring in self._swept}
        self._sweep_own(wire, names, doubtful)

    def fenced(self, wire: Wire) -> None:
        """Out in the middle of an exchange: what was written since others swept the ring is theirs to find, or mine.

        One that was frozen in a push writes the rest of it when it wakes, to a ring whose name is gone.
        """
        names = self.ring.last_names()
        self._sweep_own(wire, names, names)
        sweep.retire(wire, self.job, self.keys)

    def orphaned(self, wire: Wire) -> None:
        """The job's state is gone: where that is all of the run, what was under way here is in nobody's list."""
        if wire.call("HGET", self.job.config, "run") == self.host.caller.run.encode():
            return  # part of it is there, and stays as it is until somebody deletes it
        tables = [view.layout for view in self.opened()]
        names = sorted(self.ring.last_names())
        sweep.delete_rings(wire, self.keys, names, [*tables, *([self.making] if self.making is not None else [])])
        for rowed in self.sparse.values():
            rows_sweep.delete_pushed(wire, self.keys, rowed, names)

    def _sweep_own(self, wire: Wire, names: set[str], doubtful: set[str]) -> None:
        read = self.scripts.read(wire, self.host.caller.run, None, "", -1)
        needed = {Tag.parse(text).ring for text in read.tags}
        sweep.delete_rings(wire, self.keys, sorted(names - needed))
        if doubtful:
            wire.call("SADD", self.keys.rings, *sorted(doubtful))

    def doubt(self) -> None:
        """Nor count commits that were announced by the server as it was, nor that it knows the ring's name."""
        super().doubt()
        self.folder.close()
        self.ring.registered = False

    # -- rollback ----------------------------------------------------------------------------------------------------

    def rolled_back(self, first: int, clock: int) -> list[Loss]:
        """The store is another than the one that was known: begin anew, and save of the own deltas what is still held.

        The ticks from clock ``first`` up to ``clock`` are not in the log any more. What of them is held rides on the
        next push; the rest is named.
        """
        self.log.clear()
        self.bases.clear()
        self.epoch, self.unsure = -1, True
        self.ring.renew()
        self._sweep_at = 0
        self._suspects = {
            worker: seen for worker, seen in self.folder.ticked.items() if worker != self.host.caller.worker
        }
        fates: list[tuple[int, bool]] = []
        for lost in range(first + 1, clock + 1):
            views = self._pushed.pop(lost, [])  # once: what is saved is not lost should it go back again
            if views:
                held = all(lost in view.held for view in views)
                # what was saved from a rollback before and rode on this push shares its fate
                clocks = [*self._riders.get(lost, ()), lost - 1]
                fates += [(rider, held) for rider in clocks]
                self._riding += clocks if held else []
        for view in self.views.values():
            view.forget()
            for lost in [held for held in view.held if held > first]:
                view.add(view.held.pop(lost))
        for rowed in self.sparse.values():
            rowed.rolled_back(first)
        return _ranges(self.host.caller.worker, fates)

    def inquest(self) -> list[Loss]:
        """After a rollback: whose ticks had been seen here and are gone, though nobody has restored them."""
        suspect = self._suspects
        if not suspect:
            return []
        clocks = self.host.run(lambda wire: wire.call("HMGET", self.job.clocks, *suspect))
        if self._suspects is suspect:  # else it went back once more meanwhile
            self._suspects = {}
        losses = []
        for (worker, seen), text in zip(suspect.items(), clocks, strict=True):
            stored = int(text or 0)
            if stored < seen:
                self.folder.ticked[worker] = stored  # once: another rollback does not take it again
                losses.append(Loss(worker, stored, seen - 1, False))
        return losses


def _ranges(worker: str, fates: list[tuple[int, bool]]) -> list[Loss]:
    """Neighbouring clocks of one fate as one loss."""
    losses: list[Loss] = []
    for clock, repushed in fates:
        if losses and losses[-1].last == clock - 1 and losses[-1].repushed == repushed:
            losses[-1] = Loss(worker, losses[-1].first, clock, repushed)
        else:
            losses.append(Loss(worker, clock, clock, repushed))
    return losses
