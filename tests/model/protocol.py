"""The protocol of the five control scripts once more, in plain Python, from its description: what the scripts must do.

It shares nothing with the Lua but the words. A call gives the answer the script gives, publishes what it publishes and
leaves the state it leaves; ``microseconds`` is the server's TIME.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field


@dataclass
class Id:
    """What is remembered of a worker, member or not."""

    incarnation: int
    nonce: str
    host: str
    pid: str
    clock: int
    why: str = "-"
    restored: tuple[int, int] | None = None
    #: ms; None for those who are no members.
    lease: int | None = None
    #: When its lease would have run out, had not a silence of the server been forgiven since it spoke.
    graced: int | None = None


@dataclass
class Job:
    """A job's run."""

    run: str
    name: str
    workers: int
    staleness: int
    lease: int
    retain: int
    reproducible: int = 0
    created: int = 0
    epoch: int = 1
    membership: int = 0
    #: By ``configure``; 0 is not written down.
    changes: int = 0
    floor: int = 0
    stop: int = 0
    started: int = 0
    last: int = 0
    time: int | None = None
    dropped: str | None = None
    ids: dict[str, Id] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    #: Entries trimmed off the log.
    trimmed: int = 0
    names: set[str] = field(default_factory=set)

    @property
    def members(self) -> dict[str, Id]:
        return {worker: known for worker, known in self.ids.items() if known.why == "-"}

    @property
    def low(self) -> int:
        if not self.started:
            return self.floor
        return min((known.clock for known in self.members.values()), default=self.floor)

    @property
    def end(self) -> int:
        return self.trimmed + len(self.log)


