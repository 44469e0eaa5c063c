"""What must hold after every move: the guarantees of the clock, each a function that names what it found broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from .engine import NOW_MS, SECONDS, Outcome, Server
from .moves import Bounds, Move
from .world import (
    CHANGES,
    EXPIRED,
    LIVE,
    RECENT,
    Record,
    Truth,
    World,
    floor_of,
    holders,
    is_member,
    record,
    still_since,
    truth,
)


@dataclass
class Step:
    """A call, the world before it and the world after it."""

    before: World
    move: Move
    outcome: Outcome
    after: World
    bounds: Bounds

    @cached_property
    def code(self) -> int:
        return int(self.outcome.answer.split(" ", 1)[0])

    @cached_property
    def words(self) -> list[str]:
        return self.outcome.answer.split(" ")[1:]

    @cached_property
    def changed(self) -> bool:
        return self.outcome.after is not None

    @cached_property
    def old(self) -> Truth | None:
        return truth(self.before.server)

    @cached_property
    def new(self) -> Truth | None:
        return truth(self.after.server)

    @cached_property
    def same_run(self) -> bool:
        return self.before.server["config"].get("run") == self.after.server["config"].get("run")

    @cached_property
    def held(self) -> Record | None:
        """What the store remembered of the worker before the call."""
        return record(self.before.server, self.move.worker)

    @cached_property
    def dead(self) -> bool:
        """Had the store seen the caller's incarnation end, or another run begin?"""
        caller, held = self.move.caller, self.held
        if caller is None or self.move.kind not in ("tick", "sync", "leave", "evict"):
            return False
        if caller.run != self.before.server["config"].get("run"):
            return True
        if held is None:
            return False
        return held.incarnation > caller.incarnation or (held.incarnation == caller.incarnation and held.why != "-")

    @cached_property
    def tired(self) -> bool:
        """Does a worker that is blocked sync, and say so?"""
        if self.move.kind != "sync" or self.code != 0 or self.move.call is None or not self.move.call.arguments[10:]:
            return False
        return self.old is not None and not self.old.admits(int(self.before.server["clocks"][self.move.worker]))

    @cached_property
    def knew_more(self) -> bool:
        """Had the caller seen something of the job that the store did not have when it called?"""
        caller, server = self.move.caller, self.before.server
        if caller is None or caller.phase == "joining" or self.dead:
            return False
        stored = int(server["clocks"].get(self.move.worker, -1))
        if stored < caller.clock or self.held is None or self.held.incarnation < caller.incarnation:
            return True
        epoch = int(server["config"]["epoch"])
        if caller.epoch > epoch:
            return True
        if caller.epoch < epoch or caller.position < 0:
            return False
        log = server["log"]
        return caller.position >= len(log) or log[caller.position] != caller.tag


Rule = Callable[[Step], "str | None"]


def refusals_write_nothing(step: Step) -> str | None:
    if step.code != 0 and (step.changed or step.outcome.published):
        return f"it was refused ({step.outcome.answer}) and yet changed something"
    return None


def the_dead_change_nothing(step: Step) -> str | None:
    if step.dead and step.changed:
        return "an incarnation that had ended changed the job"
    if step.dead and step.code == 0 and step.move.kind not in ("leave", "evict"):
        return f"an incarnation that had ended was not refused: {step.outcome.answer}"
    return None


def replays_are_answered_alike(step: Step) -> str | None:
    outcome = step.outcome
    if outcome.after_again is not None or outcome.published_again:
        return f"the same call again changed the job once more, and answered {outcome.again}"
    if outcome.again != outcome.answer:
        return f"the same call again was answered {outcome.again}, not {outcome.answer}"
    return None


def changes_are_made_once(step: Step) -> str | None:
    """What is said late, when there were other changes, changes nothing."""
    if step.move.kind != "configure" or not step.changed:
        return None
    stated = step.move.call.arguments[2]
    return f"a change that knew of {stated} before was made after {CHANGES}" if stated != CHANGES else None


