"""What can happen next in a world: the calls of its processes, replayed and late ones, and what befalls the server.

A move with a call is judged by what the scripts answer; ``heard`` says whether the process that made it learns the
answer. A move without one is something that happens to the world: a process starts, a lease runs out, the server falls
back to an earlier state. The steps of the process are those of ``ssp_redis/clock.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .engine import Call, Outcome
from .world import (
    BACKWARDS,
    EXPIRED,
    FAR,
    FRESH_NONCE,
    LEASE_MS,
    LIVE,
    RECENT,
    SILENT,
    Left,
    Process,
    Truth,
    World,
    empty,
    record,
)


@dataclass(frozen=True)
class Bounds:
    """How far a walk goes."""

    workers: int = 2
    #: Ticks end here.
    clocks: int = 2
    #: Processes per worker, beside those that have joined at the beginning.
    starts: int = 2
    #: Staleness that the job is made with, and values that it is changed between.
    staleness: int = 0
    other_staleness: tuple[int, ...] = ()
    #: Things that may happen.
    time: bool = True
    leaving: bool = True
    evicting: bool = True
    stopping: bool = False
    runs: bool = False
    rollbacks: int = 0
    #: Changes that a rollback may undo.
    window: int = 4
    cuts: int = 0
    #: Begin with everybody joined.
    joined: bool = False

    def left(self) -> Left:
        return Left((self.starts + self.joined,) * self.workers, self.rollbacks, self.cuts)


@dataclass(frozen=True)
class Client:
    """How a process behaves; the planted faults of the client are other values."""

    #: Does it sync first on a new connection?
    greets: bool = True
    #: Is it admitted by its clock after the increment?
    tests_after: bool = True

    def admitted(self, process: Process, now: Truth) -> Process:
        """The process, having heard where the job stands."""
        clock = process.clock if self.tests_after else max(0, process.clock - 1)
        if now.admits(clock):
            return process._replace(phase="running", bound=now.bound)
        return process._replace(phase="waiting")


class Move(NamedTuple):
    """One thing that can happen."""

    label: str
    #: Whose call it is, "" when nobody's.
    worker: str
    #: join, tick, sync, leave, evict, configure, observe; or "world".
    kind: str
    call: Call | None = None
    #: Who made the call; None for callers from outside.
    caller: Process | None = None
    #: Is it the worker's current process, and does it get the answer?
    heard: bool = False
    #: The world after it, where no call is needed.
    becomes: World | None = None


def moves(world: World, bounds: Bounds, client: Client) -> Iterator[Move]:
    """Everything that can happen next."""
    for worker in world.current:
        yield from _starts(world, bounds, worker)
        process = world.current[worker]
        if process is not None:
            yield from _own(world, bounds, client, worker, process)
        former = world.former[worker]
        if former is not None:
            yield from _late(world, bounds, worker, former)
        if bounds.evicting and world.server["config"]:
            yield from _evictions(world, worker)
    if world.server["config"]:
        config = world.server["config"]
        observe = [config["run"], config["epoch"], "", "0", "0", "-1", "", "-", "-", "0"]
        yield Move("an observer syncs", "", "observe", _call(world, "sync", observe))
        yield from _changes(world, bounds)
        if bounds.time:
            yield from _time(world)
    yield from _falls(world, bounds)


def _call(world: World, script: str, arguments: list[str]) -> Call:
    return Call(script, arguments, world.incarnations + 1)


def join_arguments(worker: str, process: Process, bounds: Bounds) -> list[str]:
    quorum, staleness = str(bounds.workers), str(bounds.staleness)
    host = f"host-{process.nonce}"
    head = ["1", worker, process.nonce, str(process.known), host, "7", process.name]
    return [*head, quorum, staleness, str(LEASE_MS), ""]


def statement(worker: str, process: Process) -> list[str]:
    return [process.run, str(process.epoch), worker, str(process.incarnation), str(process.clock)]


def tick_arguments(worker: str, process: Process, wanted: int) -> list[str]:
    return [*statement(worker, process), str(wanted), "-:", "-1"]


def sync_arguments(worker: str, process: Process) -> list[str]:
    evidence = [str(process.position), process.tag]
    return [*statement(worker, process), *evidence, process.nonce, f"host-{process.nonce}", "7"]


def _starts(world: World, bounds: Bounds, worker: str) -> Iterator[Move]:
    number = int(worker)
    if not world.left.starts[number]:
        return
    starts = list(world.left.starts)
    starts[number] -= 1
    held = record(world.server, worker)
    config = world.server["config"]
    names = [""]
    if bounds.runs and config and config["name"] == "1":
        names.append("2")
    for name in names:
        known = held.incarnation if held and not name else 0
        after = world if world.current[worker] is None else world.without(worker)
        process = Process("joining", FRESH_NONCE, known, name)
        after = after.with_current(worker, process).having(left=world.left._replace(starts=tuple(starts)))
        what = f"a process for worker {worker} starts" + (f", for run {name}" if name else "")
        yield Move(what, worker, "world", becomes=after)


def _own(world: World, bounds: Bounds, client: Client, worker: str, process: Process) -> Iterator[Move]:
    """The calls of the process that runs as a worker."""

    def move(text: str, kind: str, arguments: list[str], heard: bool = True) -> Move:
        script = _call(world, kind, arguments)
        return Move(f"worker {worker} {text}", worker, kind, script, process, heard)

    if process.phase == "joining":
        arguments = join_arguments(worker, process, bounds)
        yield move("joins", "join", arguments)
        yield move("joins, the answer is lost", "join", arguments, heard=False)
        return
    connected = process.connected or not client.greets
    arguments = sync_arguments(worker, process)
    yield move("syncs", "sync", arguments)
    yield move("beats (a sync whose answer it does not use)", "sync", arguments, heard=False)
    if process.pending:
        arguments = tick_arguments(worker, process, process.pending)
        if connected:
            yield move("ticks again", "tick", arguments)
        else:
            yield move("had its tick delivered late", "tick", arguments, heard=False)
    elif connected and process.phase == "running" and process.clock < bounds.clocks:
        wanted = process.clock + 1
        yield move("ticks", "tick", tick_arguments(worker, process, wanted))
        lost = process._replace(pending=wanted, connected=False)
        text = f"worker {worker} sends a tick and loses the connection"
        yield Move(text, worker, "world", becomes=world.with_current(worker, lost))
    if process.clock:
        before = process._replace(clock=process.clock - 1)
        arguments = tick_arguments(worker, before, process.clock)
        yield move("had its last tick delivered twice", "tick", arguments, heard=False)
        if process.epoch > 1:
            arguments = tick_arguments(worker, process._replace(epoch=process.epoch - 1), process.clock + 1)
            yield move("had a tick of the epoch before delivered", "tick", arguments, heard=False)
    if bounds.leaving and connected:
        yield move("leaves", "leave", [*statement(worker, process), "left"])


def _late(world: World, bounds: Bounds, worker: str, process: Process) -> Iterator[Move]:
    """What a former process has sent, or still sends because it does not know better."""

    def move(text: str, kind: str, arguments: list[str]) -> Move:
        return Move(f"a former process of worker {worker} {text}", worker, kind, _call(world, kind, arguments), process)

    yield move("had its join delivered late", "join", join_arguments(worker, process, bounds))
    if process.phase == "joining":
        return
    if process.phase == "running" or process.pending:
        yield move("ticks late", "tick", tick_arguments(worker, process, process.clock + 1))
    yield move("syncs late", "sync", sync_arguments(worker, process))
    yield move("leaves late", "leave", [*statement(worker, process), "left"])


def _evictions(world: World, worker: str) -> Iterator[Move]:
    config, held = world.server["config"], record(world.server, worker)
    head = [config["run"], config["epoch"], worker]

    def move(text: str, incarnation: int, caller: Process | None = None) -> Move:
        arguments = [*head, str(incarnation), "0", "evicted"]
        return Move(text, worker, "evict", _call(world, "leave", arguments), caller)

    if held and held.why == "-":
        yield move(f"worker {worker} is evicted", held.incarnation)
    former = world.former[worker]
    if former and former.incarnation and former.run == config["run"]:
        yield move(f"the eviction of a former process of worker {worker} comes late", former.incarnation, former)


def _changes(world: World, bounds: Bounds) -> Iterator[Move]:
    config = world.server["config"]
    now = config["staleness"]

    def move(text: str, *arguments: str) -> Move:
        return Move(text, "", "configure", _call(world, "configure", [config["run"], *arguments]))

    for other in map(str, (*bounds.other_staleness, bounds.staleness)):
        if other != now and bounds.other_staleness:
            yield move(f"staleness {now} becomes {other}", "staleness", now, other)
            yield move("staleness is changed by one who thinks it another", "staleness", "77", other)
    if bounds.stopping:
        flag = config["stop"]
        yield move("the job is stopped" if flag == "0" else "the job resumes", "stop", flag, "10"[int(flag)])


def _time(world: World) -> Iterator[Move]:
    server = world.server
    for worker, score in server["leases"].items():
        if score != EXPIRED:
            after = server | {"leases": server["leases"] | {worker: EXPIRED}}
            yield Move(f"the lease of worker {worker} runs out", worker, "world", becomes=world.having(server=after))
    if server["leases"] and server["config"].get("time") == RECENT:
        for text, last, score in (
            ("the server is frozen for longer than a lease", SILENT, EXPIRED),
            ("the server's clock runs backwards", BACKWARDS, FAR),
        ):
            after = server | {
                "config": server["config"] | {"time": last},
                "leases": dict.fromkeys(server["leases"], score),
            }
            yield Move(text, "", "world", becomes=world.having(server=after))


def _disconnected(world: World) -> dict[str, Process | None]:
    return {worker: process and process._replace(connected=False) for worker, process in world.current.items()}


def _falls(world: World, bounds: Bounds) -> Iterator[Move]:
    left = world.left
    if left.rollbacks and world.backup is None and world.server["config"]:
        yield Move("from here on the server may fall back to this", "", "world",
                   becomes=world.having(backup=world.server, age=0))  # fmt: skip
    if world.backup is not None and world.age:
        after = world.having(
            server=world.backup,
            backup=None,
            age=0,
            current=_disconnected(world),
            left=left._replace(rollbacks=left.rollbacks - 1),
            renewed=tuple(world.backup["graced"]),
            fallen=True,
        )
        yield Move("the server falls back", "", "world", becomes=after)
    if left.cuts and len(world.server["log"]) > 1:
        after = world.having(
            server=world.server | {"log": world.server["log"][:-1]},
            current=_disconnected(world),
            left=left._replace(cuts=left.cuts - 1),
            fallen=True,
        )
        yield Move("the log loses its last entry", "", "world", becomes=after)


# -- what becomes of the processes -------------------------------------------------------------------------------------


def after(world: World, move: Move, outcome: Outcome, bounds: Bounds, client: Client) -> World:
    """The world once the call of ``move`` has had its ``outcome``."""
    changed = outcome.after is not None
    new = world if outcome.after is None else world.having(server=outcome.after)
    if changed and new.backup is not None:
        new = new.having(age=new.age + 1)
        if new.age > bounds.window:
            new = new.having(backup=None, age=0)
    code, *words = outcome.answer.split(" ")
    if changed:
        new = new.having(renewed=_renewed(world, new, move))
    if move.kind == "sync" and not move.heard and code == "0" and move.caller == world.current[move.worker]:
        new = _owes(world, new, move)
    if move.heard:
        process = world.current[move.worker]
        assert process is not None
        new = _answered(new, move, process, code, words, client)
    if outcome.published:
        new = _hears(new, Truth.of_message(outcome.published[-1]), client)
    return new


def _renewed(before: World, after: World, move: Move) -> tuple[str, ...]:
    """Members to whom somebody else's sync has forgiven a silence, this time or before, since they spoke."""
    members = set(after.server["leases"])
    now = set(before.renewed) & members
    if move.kind in ("sync", "observe") and before.server["config"]["time"] != RECENT:
        now = members & set(before.server["leases"])
    for worker, score in after.server["leases"].items():
        if score == LIVE and before.server["leases"].get(worker) == EXPIRED:
            now.add(worker)
    if move.kind in ("join", "sync"):
        now.discard(move.worker)
    return tuple(sorted(now))


