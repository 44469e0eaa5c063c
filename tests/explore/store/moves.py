"""What can happen next: the steps of the workers, what was on its way and arrives late, and what befalls the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from .client import NO_BASE, Client
from .engine import Call, Outcome, Server
from .world import FIXED, KEYS, RUN, Late, Left, Process, World, base_head, facts


@dataclass(frozen=True)
class Bounds:
    """How far a walk goes."""

    workers: int = 2
    #: How many of them are there from the beginning.
    joined: int = 2
    #: Ticks end here.
    clocks: int = 2
    staleness: int = 0
    shares: int = 1
    slots: int = 1
    #: Deltas stand in the tags; some ticks carry none; some ask for the tags.
    inline: bool = False
    bare: bool = False
    asking: bool = False
    #: Tags that are kept when the log is trimmed (shipped: 256).
    keep: int = 16
    #: How often may happen: a worker joins, again or anew; a connection breaks; a process dies; somebody is evicted,
    #: or leaves; the server falls back; the log alone loses its last entry.
    starts: int = 0
    drops: int = 0
    deaths: int = 0
    evictions: int = 0
    leaves: int = 0
    rollbacks: int = 0
    cuts: int = 0
    #: How often rings are swept; then the list of their names is kept.
    sweeps: int = 0
    #: Changes that a rollback undoes at most.
    window: int = 2
    #: Commits are heard on the channel, some day.
    ears: bool = False
    #: Only these workers fold.
    folders: str = "012"
    #: Workers that push nothing, whatever they tick.
    silent: str = ""
    #: Deltas are summed in the order (clock, worker), complete clocks only.
    reproducible: bool = False

    def left(self) -> Left:
        return Left(
            self.starts, self.drops, self.deaths, self.evictions, self.leaves, self.rollbacks, self.cuts, self.sweeps
        )

    def client(self) -> Client:
        """How workers behave within these bounds."""
        return Client(self.shares, self.slots, self.inline, self.reproducible, kept=self.keep, names=bool(self.sweeps))


Then = Callable[[World, str, "list[str]"], World]


@dataclass(frozen=True)
class Move:
    """One thing that can happen: a call, and what becomes of the world with its answer; or ``becomes`` at once."""

    label: str
    kind: str
    worker: str = ""
    call: Call | None = None
    #: (world, code, words of the answer) → world.
    then: Then = field(default=lambda world, code, words: world)
    becomes: World | None = None
    #: The delta that a tick makes count.
    delta: str = ""
    #: Incarnation that calls, 0 for nobody.
    incarnation: int = 0
    #: Does the caller hear the answer?
    heard: bool = False
    #: Part of the ordinary course: workers get on with these alone.
    ordinary: bool = True


def beginning(bounds: Bounds) -> World:
    """No job yet, but the first base of a table with everything 0."""
    bases = tuple(word for share in range(bounds.shares) for word in (f"0.{share}", f"{bounds.joined}:0"))
    fixed = tuple(bases if name == "bases" else () for name in FIXED)
    blobs = tuple((KEYS.base(0, share, 0), base_head(share, 0, 0, 0) + "|") for share in range(bounds.shares))
    return World(Server(fixed, blobs), (), (None,) * bounds.workers, (), bounds.left())


class _Sent(NamedTuple):
    """A command of a worker in one of its fates."""

    late: Late
    move: Move


def join_move(world: World, bounds: Bounds, client: Client, worker: str) -> Move:
    """``Clock.join``."""
    now = facts(world.server)
    known = now.ids[worker][0] if worker in now.ids else "0"
    nonce = f"abcdef{world.joins + 1:010}"
    settings = [str(bounds.joined), str(bounds.staleness), "10000", "", "1" if bounds.reproducible else ""]
    call = Call("join", ("1", worker, nonce, known, "host", "7", "", *settings), (), world.joins + 1)

    def then(after: World, code: str, words: list[str]) -> World:
        if code != "0":
            return after
        after = _gone(after, client, worker)
        process = client.joined(worker, nonce, words)
        return after.put(worker, process)._replace(joins=after.joins + 1)

    return Move(f"worker {worker} joins", "join", worker, call, then, ordinary=False)


def _gone(world: World, client: Client, worker: str) -> World:
    """The process is no more; the command that it was about to send is on its way."""
    process = world.processes[int(worker)]
    if process is None:
        return world
    late = _next_command(process, client)
    world = world.put(worker, None)
    return world if late is None else _delayed(world, late)


def _delayed(world: World, late: Late) -> World:
    return world if late in world.late else world._replace(late=tuple(sorted((*world.late, late), key=repr)))


def _next_command(process: Process, client: Client) -> Late | None:
    """What the process writes next, if it is in the middle of something."""
    step = process.step
    name = (process.worker, process.incarnation)
    if not process.connected or not step:
        return None
    if step[0] == "set":
        return Late(*name, *client.set_of(process, step[1]))
    if step[0] == "tick":
        return Late(*name, call=client.tick_call(process, False), delta=process.frozen)
    if step[0] == "scratch":
        return Late(*name, *client.scratch_of(process))
    if step[0] == "commit":
        return Late(*name, call=client.commit_call(process))
    if step[0] == "clean":
        return Late(*name, client.scratch_key(step[1], process))
    return None


def moves(world: World, bounds: Bounds, client: Client) -> Iterator[Move]:
    """Everything that can happen next."""
    now = facts(world.server)
    for worker, process in enumerate(world.processes):
        if process is not None:
            yield from own(world, bounds, client, process)
            yield from _misfortunes(world, client, process)
        if world.left.starts and (process is None or now.dead(process.worker, process.incarnation)):
            move = join_move(world.spend(starts=1), bounds, client, str(worker))
            yield move
    for late in world.late:
        yield _arrives(world, late)
    if world.left.evictions:
        for worker, record in now.ids.items():
            if record[1] == "-":
                yield eviction(world, worker)
    yield from _falls(world)


def eviction(world: World, worker: str) -> Move:
    now = facts(world.server)
    record = now.ids[worker]
    call = Call("leave", (now.config["run"], now.config["epoch"], worker, record[0], "0", "evicted"))
    spent = world.spend(evictions=1).left

    def then(after: World, code: str, words: list[str]) -> World:
        return after._replace(left=spent)

    return Move(f"worker {worker} is evicted", "evict", worker, call, then, ordinary=False)


def _arrives(world: World, late: Late) -> Move:
    label = f"late: {late}"
    if late.call is None:
        becomes = world._replace(server=world.server.storing(late.key, late.text))
        return Move(label, "late", late.worker, becomes=_aged(world, becomes), ordinary=False)
    return Move(
        label,
        late.call.script,
        late.worker,
        late.call,
        delta=late.delta,
        incarnation=late.incarnation,
        ordinary=False,
    )


def own(world: World, bounds: Bounds, client: Client, process: Process) -> Iterator[Move]:
    """What a worker does next by itself."""
    worker, step = process.worker, process.step
    if not process.connected and client.greets:
        yield _sync(client, process, "syncs")
        return
    if step:
        yield _continues(world, client, process, bounds)
        if step[0] == "tick" and bounds.asking:
            yield _ticks(client, process, True)
        return
    if process.pending:
        # Clock._state_tick again
        yield from _pushes(world, client, process, bounds, "again")
        return
    if not process.admitted:
        yield _sync(client, process, "waits, and syncs")
    elif process.clock < bounds.clocks:
        if worker not in bounds.silent and client.has_room(process):
            yield from _pushes(world, client, process, bounds, "")
        if bounds.bare or worker in bounds.silent:
            yield from _pushes(world, client, process, bounds, "nothing")
        if bounds.leaves and world.left.leaves:
            yield _leaves(client, process)
    yield _learns(client, process)
    everything = tuple(range(bounds.shares))
    if client.can_bring(process, everything) and _worth(client, process, everything):
        yield Move(
            f"worker {worker} brings its view to the log it knows",
            "bring",
            worker,
            becomes=world.put(worker, client.begins_bring(process, everything, world.server.blob)),
        )
    if bounds.shares > 1:
        for share in everything:
            if client.can_bring(process, (share,)) and process.versions[share] < client.horizon(process):
                becomes = world.put(worker, client.begins_bring(process, (share,), world.server.blob))
                yield Move(f"worker {worker} brings share {share}", "bring", worker, becomes=becomes)
    if worker in bounds.folders:
        for share in everything:
            begun = client.begins_publish(process, share)
            if begun is not None:
                yield _continues(world, client, begun, bounds)
                yield from _misfortunes(world, client, begun, begins=True)
    if world.left.sweeps and process.store_epoch == process.epoch:
        begun = world.put(worker, process._replace(step=("look", ()))).spend(sweeps=1)
        yield Move(f"worker {worker} begins to sweep", "sweep", worker, becomes=begun, ordinary=False)
        if not client.looks_again and process.swept:
            begun = world.put(worker, process._replace(step=("unlink", process.swept))).spend(sweeps=1)
            yield Move(f"worker {worker} sweeps once more", "sweep", worker, becomes=begun, ordinary=False)
    if process.mail:
        becomes = world.put(worker, client.listened(process))
        yield Move(f"worker {worker} hears of commits", "hear", worker, becomes=becomes)


def _worth(client: Client, process: Process, shares: tuple[int, ...]) -> bool:
    """Is there anything to bring, or a moment to note?"""
    end, moment, view = client.horizon(process), client.moment(process), process.view
    return view is None or any(process.versions[share] < end for share in shares) or (
        (view.membership, view.others, view.clock) != (moment.membership, moment.others, moment.clock)
    )  # fmt: skip


def _sync(client: Client, process: Process, what: str) -> Move:
    call = client.sync_call(process)

    def then(world: World, code: str, words: list[str]) -> World:
        if code != "0":
            return world.put(process.worker, None)
        return world.put(process.worker, client.reconciled(world.process(process.worker), words))

    return Move(f"worker {process.worker} {what}", "sync", process.worker, call, then,
                incarnation=process.incarnation, heard=True)  # fmt: skip


def _leaves(client: Client, process: Process) -> Move:
    call = Call("leave", (*client.statement(process), "left"))

    def then(world: World, code: str, words: list[str]) -> World:
        return world.put(process.worker, None).spend(leaves=1)

    return Move(f"worker {process.worker} leaves", "leave", process.worker, call, then,
                incarnation=process.incarnation, heard=True, ordinary=False)  # fmt: skip


def _refused(world: World, process: Process, code: str) -> World:
    """``Clock.run``: −4 asks for a sync, and the exchange begins anew; others end it."""
    if code == "-4":
        current = world.process(process.worker)
        return world.put(process.worker, current._replace(connected=False, step=()))
    return world.put(process.worker, None)


def _learns(client: Client, process: Process) -> Move:
    call = client.read_call(process)

    def then(world: World, code: str, words: list[str]) -> World:
        if code == "-10":
            return world.put(process.worker, client.forgot(process)._replace(connected=False, step=()))
        if code != "0":
            return _refused(world, process, code)
        learned = client.learned(process, call, words)
        shares = tuple(range(client.shares))
        if not learned.step and client.too_late(learned, shares):
            # Reader.bring: what the log has lost is read anew
            return world.put(process.worker, client.forgot(learned))
        return world.put(process.worker, learned)

    return Move(f"worker {process.worker} reads the log and the bases", "read", process.worker, call, then,
                incarnation=process.incarnation, heard=True)  # fmt: skip


def _pushes(world: World, client: Client, process: Process, bounds: Bounds, how: str) -> Iterator[Move]:
    begun = client.begins_tick(process, bare=how == "nothing")
    yield _continues(world, client, begun, bounds)
    yield from _misfortunes(world, client, begun, begins=True)
    if bounds.asking and begun.step == ("tick",):
        yield _ticks(client, begun, True)


def _ticks(client: Client, process: Process, asks: bool) -> Move:
    worker = process.worker
    call = client.tick_call(process, asks)

    def then(world: World, code: str, words: list[str]) -> World:
        if code != "0":
            return _refused(world.put(worker, process), process, code)
        return world.put(worker, client.ticked(process, call, words))

    asking = " and asks for the tags" if asks else ""
    label = f"worker {worker} ticks to {process.pending} with {call.arguments[6]}{asking}"
    return Move(label, "tick", worker, call, then, delta=process.frozen, incarnation=process.incarnation, heard=True)


def _continues(world: World, client: Client, process: Process, bounds: Bounds) -> Move:
    """The next command of what the process is in the middle of."""
    worker, step = process.worker, process.step
    if step[0] == "set":
        key, text = client.set_of(process, step[1])
        following = ("set", step[1] + 1) if step[1] + 1 < client.shares else ("tick",)
        becomes = _named(world, client, process)
        becomes = becomes._replace(server=becomes.server.storing(key, text))
        becomes = becomes.put(worker, process._replace(step=following, named=True))
        return Move(f"worker {worker} SETs {key}", "set", worker, becomes=_aged(world, becomes))
    if step[0] == "tick":
        return _ticks(client, process, False)
    if step[0] == "get":
        key = client.fetch(process, step[1][0])
        becomes = world.put(worker, client.fetched(process, world.server.blob(key)))
        return Move(f"worker {worker} GETs {key}", "get", worker, becomes=becomes)
    if step[0] in ("again", "cite"):
        return _learns(client, process)
    if step[0] in ("look", "doubt", "unlink"):
        return _sweeps(world, client, process)
    if step[0] == "scratch":
        key, text = client.scratch_of(process)
        becomes = _named(world, client, process)
        becomes = becomes._replace(server=becomes.server.storing(key, text))
        becomes = becomes.put(worker, process._replace(step=("commit", *step[1:]), named=True))
        return Move(f"worker {worker} SETs {key}, version {step[3]}", "set", worker, becomes=_aged(world, becomes))
    if step[0] == "clean":
        key = client.scratch_key(step[1], process)
        becomes = world._replace(server=world.server.storing(key, "")).put(worker, process._replace(step=()))
        return Move(f"worker {worker} UNLINKs {key}", "set", worker, becomes=_aged(world, becomes))
    call = client.commit_call(process)

    def then(after: World, code: str, words: list[str]) -> World:
        if code not in ("0", "-8", "-11"):
            return _refused(after.put(worker, process), process, code)
        return after.put(worker, client.committed(process, int(code), words))

    label = f"worker {worker} commits share {step[1]}, {step[2]} → version {step[3]}"
    return Move(label, "commit", worker, call, then, incarnation=process.incarnation, heard=True)


def _named(world: World, client: Client, process: Process) -> World:
    """``push.register``: before the first SET of a ring or of scratch."""
    if process.named:
        return world
    return world._replace(server=world.server.naming(*world.server.rings, client.ring_name(process)))


def _sweeps(world: World, client: Client, process: Process) -> Move:
    """``Store._sweep_now``, step by step: the list, the records of the members, the log, and then the keys."""
    worker, step = process.worker, process.step
    if step[0] == "look":
        # the list and the records, one after the other
        live = tuple(sorted(record[0] for record in facts(world.server).ids.values() if record[1] == "-"))
        seen = (*step[1], world.server.rings if len(step[1]) == (not client.rings_first) else live)
        if len(seen) < 2:
            becomes = world.put(worker, process._replace(step=("look", seen)))
            return Move(f"worker {worker} looks for rings", "sweep", worker, becomes=becomes)
        rings, live = seen if client.rings_first else seen[::-1]
        doubtful = client.doubtful(process, rings, live, world.late)
        becomes = world.put(worker, process._replace(step=("doubt", doubtful) if doubtful else ()))
        return Move(f"worker {worker} doubts {' '.join(doubtful)}", "sweep", worker, becomes=becomes)
    if step[0] == "doubt":
        call = Call("read", (RUN, str(process.epoch), "", "-1"))

        def then(after: World, code: str, words: list[str]) -> World:
            if code != "0":
                return _refused(after.put(worker, process), process, code)
            doomed = client.doomed(step[1], words[words.index("|") + 1 :])
            return after.put(worker, process._replace(step=("unlink", doomed) if doomed else ()))

        return Move(f"worker {worker} reads which rings are named", "read", worker, call, then,
                    incarnation=process.incarnation, heard=True)  # fmt: skip
    doomed = step[1]
    server = world.server
    for key, _ in server.blobs:
        if any(f":{ring}:" in key or (key[:4] == "R:x:" and key.endswith(f":{ring.split(':')[1]}")) for ring in doomed):
            server = server.storing(key, "")
    removed = tuple(ring for ring in doomed if ring in server.rings)
    server = server.naming(*(ring for ring in server.rings if ring not in doomed))
    kept = tuple(ring for ring in process.swept if ring not in doomed)
    becomes = world._replace(server=server, swept=world.swept | set(doomed))
    becomes = becomes.put(worker, process._replace(step=(), swept=tuple(sorted({*kept, *removed}))))
    return Move(f"worker {worker} deletes {' '.join(doomed)}", "sweep", worker, becomes=_aged(world, becomes))


def _misfortunes(world: World, client: Client, process: Process, begins: bool = False) -> Iterator[Move]:
    """``begins``: with the first command of something just begun."""
    worker = process.worker
    if not process.connected:
        return
    world = world.put(worker, process)
    if world.left.drops:
        named = process.named or (not client.names_again and process.step[:1] in (("set",), ("scratch",)))
        lost = process._replace(connected=False, wire=False, step=(), named=named)
        spent = world.spend(drops=1)
        late = _next_command(process, client)
        what = "in the middle of something" if begins or process.step else "doing nothing"
        yield Move(f"worker {worker} loses its connection {what}", "drop", worker, becomes=spent.put(worker, lost),
                   ordinary=False)  # fmt: skip
        if late is not None:
            # the ring's name came before it on the same connection
            named = _named(spent, client, process) if late.text else spent
            becomes = _delayed(named.put(worker, lost), late)
            text = f"worker {worker} loses its connection, on which was: {late}"
            yield Move(text, "drop", worker, becomes=becomes, ordinary=False)
    if world.left.deaths:
        text = f"worker {worker} dies" + (
            f", and on its way is: {late}" if (late := _next_command(process, client)) else ""
        )
        yield Move(text, "death", worker,
                   becomes=_gone(world.spend(deaths=1), client, worker), ordinary=False)  # fmt: skip


def _aged(before: World, after: World) -> World:
    """A change of the server brings a state that it may fall back to further away."""
    if after.backup is not None and after.server != before.server:
        return after._replace(age=after.age + 1)
    return after


def _falls(world: World) -> Iterator[Move]:
    left = world.left
    if left.rollbacks and world.backup is None:
        becomes = world._replace(backup=(world.server, world.history), age=0)
        yield Move("from here on the server may fall back to this", "mark", becomes=becomes, ordinary=False)
    if world.backup is not None and world.age:
        server, history = world.backup
        becomes = _disconnected(world)._replace(server=server, history=history, backup=None, age=0)
        yield Move("the server falls back", "fall", becomes=becomes.spend(rollbacks=1), ordinary=False)
    now = facts(world.server)
    if left.cuts and now.log and now.log[-1][0] == "t" and all(version < now.end for version, _ in now.bases.values()):
        server = world.server.having(log=now.log[:-1])
        becomes = _disconnected(world)._replace(
            server=server,
            history=world.history[:-1],
            excused=world.excused | {world.history[-1][1]},
        )
        yield Move("the log loses its last entry", "fall", becomes=becomes.spend(cuts=1), ordinary=False)


def _disconnected(world: World) -> World:
    processes = tuple(process and process._replace(connected=False, wire=False, step=()) for process in world.processes)
    # what was on its way to the server as it was does not arrive; but a commit has to hold its own
    late = tuple(late for late in world.late if late.call is None or late.call.script != "tick")
    # what else comes late may be to a ring that the server has forgotten
    rings = {":".join(one.key.split(":")[-4:-1]) for one in late if one.key.startswith("R:d:")}
    return world._replace(processes=processes, late=late, swept=world.swept | rings)


def after(world: World, move: Move, outcome: Outcome, bounds: Bounds) -> World:
    """The world once a call has had its outcome."""
    changed = outcome.server != world.server
    new = world._replace(server=outcome.server) if changed else world
    if changed:
        now = facts(new.server)
        fresh = now.end - len(world.history)
        if fresh > 0:
            entries = tuple((text, move.delta if text[0] == "t" else "") for text in now.log[-fresh:])
            new = new._replace(history=world.history + entries)
        if new.backup is not None:
            new = new._replace(age=new.age + 1)
            if new.age > bounds.window:
                # it will not fall back so far: that was not the moment
                new = new._replace(backup=None, age=0).spend(rollbacks=1)
    code, *words = outcome.answer.split(" ")
    new = move.then(new, code, words)
    for channel, text in outcome.published:
        new = _published(new, bounds, move, channel, text.split(" "))
    return new


def _published(world: World, bounds: Bounds, move: Move, channel: str, words: list[str]) -> World:
    processes = list(world.processes)
    for number, process in enumerate(processes):
        if process is None or not process.connected or process.step:
            continue
        if channel == "min" and not process.admitted and not process.pending:
            processes[number] = Client.heard(_LISTENER, process, words)
    if channel == "commits" and bounds.ears:
        share = int(words[1].partition(".")[2])
        for number, process in enumerate(processes):
            if (
                process is not None
                and str(number) != move.worker
                and process.connected
                and process.bases[share] != NO_BASE
            ):
                message = (share, int(words[2]), int(words[3]))
                processes[number] = process._replace(mail=(*(old for old in process.mail if old[0] != share), message))
    return world._replace(processes=tuple(processes))


_LISTENER = Client()
