"""Folding: summing deltas into bases, each member its own shares, those who wait also for those who are late.

Ownership is a hint that saves bytes. At staleness 0 every member reads at the same moment: it sums its own shares,
publishes them, and takes the others' shares from their owners instead of summing them all over again, so a clock costs
(1 + 1/P) tables in and (2 − 2/P) tables out instead of P − 1. What makes it safe is the compare-and-swap of ``commit``:
any member may fold any share, at any time, and an owner that does not is not waited for long.
"""

from __future__ import annotations

import contextlib
import time

from ..connection import ReplyError, Wire, command
from ..lua import Code, Refusal
from ..subscriber import Subscriber
from . import early
from .blob import base_header
from .making import Writer, scratch_of, send_scratch
from .push import register
from .sums import Sums
from .trust import Trust
from .view import View

#: A base is at most about so many entries of the log behind, or one clock where that has more.
_LAG = 1024
#: From so many members on, one sums a table of a single share for the others at staleness 0, and says a small one.
_CROWD = 5
#: Seconds to wait for the sum of such a table.
_PATIENCE = 0.02
#: A share that costs more values than this is worth waiting for its owner's base.
_WORTH = 1
#: Shortest and longest time to wait for an owner (seconds).
_LEAST, _MOST = 0.002, 0.5


