"""A member's store: makes tables, pushes deltas, folds shares into bases, and sweeps what nobody needs any more."""

from __future__ import annotations

from ..connection import ReplyError, Wire
from ..errors import Loss, ServerRefused
from ..joining import read_records
from ..keys import JobKeys
from ..lua import Code, Refusal
from ..subscriber import Subscriber
from . import sweep
from .blob import base_header
from .layout import Layout
from .log import Tag
from .push import TablePush
from .reader import Host, Reader
from .ring import Ring
from .view import Array, View, as_bytes

#: How long a claim to make a table holds (ms); whoever waits takes it over then.
_CLAIM = 10_000
#: Of how many clocks it is remembered which tables they touched, to tell a loss of deltas from one of bare ticks.
_REMEMBERED = 4096


class Store(Reader):
    """The tables of a run as one member uses them."""

    def __init__(self, host: Host, job: JobKeys, workers: int) -> None:
        super().__init__(host, job)
        self.workers = workers
        self.ring = Ring(host.caller.worker, host.caller.incarnation)
        self._members: list[str] = []
        self._members_of = -1
        #: Version that every base must have reached before there may be something to sweep.
        self._sweep_at: int | None = 0
        self._pushed: dict[int, list[View]] = {}
        self._seen: dict[str, int] = {}
        self._suspect: dict[str, int] | None = None

    # -- making tables -----------------------------------------------------------------------------------------------

    def create(self, name: str, init: Array) -> View:
        """The view of a table, which is made with ``init`` if nobody has made it yet.

        Raises:
            TableMismatch: it is there, with another shape or dtype.
            ServerRefused: the server has not the memory for it.
        """
        layout = Layout.cut(name, init.dtype.name, init.shape, self.workers)
        view = self.views.get(name)
        while view is None:
            try:
                claim = self.host.run(
                    lambda wire: self.scripts.claim(
                        wire, self.host.caller.run, name, layout.describe(), self.host.caller.incarnation, _CLAIM
                    )
                )
            except Refusal as refusal:
                if refusal.code is not Code.CLAIMED:
                    raise
                self._await_table(name, int(refusal.words[0]) / 1000)
                continue
            if claim.state == "ready":
                view = self.open(name, claim)
            else:
                made = Layout.parse(name, claim.number, self.run_id, layout.describe())
                self.host.run(lambda wire, made=made: self._make(wire, made, init))  # type: ignore[misc]
        self.check(view, init.shape, init.dtype.name)
        return view

    def _make(self, wire: Wire, layout: Layout, init: Array) -> None:
        self._check_memory(wire, layout)
        headers = [base_header(layout.block(block), 0, 0, 0) for block in range(layout.blocks)]
        scratch = self._write_scratch(wire, layout, range(layout.blocks), headers, init.reshape(-1))
        bases = [self.keys.base(layout.number, block, 0) for block in range(layout.blocks)]
        caller = self.host.caller
        try:
            self.scripts.publish(wire, caller.run, layout.name, caller.incarnation, layout.shares, scratch, bases)
        except Refusal as refusal:
            if refusal.code is not Code.CHANGED:  # else the claim ran out and is another's: claim again, and see
                raise

    def _write_scratch(
        self, wire: Wire, layout: Layout, blocks: range, headers: list[bytes], values: Array
    ) -> list[str]:
        keys = [self.keys.scratch(layout.number, block, self.host.caller.incarnation) for block in blocks]
        for key, block, header in zip(keys, blocks, headers, strict=True):
            wire.send_set(key, header, as_bytes(values[layout.extent(block)]))
            wire.read()
        return keys

    def _check_memory(self, wire: Wire, layout: Layout) -> None:
        try:
            info = wire.call("INFO", "memory").decode()
        except ReplyError:
            return  # this user may not ask
        limit = int(next((line[10:] for line in info.split("\r\n") if line.startswith("maxmemory:")), "0"))
        need = layout.memory(self.workers)
        if limit and need > limit:
            raise ServerRefused(
                f"table {layout.name} may need {need / 2**20:.0f} MiB in Redis with {self.workers} workers, and "
                f"maxmemory is {limit / 2**20:.0f} MiB: raise it"
            )

    def _await_table(self, name: str, limit: float) -> None:
        """Somebody else is making it: wait for its announcement, or until the claim runs out."""
        ear = Subscriber(self.host.endpoint, self.keys.commits)
        try:
            # subscribed first, then asked: what was announced before is there now
            if self.ask(name) is None:
                ear.last(limit)
        finally:
            ear.close()

    # -- pushing -----------------------------------------------------------------------------------------------------

    def prepare(self, known: bool) -> TablePush | None:
        """Freeze what the open clock has added, and make sure that there are slots for it.

        Args:
            known: the tick shall bring the tags since the end of the log as known here.
        """
        touched = [view for view in self.views.values() if view.open is not None]
        for view in touched:
            self._make_room(view)
        for view in touched:
            view.frozen, view.open = view.open, None
        # making room may have read the log further
        position = self.log.end if known and self.log.known and self.epoch == self.host.caller.epoch else -1
        if not touched and position < 0:
            return None
        return TablePush(self.keys, self.ring, touched, self.host.clock + 1, position)

    def pushed(self, push: TablePush, end: int) -> None:
        """The tick that carries it has happened, and is among the first ``end`` entries of the log."""
        for view in push.views:
            view.committed(push.clock)
            self.ring.take(view.layout.number, view.layout.slots, end)
        self._pushed[push.clock] = push.views
        if len(self._pushed) > 2 * _REMEMBERED:
            for clock in sorted(self._pushed)[:_REMEMBERED]:
                del self._pushed[clock]

    def _make_room(self, view: View) -> None:
        layout = view.layout
        for attempt in range(64):
            need = self.ring.needs(layout.number, layout.slots)
            late = [share for share in range(layout.shares) if self._base(view, share) < need]
            if not late:
                return
            if attempt % 2 == 0:
                self.host.run(self.learn)  # somebody may have folded it meanwhile
            else:
                self.fold(view, late)
        raise ServerRefused(f"table {layout.name}: its bases do not advance, so there is no free slot to push to")

    def _base(self, view: View, share: int) -> int:
        return self.bases.get(f"{view.layout.number}.{share}", (0, 0))[0]

    # -- folding -----------------------------------------------------------------------------------------------------

    def tend(self) -> None:
        """Fold what is due: own shares early, anybody's when its owner seems not to; then sweep."""
        for view in list(self.views.values()):
            lag = max(1, len(self.members()) * view.layout.slots // 2)
            due = []
            for share in range(view.layout.shares):
                behind = self.log.end - self._base(view, share)
                if behind >= (lag if self._own(share) else 2 * lag):
                    due.append(share)
            if due:
                self.fold(view, due)
        self._sweep()

    def members(self) -> list[str]:
        """The members, as of the membership last read."""
        if self._members_of != self.membership:
            reply = self.host.run(lambda wire: wire.call("ZRANGE", self.job.order, 0, -1))
            self._members = sorted(member.decode() for member in reply)
            self._members_of = self.membership
        return self._members

    def _own(self, share: int) -> bool:
        members = self.members()
        return bool(members) and members[share % len(members)] == self.host.caller.worker

    def fold(self, view: View, shares: list[int]) -> None:
        """Publish the master's shares as bases, at the end of the log as known here."""
        if view.version < self.log.end or self.epoch != self.host.caller.epoch:
            self.refresh(view)
        for share in shares:
            self.host.run(lambda wire, share=share: self._fold(wire, view, share))  # type: ignore[misc]

    def _fold(self, wire: Wire, view: View, share: int) -> None:
        layout, name = view.layout, f"{view.layout.number}.{share}"
        if name not in self.bases:
            return  # a new epoch has begun meanwhile
        replaces, version = self.bases[name], view.versions[share]
        if self.epoch != self.host.caller.epoch or version <= replaces[0] or version < self.log.start + 1:
            return
        untouched = replaces[0] >= self.log.start and not any(
            layout.number in tag.slots for tag in self.log.tags[replaces[0] - self.log.start : version - self.log.start]
        )
        blocks = range(0) if untouched else layout.blocks_of(share)
        generation = replaces[1] + 1
        headers = [base_header(layout.block(block), generation, version, self.epoch) for block in blocks]
        scratch = self._write_scratch(wire, layout, blocks, headers, view.master)
        bases = [self.keys.base(layout.number, block, generation) for block in blocks]
        tag = self.log.last(version)
        try:
            self.bases[name] = self.scripts.commit(
                wire, self.host.caller, self.host.clock, name, replaces, version, tag, scratch, bases, headers
            )
        except Refusal as refusal:
            if refusal.code is Code.CHANGED:
                self.bases[name] = (int(refusal.words[0]), int(refusal.words[1]))
            elif refusal.code is not Code.SCRATCH:
                raise

    # -- sweeping ----------------------------------------------------------------------------------------------------

    def notice(self, tag: Tag) -> None:
        """Whoever left, leaves a ring."""
        if tag.kind == "l":
            self._sweep_at = self.log.end
        if tag.kind in "tr":
            self._seen[tag.worker] = tag.clock

    def _sweep(self) -> None:
        if self._sweep_at is None or min((base for base, _ in self.bases.values()), default=0) < self._sweep_at:
            return
        self._sweep_at = None
        self.host.run(self._sweep_now)

    def _sweep_now(self, wire: Wire) -> None:
        registered = sweep.rings(wire, self.keys)
        live = {str(record.incarnation) for record in read_records(wire, self.job).values() if record.why == "-"}
        own = str(self.host.caller.incarnation)
        doubtful = {
            ring
            for ring in registered
            if ring.split(":")[1] not in live or (ring.split(":")[1] == own and ring != self.ring.name)
        }
        if not doubtful:
            return
        # The dead push no more, so what the log does not name now, it never will.
        read = self.scripts.read(wire, self.host.caller.run, self.host.caller.epoch, "", -1)
        named = {Tag.parse(text).ring for text in read.tags}
        if doubtful & named:
            self._sweep_at = read.end
        sweep.delete_rings(wire, self.keys, sorted(doubtful - named))

    # -- ending ------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """The last member folds everything, so that a base is all there is to read."""
        for view in list(self.views.values()):
            self.refresh(view)
            self.fold(view, list(range(view.layout.shares)))

    def gone(self, wire: Wire) -> None:
        """After leaving: delete own rings if nothing needs them."""
        read = self.scripts.read(wire, self.host.caller.run, None, "", -1)
        named = {Tag.parse(text).ring for text in read.tags}
        own = f"{self.ring.worker}:{self.ring.incarnation}:"
        sweep.delete_rings(
            wire,
            self.keys,
            [ring for ring in sweep.rings(wire, self.keys) if ring.startswith(own) and ring not in named],
        )

    # -- rollback ----------------------------------------------------------------------------------------------------

    def rolled_back(self, first: int, clock: int) -> list[Loss]:
        """The store is another than the one that was known: begin anew, and save of the own deltas what is still held.

        The ticks from clock ``first`` up to ``clock`` are not in the log any more. What of them is held rides on the
        next push; the rest is named.
        """
        self.log.clear()
        self.bases.clear()
        self.epoch = -1
        self.ring.renew()
        self._sweep_at = 0
        self._suspect = {worker: seen for worker, seen in self._seen.items() if worker != self.host.caller.worker}
        fates: list[tuple[int, bool]] = []
        for lost in range(first + 1, clock + 1):
            views = self._pushed.get(lost, [])
            if views:
                fates.append((lost - 1, all(lost in view.held for view in views)))
        for view in self.views.values():
            view.forget()
            for lost in [held for held in view.held if held > first]:
                view.add(view.held.pop(lost))
        return _ranges(self.host.caller.worker, fates)

    def inquest(self) -> list[Loss]:
        """After a rollback: whose ticks had been seen here and are gone, though nobody has restored them."""
        suspect, self._suspect = self._suspect, None
        if not suspect:
            return []
        clocks = self.host.run(lambda wire: wire.call("HMGET", self.job.clocks, *suspect))
        return [
            Loss(worker, int(stored or 0), seen - 1, False)
            for (worker, seen), stored in zip(suspect.items(), clocks, strict=True)
            if int(stored or 0) < seen
        ]


def _ranges(worker: str, fates: list[tuple[int, bool]]) -> list[Loss]:
    """Neighbouring clocks of one fate as one loss."""
    losses: list[Loss] = []
    for clock, repushed in fates:
        if losses and losses[-1].last == clock - 1 and losses[-1].repushed == repushed:
            losses[-1] = Loss(worker, losses[-1].first, clock, repushed)
        else:
            losses.append(Loss(worker, clock, clock, repushed))
    return losses