def changes_are_published(step: Step) -> str | None:
    """What is announced when it changes, and only then: who waits knows the truth from it alone."""
    if step.old == step.new:
        return f"published {step.outcome.published} though nothing changed" if step.outcome.published else None
    if not step.outcome.published:
        return f"{step.old} became {step.new}, and nobody was told"
    if Truth.of_message(step.outcome.published[-1]) != step.new:
        return f"{step.new} was announced as {step.outcome.published[-1]}"
    return None


def nobody_admissible_is_blocked(step: Step) -> str | None:
    for worker, process in step.after.current.items():
        if process is None or process.phase != "waiting" or not process.connected:
            continue
        concerned = is_member(step.after.server, process, worker) and process.epoch == step.new.epoch
        if concerned and step.new.admits(process.clock):
            return f"worker {worker} at clock {process.clock} may run and was not told"
    return None


def admission_keeps_the_bound(step: Step) -> str | None:
    for worker, process in step.after.current.items():
        if process is None or process.phase != "running" or process.pending or not process.connected:
            continue
        if process != step.before.current[worker] and process.run != step.new.run:
            return f"worker {worker} of run {process.run} was admitted by run {step.new.run}"
        if not is_member(step.after.server, process, worker) or process.epoch != step.new.epoch:
            continue
        earlier = step.before.current[worker]
        if process != earlier and not step.new.admits(process.clock):
            return f"worker {worker} was admitted at clock {process.clock} with {step.new}"
        if process.clock - step.new.low > process.bound:
            return f"worker {worker} was admitted at {process.clock} and is more than {process.bound} ahead: {step.new}"
    return None


def min_and_floor_never_fall(step: Step) -> str | None:
    if step.old is None or not step.same_run:
        return None
    if step.new.epoch < step.old.epoch:
        return f"the epoch fell from {step.old.epoch} to {step.new.epoch}"
    if step.new.epoch == step.old.epoch:
        if step.new.low < step.old.low:
            return f"the min fell from {step.old.low} to {step.new.low} within epoch {step.old.epoch}"
        if floor_of(step.after.server) < floor_of(step.before.server):
            return "the floor fell"
    return None


def membership_is_versioned(step: Step) -> str | None:
    if step.old is None or not step.same_run:
        return None

    def members(server: Server) -> dict[str, int | None]:
        return {worker: (known := record(server, worker)) and known.incarnation for worker in server["order"]}

    if members(step.before.server) != members(step.after.server) and step.new.membership <= step.old.membership:
        return "the members changed and the membership version did not rise"
    return None


def keys_agree(step: Step) -> str | None:
    server = step.after.server
    config = server["config"]
    if not config:
        return None
    members = {worker for worker in server["ids"] if record(server, worker).why == "-"}
    if not (members == set(server["order"]) == set(server["leases"])):
        return f"members {members}, order {set(server['order'])}, leases {set(server['leases'])}"
    if set(server["ids"]) != set(server["clocks"]) or not set(server["graced"]) <= members:
        return "ids, clocks and graced disagree"
    if any(server["clocks"][worker] != clock for worker, clock in server["order"].items()):
        return f"the order has {server['order']}, the clocks are {server['clocks']}"
    if any(record(server, worker).incarnation > int(config["last"]) for worker in server["ids"]):
        return "an incarnation is beyond the last handed out"
    if server["expires"] != (0 if members else 1):
        return f"{len(members)} members, and the keys' expiry is {server['expires']} (0 none, 1 all, 2 some)"
    if members and floor_of(server) > min(map(int, server["order"].values())):
        return "a member is below the floor"
    return None