class Folder:
    """The folding of one member's store."""

    def __init__(self, store: Writer) -> None:
        self._store = store
        self._ear: Subscriber | None = None
        self.sums = Sums(store)
        self._members: list[str] = []
        self._members_of: tuple[int, int] | None = None
        #: Clock of each worker's last tick, as seen in the log.
        self.ticked: dict[str, int] = {}
        #: Seconds that summing and publishing the own shares took, smoothed: owners take about as long.
        self._round = _LEAST
        #: Are owners worth waiting for, by share?
        self._trust = Trust()
        self._idle_end = (-1, False)
        #: Length of the log from which on something is due to be folded, as long as the scene is the same.
        self._tend_at, self._tended = 0, (-1, -1, 0)

    # -- who folds what ----------------------------------------------------------------------------------------------

    def members(self) -> list[str]:
        """The members, as of the membership last read."""
        store = self._store
        if self._members_of != (store.epoch, store.membership):
            reply = store.host.run(lambda wire: wire.call("ZRANGE", store.job.order, 0, -1))
            self._members = sorted(member.decode() for member in reply)
            self._members_of = (store.epoch, store.membership)
        return self._members

    def _mine(self, view: View, clock: int) -> list[int]:
        """The shares that are mine to fold now: an owner's, or, while that is late, one of those who are not."""
        members, me = self.members(), self._store.host.caller.worker
        if me not in members:
            return []  # evicted, and not told so yet
        mine: list[int] = []
        punctual: list[str] = []
        for share in range(view.layout.shares):
            folder = members[share % len(members)]
            if folder != me and self.ticked.get(folder, 0) < clock:
                if not punctual:
                    late = self._late(clock)
                    punctual = [member for member in members if member not in late]
                folder = punctual[share % len(punctual)]
            if folder == me:
                mine.append(share)
        return mine

    def _late(self, clock: int) -> list[str]:
        """The others that have not ticked to that clock yet."""
        me = self._store.host.caller.worker
        return [member for member in self.members() if member != me and self.ticked.get(member, 0) < clock]

    def base(self, view: View, share: int) -> int:
        """Version of a share's base, as known here."""
        return self._store.bases.get(view.layout.names[share], (0, 0))[0]

    # -- reading together --------------------------------------------------------------------------------------------

    def refresh(self, view: View, learn: bool, clock: int, least: int | None) -> None:
        """Bring a view forward, to the end of the log where that is not dearer.

        Args:
            learn: False trusts the log as it is known.
            clock: the reader's.
            least: the min of the other members' clocks that is enough, −1: any. None: all read now (staleness 0).
        """
        store, layout = self._store, view.layout
        if view.taken is None and least is not None:
            store.refresh(view, learn)  # nothing that it could serve by, or nothing that it should
            return
        together = least is None
        if layout.shares == 1:
            if layout.inline or not together or len(self.members()) < _CROWD:
                store.refresh(view, learn)
                return
            if layout.small and not self._spread:
                self._refresh_said(view, learn, clock)
                return
        if self._ear is None and least != -1:
            # subscribed first, then read: a base is in the answer, or is announced
            with contextlib.suppress(OSError, ReplyError):  # deaf, it sums by itself what others might have summed
                self._ear = Subscriber(store.host.endpoint, store.keys.commits)
                learn = True
        if learn or self._ear is None:
            store.host.run(store.learn)
        mine = self._mine(view, clock if together else 0)
        if together and len(self.members()) == 2:
            # what the other has pushed is no more than what it would publish, so nobody waits for that
            store.bring(view, range(layout.shares), learn=False)
            self._publish_late(view, mine)
        else:
            begun = time.monotonic()
            store.bring(view, mine, learn=False)
            self._publish_late(view, mine)
            if mine:
                self._round += (time.monotonic() - begun - self._round) / 4
            others = [share for share in range(layout.shares) if share not in mine]
            self.listen(0.0)
            self._await(view, others, store.horizon() if least is None else store.reaching(least))
            store.bring(view, others, learn=False, least=least)
        store.settle(view)
        behind = view.version < store.horizon()
        if view.taken is None or (behind and (least is None or not view.taken.shows(least))):
            store.refresh(view, learn=False)

    def _publish_late(self, view: View, shares: list[int]) -> None:
        """Publish those of these shares whose bases have fallen behind."""
        end = self._store.horizon()
        self.publish(view, [share for share in shares if self._behind(view, self.base(view, share), end) > 2])

    @property
    def _spread(self) -> bool:
        """Does what is published go to many servers? A cluster sends it to each of its nodes."""
        return self._store.host.endpoint.kind == "cluster"

    def _refresh_said(self, view: View, learn: bool, clock: int) -> None:
        """Of a small table, all read the same: who completed the clock sums it while the others wake up."""
        store = self._store
        self.sums.listen()
        if learn:
            store.host.run(store.learn)
        worker, version = self._completer(clock)
        if worker == store.host.caller.worker:
            store.refresh(view, learn=False)
            self.sums.say(view)
            return
        name = view.layout.names[0]
        given = self._trust.given(name)
        self._trust.turn()
        if worker and version == store.horizon():
            if self.sums.hear(view, version, _PATIENCE if given else 0.0):
                self._trust.came(name)
                return
            if given:
                self._trust.late(name)
        store.refresh(view, learn=False)

    def _completer(self, clock: int) -> tuple[str, int]:
        """Who was the last to tick to that clock, as far as is known, and the version that holds its tick."""
        log = self._store.log
        for index in range(len(log.tags) - 1, -1, -1):
            tag = log.tags[index]
            if tag.kind == "t" and tag.clock == clock:
                return tag.worker, log.start + index + 1
        return "", log.end

    def _behind(self, view: View, base: int, end: int) -> int:
        """How many deltas a base of that version does not hold."""
        return len(view.lacking(self._store.log, base, end) or ())

    def _await(self, view: View, shares: list[int], end: int) -> None:
        """Let the owners publish their shares up to ``end``, where that is cheaper than summing them here."""
        names = view.layout.names
        known: dict[tuple[int, int], bool] = {}

        def dear(share: int, base: int) -> bool:
            alike = (view.versions[share], base)  # as most shares are
            if alike not in known:
                known[alike] = self._dear(view, share, base, end)
            return known[alike]

        waited = {
            share: base
            for share in shares
            if self._trust.given(names[share]) and dear(share, base := self.base(view, share))
        }
        self._trust.turn()
        deadline = time.monotonic() + min(_MOST, _LEAST + 8 * self._round)
        lacking = waited
        while lacking:
            left = deadline - time.monotonic()
            if self._ear is None:
                return
            if left <= 0:
                for share in lacking:
                    self._trust.late(names[share])
                return
            self.listen(left)
            lacking = {
                share: base
                for share, before in lacking.items()
                if (base := self.base(view, share)) == before or dear(share, base)
            }
        for share in waited:
            self._trust.came(names[share])

    def _dear(self, view: View, share: int, base: int, end: int) -> bool:
        """Is it cheaper to wait for a share's next base than to go on from this one?"""
        if base >= end or self._behind(view, base, end) <= 2:
            return False
        return view.cost(share, self._store.log, end, base, self._store.host.caller.incarnation) > _WORTH

    def listen(self, timeout: float) -> None:
        """Hear what was committed."""
        if self._ear is None:
            return
        try:
            messages = self._ear.all(timeout)
        except (OSError, ReplyError):
            self._deafen()
            return
        for message in messages:
            kind, *words = message.split(" ")
            if kind == "base":
                name, version, generation = words
                known = self._store.bases.get(name)
                # a version never goes backwards; a late message says nothing new
                if known is not None and int(version) > known[0]:
                    self._store.bases[name] = (int(version), int(generation))

    def close(self) -> None:
        """Stop listening."""
        self.sums.close()
        self._deafen()

    def _deafen(self) -> None:
        if self._ear is not None:
            self._ear.close()
            self._ear = None

    # -- publishing --------------------------------------------------------------------------------------------------

    @property
    def due(self) -> bool:
        """Is there something to :meth:`tend`?"""
        store = self._store
        return self._tend_at <= store.log.end or self._tended != (store.epoch, store.membership, len(store.views))

    def tend(self) -> None:
        """Fold what is due, so that rings do not fill up: own shares early, anybody's when its owner seems not to."""
        store = self._store
        scene = (store.epoch, store.membership, len(store.views))
        for view in list(store.views.values()):
            due = self._due(view)
            owned = self._owned(view)
            if not set(due) <= set(owned):
                # before doing another's work: has it been done meanwhile?
                self.listen(0.0)
                if not set(self._due(view)) <= set(owned):
                    store.host.run(store.learn)
                due = self._due(view)
            if due:
                self.fold(view, due)
        # bases only move on, so nothing is due before the log is that long
        self._tended = scene
        self._tend_at = min((low for view in store.views.values() for low in self._limits(view)), default=0)

    def _due(self, view: View) -> list[int]:
        end = self._store.common()
        return [share for share, limit in enumerate(self._limits(view)) if end >= limit]

    def _limits(self, view: View) -> list[int]:
        """The length of the log from which on each share is to be folded here."""
        count = len(self.members())
        lag = max(1, count, min(count * view.layout.slots // 2, _LAG))
        owned = self._owned(view)
        return [self.base(view, share) + (lag if share in owned else 2 * lag) for share in range(view.layout.shares)]

    def _owned(self, view: View) -> range:
        """The shares that are mine by the order of the members."""
        members, me = self.members(), self._store.host.caller.worker
        return range(members.index(me), view.layout.shares, len(members)) if me in members else range(0)

    @property
    def idles(self) -> bool:
        """Is there a table large enough to be worth folding while waiting?"""
        return bool(self._large())

    def _large(self) -> list[View]:
        return [view for view in self._store.views.values() if not view.layout.small and view.master_known]

    def idle(self, clock: int, long: bool) -> bool:
        """While there is nothing else to do: sum what is in, for oneself and for those who are late.

        Args:
            long: somebody is really late. Else only what is mine is summed, and published when all of it is in.

        Returns False when there was nothing to fold.
        """
        store = self._store
        store.host.run(store.learn)
        if (store.log.end, long) == self._idle_end:
            return False
        self._idle_end = (store.log.end, long)
        for view in self._large():
            mine = self._mine(view, clock)
            store.bring(view, mine, learn=False)
            if not long:
                continue
            if not store.host.bulk or len(self._late(clock)) < 2:  # else it would stand in the way of what holds more
                self._publish_late(view, mine)
            others = [share for share in range(view.layout.shares) if share not in mine]
            self.listen(0.0)
            store.bring(view, others, learn=False)
            if view.version == store.horizon():
                store.settle(view)
        return True

    def fold(self, view: View, shares: list[int]) -> None:
        """Bring shares to the end of the log and publish them."""
        store = self._store
        store.bring(view, shares, learn=store.epoch != store.host.caller.epoch)
        self.publish(view, shares)

    def publish(self, view: View, shares: list[int]) -> None:
        """Publish the master's shares as bases, at the versions they are at."""
        for share in shares:
            self._store.host.run(lambda wire, share=share: self._publish(wire, view, share))  # type: ignore[misc]

    def _publish(self, wire: Wire, view: View, share: int) -> None:
        store, layout, name = self._store, view.layout, view.layout.names[share]
        if name not in store.bases or store.epoch != store.host.caller.epoch:
            return  # a new epoch has begun meanwhile
        replaces, version = store.bases[name], view.versions[share]
        if version <= max(replaces[0], store.log.start):
            return
        touching = view.lacking(store.log, replaces[0], version)
        untouched = touching is not None and not touching
        if version > store.common() and (untouched or not early.allowed(store, view, share, version)):
            return
        blocks = range(0) if untouched else layout.blocks_of(share)
        generation = replaces[1] + 1
        headers = [base_header(layout.block(block), generation, version, store.epoch) for block in blocks]
        # one round trip: ``commit`` looks whether the scratch is what it should be
        first: list[bytes] = []
        due = 0
        if layout.small and blocks:
            scratch = scratch_of(store, layout, blocks)
            value = headers[0] + view.master.tobytes()
            first = [command("SET", scratch[0], value)]
            if registration := register(store.keys, store.ring):
                wire.call_all(registration)
        else:
            scratch, due = send_scratch(store, wire, layout, blocks, headers, view.master)
        bases = [store.keys.base(layout.number, block, generation) for block in blocks]
        tag = store.log.last(version)
        try:
            store.bases[name] = store.scripts.commit(
                wire,
                store.host.caller,
                store.host.clock,
                name,
                replaces,
                version,
                tag,
                scratch,
                bases,
                headers,
                first,
                due,
            )
        except Refusal as refusal:
            if refusal.code is not Code.SCRATCH:
                store.overtaken(name, refusal)
