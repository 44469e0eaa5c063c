"""What must hold after a schedule, read from what the lives wrote down and from what the server has."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import numpy as np
import redis

import ssp_redis
from ssp_redis import Job, SSPError
from ssp_redis.keys import StoreKeys
from ssp_redis.store.log import Tag

from .marks import LIVES, TABLES, Counts, Marks, read
from .plan import KINDS, REFUSALS
from .stage import JOB, Life, Stage

#: Seconds that a busy machine may add to what is promised.
LOAD = 3.0
_FOREVER = math.inf


@dataclass
class History:
    """A life as the checks see it."""

    life: Life
    began: float
    #: When it had joined, and its clock then; None: never.
    joined: float | None = None
    resumed: int = -1
    incarnation: int = 0
    #: (time, clock): began to work at a clock; had ticked to one, as it was told; was admitted at one.
    begun: list[tuple[float, int]] = field(default_factory=list)
    advanced: list[tuple[float, int]] = field(default_factory=list)
    #: (time, clock): the server knew it to have ticked to one.
    flushed: list[tuple[float, int]] = field(default_factory=list)
    admitted: list[tuple[float, int]] = field(default_factory=list)
    #: (since when, clock, until when): a wait; it may have ended in an error.
    waits: list[tuple[float, int, float]] = field(default_factory=list)
    left: float | None = None
    #: It was told in leaving that it was out already.
    out: bool = False
    #: The last moment at which the job is known to have had it as a member.
    confirmed: float = -1.0
    #: When it was certainly no member any more.
    gone: float = _FOREVER

    @property
    def key(self) -> tuple[int, int]:
        return self.life.worker, self.life.number

    def __str__(self) -> str:
        return str(self.life)


def history(life: Life) -> History:
    """Read what a life wrote."""
    found = History(life, life.began)
    since: tuple[float, int] | None = None
    for event in life.events:
        if event.what == "joined":
            found.joined = found.confirmed = event.time
            found.incarnation, found.resumed = event.details[:2]
            found.admitted.append((event.time, event.details[1]))
        elif event.what == "begin":
            found.begun.append((event.time, event.details[0]))
        elif event.what == "advanced":
            found.advanced.append((event.time, event.details[0]))
            before = found.flushed[-1][1] if found.flushed else found.resumed
            if event.details[2] > before:
                found.flushed.append((event.time, event.details[2]))
            if found.begun and event.details[2] > before:
                # it was still a member when it ticked; the answer may have been read much later
                found.confirmed = found.begun[-1][0]
            since = (event.time, event.details[0])
        elif event.what == "admitted":
            found.admitted.append((event.time, event.details[0]))
            if since:
                begin = found.begun[-1][0] if life.worker in life.stage.schedule.loops else since[0]
                found.waits.append((begin, since[1], event.time))
            since = None
        elif event.what == "left":
            found.left, found.out = event.time, event.details[0]
    return found


class Checker:
    """Checks one schedule."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.schedule = stage.schedule
        self.marks = Marks(self.schedule.seed, self.schedule.workers, self.schedule.clocks)
        self.lives = [history(life) for life in stage.lives]
        self.faults = sorted(stage.outcome.injected, key=lambda fault: fault.begin)
        for one in self.lives:
            one.gone = self._gone(one)

    def wrong(self, text: str) -> None:
        self.stage.violation(text)

    def check(self) -> None:
        """Everything."""
        self._endings()
        self._quorum()
        self._bound()
        self._waits()
        self._fencing()
        self._frozen_server()
        if any(self._table_forgotten(one) for one in self.lives):
            self.stage.outcome.numbers["rollbacks to before a table"] = 1
        elif self.stage.lost is None:
            self._values()
        else:
            self._lost()
        for one in self.lives:
            for event in one.life.events:
                if event.what == "wrong":
                    self.wrong(f"{one}: a read at clock {event.details[0]}: {event.details[2]}")

    # -- membership --------------------------------------------------------------------------------------------------

    def _pushed_back(self, moment: float, reach: float, slack: float, worker: int | None = None) -> float:
        """``moment``, later by the faults that stand between it and ``reach`` seconds after it."""
        for fault in self.faults:
            if fault.affects not in (None, worker):
                continue
            end = fault.end if fault.end is not None else _FOREVER
            if fault.begin <= moment + reach and end + slack > moment:
                moment = end + slack
        return moment

    def _gone(self, one: History) -> float:
        """When a life was certainly out: it had left, was told so, was followed by another, or its lease ran out."""
        life, lease = one.life, self.schedule.lease
        moments = []
        if one.left is not None:
            moments.append(one.left)
        if life.evicted is not None:
            moments.append(life.evicted)
        if self.schedule.reproducible and life.end != "done":
            pass  # whoever is missing is waited for until it returns
        elif life.killed is not None:
            # a silence of the server renews every lease once
            moments.append(self._pushed_back(life.killed + lease, lease, lease))
        elif (end := life.last("end")) is not None:
            fenced = end.details[0] in ("Evicted", "Superseded", "StateLost")
            moments.append(end.time if fenced else self._pushed_back(end.time + lease, lease, lease))
        return min([*moments, self._followed(one)])

    def _followed(self, one: History) -> float:
        """When another process had joined under the id, later than this life did."""
        return min(
            (
                other.joined
                for other in self.lives
                if other.life.worker == one.life.worker
                and other is not one
                and other.joined is not None
                and (other.incarnation > one.incarnation if one.joined is not None else other.joined > one.began)
            ),
            default=_FOREVER,
        )

    def _endings(self) -> None:
        """Only faults that say so end a life with an error."""
        kinds = {fault.kind for fault in self.faults}
        for one in self.lives:
            end = one.life.end
            if end == "Evicted" and self._promised():
                self.wrong(f"{one} was evicted from a reproducible run: {one.life.last('end')}")
            if end == "StateLost" and self.stage.lost is None and not self._table_forgotten(one):
                self.wrong(f"{one} ended with StateLost, and nothing was lost: {one.life.last('end')}")
            if end == "Superseded" and self._followed(one) == _FOREVER and not self._twin(one):
                self.wrong(f"{one} was superseded by nobody")
            if end not in ("done", "killed", "Evicted", "Superseded", "StateLost", "ServerRefused", "SSPError"):
                self.wrong(f"{one} ended with {one.life.last('end')}")
            if end in ("ServerRefused", "SSPError") and not kinds & {
                "memory full", "disk unwritable", "channels forbidden", "read-only", "keys evicted",
            }:  # fmt: skip
                event = one.life.last("end")
                if end == "ServerRefused" or (event and "whether its open clock was committed" not in event.details[1]):
                    self.wrong(f"{one} ended with {event}")

    def _table_forgotten(self, one: History) -> bool:
        """Was the server rolled back to before a table was made, and the life told so?"""
        end = one.life.last("end")
        return bool(self.stage.rolled_back) and end is not None and "bases are gone" in end.details[1]

    def _twin(self, one: History) -> bool:
        """Was there another life that may have joined, and did not live to tell?"""
        return any(
            other.life.worker == one.life.worker and other is not one and other.joined is None for other in self.lives
        )

    def _quorum(self) -> None:
        """Nobody passes ``join`` before so many ids have joined."""
        first = min((one.joined for one in self.lives if one.joined is not None), default=None)
        if first is None:
            return
        tried = {one.life.worker for one in self.lives for event in one.life.events
                 if event.what == "joining" and event.time <= first}  # fmt: skip
        if len(tried) < self.schedule.workers:
            self.wrong(f"somebody passed join when only {sorted(tried)} had asked to join")

    # -- the bound ---------------------------------------------------------------------------------------------------

    def _bound(self) -> None:
        """No admitted worker was ever more than s ahead of a live one."""
        bound, largest = self.schedule.staleness, 0
        stopped = self.stage.lost if self.stage.lost is not None else _FOREVER
        for one in self.lives:
            for moment, clock in one.admitted:
                if moment > stopped:
                    continue
                for other in self.lives:
                    if other is one or other.joined is None or not other.joined < moment < other.confirmed:
                        continue
                    if self.schedule.flush > 1 and other.life.worker == one.life.worker:
                        continue  # it does not know yet that it has a successor, which begins where it had flushed
                    if any(self._forgotten(other, back, moment) for back in self.stage.rolled_back):
                        continue
                    if any(self._answered_before(one, other, back, moment) for back in self.stage.rolled_back):
                        continue
                    # it had ticked at most this far: it had not even begun to say more
                    most = max((at for at in self._said(other) if at[0] <= moment), default=(0.0, other.resumed))[1]
                    largest = max(largest, clock - most)
                    if clock - most > bound:
                        self.wrong(
                            f"{one} was admitted at clock {clock} at {moment - self.stage.started:.3f} when {other} "
                            f"had ticked to {most} at the most: {clock - most} ahead, staleness {bound}"
                        )
                        return
        self.stage.outcome.numbers["largest lead seen"] = largest

    @staticmethod
    def _said(one: History) -> list[tuple[float, int]]:
        """(time, clock it may have ticked to from then on)."""
        return [(one.joined or 0.0, one.resumed)] + [(moment, clock + 1) for moment, clock in one.begun]

    @staticmethod
    def _forgotten(one: History, back: float, moment: float) -> bool:
        """Had the server been rolled back, and not heard of this life again yet?"""
        spoke = min((at for at, _ in one.advanced + one.admitted if at > back), default=_FOREVER)
        return back - 1.0 <= moment <= spoke

    @staticmethod
    def _answered_before(one: History, successor: History, back: float, moment: float) -> bool:
        """Was the answer of a server that was then rolled back, and read when the life had a successor already?

        The successor begins where the server fell back to, and is not to be compared with what it forgot.
        """
        asked = max((at for at, _ in one.begun if at < moment), default=_FOREVER)
        return successor.life.worker == one.life.worker and asked < back < moment

    def _waits(self) -> None:
        """Every wait ended within one re-check interval of being admissible."""
        if self.schedule.staleness == math.inf:
            return
        worst = 0.0
        for one in self.lives:
            for since, clock, until in one.waits:
                due = self._admissible(one, since, clock)
                calm = due
                due = self._pushed_back(due, self.schedule.recheck + LOAD, 2 * self.schedule.patience, one.life.worker)
                if calm == due:
                    worst = max(worst, until - due)
                if until - due > self.schedule.recheck + LOAD:
                    self.wrong(
                        f"{one} waited at clock {clock} until {until - self.stage.started:.3f}, and could have gone on "
                        f"at {due - self.stage.started:.3f}"
                    )
        self.stage.outcome.numbers["latest end of an undisturbed wait"] = worst

    def _admissible(self, one: History, since: float, clock: int) -> float:
        """The moment from which on certainly nobody was in the way."""
        need = clock - self.schedule.staleness
        spans = []
        for other in self.lives:
            if other is one:
                continue
            reached = min((at for at, now in other.flushed if now >= need), default=_FOREVER)
            if other.joined is not None and other.resumed >= need:
                reached = min(reached, other.joined)
            spans.append((other.began, min(reached, other.gone)))
        moment = since
        for begin, end in sorted(spans):
            if begin <= moment < end:
                moment = end
        return moment

    # -- fences ------------------------------------------------------------------------------------------------------

    def _fencing(self) -> None:
        """Who was evicted or followed by another changed no clock afterwards."""
        for one in self.lives:
            fence = min(one.life.evicted or _FOREVER, self._followed(one))
            for moment, clock in one.flushed:
                begun = max((at for at, now in one.begun if now < clock), default=_FOREVER)
                if begun > fence and moment > fence:
                    self.wrong(f"{one} began clock {clock - 1} after it was out, and could tick")

    def _frozen_server(self) -> None:
        """A server frozen for longer than a lease evicts nobody."""
        lease = self.schedule.lease
        for fault in self.faults:
            if fault.kind != "server frozen" or fault.end is None:
                continue
            for one in self.lives:
                end = one.life.last("end")
                if end is None or end.details[0] != "Evicted" or "lease" not in end.details[1]:
                    continue
                alone = not any(
                    other is not fault and other.affects in (None, one.life.worker)
                    and other.begin < end.time and (other.end or _FOREVER) > fault.begin - 2 * lease
                    for other in self.faults
                )  # fmt: skip
                if alone and fault.begin < end.time < fault.end + 0.8 * lease:
                    self.wrong(f"{one} was evicted for a silence of the server")

    # -- values ------------------------------------------------------------------------------------------------------

    def _certain(self) -> tuple[Counts, Counts]:
        """Of each (worker, life, clock): how often the tick that carries it happened at least, and at most."""
        shape = (self.schedule.workers, LIVES, self.schedule.clocks + 1)
        least, most = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for one in self.lives:
            worker, life = one.key
            for moment, clock in one.begun:
                fence = self._followed(one)
                if moment < min(fence, one.life.evicted or _FOREVER):
                    most[worker, life, clock] = 1
                if any(now > clock and at > moment for at, now in one.flushed):
                    least[worker, life, clock] = 1
            end = one.life.last("end")
            open_one = one.left is not None and one.begun and one.begun[-1][1] == self.schedule.clocks
            if open_one and end and end.details[0] == "done" and one.left is not None and one.gone >= one.left:
                least[worker, life, self.schedule.clocks] = 1  # leaving commits what is open
        return least, most

    def _mute(self, one: History) -> bool:
        """Did it end before it could learn that the server had forgotten what it had pushed?

        It was killed, it had left by then, or the first that it heard of the server after the rollback was that it is
        out.
        """
        if one.life.last("losses") is None:
            return True
        back = max(self.stage.rolled_back, default=_FOREVER)
        if one.left is not None and one.left < back:
            return True
        return (one.out or one.life.end in ("Evicted", "Superseded")) and one.confirmed < back

    def _named(self) -> set[tuple[int, int]]:
        """(worker, clock) of what the lives were told is lost.

        What one says it pushed again is not lost, unless it ended early; or, in a reproducible run, it went with a tick
        that is beyond the last complete clock, which nobody reads.
        """
        return {
            (int(worker), clock)
            for one in self.lives
            if (event := one.life.last("losses"))
            for worker, first, last, again in event.details[0]
            if not (again and one.life.end == "done" and not self.schedule.reproducible)
            for clock in range(first, last + 1)
        }

    def _values(self) -> None:
        least, most = self._certain()
        touched = {
            table: np.array(
                [
                    [table in self.marks.touched(worker, clock) for clock in range(self.schedule.clocks + 1)]
                    for worker in range(self.schedule.workers)
                ]
            )
            for table in TABLES
        }
        try:
            with Job(self.stage.server.url, JOB) as job:
                # one that could not say that it leaves is a member until its lease runs out
                limit = time.monotonic() + 2 * self.schedule.lease + LOAD
                while (status := job.status()).members and time.monotonic() < limit:
                    if self.schedule.reproducible:
                        for member in status.members:
                            job.evict(member.worker)  # or it would be waited for until it returns
                    time.sleep(0.1)
                if status.members:
                    self.wrong(f"still members: {status.members}")
                if late := [gone.worker for gone in status.departed if gone.why == "lost"]:
                    self.stage.say(f"lost: {late}")
                self._clocks({int(gone.worker): gone.clock for gone in status.departed if gone.worker.isdigit()})
                have = {table: self.marks.counts(table, job.table(table).get()) for table in TABLES}
                if self.schedule.reproducible:
                    # a read has complete clocks only: what one committed as it left is in none, if others did not
                    least[:, :, status.min_clock :] = 0
        except (SSPError, ValueError) as error:
            self.wrong(f"the values cannot be read: {type(error).__name__}: {error}")
            return
        named = self._named() if self.stage.rolled_back else set()
        dead = {one.key for one in self.lives if self._mute(one)}
        lost = unnamed = 0
        # whether a tick happened, as each table tells
        happened: dict[tuple[int, int, int], dict[str, int]] = {}
        for table in ("small", "large", "sparse"):
            for worker, life, clock in np.argwhere(touched[table][:, None, :] & (most > -1)):
                key = (int(worker), int(life), int(clock))
                value, at_least, at_most = int(have[table][key]), int(least[key]), int(most[key])
                happened.setdefault(key, {})[table] = value
                what = f"{table}: the delta of worker {worker}, life {life}, clock {clock} is in it {value} times"
                if value > at_most:
                    self.wrong(f"{what}, at most {at_most} may be")
                elif value < at_least:
                    if key[::2] in named:
                        lost += 1
                    elif self.stage.rolled_back and key[:2] in dead:
                        unnamed += 1
                    else:
                        self.wrong(f"{what}, and its tick had returned")
        for key, values in happened.items():
            if len(set(values.values())) > 1 and not self.stage.rolled_back:
                self.wrong(
                    f"worker {key[0]}, life {key[1]}, clock {key[2]} is in some tables and not in others: {values}"
                )
        self._tiny(have["tiny"], touched, happened, least, most, named, dead)
        for worker in range(self.schedule.workers):
            for clock in range(self.schedule.clocks + 1):
                lives = [life for life in range(LIVES) if any(happened.get((worker, life, clock), {}).values())]
                if len(lives) > 1 and not self.stage.rolled_back:
                    self.wrong(f"worker {worker}, clock {clock} was committed by lives {lives}")
        self.stage.outcome.numbers |= {
            "deltas": int(least.sum()),
            "deltas whose end was open": int((most - least).clip(0).sum()),
            "deltas lost and named": lost,
            "deltas lost with a process that could not name them": unnamed,
        }
        self._reads(have)

    def _tiny(
        self,
        have: Counts,
        touched: dict[str, Counts],
        happened: dict[tuple[int, int, int], dict[str, int]],
        least: Counts,
        most: Counts,
        named: set[tuple[int, int]],
        dead: set[tuple[int, int]],
    ) -> None:
        """The table whose deltas stand in tags has no room for lives: it says how often a clock is in it."""
        for worker, clock in np.argwhere(touched["tiny"]):
            value = int(have[worker, clock])
            low, high = int(least[worker, :, clock].sum()), int(most[worker, :, clock].sum())
            told = [
                max(values.values())
                for life in range(LIVES)
                if (values := happened.get((int(worker), life, int(clock))))
            ]
            excused = bool(self.stage.rolled_back) and (
                (int(worker), int(clock)) in named or any(key[0] == worker for key in dead)
            )
            if value > high or (value < low and not excused):
                self.wrong(f"tiny: worker {worker}, clock {clock} is in it {value} times, not {low} to {high}")
            if told and not self.stage.rolled_back and value != sum(told):
                self.wrong(f"tiny: worker {worker}, clock {clock} is in it {value} times, in the others {sum(told)}")

    def _clocks(self, stored: dict[int, int]) -> None:
        for worker in range(self.schedule.workers):
            said = max(
                (clock for one in self.lives if one.life.worker == worker for _, clock in one.flushed), default=0
            )
            # what a rollback took from one that leaves is pushed again with a tick of its own
            most = self.schedule.clocks + 1 + len(self.stage.rolled_back)
            # nor can one that had left restore what a rollback took of it
            mute = self.stage.rolled_back and any(self._mute(one) for one in self.lives if one.life.worker == worker)
            if not (0 if mute else said) <= stored.get(worker, 0) <= most:
                self.wrong(f"worker {worker} had ticked to {said}, the job says {stored.get(worker)}")

    def _reads(self, have: dict[str, Counts]) -> None:
        """A read at clock c holds all deltas up to c − s − 1, all of its life's own, and none that is not committed."""
        count = 0
        for one in self.lives:
            begun: set[int] = set()
            for event in one.life.events:
                if event.what == "begin":
                    begun.add(event.details[0])
                if event.what != "read":
                    continue
                clock, table, *parts = event.details
                count += 1
                for part in parts if table != "tiny" else ():
                    self._read(one, clock, table, self.marks.unpack(table, part), have[table], begun)
        self.stage.outcome.numbers["reads"] = count

    def _read(self, one: History, clock: int, table: str, seen: Counts, have: Counts, begun: set[int]) -> None:
        worker, life = one.key
        where = f"{one}: a read of {table} at clock {clock}"
        if self.stage.rolled_back:
            if (seen > 1).any():
                self.wrong(f"{where} holds a delta twice")
            return
        own = {now for now in begun if table in self.marks.touched(worker, now)}
        if missing := [now for now in own if seen[worker, life, now] != 1]:
            self.wrong(f"{where} lacks its own of clocks {missing}")
        final = have.copy()
        final[worker, life, list(own)] = 1
        if extra := np.argwhere(seen > final).tolist():
            self.wrong(f"{where} holds what nobody committed: {extra}")
        if self._promised():
            exact = final.copy()
            exact[:, :, clock:] = 0
            exact[worker, life, list(own)] = 1
            if wrong := np.argwhere(seen != exact).tolist():
                self.wrong(f"{where} is not what is reproducible: {wrong}")
        if self.schedule.staleness != math.inf:
            end = max(0, clock - int(self.schedule.staleness))
            if late := np.argwhere(seen[:, :, :end] < final[:, :, :end]).tolist():
                self.wrong(f"{where} lacks what it must hold: {late}")

    def _promised(self) -> bool:
        """Is every read at a clock the same in every run?"""
        return self.schedule.reproducible and all(one.life.evicted is None for one in self.lives)

    # -- after the loss of everything --------------------------------------------------------------------------------

    def _lost(self) -> None:
        """The state was lost on purpose: everybody is told so, soon; nobody goes on from zero."""
        assert self.stage.lost is not None
        kind = next(fault.kind for fault in self.faults if KINDS[fault.kind].group == "end")
        ends: set[str] = set()
        for one in self.lives:
            end = one.life.last("end")
            if one.joined is None or one.joined > self.stage.lost or end is None:
                continue
            if end.time < self.stage.lost:
                continue
            ends.add(end.details[0])
            due = self._pushed_back(
                self.stage.lost, self.schedule.recheck + LOAD, 2 * self.schedule.patience, one.life.worker
            )
            if kind == "keys evicted":
                continue
            late = end.time - due - self.schedule.recheck - LOAD
            if late > 0:
                self.wrong(f"{one} noticed {kind} only {end.time - due:.1f} s later")
            if end.details[0] not in ("StateLost", "Superseded", "Evicted") and not (
                end.details[0] == "done" and one.left is not None
            ):
                self.wrong(f"{one} ended with {end.details} after {kind}")
        self.stage.outcome.numbers["ends after a loss of state"] = len(ends)

    # -- what is left ------------------------------------------------------------------------------------------------

    def garbage(self) -> None:
        """Late duplicates, then what is left behind, then nothing."""
        stage = self.stage
        with stage.admin() as admin:
            if stage.lost is not None or any(self._table_forgotten(one) for one in self.lives):
                with Job(stage.server.url, JOB) as job:
                    job.delete(force=True)
                if left := admin.keys("*"):
                    self.wrong(f"left after delete: {left[:5]}")
                return
            before = self._state(admin)
            for call in stage.late:
                stage.lives[0].proxy.replay(call)
            if (after := self._state(admin)) != before:
                self.wrong(f"late duplicates changed something: {before} became {after}")
            run = admin.hget(f"ssp:{{{JOB}}}:config", "run")
            if run is None:
                self.wrong("the job is gone")
                return
            keys = StoreKeys(f"ssp:{{{JOB}}}:", run.decode())
            rings = self._rings(admin, keys)
            worst = max((len(found) for found in rings.values()), default=0)
            stage.outcome.numbers["rings left"] = sum(map(len, rings.values()))
            stage.outcome.numbers["rings left by one life"] = worst
            try:
                # a reproducible run has no room for another id
                who = 0 if self.schedule.reproducible else "janitor"
                with ssp_redis.join(stage.server.url, job=JOB, worker=who, timeout=10) as janitor:
                    for table in self.marks.open(janitor).values():
                        read(table)
                    janitor.leave("done")
            except SSPError as error:
                self.wrong(f"nobody can join after the end: {error}")
            left = {key.decode() for key in admin.scan_iter(match=f"{keys.prefix}[dx]:*", count=1000)}
            excused = {key for key in left if any(f":{one}:" in f"{key}:" for one in self._hindered())}
            stage.outcome.numbers["keys left where the server refused to sweep"] = len(excused)
            if self.schedule.reproducible and self._needed(admin, keys):
                # bases go no further than the last complete clock: what was ticked beyond it stays in its slots, and
                # nothing is swept before bases hold the departures that come after it
                excused = left
            if left - excused:
                named = sorted(admin.smembers(keys.rings))
                self.wrong(f"{len(left)} keys are left after the next join: {sorted(left)[:4]}; named: {named}")
            with Job(stage.server.url, JOB) as job:
                job.delete()
            if left := admin.keys("*"):
                self.wrong(f"left after delete: {left[:5]}")

    def _hindered(self) -> list[int]:
        """Incarnations that learned that they were out while the server refused writes, and could not sweep."""
        refusing = [fault for fault in self.faults if fault.kind in REFUSALS]
        return [
            joined.details[0]
            for one in self.lives
            if (joined := one.life.last("joined")) and (end := one.life.last("end"))
            if end.details[0] in ("Evicted", "Superseded")
            if any(fault.begin <= end.time <= (fault.end or _FOREVER) + 1.0 for fault in refusing)
        ]

    @staticmethod
    def _needed(admin: redis.Redis, keys: StoreKeys) -> set[str]:
        """Rings of which deltas are in no base yet."""
        job = f"ssp:{{{JOB}}}:"
        oldest = min(int(base.partition(b":")[0]) for base in admin.hvals(keys.bases))
        offset = int(admin.hget(f"{job}config", "off") or 0)
        tags = [Tag.parse(tag.decode()) for tag in admin.lrange(f"{job}log", oldest - offset, -1)]
        return {tag.ring for tag in tags if tag.slots or tag.values}

    @staticmethod
    def _rings(admin: object, keys: StoreKeys) -> dict[str, set[str]]:
        """Rings of which slots are there, by incarnation."""
        found: dict[str, set[str]] = {}
        for key in admin.scan_iter(match=f"{keys.prefix}d:*", count=1000):  # type: ignore[attr-defined]
            worker, incarnation, ring, _ = key.decode().split(":")[-4:]
            found.setdefault(f"{worker}:{incarnation}", set()).add(ring)
        return found

    def _state(self, admin: object) -> object:
        with Job(self.stage.server.url, JOB) as job:
            status = job.status()
            return (
                status.members,
                [(gone.worker, gone.clock, gone.why) for gone in status.departed],
                status.min_clock,
                {table: self.marks.pack(table, job.table(table).get()) for table in TABLES},
            )
