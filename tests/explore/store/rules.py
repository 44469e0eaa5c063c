"""What must hold in every state and of every step, each a function that names what it found broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .client import Client, refusal_of
from .engine import Outcome
from .moves import Move
from .world import KEYS, Process, World, atoms, delta_head, facts, is_base_head, parsed, prefix


def broken_state(world: World, client: Client) -> Iterator[str]:
    """The rules of a state."""
    for rule in (the_log_is_known, no_delta_is_in_the_log_twice, bases_are_exact, deltas_are_there, rings_are_named):
        what = rule(world, client)
        if what:
            yield f"{rule.__name__.replace('_', ' ')}: {what}"
    now = facts(world.server)
    for process in world.processes:
        if process is None or not process.connected or process.epoch != now.epoch:
            continue  # it syncs before it does anything else
        for check in (
            masters_are_exact,
            reads_are_fresh,
            reads_are_of_their_clock,
            reads_are_reproducible,
            own_deltas_are_read_once,
        ):
            what = check(world, client, process)
            if what:
                yield f"{check.__name__.replace('_', ' ')}: worker {process.worker}: {what}"


def the_log_is_known(world: World, client: Client) -> str | None:
    now = facts(world.server)
    if tuple(text for text, _ in world.history[now.off :]) != now.log or now.end != len(world.history):
        return f"the log is {now.log} from {now.off} on, and was {world.history}"
    return None


def no_delta_is_in_the_log_twice(world: World, client: Client) -> str | None:
    counts = Counter(atom for _, delta in world.history for atom in atoms(delta))
    twice = [atom for atom, count in counts.items() if count > 1]
    return f"{twice}" if twice else None


def bases_are_exact(world: World, client: Client) -> str | None:
    now = facts(world.server)
    for share in range(client.shares):
        version, generation = now.bases[f"0.{share}"]
        text = world.server.blob(KEYS.base(0, share, generation))
        if version > now.end:
            return f"share {share} is at version {version}, the log ends at {now.end}"
        if not text or not is_base_head(text, share, generation, now.epoch):
            return f"share {share}: there is no base of generation {generation}"
        value = text.partition("|")[2]
        expected = prefix(world.history, version, client.reproducible)
        if value != expected:
            return f"share {share} at version {version} is {value!r}, not {expected!r}"
    return None


def deltas_are_there(world: World, client: Client) -> str | None:
    """What a base lacks is in its slot: no slot was overwritten, or never written."""
    now = facts(world.server)
    for share in range(client.shares):
        version, _ = now.bases[f"0.{share}"]
        if version < now.off:
            return f"share {share} is at version {version}, and the log begins at {now.off}"
        for text, delta in world.history[version:]:
            tag = parsed(text)
            if 0 not in tag.slots:
                continue
            slot = tag.slots[0]
            head = delta_head(share, tag.incarnation, tag.clock, tag.number, slot)
            found = world.server.blob(client.slot_key(share, tag.worker, tag.incarnation, tag.number, slot))
            if found != f"{head}|{delta}":
                return f"share {share} at version {version} lacks {delta!r}, and its slot has {found[128:]!r}"
    return None


def rings_are_named(world: World, client: Client) -> str | None:
    """What can be found can be swept: where a slot is, its ring is in the list, unless it came after a sweep."""
    if not client.names:
        return None
    known = {*world.server.rings, *world.swept}
    for key, _ in world.server.blobs:
        ring = ":".join(key.split(":")[-4:-1])
        if key.startswith("R:d:") and ring not in known:
            return f"{key} is there, and the list has {world.server.rings}"
    return None


def masters_are_exact(world: World, client: Client, process: Process) -> str | None:
    for share, version in enumerate(process.versions):
        if version < 0:
            continue
        if version > len(world.history):
            return f"its share {share} is at version {version}, the log ends at {len(world.history)}"
        expected = prefix(world.history, version, client.reproducible)
        if process.master[share] != expected:
            return f"its share {share} at {version} is {process.master[share]!r}, not {expected!r}"
    return None


def _reads(client: Client, process: Process) -> bool:
    return process.admitted and not process.pending and not process.step and client.serves(process)


def reads_are_fresh(world: World, client: Client, process: Process) -> str | None:
    """A read at clock c has every delta with a timestamp up to c − staleness − 1, and all own ones."""
    if not _reads(client, process):
        return None
    bound = process.clock - process.staleness - 1
    needed = [
        atom
        for text, delta in world.history
        if text[0] == "t" and (process.staleness >= 0 and parsed(text).clock - 1 <= bound)
        for atom in atoms(delta)
    ]
    needed += [atom for _, delta in process.acked for atom in atoms(delta)]
    excused = {atom for delta in world.excused for atom in atoms(delta)}
    for share in range(client.shares):
        missing = set(needed) - set(atoms(process.value(share))) - excused
        if missing:
            return (
                f"at clock {process.clock} its view of {process.view} serves, and share {share} lacks {sorted(missing)}"
            )
    return None


def reads_are_of_their_clock(world: World, client: Client, process: Process) -> str | None:
    """At staleness 0 a read at clock c has no other member's delta with a timestamp of c or later."""
    rolled_back = any(text[0] == "r" for text, _ in world.history)  # then a tick may hold what is older than its clock
    if process.staleness or client.reproducible or rolled_back or not _reads(client, process):
        return None
    ticks = [(parsed(text), delta) for text, delta in world.history if text[0] == "t"]
    due = {atom for tag, delta in ticks if tag.clock <= process.clock for atom in atoms(delta)}
    now = facts(world.server)
    later = [
        (tag, delta) for tag, delta in ticks if tag.clock > process.clock and not now.dead(tag.worker, tag.incarnation)
    ]
    newer = {atom for _, delta in later for atom in atoms(delta)} - due
    for share in range(client.shares):
        early = newer & set(atoms(process.value(share)))
        if early:
            return f"at clock {process.clock} share {share} has {sorted(early)}; its view is {process.view}"
    return None