def _owes(before: World, after: World, move: Move) -> World:
    """A heartbeat may have restored the worker's clock without the worker knowing."""
    worker, process = move.worker, before.current[move.worker]
    assert process is not None
    old, new = record(before.server, worker), record(after.server, worker)
    stored = int(before.server["clocks"].get(worker, 0))
    if new and stored < process.clock and (old is None or old.restored != new.restored):
        owed = stored if process.owed < 0 else min(stored, process.owed)
        return after.with_current(worker, process._replace(owed=owed))
    return after


def _answered(world: World, move: Move, process: Process, code: str, words: list[str], client: Client) -> World:
    worker = move.worker
    if code == "-4":
        return world.with_current(worker, process._replace(connected=False))
    if code != "0" or move.kind == "leave":
        return world.without(worker)
    epoch, clock, end = int(words[0]), int(words[6]), int(words[7])
    now = Truth(epoch, int(words[1]), int(words[2]), int(words[3]), words[4], words[5])
    if move.kind == "join":
        tag = next(at for at, word in enumerate(words) if ":" in word)
        process = process._replace(
            run=words[9],
            incarnation=int(words[8]),
            epoch=epoch,
            clock=clock,
            position=int(words[tag - 1]),
            tag=words[tag],
        )
    elif move.kind == "tick":
        if not process.pending:
            tag = f"t:{worker}:{process.incarnation}:{process.clock + 1}:-:"
            process = process._replace(position=end - 1, tag=tag)
        process = process._replace(clock=process.pending or process.clock + 1, pending=0)
    else:
        restored, position, tag = words[10], int(words[11]), words[12]
        if process.pending == clock and restored == process.restored:
            process = process._replace(clock=clock, pending=0)
        process = process._replace(epoch=epoch, restored=restored, position=position, tag=tag, owed=-1)
    process = process._replace(connected=True)
    if not process.pending:
        process = client.admitted(process, now)
    return world.with_current(worker, process)


def _hears(world: World, now: Truth, client: Client) -> World:
    """Everybody who waits hears what was published; an unknown epoch means: sync."""
    current = dict(world.current)
    for worker, process in current.items():
        if process and process.phase == "waiting" and process.connected:
            same = now.epoch == process.epoch
            current[worker] = client.admitted(process, now) if same else process._replace(connected=False)
    return world.having(current=current)


def beginning(bounds: Bounds) -> World:
    """The first world: nothing there."""
    return empty(bounds.workers, bounds.left())
