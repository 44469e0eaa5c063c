"""What can happen next in a world: the calls of its processes, replayed and late ones, and what befalls the server.

A move with a call is judged by what the scripts answer; ``heard`` says whether the process that made it learns the
answer. A move without one is something that happens to the world: a process starts, a lease runs out, the server falls
back to an earlier state. The steps of the process are those of ``ssp_redis/clock.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .engine import NOW_MS, Call
from .world import (
    BACKWARDS,
    CHANGES,
    EXPIRED,
    FAR,
    FRESH_NONCE,
    LEASE_MS,
    PATIENCE_MS,
    RECENT,
    SILENT,
    Left,
    Process,
    Truth,
    World,
    empty,
    holders,
    record,
    still_since,
)

#: So many changes of the configuration somebody knew of who is late.
_BEFORE = str(int(CHANGES) - 1)


@dataclass(frozen=True)
class Bounds:
    """How far a walk goes."""

    workers: int = 2
    #: Start quorum; None: all of them.
    quorum: int | None = None
    #: Ticks end here.
    clocks: int = 2
    #: Processes per worker, beside those that have joined at the beginning.
    starts: int = 2
    #: Staleness that the job is made with, and values that it is changed between.
    staleness: int = 0
    other_staleness: tuple[int, ...] = ()
    #: Things that may happen.
    time: bool = True
    #: Those who wait lose patience with whoever holds the min.
    patience: bool = False
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

    @property
    def starters(self) -> int:
        return self.workers if self.quorum is None else self.quorum

    def left(self) -> Left:
        return Left((self.starts + self.joined,) * self.workers, self.rollbacks, self.cuts)


@dataclass(frozen=True)
class Client:
    """How a process behaves; the planted faults of the client are other values."""

    #: Does it sync first on a new connection?
    greets: bool = True
    #: Is it admitted by its clock after the increment?
    tests_after: bool = True
    #: Does it believe only what its own run announces?
    knows_its_run: bool = True

    def listens_to(self, process: Process, now: Truth) -> bool:
        """Is what was announced for the process?"""
        return now.run == process.run or not self.knows_its_run

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
        if bounds.patience:
            yield from _patience(world)
    yield from _falls(world, bounds)


def _call(world: World, script: str, arguments: list[str]) -> Call:
    return Call(script, arguments, world.incarnations + 1)


def join_arguments(worker: str, process: Process, bounds: Bounds) -> list[str]:
    quorum, staleness = str(bounds.starters), str(bounds.staleness)
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
    if bounds.patience and process.phase == "waiting":
        yield move("syncs, tired of waiting", "sync", [*arguments, str(PATIENCE_MS)])
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
            yield move(f"staleness {now} becomes {other}", "staleness", CHANGES, other)
            yield move("a change of the staleness comes late", "staleness", _BEFORE, other)
    if bounds.stopping:
        flag = config["stop"]
        yield move("the job is stopped" if flag == "0" else "the job resumes", "stop", CHANGES, "10"[int(flag)])
        yield move("a stop or its end comes late", "stop", _BEFORE, "10"[int(flag)])


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


def _patience(world: World) -> Iterator[Move]:
    """Leases are renewed and nobody ticks for as long as anybody has patience."""
    server = world.server
    if still_since(server) == NOW_MS:
        low, _, newest = server["config"]["still"].split(" ")
        still = f"{low} {NOW_MS - PATIENCE_MS} {newest}"
        after = world.having(server=server | {"config": server["config"] | {"still": still}}, stood=holders(server))
        yield Move("the min stands still for long", "", "world", becomes=after)


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
            stood=(),
        )
        yield Move("the server falls back", "", "world", becomes=after)
    if left.cuts and len(world.server["log"]) > 1:
        after = world.having(
            server=world.server | {"log": world.server["log"][:-1]},
            current=_disconnected(world),
            left=left._replace(cuts=left.cuts - 1),
        )
        yield Move("the log loses its last entry", "", "world", becomes=after)


def beginning(bounds: Bounds) -> World:
    """The first world: nothing there."""
    return empty(bounds.workers, bounds.left())