def reads_are_reproducible(world: World, client: Client, process: Process) -> str | None:
    """A read at clock c has exactly the deltas with timestamps below c, in the order of clocks and workers."""
    if not client.reproducible or not _reads(client, process):
        return None
    before = tuple(entry for entry in world.history if entry[0][0] == "t" and parsed(entry[0]).clock <= process.clock)
    expected = prefix(before, len(before), True)
    for share in range(client.shares):
        if process.master[share] != expected or process.held:
            return (
                f"at clock {process.clock} it has {process.master[share]!r} and {process.held}, not {expected!r}; "
                f"its view is {process.view}"
            )
    return None


def own_deltas_are_read_once(world: World, client: Client, process: Process) -> str | None:
    if not _reads(client, process):
        return None
    for share in range(client.shares):
        counts = Counter(atoms(process.value(share)))
        twice = [atom for atom, count in counts.items() if count > 1]
        if twice:
            return f"share {share} has {twice} twice"
    return None


def broken_step(before: World, move: Move, outcome: Outcome, after: World, client: Client) -> Iterator[str]:
    """The rules of a call."""
    old, new = facts(before.server), facts(after.server)
    dead = bool(move.incarnation) and old.dead(move.worker, move.incarnation)
    code = outcome.answer.split(" ")[0]
    if code == "ERR":
        yield "scripts do not fail: the server answered with an error in the middle of a script"
    if code not in ("0", "ERR") and outcome.server != before.server:
        yield "refusals write nothing: it did"
    if dead and move.kind != "leave" and outcome.server != before.server:
        yield f"the dead change nothing: a {move.kind} of an incarnation that had ended did"
    for share in range(client.shares):
        base, now = old.bases[f"0.{share}"], new.bases[f"0.{share}"]
        if now[0] < base[0] or now[1] < base[1] or (now != base and now[0] == base[0]):
            yield f"versions only rise: the base of share {share} went from {base} to {now}"
        if now != base and move.kind != "commit":
            yield "bases move by commits only: they did not"
    process = before.processes[int(move.worker)] if move.heard else None
    if process is None:
        return
    if move.kind == "commit" and code == "-11" and not _own_late(before, process):
        yield "scratch stays until its commit: it was acknowledged, and somebody else took or changed it"
    if code == "-4" and process.connected and not refusal_of(old, process):
        yield f"nobody syncs for nothing: a {move.kind} was refused, and the store and the worker agree"


def _own_late(world: World, process: Process) -> bool:
    """Is a SET of the worker's own scratch on its way, from a connection that broke?"""
    return any(late.incarnation == process.incarnation and late.text and ":x:" in late.key for late in world.late)