def the_log_tells_it_all(step: Step) -> str | None:
    """Every change of a clock or of the membership is one entry, in order; nothing else is."""
    if not step.changed:
        return None
    before, server = step.before.server, step.after.server
    log = server["log"]
    new = log[len(before["log"]) if step.same_run and before["config"] else 0 :]
    if step.same_run and log[: len(log) - len(new)] != before["log"]:
        return "entries of the log changed"
    expected = set()
    for worker, clock in server["clocks"].items():
        known, earlier = record(server, worker), record(before, worker)
        moved = before["clocks"].get(worker) != clock or not step.same_run
        if moved or known != earlier:
            expected.add((worker, known.incarnation, clock))
    entries = [entry.split(":") for entry in new]
    if {(worker, int(incarnation), clock) for _, worker, incarnation, clock, *_ in entries} != expected:
        return f"the log got {new} for {expected}"
    return None


def incarnations_are_unique(step: Step) -> str | None:
    if step.move.kind != "join" or not step.changed:
        return None
    joined, world = record(step.after.server, step.move.worker), step.before
    known = [int(world.server["config"].get("last", 0))]
    known += [process.incarnation for process in (*world.current.values(), *world.former.values()) if process]
    if world.backup:
        known.append(int(world.backup["config"]["last"]))
    if joined.incarnation <= max(known):
        return f"incarnation {joined.incarnation - SECONDS * 1_000_000} is not new: {known}"
    return None


def joins_are_fenced_and_resume(step: Step) -> str | None:
    if step.move.kind != "join" or not step.changed:
        return None
    server = step.before.server
    if step.same_run:
        known = step.held.incarnation if step.held else 0
        if known != step.move.caller.known:
            return "a join that knew another incarnation took the id over"
        expected = max(int(server["clocks"].get(step.move.worker, 0)), step.old.low, floor_of(server))
        if int(step.after.server["clocks"][step.move.worker]) != expected:
            return f"it joined at {step.after.server['clocks'][step.move.worker]}, not at {expected}"
    elif server["order"]:
        return "a run was replaced that had members"
    return None


def the_quorum_starts_it(step: Step) -> str | None:
    if step.new is None or (step.old and step.same_run and step.old.started == "1" == step.new.started):
        return None
    ticked = any(int(clock) for clock in step.after.server["clocks"].values())
    if step.new.started == "1" and len(step.after.server["ids"]) < step.bounds.starters and not ticked:
        return "it started without its quorum"
    # who has not spoken within its lease is not counted, nor, until it does, who was given a new one
    after = step.after.server
    there = [worker for worker, score in after["leases"].items() if score != EXPIRED and worker not in after["graced"]]
    if step.new.started == "0" and len(there) >= step.bounds.starters:
        return "the quorum is there, and it has not started"
    return None


def the_living_are_not_reaped(step: Step) -> str | None:
    """A sync renews the caller's lease first; after a silence of the server nobody is judged by it."""
    if step.move.kind not in ("sync", "observe") or step.code != 0:
        return None
    before, server = step.before.server, step.after.server
    worker, caller = step.move.worker, step.move.caller
    if caller and not step.dead and server["leases"].get(worker) != LIVE:
        return "it synced and has no lease"
    if caller and not step.dead and not is_member(server, caller, worker):
        return "it synced and is no member"
    silent = before["config"]["time"] != RECENT
    for other, score in before["leases"].items():
        if other in server["leases"] or other == worker:
            continue
        left = record(server, other)
        if left and left.why == "evicted":
            if not step.tired or (other, left.incarnation) not in step.before.stood:
                return f"worker {other} was evicted though it had not held the min for long"
            continue
        if int(score) > NOW_MS:
            return f"worker {other} was removed though its lease had not run out"
        if silent and other not in step.before.renewed:
            return f"worker {other} was removed for the server's own silence"
    return None


def the_dead_are_reaped(step: Step) -> str | None:
    if step.move.kind not in ("sync", "observe") or step.code != 0:
        return None
    for worker, score in step.after.server["leases"].items():
        if score != LIVE:
            return f"the lease of worker {worker} is {'over' if score == EXPIRED else score} and it stays"
    for worker in step.after.renewed:
        if worker in step.before.renewed and step.before.server["leases"].get(worker) == EXPIRED:
            return f"the lease of worker {worker} was renewed twice though it never spoke"
    return None