class Protocol:
    """One job (or none yet), and what it has published since :attr:`published` was emptied last."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self.published: list[str] = []

    def copy(self) -> Protocol:
        return copy.deepcopy(self)

    # -- the calls ---------------------------------------------------------------------------------------------------

    def join(
        self,
        microseconds: int,
        worker: str,
        nonce: str,
        known: int,
        host: str,
        pid: str,
        name: str = "",
        workers: str = "",
        staleness: str = "",
        lease: str = "",
        retain: str = "",
        reproducible: str = "",
    ) -> str:
        job = self.job
        begins = job is None or name not in ("", job.name)
        if job is not None and begins:
            if job.members:
                return f"-5 run {job.name} {name} members"
            if name in job.names:
                return f"-5 run {job.name} {name} used"
        if job is not None and not begins:
            for what, given, stored in (
                ("workers", workers, job.workers),
                ("staleness", staleness, job.created),
                ("lease", lease, job.lease),
            ):
                if given not in ("", str(stored)):
                    return f"-5 {what} {stored} {given}"
            if reproducible and bool(int(reproducible)) != bool(job.reproducible):
                return f"-5 reproducible {job.reproducible} {reproducible}"
            held = job.ids.get(worker)
            if held is not None and held.nonce == nonce:
                return f"-3 {held.why}" if held.why != "-" else self._joined(worker)
            if known != (held.incarnation if held else 0):
                return f"-6 {held.incarnation} {held.host} {held.pid} {held.why}" if held else "-6 0 ? 0 -"
            if held is None and job.reproducible and len(job.ids) >= job.workers:
                return f"-5 worker {job.workers} {worker}"
        elif known != 0:
            return "-6 0 ? 0 -"
        if begins:
            bound = int(staleness or 0)
            new = Job(nonce, name or "1", int(workers or 1), bound, int(lease or 10_000), int(retain or 604_800_000))
            new.created, new.reproducible = bound, int(reproducible or 0)
            new.names = {*(job.names if job else ()), new.name}
            if job is not None:
                new.last, new.time, new.dropped = job.last, job.time, job.run
                new.changes = job.changes
            self.job = job = new
        assert job is not None
        milliseconds = microseconds // 1000
        job.last = max(job.last + 1, microseconds)
        job.floor = max(job.floor, job.low)
        clock = max(job.ids[worker].clock if worker in job.ids else 0, job.floor)
        job.ids[worker] = Id(job.last, nonce, host, pid, clock, lease=milliseconds + job.lease)
        if job.time is None:
            job.time = milliseconds
        self._append(f"j:{worker}:{job.last}:{clock}:-:")
        self._membership_changed()
        if not job.started:
            self._start_if(self._quorum(milliseconds))
        self._announce()
        return self._joined(worker)

    def tick(
        self, run: str, epoch: int, worker: str, incarnation: int, clock: int, wanted: int, note: str, known: int
    ) -> str:
        refusal = self._refusal(run, epoch, worker, incarnation, clock)
        if refusal:
            return refusal
        job = self._here()
        held = job.ids[worker]
        if held.clock < wanted:
            if held.clock != clock:
                return "-4"
            before = job.low
            held.clock = wanted
            self._append(f"t:{worker}:{incarnation}:{wanted}:{note}")
            if job.low != before:
                last = job.log[-min(len(job.members), 16) :]
                pushed = f" {job.end} {' '.join(last)}" if job.staleness == 0 and note != "-:" else ""
                self._announce(pushed if len(pushed) < 900 else "")
        answer = self._standing(held.clock)
        if known < 0:
            return answer
        others = [other.clock for name, other in job.members.items() if name != worker]
        answer += f" {min(others) if others else '-'}"
        if known < job.trimmed or job.end - known > 4096:
            return f"{answer} !"
        return " ".join([answer, *job.log[known - job.trimmed :]])

    def sync(
        self,
        microseconds: int,
        run: str,
        epoch: int,
        worker: str,
        incarnation: int,
        clock: int,
        position: int,
        tag: str,
        nonce: str,
        host: str,
        pid: str,
    ) -> str:
        job = self.job
        now = microseconds // 1000
        changed = False
        if job is None or job.run != run:
            return "-1"
        if worker:
            refusal = self._refusal(run, epoch, worker, incarnation, clock)
            if refusal and refusal != "-4":
                return refusal
            changed = self._reconcile(epoch, worker, incarnation, clock, position, tag, nonce, host, pid)
        assert job.time is not None
        gap = now - job.time
        for member in job.members.values():
            if member.lease is not None and (gap > job.lease / 2 or gap < 0):
                before, first = member.lease, member.graced is None
                if first or before > now + job.lease:
                    member.lease = now + job.lease
                if first:
                    member.graced = before
        job.time = now
        if worker:
            job.ids[worker].lease, job.ids[worker].graced = now + job.lease, None
        expired = sorted(
            ((member.lease or 0, name) for name, member in job.members.items() if (member.lease or 0) <= now)
        )
        for _, name in expired if job.reproducible != 1 else []:
            self._depart(name, "lost")
            changed = True
        if not job.started and self._quorum(now):
            self._start_if(True)
            changed = True
        if changed:
            self._announce()
        others = [(known.lease or 0) - now for name, known in job.members.items() if name != worker]
        mine = job.ids[worker] if worker else None
        restored = "{}:{}".format(*mine.restored) if mine and mine.restored else "-"
        last = f"{job.end - 1} {job.log[-1]}" if job.log else "-1 -"
        standing = self._standing(mine.clock if mine else 0)
        return f"{standing} {len(job.members)} {min(others, default=-1)} {restored} {last}"

    def leave(self, run: str, epoch: int, worker: str, incarnation: int, clock: int, why: str) -> str:
        refusal = self._refusal(run, epoch, worker, incarnation, clock)
        if refusal and not refusal.startswith("-3"):
            return refusal
        job = self._here()
        if not refusal:
            self._depart(worker, why)
            self._announce()
        return f"{self._standing(job.ids[worker].clock)} {len(job.members)}"

    def configure(self, run: str, name: str, changes: int, new: str) -> str:
        job = self.job
        if job is None or job.run != run:
            return "-1"
        if new != str(getattr(job, name)):
            if changes != job.changes:
                return f"-8 {job.changes}"
            if name == "staleness" and job.reproducible:
                return "-12 reproducible"
            setattr(job, name, int(new))
            job.changes += 1
            self._announce()
        return self._standing(0)

    # -- what they share ---------------------------------------------------------------------------------------------

    def _here(self) -> Job:
        assert self.job is not None
        return self.job

    def _refusal(self, run: str, epoch: int, worker: str, incarnation: int, clock: int) -> str:
        """Why this caller may not act, "" if it may."""
        job = self.job
        if job is None or job.run != run:
            return "-1"
        held = job.ids.get(worker)
        if held is None:
            return "-4" if job.ids else "-1"
        if held.incarnation > incarnation:
            return f"-2 {held.host} {held.pid}"
        if held.incarnation == incarnation and held.why != "-":
            return f"-3 {held.why}"
        return "-4" if held.incarnation < incarnation or held.clock < clock or job.epoch != epoch else ""

    def _reconcile(
        self,
        epoch: int,
        worker: str,
        incarnation: int,
        clock: int,
        position: int,
        tag: str,
        nonce: str,
        host: str,
        pid: str,
    ) -> bool:
        """If the store is behind the caller: a new epoch, and the caller's clock is what it states."""
        job = self._here()
        held = job.ids.get(worker)
        stored = held.clock if held else -1
        same = held is not None and held.incarnation == incarnation
        behind = epoch < job.epoch
        unknown = job.trimmed <= position and (position >= job.end or job.log[position - job.trimmed] != tag)
        if same and stored >= clock and epoch <= job.epoch and not (unknown and not behind):
            return False
        if not behind or max(stored, clock) < job.low:
            job.epoch = max(job.epoch, epoch) + 1
        lost = max(stored, 0)
        if held and same and held.restored and held.restored[0] > epoch:
            lost = min(lost, held.restored[1])
        kept = held if held and held.why == "-" else None
        new = Id(incarnation, nonce, host, pid, max(stored, clock), restored=(job.epoch, lost))
        new.lease, new.graced = (kept.lease, kept.graced) if kept else (None, None)
        job.ids[worker] = new
        job.last = max(job.last, incarnation)
        self._append(f"r:{worker}:{incarnation}:{new.clock}:-:{lost}")
        job.floor = min(job.floor, new.clock)
        self._membership_changed()
        if not job.started:
            self._start_if(new.clock > 0)
        return True

    def _depart(self, worker: str, why: str) -> None:
        job = self._here()
        job.floor = max(job.floor, job.low)
        held = job.ids[worker]
        held.why, held.lease, held.graced = why, None, None
        if why != "done" and job.started and job.reproducible == 1:
            job.reproducible = 2
        self._append(f"l:{worker}:{held.incarnation}:{held.clock}:-:{why}")
        self._membership_changed()

    def _membership_changed(self) -> None:
        job = self._here()
        job.floor = max(job.floor, job.low)
        job.membership += 1

    def _quorum(self, now: int) -> bool:
        """Are so many members there that have spoken within their lease?"""
        job = self._here()
        spoken = [known for known in job.members.values() if (known.lease or 0) > now and known.graced is None]
        return len(spoken) >= job.workers

    def _start_if(self, ready: bool) -> None:
        job = self._here()
        if ready:
            job.started = 1
            job.floor = max(job.floor, job.low)

    def _append(self, tag: str) -> None:
        job = self._here()
        job.log.append(tag)
        if len(job.log) >= 2048 and len(job.log) % 1024 == 0:
            job.trimmed += len(job.log) - 1024
            job.log = job.log[-1024:]

    def _where(self) -> str:
        job = self._here()
        return f"{job.epoch} {job.low} {job.staleness} {job.membership} {job.stop} {job.started}"

    def _standing(self, clock: int) -> str:
        return f"0 {self._where()} {clock} {self._here().end}"

    def _announce(self, more: str = "") -> None:
        self.published.append(f"{self._here().run} {self._where()}{more}")

    def _joined(self, worker: str) -> str:
        job = self._here()
        held = job.ids[worker]
        words = [self._standing(held.clock), held.incarnation, job.run, len(job.members), job.workers, job.lease]
        words += [job.reproducible, job.end - 1, job.log[-1], *([job.dropped] if job.dropped else [])]
        return " ".join(map(str, words))

    # -- the keys ----------------------------------------------------------------------------------------------------

    def keys(self) -> dict[str, object]:
        """The keys as the scripts keep them."""
        job = self.job
        if job is None:
            empty = {key: {} for key in ("config", "clocks", "order", "ids", "leases", "graced")}
            return empty | {"log": [], "runs": [], "expires": 0}
        config = {"schema": "1", "off": job.trimmed, "tables": 0}
        for name in ("run", "name", "epoch", "membership", "workers", "created", "staleness", "lease", "retain"):
            config[name] = getattr(job, name)
        for name in ("floor", "stop", "started", "last", "time", "reproducible", "dropped"):
            config[name] = getattr(job, name)
        config["changes"] = job.changes or None
        members = job.members

        def record(known: Id) -> str:
            restored = "{}:{}".format(*known.restored) if known.restored else "-"
            return f"{known.incarnation} {known.why} {known.nonce} {known.host} {known.pid} {restored}"

        return {
            "config": {name: str(value) for name, value in config.items() if value is not None},
            "clocks": {worker: str(known.clock) for worker, known in job.ids.items()},
            "order": {worker: str(known.clock) for worker, known in members.items()},
            "ids": {worker: record(known) for worker, known in job.ids.items()},
            "leases": {worker: str(known.lease) for worker, known in members.items()},
            "log": list(job.log),
            "graced": {worker: str(known.graced) for worker, known in members.items() if known.graced is not None},
            "runs": sorted(job.names),
            "expires": 0 if members else 1,
        }
