"""What a worker does next and what it makes of an answer: the rules of ``ssp_redis``, in small.

Every function names the place whose rule it states. The flags of :class:`Client` take single rules out: the faults.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ssp_redis.store.log import Tag
from ssp_redis.store.view import Taken

from .engine import Call
from .world import KEYS, RUN, Facts, Late, Process, base_head, by_clock, delta_head, is_base_head, parsed, version_of

NO_BASE = (-1, -1)


@dataclass(frozen=True)
class Client:
    """How workers behave."""

    shares: int = 1
    slots: int = 1
    #: Deltas stand in the tag.
    inline: bool = False
    #: Deltas are summed in the order (clock, worker), complete clocks only.
    reproducible: bool = False
    # -- the faults
    #: Syncs first on a new connection (``Clock._greet``).
    greets: bool = True
    #: After an error in a push the ring is renewed (``Clock._state_tick``).
    renews: bool = True
    #: Waits until every base has what is in a slot (``Store._make_room``).
    waits: bool = True
    #: A view serves for so many clocks more than it may (``Taken.serves``).
    extra: int = 0
    #: A view of another membership does not serve (``Taken.serves``).
    counts_members: bool = True
    #: Who comes second deletes its scratch.
    cleans: bool = False
    #: Scratch has the incarnation in its key (``StoreKeys.scratch``).
    own_scratch: bool = True
    #: Rings have the incarnation in their name (``Ring.name``).
    own_rings: bool = True
    #: A new epoch ends all views (``Store.rolled_back``).
    forgets: bool = True
    #: After a lost connection the bases are read again before a slot is taken for free (``Store.doubt``).
    doubts: bool = True
    #: Who finds all in the bases still learns the last tag, its evidence against a rollback (``Reader.learn``).
    cites: bool = True
    #: A slot's header is compared (``View.bring``).
    looks: bool = True
    #: A sweep keeps the rings that a tag names, and those of members (``Store._sweep_now``); it reads the list of rings
    #: before the members; a ring that was swept before is swept again only after another look at the tags.
    spares_named: bool = True
    spares_members: bool = True
    rings_first: bool = True
    looks_again: bool = True
    #: At staleness 0 views go up to the own clock, in a reproducible run to the last complete one (``Reader.horizon``),
    #: and bases to the last complete one (``Reader.common``).
    stops: bool = True
    #: A base of a part of a clock is not put in the place of another (``early.allowed``), and who may not read it yet
    #: begins with the one before (``early.before``).
    one_at_a_time: bool = True
    steps_back: bool = True
    #: Of tags that every base holds, how many stay (``early.KEPT``).
    kept: int = 1
    #: Reproducible runs are summed in the order of clocks and workers (``View.lacking``).
    sorts: bool = True
    #: Rings are named at all: somebody sweeps.
    names: bool = False
    #: After a lost connection the ring is named again (``Store.doubt``).
    names_again: bool = True

    # -- keys --------------------------------------------------------------------------------------------------------

    def slot_key(self, share: int, worker: str, incarnation: int, ring: int, slot: int) -> str:
        """``StoreKeys.slot``."""
        return KEYS.slot(0, share, f"{worker}:{incarnation if self.own_rings else 0}:{ring}", slot)

    def scratch_key(self, share: int, process: Process) -> str:
        """``making.scratch_of``."""
        return KEYS.scratch(0, share, process.incarnation if self.own_scratch else 0)

    # -- joining and syncing -----------------------------------------------------------------------------------------

    def joined(self, worker: str, nonce: str, words: list[str]) -> Process:
        """``Clock._adopt``, and ``Store`` with the table opened (``Reader.open``)."""
        at = next(number for number, word in enumerate(words) if ":" in word)
        return Process(
            worker=worker,
            nonce=nonce,
            incarnation=int(words[8]),
            epoch=int(words[0]),
            clock=int(words[6]),
            low=int(words[1]),
            membership=int(words[3]),
            position=int(words[at - 1]),
            tag=words[at],
            staleness=int(words[2]),
            started=words[5] == "1",
            taken=(0,) * self.slots,
            bases=(NO_BASE,) * self.shares,
            versions=(-1,) * self.shares,
            master=("",) * self.shares,
            named=not self.names,
        )

    @staticmethod
    def statement(process: Process) -> list[str]:
        return [RUN, str(process.epoch), process.worker, str(process.incarnation), str(process.clock)]

    def sync_call(self, process: Process) -> Call:
        """``Clock._greet``."""
        evidence = [str(process.position), process.tag]
        return Call("sync", (*self.statement(process), *evidence, process.nonce, "host", "7", ""))

    def reconciled(self, process: Process, words: list[str]) -> Process:
        """``Clock._reconcile`` and ``Store.rolled_back``."""
        epoch, clock, end, restored = int(words[0]), int(words[6]), int(words[7]), words[10]
        changed = restored != process.restored
        if process.pending and clock == process.pending and not changed:
            process = self.completed(process, end)
        fresh = epoch != process.epoch
        process = process._replace(epoch=epoch, position=int(words[11]), tag=words[12], step=())
        if self.doubts and not process.wire:
            process = process._replace(
                doubted=True, mail=(), named=process.named and not (self.names and self.names_again)
            )
        process = process._replace(connected=True, wire=True)
        if fresh or changed:
            first = int(restored.split(":")[1]) if changed else process.clock
            process = self._rolled_back(process, first)._replace(restored=restored)
            if clock > process.clock:  # Clock._rebase
                pending = process.pending and process.pending + clock - process.clock
                process = process._replace(clock=clock, pending=pending)
        return self.noted(process, words)

    def _rolled_back(self, process: Process, first: int) -> Process:
        """``Store.rolled_back``: what is held of the lost ticks rides on the next push, the rest is named."""
        if self.forgets:
            process = process._replace(view=None, versions=(-1,) * self.shares)
        process = process._replace(known=False, start=0, tags=(), bases=(NO_BASE,) * self.shares, store_epoch=-1)
        process = self.renewed(process)
        riding = [delta for clock, delta in process.held if clock > first]
        lost = [clock for clock, _ in process.acked if clock > first]
        return process._replace(
            held=tuple((clock, delta) for clock, delta in process.held if clock <= first),
            open="+".join(filter(None, [process.open, *riding])),
            acked=tuple((clock, delta) for clock, delta in process.acked if clock not in lost),
        )

    @staticmethod
    def noted(process: Process, words: list[str]) -> Process:
        """``Clock._note`` of a standing of this epoch."""
        return process._replace(
            low=int(words[1]), staleness=int(words[2]), membership=int(words[3]), started=words[5] == "1"
        )

    def heard(self, process: Process, words: list[str]) -> Process:
        """``Clock._hear`` of one who waits, and ``Reader.overhear``."""
        run, *words = words
        if run != RUN:
            return process
        if int(words[0]) != process.epoch:
            return process._replace(connected=False)
        before = process.low
        process = self.noted(process, words)
        process = process._replace(low=max(before, process.low))
        if len(words) < 7:
            return process
        end, tags = int(words[6]), tuple(words[7:])
        known = process.end
        if not process.known or process.store_epoch != process.epoch or not end - len(tags) <= known < end:
            return process
        process = process._replace(
            tags=process.tags + tags[known - end :],
            store_membership=int(words[3]),
            others=int(words[1]),
            at=process.clock,
            own=process.clock,
            complete=int(words[1]),
        )
        return self._seen(process)

    @staticmethod
    def _seen(process: Process) -> Process:
        """``Clock.seen``."""
        if process.tags and process.end - 1 > process.position:
            return process._replace(position=process.end - 1, tag=process.tags[-1])
        return process

    # -- pushing -----------------------------------------------------------------------------------------------------

    def has_room(self, process: Process) -> bool:
        """``Store._make_room``: have all bases, as known here, what was in the slot whose turn it is?"""
        if self.inline or not self.waits or not process.taken[process.turn]:
            return True
        if process.doubted:
            return False
        return min(max(version, 0) for version, _ in process.bases) >= process.taken[process.turn]

    def renewed(self, process: Process) -> Process:
        """``Ring.renew``."""
        return process._replace(ring=process.ring + 1, turn=0, taken=(0,) * self.slots, named=not self.names)

    # -- sweeping ----------------------------------------------------------------------------------------------------

    def ring_name(self, process: Process) -> str:
        """``Ring.name``."""
        return f"{process.worker}:{process.incarnation if self.own_rings else 0}:{process.ring}"

    def doubtful(
        self, process: Process, rings: tuple[str, ...], live: tuple[str, ...], late: tuple[Late, ...]
    ) -> tuple[str, ...]:
        """``Store._sweep_now``: which of the rings are not those of members?"""
        found = set(process.swept) if self.looks_again else set()
        for ring in rings:
            _, incarnation, number = ring.split(":")
            if incarnation == str(process.incarnation):
                # a minute after it was given up nothing is on its way to it any more
                settled = int(number) < process.ring and all(one.incarnation != process.incarnation for one in late)
                found |= {ring} if settled else set()
            elif incarnation not in live or not self.spares_members:
                found.add(ring)
        return tuple(sorted(found))

    def doomed(self, doubtful: tuple[str, ...], tags: list[str]) -> tuple[str, ...]:
        """``Store._sweep_now``: which of them does no tag name?"""
        named = {parsed(tag).ring for tag in tags} if self.spares_named else set()
        return tuple(ring for ring in doubtful if ring not in named)

    def begins_tick(self, process: Process, bare: bool) -> Process:
        """``Store.prepare`` and ``Clock.advance``, or a repetition (``Clock._state_tick``)."""
        if not process.pending:
            atom = f"{process.worker}.{process.incarnation % 1000}.{process.clock}"
            delta = "" if bare else "+".join(filter(None, [process.open, atom]))
            process = process._replace(pending=process.clock + 1, attempts=0, frozen=delta)
            if delta:
                process = process._replace(open="")
        if process.attempts and process.frozen and self.renews and not self.inline:
            process = self.renewed(process)
        slotted = process.frozen and not self.inline
        step: tuple[Any, ...] = ("set", 0) if slotted else ("tick",)
        return process._replace(attempts=process.attempts + 1, step=step)

    def set_of(self, process: Process, share: int) -> tuple[str, str]:
        """``TablePush._blocks``: key and text of one block."""
        head = delta_head(share, process.incarnation, process.pending, process.ring, process.turn)
        key = self.slot_key(share, process.worker, process.incarnation, process.ring, process.turn)
        return key, f"{head}|{process.frozen}"

    def tick_call(self, process: Process, known: bool) -> Call:
        """``TablePush.note`` and ``ClockScripts.call_tick``."""
        note = "-:"
        if process.frozen and self.inline:
            note = f"{process.ring}:0={b2a_base64(process.frozen.encode(), newline=False).decode()}"
        elif process.frozen:
            note = f"{process.ring}:0.{process.turn}"
        asks = known and process.known and process.store_epoch == process.epoch and process.attempts == 1
        position = str(process.end) if asks else "-1"
        return Call("tick", (*self.statement(process), str(process.pending), note, position))

    def ticked(self, process: Process, call: Call, words: list[str]) -> Process:
        """``Clock._state_tick`` with its answer, and ``Reader.hear``."""
        end, attempts = int(words[7]), process.attempts
        process = self.completed(process, end)
        if attempts == 1:
            # here and not in the answer: where the end of the log is after a tick that was said once
            tag = f"t:{process.worker}:{process.incarnation}:{process.clock}:{call.arguments[6]}"
            process = process._replace(position=end - 1, tag=tag)
        process = self.noted(process, words)._replace(step=())
        if len(words) > 8 and process.known and int(call.arguments[7]) == process.end:
            if words[9:] == ["!"]:
                return process._replace(known=False, start=0, tags=())
            others = None if words[8] == "-" else int(words[8])
            process = process._replace(
                tags=process.tags + tuple(words[9:]),
                store_membership=process.membership,
                others=others,
                at=process.clock,
                own=process.clock,
                complete=process.clock if others is None else min(process.clock, others),
            )
            process = self._seen(process)
        return process

    def completed(self, process: Process, end: int) -> Process:
        """``Clock._completed`` and ``TablePush.committed``."""
        clock, delta = process.pending, process.frozen
        if delta:
            taken, turn = process.taken, process.turn
            process = process._replace(
                held=(*process.held, (clock, delta)),
                acked=(*process.acked, (clock, delta)),
                taken=(*taken[:turn], end, *taken[turn + 1 :]),
                turn=(turn + 1) % self.slots,
                frozen="",
            )
        return process._replace(clock=clock, pending=0, attempts=0)

    # -- reading -----------------------------------------------------------------------------------------------------

    def read_call(self, process: Process) -> Call:
        """``Reader.learn``."""
        known = process.end if process.known and process.store_epoch == process.epoch else -1
        if process.step[:1] == ("cite",):
            known = process.step[1]
        return Call("read", (*self.statement(process)[:3], str(known)))

    def learned(self, process: Process, call: Call, words: list[str]) -> Process:
        """``Reader.learn`` with its answer."""
        bar = words.index("|")
        off, end, tags = int(words[4]), int(words[5]), tuple(words[bar + 1 :])
        more = self.kept if process.staleness == 0 else not tags
        if call.arguments[3] == "-1" and more and end and self.cites:
            return process._replace(step=("cite", max(off, end - len(tags) - more)))
        if call.arguments[3] == "-1" or process.step[:1] == ("cite",):
            process = process._replace(known=True, start=end - len(tags), tags=tags)
        else:
            process = process._replace(tags=process.tags + tags)
        bases = list(process.bases)
        for word in words[6:bar]:
            name, version, generation = word.split(":")
            bases[int(name.partition(".")[2])] = (int(version), int(generation))
        process = process._replace(
            step=(),
            doubted=False,
            bases=tuple(bases),
            store_epoch=int(words[0]),
            store_membership=int(words[2]),
            others=None if words[3] == "-" else int(words[3]),
            at=process.clock,
            own=process.clock,
            complete=int(words[1]),
        )
        return self._seen(process) if tags else process

    def horizon(self, process: Process) -> int:
        """``Reader.horizon``."""
        if self.reproducible:
            return self._beyond(process, process.complete) if self.stops else process.end
        held_back = process.staleness == 0 and process.others is not None and self.stops
        return self._through(process, process.clock) if held_back else process.end

    def common(self, process: Process) -> int:
        """``Reader.common``."""
        if self.reproducible:
            return self._beyond(process, process.complete)
        held_back = process.staleness == 0 and process.others is not None
        return self._through(process, process.complete) if held_back else process.end

    def _through(self, process: Process, clock: int) -> int:
        """``Log.through``."""
        end = self._beyond(process, clock)
        tags = [parsed(text) for text in process.tags]
        for place in range(end - process.start, len(tags)):
            before = [tag for tag in tags[:place] if tag.incarnation == tags[place].incarnation]
            if tags[place].kind == "t" and not (before and before[-1].kind != "r" and before[-1].clock >= clock):
                end = process.start + place + 1
        return end

    @staticmethod
    def _beyond(process: Process, clock: int) -> int:
        """``Log.beyond``."""
        end = process.end
        for place in reversed(range(len(process.tags))):
            tag = parsed(process.tags[place])
            if tag.kind == "t" and tag.clock <= clock:
                break
            if tag.kind == "t":
                end = process.start + place
        return end

    def moment(self, process: Process) -> Taken:
        """``Reader.moment``."""
        others = process.complete if self.reproducible else process.others
        if process.staleness == 0 and self.horizon(process) < process.end:
            others = process.clock if others is None else min(others, process.clock)
        return Taken(process.store_epoch, process.store_membership, others, process.at)

    def too_late(self, process: Process, shares: tuple[int, ...]) -> bool:
        """``Reader.bring``: does the log as it is known begin after what is held of a share, and after its base?"""
        return min(max(process.versions[share], process.bases[share][0]) for share in shares) < process.start

    def forgot(self, process: Process) -> Process:
        """``Log.clear``."""
        return process._replace(known=False, start=0, tags=())

    def can_bring(self, process: Process, shares: tuple[int, ...]) -> bool:
        """``Reader.bring``: may it go on from the log as it is known?"""
        if not process.known or process.store_epoch != process.epoch:
            return False
        bases = [process.bases[share] for share in shares]
        if NO_BASE in bases or max(version for version, _ in bases) > process.end:
            return False
        return not self.too_late(process, shares)

    def readable(self, process: Process, shares: tuple[int, ...], blob: Callable[[str], str]) -> Process:
        """``Reader._readable``, with ``early.before``: the bases as this process may use them."""
        bases, horizon = list(process.bases), self.horizon(process)
        for share in shares:
            version, (base, generation) = process.versions[share], bases[share]
            if base <= horizon or not self.steps_back:
                continue
            if process.start <= version <= horizon:
                bases[share] = (version, generation)
                continue
            text = blob(KEYS.base(0, share, generation - 1))
            earlier = version_of(text, share, generation - 1, process.store_epoch)
            if earlier is not None and earlier >= process.start:
                bases[share] = (earlier, generation - 1)
        return process._replace(bases=tuple(bases))

    def begins_bring(self, known: Process, shares: tuple[int, ...], blob: Callable[[str], str]) -> Process:
        """``View.plan``, and the start of ``View.bring``."""
        process = self.readable(known._replace(view=None), shares, blob)
        work: list[tuple[Any, ...]] = []
        held = [max(process.versions[share], process.bases[share][0]) for share in shares]
        end = max([self.horizon(process), *held])
        for share in shares:
            anew, tags = self._way(process, share, end)
            if anew:
                work.append(("base", share, process.bases[share][1]))
            work += [("delta", share, position) for position in tags]
        started = {share for _, share, _ in work}
        versions = tuple(-1 if share in started else version for share, version in enumerate(process.versions))
        return self._goes_on(known._replace(view=None, versions=versions), tuple(work), (), shares, end)

    def _way(self, process: Process, share: int, end: int) -> tuple[bool, list[int]]:
        """``View._way``."""
        version, base = process.versions[share], process.bases[share][0]
        lacking = self.lacking(process, version, end)
        if lacking is not None and (base <= version or self._foreign(process, lacking) < 2):
            return False, lacking
        newer = self.lacking(process, base, end)
        if lacking is None or (
            newer is not None and 1 + self._foreign(process, newer) < self._foreign(process, lacking)
        ):
            return True, newer or []
        return False, lacking

    def lacking(self, process: Process, version: int, end: int) -> list[int] | None:
        """``View.lacking``, as positions."""
        if not process.start <= version <= end:
            return None
        found = [position for position in range(version, end) if self._tag(process, position).touches(0)]
        if self.reproducible and self.sorts:
            found.sort(key=lambda position: by_clock(self._tag(process, position)))
        return found

    @staticmethod
    def _tag(process: Process, position: int) -> Tag:
        return parsed(process.tags[position - process.start])

    def _mine(self, process: Process, tag: Tag) -> bool:
        """``View._mine``."""
        return tag.incarnation == process.incarnation and any(clock == tag.clock for clock, _ in process.held)

    def _foreign(self, process: Process, positions: list[int]) -> int:
        tags = [self._tag(process, position) for position in positions]
        return sum(1 for tag in tags if 0 in tag.slots and not self._mine(process, tag))

    def fetch(self, process: Process, item: tuple[Any, ...]) -> str:
        """The key that is to be read next."""
        kind, share, what = item
        if kind == "base":
            return KEYS.base(0, share, what)
        tag = self._tag(process, what)
        return self.slot_key(share, tag.worker, tag.incarnation, tag.number, tag.slots[0])

    def fetched(self, process: Process, text: str) -> Process:
        """``View.bring``: a value arrived, ``""`` when there was none."""
        _, work, bad, shares, end = process.step
        (kind, share, what), *rest = work
        head, _, value = text.partition("|")
        if kind == "base":
            right = bool(text) and is_base_head(text, share, what, process.store_epoch)
        else:
            tag = self._tag(process, what)
            expected = delta_head(share, tag.incarnation, tag.clock, tag.number, tag.slots[0])
            right = bool(text) and (head == expected or not self.looks)
        if not right:
            bad = (*bad, share)
            # whatever else comes for this share is read and thrown away
            rest = [item for item in rest if item[1] != share]
        elif kind == "base":
            process = self._with_master(process, share, value)
        else:
            process = self._with_master(process, share, process.master[share] + value + ";")
        return self._goes_on(process, tuple(rest), bad, shares, end)

    @staticmethod
    def _with_master(process: Process, share: int, value: str) -> Process:
        return process._replace(master=(*process.master[:share], value, *process.master[share + 1 :]))

    def _goes_on(
        self, process: Process, work: tuple[Any, ...], bad: tuple[int, ...], shares: tuple[int, ...], end: int
    ) -> Process:
        """Add what needs no traffic; then the next GET, or the end of the bring."""
        while work and work[0][0] == "delta":
            _, share, position = work[0]
            tag = self._tag(process, position)
            if self._mine(process, tag):
                delta = dict(process.held)[tag.clock]
            elif 0 in tag.values:
                delta = tag.values[0].decode()
            else:
                break
            process = self._with_master(process, share, process.master[share] + delta + ";")
            work = work[1:]
        if work:
            return process._replace(step=("get", work, bad, shares, end))
        versions = list(process.versions)
        for share in shares:
            versions[share] = -1 if share in bad else end
        process = process._replace(versions=tuple(versions), step=("again",) if bad else ())
        if not bad and len(shares) == self.shares:
            process = self._settled(process)
        return process

    def _settled(self, process: Process) -> Process:
        """``Reader.settle`` and ``View.settle``."""
        done = min(process.own, process.complete) if self.reproducible else process.own
        return process._replace(
            held=tuple((clock, delta) for clock, delta in process.held if clock > done), view=self.moment(process)
        )

    def serves(self, process: Process) -> bool:
        """``Worker.fresh``: does the view serve a read now?"""
        view = process.view
        if view is None:
            return False
        membership = process.membership if self.counts_members else view.membership
        return view.serves(process.epoch, membership, process.clock - self.extra, process.staleness)

    # -- folding -----------------------------------------------------------------------------------------------------

    def begins_publish(self, process: Process, share: int) -> Process | None:
        """``Folder._publish`` up to its first command, with the log known as after a bring; None: nothing to do."""
        replaces, version = process.bases[share], process.versions[share]
        if replaces == NO_BASE or process.store_epoch != process.epoch or not process.known:
            return None
        if not max(replaces[0], process.start) < version <= process.end:
            return None
        touching = self.lacking(process, replaces[0], version)
        untouched = touching is not None and not touching
        if version > self.common(process) and (untouched or not self.early(process, replaces[0], version)):
            return None
        tag = process.tags[version - 1 - process.start]
        kind = "commit" if untouched else "scratch"
        return process._replace(step=(kind, share, replaces, version, tag, untouched))

    def early(self, process: Process, replaced: int, version: int) -> bool:
        """``early.allowed``."""
        if self.inline or self.reproducible or (replaced > self.common(process) and self.one_at_a_time):
            return False
        lately = max(process.start, version - self.kept // 2)
        return any(self._tag(process, position).touches(0) for position in range(lately, replaced))

    def scratch_of(self, process: Process) -> tuple[str, str]:
        """Key and text of the scratch that ``Folder._publish`` writes."""
        _, share, replaces, version, _, _ = process.step
        head = base_head(share, replaces[1] + 1, version, process.store_epoch)
        return self.scratch_key(share, process), f"{head}|{process.master[share]}"

    def commit_call(self, process: Process) -> Call:
        """``StoreScripts.commit``."""
        _, share, replaces, version, tag, untouched = process.step
        generation = replaces[1] + 1
        blobs: tuple[str, ...] = ()
        heads: tuple[str, ...] = ()
        if not untouched:
            blobs = (self.scratch_key(share, process), KEYS.base(0, share, generation))
            heads = (base_head(share, generation, version, process.store_epoch),)
        words = [f"0.{share}", f"{replaces[0]}:{replaces[1]}", str(version), tag, "commits"]
        return Call("commit", (*self.statement(process), *words, *heads), blobs)

    def committed(self, process: Process, code: int, words: list[str]) -> Process:
        """``Folder._publish`` with its answer."""
        share = process.step[1]
        untouched = process.step[5]
        process = process._replace(step=())
        if code in (0, -8):
            bases = list(process.bases)
            bases[share] = (int(words[0]), int(words[1]))
            process = process._replace(bases=tuple(bases))
            if code == -8 and self.cleans and not untouched:
                process = process._replace(step=("clean", share))
        return process

    def listened(self, process: Process) -> Process:
        """``Folder.listen``: a version never goes backwards."""
        bases = list(process.bases)
        for share, version, generation in process.mail:
            if bases[share] != NO_BASE and version > bases[share][0]:
                bases[share] = (version, generation)
        return process._replace(bases=tuple(bases), mail=())


def refusal_of(facts: Facts, process: Process) -> bool:
    """Have the store and the process a reason to disagree: another epoch, or a clock or record that is behind?"""
    record = facts.ids.get(process.worker)
    return (
        facts.epoch != process.epoch
        or facts.clocks.get(process.worker, -1) < process.clock
        or record is None
        or int(record[0]) < process.incarnation
    )