def who_stands_still_is_evicted(step: Step) -> str | None:
    """A blocked worker had looked, and nothing moved for as long as it has patience: who was there then is out."""
    since, same = still_since(step.before.server), step.old and step.new and step.old.epoch == step.new.epoch
    if step.tired and same and since is not None and since < NOW_MS and step.before.server["config"]["time"] == RECENT:
        newest = int(step.before.server["config"]["still"].split(" ")[2])
        for worker, incarnation in set(step.before.stood) & set(holders(step.before.server)):
            held = record(step.after.server, worker)
            if incarnation <= newest and held and held.why == "-":
                return f"worker {worker} has held the min for long, and it stays"
    return None


def losses_are_noticed(step: Step) -> str | None:
    """Who knew more than the store has finds out at its first sync, before anything of it counts."""
    if not step.knew_more or step.code != 0 or step.move.kind not in ("sync", "tick"):
        return None
    caller, server = step.move.caller, step.after.server
    if step.move.kind == "tick":
        if not step.move.heard:
            return None  # it came late: the worker's next sync still finds out
        return "the store was behind the worker, and took its tick as if nothing had happened"
    if step.new.epoch <= caller.epoch:
        return "the store was behind the worker, and no epoch began"
    stored = int(step.before.server["clocks"].get(step.move.worker, 0))
    if stored < caller.clock:
        epoch, first = record(server, step.move.worker).restored.split(":")
        if int(server["clocks"][step.move.worker]) < caller.clock or int(first) > stored or int(epoch) <= caller.epoch:
            return f"ticks {stored} to {caller.clock} were lost, the record says {epoch}:{first}"
        if not any(entry.startswith(f"r:{step.move.worker}:") for entry in server["log"][-1 - len(server["ids"]) :]):
            return "the loss is not in the log"
    return None


def the_epoch_is_known(step: Step) -> str | None:
    """Who has not heard of an epoch may hold views of another past: it is sent to sync, and nothing it says counts."""
    if step.move.kind == "tick" and step.code == 0:
        stated = step.move.call.arguments[1]
        if int(stated) != step.old.epoch:
            return f"a tick of epoch {stated} counted in epoch {step.old.epoch}"
    return None


def losses_reach_their_worker(step: Step) -> str | None:
    """What a heartbeat had restored unheard is told to the worker at its next sync."""
    caller = step.move.caller
    if step.move.kind != "sync" or not step.move.heard or step.code != 0 or caller.owed < 0:
        return None
    restored = step.words[10]
    if restored == caller.restored or int(restored.split(":")[1]) > caller.owed:
        return f"its ticks from {caller.owed} on had been lost; it was told {restored}"
    return None


RULES: list[Rule] = [
    refusals_write_nothing,
    the_dead_change_nothing,
    replays_are_answered_alike,
    changes_are_made_once,
    changes_are_published,
    nobody_admissible_is_blocked,
    admission_keeps_the_bound,
    min_and_floor_never_fall,
    membership_is_versioned,
    keys_agree,
    the_log_tells_it_all,
    incarnations_are_unique,
    joins_are_fenced_and_resume,
    the_quorum_starts_it,
    the_living_are_not_reaped,
    the_dead_are_reaped,
    who_stands_still_is_evicted,
    losses_are_noticed,
    the_epoch_is_known,
    losses_reach_their_worker,
]


#: Those that a call can break which changed nothing and whose answer nobody heard.
_OF_ANSWERS: list[Rule] = [
    the_dead_change_nothing,
    replays_are_answered_alike,
    the_living_are_not_reaped,
    the_dead_are_reaped,
    who_stands_still_is_evicted,
    losses_are_noticed,
    the_epoch_is_known,
]


def broken(step: Step) -> Iterator[str]:
    """What the step broke."""
    quiet = step.after is step.before and not step.outcome.published
    for rule in _OF_ANSWERS if quiet else RULES:
        found = rule(step)
        if found:
            yield f"{rule.__name__.replace('_', ' ')}: {found}"
