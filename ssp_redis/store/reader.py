"""Reading tables: what the log says, which bases there are, and views brought to the end of the log."""

from __future__ import annotations

from collections.abc import Sequence

from ..connection import Wire
from ..errors import StateLost, TableMismatch
from ..keys import JobKeys, StoreKeys
from ..lua import Code, Refusal
from ..scripts import Claim, StoreScripts, Tags
from . import early
from .claiming import look
from .host import Host
from .layout import Layout
from .log import Log, Tag
from .past import Past, backwards, reached
from .sparse.view import RowView
from .tries import Tries
from .view import Taken, View

#: So many tags are kept whether a view needs them or not.
_MANY = 1024


class Reader:
    """The tables of one run, as far as this process has opened them."""

    def __init__(self, host: Host, job: JobKeys) -> None:
        self.host = host
        self.job = job
        self.run_id = int(host.caller.run, 16)
        self.keys = StoreKeys(job.prefix, host.caller.run)
        self.scripts = StoreScripts(job, self.keys)
        self.log = Log()
        self.bases: dict[str, tuple[int, int]] = {}
        #: The bases are as they were read on a connection that was lost since.
        self.doubted = False
        #: The server was rolled back: are the tables still those that were opened?
        self.unsure = False
        self.views: dict[str, View] = {}
        self.sparse: dict[str, RowView] = {}
        #: Of the moment at which the log's end was read: epoch, membership, and the min clock of the others.
        self.epoch = -1
        self.membership = -1
        self.others: int | None = None
        #: The host's clock at that moment, and the min clock of all.
        self.at = -1
        self.complete = 0
        #: What is known of earlier prefixes, and of what it is.
        self._pasts: list[Past] = []
        self._pasts_of: tuple[int, int, int, Past] = (-1, 0, 0, Past(None, 0))
        #: Own ticks up to this clock are in the log as it is known, whether their tags were seen or a base holds them.
        self.own = 0

    def opened(self) -> list[View | RowView]:
        """The views of all tables, dense and sparse."""
        return [*self.views.values(), *self.sparse.values()]

    def describe(self) -> list[tuple[str, str]]:
        """Name and description of every table that is there."""
        return [(name, description) for name, description, _ in self.host.run(self._described)]

    def named(self, number: int) -> tuple[str, str]:
        """Name and description of the table of that number, "" and "" if it is not there."""
        described = self.host.run(self._described)
        return next(((name, words) for name, words, known in described if known == number), ("", ""))

    def recognize(self, wire: Wire) -> None:
        """After a rollback: see to it that what was opened is what is there under its name.

        Raises:
            StateLost: the server fell back to before a table was made, and perhaps it was made anew, as another.
        """
        there = {name: (number, words) for name, words, number in self._described(wire)}
        for view in self.opened():
            layout = view.layout
            if there.get(layout.name) != (layout.number, layout.describe()):
                raise StateLost(
                    f"table {layout.name}: the server fell back to before it was made, and what was added to it is "
                    "gone: join anew"
                )
        self.unsure = False

    def _described(self, wire: Wire) -> list[tuple[str, str, int]]:
        reply = wire.call("HGETALL", self.keys.tables)
        found = []
        for i in range(0, len(reply), 2):
            number, state, _, _, description = reply[i + 1].decode().split(" ")
            if state == "ready":
                found.append((reply[i].decode(), description, int(number)))
        return found

    def ask(self, name: str) -> View | None:
        """The view of a table, None when nobody has made it."""
        if name in self.views:
            return self.views[name]
        claim = look(self, name)
        return self.open(name, claim) if claim is not None else None

    def open(self, name: str, claim: Claim) -> View:
        """A view of a table that is there."""
        layout = Layout.parse(name, claim.number, self.run_id, claim.description)
        self.views[name] = view = View(layout, self.keys, self.host.reproducible)
        # its base may stand where the log as known here has not begun or has ended
        self.log.clear()
        return view

    # -- the log -----------------------------------------------------------------------------------------------------

    def learn(self, wire: Wire) -> None:
        """Read the log to its end, and the versions of the bases."""
        caller = self.host.caller
        epoch = caller.epoch if caller.incarnation else None
        known = self.log.end if self.log.known and self.epoch == caller.epoch else -1
        try:
            read = self.scripts.read(wire, caller.run, epoch, caller.worker, known)
            # where the bases hold it all, the last tag is needed: without it nothing would tell, should the store once
            # be older; and at staleness 0, how far the bases go
            more = early.KEPT if self.host.bulk else not read.tags
            if known < 0 and more and read.end and caller.incarnation:
                known = max(read.off, read.end - len(read.tags) - more)
                read = self.scripts.read(wire, caller.run, epoch, caller.worker, known)
                known = -1
        except Refusal as refusal:
            if refusal.code is not Code.TRIMMED:
                raise
            # trimmed, or shorter than it was: a sync tells which, then the log is read anew
            self.log.clear()
            raise Refusal(Code.RESYNC, refusal.words) from None
        self.log.known = False  # until all that is said of it is: an interruption (Ctrl-C) has it read anew
        if known < 0:
            self.log.begin(read.end, read.tags)
        else:
            self.log.extend(read.tags)
        if self.doubted and any(read.bases.get(name, base) < base for name, base in self.bases.items()):
            for rowed in self.sparse.values():
                rowed.forget()  # it has dropped what had gone into a base that is no more
        self.doubted = False
        self.bases.update(read.bases)
        if self.epoch not in (-1, read.epoch):
            self.unsure = True
            for view in self.opened():
                view.forget()
        if self.unsure:
            self.recognize(wire)
        self.epoch, self.membership, self.others = read.epoch, read.membership, read.others
        self.at, self.own, self.complete = self.host.local, self.host.clock, read.min_clock
        self._learned(len(read.tags))
        self.log.known = True

    def doubt(self) -> None:
        """A connection was lost: read the bases' versions again before a slot is taken for free.

        A commit alone leaves no trace in the log: a server that has forgotten one is found out by nobody.
        """
        self.doubted = True

    def hear(self, tags: Tags, membership: int) -> None:
        """A tick brought the tags since the end that was known."""
        if tags.since != self.log.end or not self.log.known:
            return  # the log was read meanwhile
        if tags.tags is None:
            self.log.clear()
            return
        self.log.known = False
        self.log.extend(tags.tags)
        self.membership, self.others = membership, tags.others
        self.at, self.own = self.host.local, self.host.clock
        self.complete = self.own if self.others is None else min(self.own, self.others)
        self._learned(len(tags.tags))
        self.log.known = True

    def overhear(self, end: int, tags: list[str], low: int, membership: int) -> None:
        """The last tags of the log were announced, together with the min."""
        known = self.log.end
        if not self.log.known or self.epoch != self.host.caller.epoch or not end - len(tags) <= known < end:
            return  # a gap, or nothing new
        fresh = tags[known - end :]
        self.log.known = False
        self.log.extend(fresh)
        self.membership, self.others = membership, low
        me = self.host.caller.incarnation
        self.own = max((tag.clock for tag in self.log.tags[-len(fresh) :] if tag.incarnation == me), default=self.own)
        self.at, self.complete = self.host.local, low
        self._learned(len(fresh))
        self.log.known = True

    def _learned(self, count: int) -> None:
        if not count:
            return
        self.notice(self.log.tags[-count:])
        self.host.seen(self.log.end - 1, self.log.tags[-1].text)

    def notice(self, tags: list[Tag]) -> None:
        """Tags were read for the first time."""

    def horizon(self) -> int:
        """The version up to which a view may go: all that is known; at staleness 0, the own clock.

        There, nobody ticks to c + 1 before all have ticked to c, so the ticks up to a clock are a prefix, and a view
        at clock c holds exactly what all have added in the clocks before. In a reproducible run, whose order of sums
        allows no part of a clock, it is the last complete one. Who is alone goes to the end: what is beyond its clock
        is of others that have left.
        """
        host = self.host
        if host.reproducible:
            return self.log.beyond(self.complete)
        return self.log.through(host.clock) if host.bulk and self.others is not None else self.log.end

    def common(self) -> int:
        """The version up to which bases may go: no further than any member may read."""
        host = self.host
        if host.reproducible:
            return self.log.beyond(self.complete)
        return self.log.through(self.complete) if host.bulk and self.others is not None else self.log.end

    def serves(self, epoch: int, membership: int, clock: int, staleness: int) -> bool:
        """Is the log as it is known enough for a read at ``clock``, which the host has flushed?"""
        if self.epoch != epoch or self.membership != membership:
            return False
        others = self.complete if self.host.reproducible else self.others
        return staleness < 0 or (reached(others, clock - staleness) and (staleness > 0 or self.host.clock == clock))

    def moment(self) -> Taken:
        """The moment that a view shows which goes up to the horizon.

        At staleness 0 others may be beyond what it holds; in a reproducible run, all may be: it is of complete clocks.
        """
        return self._moment(self.horizon())

    def _moment(self, horizon: int) -> Taken:
        others = self.complete if self.host.reproducible else self.others
        if horizon < self.log.end and self.host.bulk:
            others = self.host.clock if others is None else min(others, self.host.clock)
        return Taken(self.epoch, self.membership, others, self.at)

    # -- views -------------------------------------------------------------------------------------------------------

    def refresh(self, view: View, learn: bool = True) -> None:
        """Bring a view to the end of the log; ``learn`` False trusts the log as it is known.

        Raises:
            StateLost: a value is gone from the server.
        """
        if learn or not view.layout.small or not self.host.run(lambda wire: self._follow(wire, view)):
            self.bring(view, range(view.layout.shares), learn)
            self.settle(view)

    def _follow(self, wire: Wire, view: View) -> bool:
        """What most reads of small tables are: nothing has happened but ticks. False: it is not that simple."""
        log, base = self.log, self.bases.get(view.layout.names[0])
        # after a rollback nothing is known
        if view.taken is None or not log.known or base is None or base[0] > (end := self.horizon()):
            return False
        if not view.follow(wire, log, end, base[0], self.host.caller.incarnation):
            return False
        self._arrived(view, end)
        return True

    def replace(self, view: View, end: int, values: memoryview) -> None:
        """Let a small table be what somebody else has summed, up to the horizon."""
        view.replace(end, values)
        self._arrived(view, end)

    def _arrived(self, view: View, end: int) -> None:
        """A small table is at the horizon."""
        view.owned[0] = self.own_at_horizon()
        view.settle()
        view.taken = self._moment(end)
        if len(self.log.tags) > _MANY:
            self.trim()

    def bring(self, view: View, shares: Sequence[int], learn: bool, least: int | None = None) -> None:
        """Bring some shares of a view to the end of the log, or where others' min is ``least``, if cheaper."""
        names = [view.layout.names[share] for share in shares]
        taken, view.taken = view.taken, None  # until all is in, it is nothing

        def attempt(wire: Wire) -> bool:
            nonlocal learn
            ask, learn = learn, True  # if it has to be done again, then with what the log says by then
            end, bases = self._reach(wire, view, shares, names, ask, tries.stuck)
            incarnation = self.host.caller.incarnation
            if view.layout.small:
                done = view.bring_small(wire, self.log, end, bases, self.epoch, incarnation)
                view.owned[0] = self.own_at_horizon()
                return done
            ends, owned = dict.fromkeys(shares, end), dict.fromkeys(shares, self.own_at_horizon())
            if least is not None:
                for share in shares:
                    ends[share], owned[share] = self._goal(view, share, end, least)
            work = view.plan(ends, self.log, bases, incarnation)
            done = view.bring(wire, ends, work, self.epoch)
            for share in shares:
                view.owned[share] = owned[share]
            return done

        tries = Tries(self)
        while tries.more:
            if self.host.run(attempt):
                if view.version >= 0:  # else it was forgotten meanwhile: of another epoch
                    view.taken = taken  # what was brought forward still holds all that it held
                return
        raise StateLost(
            f"table {view.layout.name}: a base or a delta is missing or foreign, and stays so: it was deleted, or "
            "evicted by a memory policy (set maxmemory-policy noeviction)"
        )

    def _reach(
        self, wire: Wire, view: View, shares: Sequence[int], names: list[str], learn: bool, beyond: bool
    ) -> tuple[int, dict[str, tuple[int, int]]]:
        """The version that shares are to be brought to, and the bases to start from, having read the log if need be.

        Args:
            beyond: start from bases beyond the horizon too. Where staleness was another when they were written, the
                deltas after the bases before them may be gone.
        """
        if learn or not self.log.known or self.epoch != self.host.caller.epoch:
            self.learn(wire)
        horizon, bases = self.horizon(), self.bases
        for name in names:
            if name not in bases or bases[name][0] > horizon:  # or announced meanwhile, of a longer prefix
                self.learn(wire)
                horizon = self.horizon()
                break
        if not all(name in bases for name in names):
            raise StateLost(f"table {view.layout.name}: its bases are gone from the server")
        bases = self.bases if beyond else self._readable(wire, view, shares, horizon)
        held = [max(view.versions[share], bases[name][0]) for share, name in zip(shares, names, strict=True)]
        if held and min(held) < self.log.start:
            self.log.clear()
            self.learn(wire)
            horizon = self.horizon()
            bases = self.bases if beyond else self._readable(wire, view, shares, horizon)
        # further only where staleness was another before
        return max([horizon, *held]), bases

    def _readable(self, wire: Wire, view: View, shares: Sequence[int], horizon: int) -> dict[str, tuple[int, int]]:
        """The bases as this reader may use them: not one that is beyond its clock."""
        bases = self.bases
        for share in shares:
            name, version = view.layout.names[share], view.versions[share]
            if bases[name][0] <= horizon:
                continue
            if self.log.start <= version <= horizon:
                bases = {**bases, name: (version, bases[name][1])}  # what is here is as good
            elif (earlier := early.before(self, wire, view, share)) is not None:
                bases = {**bases, name: earlier}
        return bases

    def _goal(self, view: View, share: int, end: int, least: int) -> tuple[int, int]:
        """How far to bring a share at the least cost: its version, and the own ticks in it.

        The base that its owner published a moment ago, and of the deltas after it those that are asked for, cost less
        than all that were pushed since: these will be in its next base. A share is left where it is, or is brought to
        less than the end, only where that is about a clock behind.
        """
        base, log, incarnation = self.bases[view.layout.names[share]][0], self.log, self.host.caller.incarnation
        last, version = (end, self.own_at_horizon()), view.versions[share]
        dear = view.cost(share, log, end, base, incarnation)
        members = len({tag.worker for tag in log.tags[-64:]})
        if base <= version:
            past = self.past(version)
            stays = dear > 1 and end - version <= members and past is not None and past.shows(least)
            return (version, view.owned[share]) if stays else last
        cost = 1
        for version in range(max(base, log.start), end):
            if cost >= dear:
                break
            past = self.past(version)
            if end - version <= 2 * members and past is not None and past.shows(least):
                own = [tag for tag in log.since(version, end) if tag.incarnation == incarnation]
                if all(tag.clock in view.held for tag in own if tag.touches(view.layout.number)):
                    return version, past.own
            cost += view.fetched(log.tags[version - log.start], incarnation)
        return last

    def past(self, version: int) -> Past | None:
        """Where the members stood in a prefix of the log; None: some have come or gone since, or it is not known."""
        log, now = self.log, Past(self.others, self.own)
        if version == log.end:
            return now
        scene = (self.epoch, log.start, log.end, now)
        if self._pasts_of != scene:
            # the last few clocks of everybody
            tags = log.tags[-max(64, 8 * len({tag.worker for tag in log.tags[-256:]})) :]
            self._pasts, self._pasts_of = backwards(tags, now, self.host.caller.worker), scene
        back = log.end - version - 1
        return self._pasts[back] if back < len(self._pasts) else None

    def reaching(self, least: int) -> int:
        """The shortest prefix of the log, as far back as is known, in which the others' min is at least that."""
        version = self.log.end
        while (past := self.past(version - 1)) is not None and past.shows(least):
            version -= 1
        return version

    def own_at_horizon(self) -> int:
        """The own ticks that a view holds which goes up to the horizon."""
        return min(self.own, self.complete) if self.host.reproducible else self.own

    def settle(self, view: View) -> None:
        """All shares of the view are where a read wants them: note of which moment it is.

        It is of none if the server was rolled back between two of them: then some were forgotten.
        """
        if view.version < 0:
            view.taken = None
            return
        view.settle()
        horizon = self.horizon()
        moment = self._moment(horizon)
        for version in {version for version in view.versions if version < horizon}:
            past = self.past(version)
            others = past.others if past is not None else -1
            if others is not None and moment.others is not None:
                moment = moment._replace(others=min(others, moment.others))
        view.taken = moment
        if len(self.log.tags) > _MANY:
            self.trim()

    def trim(self) -> None:
        """Forget tags that every view holds."""
        low = min((view.version for view in self.opened()), default=self.log.end)
        # a view that nobody reads starts from its base when somebody does
        self.log.drop(max(low, self.log.end - 4 * _MANY))

    def check(self, view: View, shape: tuple[int, ...], dtype: str) -> None:
        """Raise TableMismatch unless the table is of that shape and dtype."""
        layout = view.layout
        if layout.shape != shape or layout.dtype != dtype:
            raise TableMismatch(
                f"table {layout.name} is {layout.dtype} of shape {layout.shape}, not {dtype} of shape {shape}: "
                "use the same everywhere, or another name or run"
            )
