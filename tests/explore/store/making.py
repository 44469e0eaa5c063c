"""The making of a table, every interleaving within bounds: claimed under a lease, written as scratch, published whole.

Several processes make the same table at once. They lose connections and die, what they sent arrives late or twice,
claims run out, and what the dead have left is swept. The scripts are the real ones; what a process does with their
answers is that of ``ssp_redis.store.claiming`` and ``making``, in small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ..faults import Scripts, without
from ..walk import Found, Report
from .engine import FIXED, Call, Engine, Outcome, Server
from .world import KEYS, base_head, facts

_RUN = "abcdef0000000001"
_NAME = "w"
#: Milliseconds that a claim holds.
_LEASE = 10_000
#: Steps in which everybody must see the table from any state, left alone.
_PATIENCE = 60


@dataclass(frozen=True)
class Bounds:
    """How far a walk goes."""

    #: Blocks of the table as each maker would make it: who comes second finds another's.
    blocks: tuple[int, ...] = (2, 1)
    drops: int = 1
    deaths: int = 1
    #: How often may pass the time of a claim.
    times: int = 1
    #: Scratch has the incarnation in its key.
    own_scratch: bool = True


class Maker(NamedTuple):
    """A process: what it does next."""

    incarnation: int
    blocks: int
    #: (ask,), (set, number, block), (publish, number) or (done, number, description).
    step: tuple[object, ...] = ("ask",)


class World(NamedTuple):
    server: Server
    makers: tuple[Maker | None, ...]
    #: What was on its way when a connection broke or a process died: a key and its text, or a call.
    late: tuple[tuple[str, str] | Call, ...] = ()
    #: Incarnations that are no more.
    dead: tuple[int, ...] = ()
    drops: int = 0
    deaths: int = 0
    times: int = 0
    #: Milliseconds since the beginning.
    now: int = 0


class Move(NamedTuple):
    label: str
    call: Call | None
    then: Callable[[World, str, list[str]], World]
    ordinary: bool = True


def beginning(engine: Engine, bounds: Bounds) -> World:
    """A job with one member, and no table."""
    empty = Server(tuple(() for _ in FIXED), ())
    join = Call("join", ("1", "0", _RUN, "0", "host", "7", "", "1", "0", "10000", "", ""))
    [outcome] = engine.run(empty, [join])
    if not outcome.answer.startswith("0 "):
        raise AssertionError(outcome.answer)
    makers = tuple(Maker(1 + number, blocks) for number, blocks in enumerate(bounds.blocks))
    return World(outcome.server, makers, drops=bounds.drops, deaths=bounds.deaths, times=bounds.times)


def _scratch(bounds: Bounds, number: object, block: int, incarnation: int) -> str:
    return KEYS.scratch(int(str(number)), block, incarnation if bounds.own_scratch else 0)


def _claim(world: World, maker: Maker) -> Call:
    words = (_RUN, _NAME, f"float32:{maker.blocks}:1", str(maker.incarnation), str(_LEASE))
    return Call("claim", words, (), 1000 * world.now)


def _set(bounds: Bounds, maker: Maker) -> tuple[str, str]:
    _, number, block = maker.step
    assert isinstance(block, int)
    text = f"{base_head(block, 0, 0, 0)}|{maker.incarnation}.{maker.blocks}"
    return _scratch(bounds, number, block, maker.incarnation), text


def _publish(bounds: Bounds, maker: Maker) -> Call:
    number = maker.step[1]
    scratch = [_scratch(bounds, number, block, maker.incarnation) for block in range(maker.blocks)]
    bases = [KEYS.base(int(str(number)), block, 0) for block in range(maker.blocks)]
    return Call("publish", (_RUN, _NAME, str(maker.incarnation), "1", "commits"), (*scratch, *bases))


def _command(world: World, bounds: Bounds, maker: Maker) -> tuple[str, str] | Call | None:
    """What it writes next."""
    if maker.step[0] == "ask":
        return _claim(world, maker)
    if maker.step[0] == "set":
        return _set(bounds, maker)
    return _publish(bounds, maker) if maker.step[0] == "publish" else None


def _with(world: World, place: int, maker: Maker | None) -> World:
    return world._replace(makers=(*world.makers[:place], maker, *world.makers[place + 1 :]))


def _stored(world: World, key: str, text: str) -> World:
    return world._replace(server=world.server.storing(key, text))


def moves(world: World, bounds: Bounds) -> Iterator[Move]:
    """Everything that can happen next."""
    for place, maker in enumerate(world.makers):
        if maker is not None:
            yield from _own(world, bounds, place, maker)
    for late in world.late:
        if isinstance(late, Call):
            yield Move(f"late: {late.script} of {late.arguments[3 if late.script == 'claim' else 2]}", late,
                       lambda after, code, words: after, ordinary=False)  # fmt: skip
        else:
            yield Move(f"late: SET {late[0]}", None, lambda after, code, words, late=late: _stored(after, *late),
                       ordinary=False)  # type: ignore[misc]  # fmt: skip
    if world.times:
        yield _time(world)
    for incarnation in world.dead if bounds.own_scratch else ():
        left = [key for key, _ in world.server.blobs if key.startswith("R:x:") and key.endswith(f":{incarnation}")]
        for key in left:
            yield Move(f"{key} is swept", None, lambda after, code, words, key=key: _stored(after, key, ""),
                       ordinary=False)  # type: ignore[misc]  # fmt: skip
    record = _record(world.server)
    if record is not None and record[1] == "ready":
        # the bases of later generations take the place of the first one in turn
        key = KEYS.base(int(record[0]), 0, 0)
        if "later" not in world.server.blob(key):
            yield Move("the table goes on", None, lambda after, code, words: _stored(after, key, "later"),
                       ordinary=False)  # fmt: skip


def _time(world: World) -> Move:
    becomes = world._replace(times=max(0, world.times - 1), now=world.now + _LEASE + 1)
    return Move("the time of a claim passes", None, lambda after, code, words: becomes, ordinary=False)


def _own(world: World, bounds: Bounds, place: int, maker: Maker) -> Iterator[Move]:
    name, step = f"maker {maker.incarnation}", maker.step
    if step[0] == "ask":

        def claimed(after: World, code: str, words: list[str]) -> World:
            if code == "-9":
                return after  # it waits, and asks again
            following = ("done", words[1], words[2]) if words[0] == "ready" else ("set", words[1], 0)
            return _with(after, place, maker._replace(step=following))

        yield Move(f"{name} claims the table", _claim(world, maker), claimed)
    elif step[0] == "set":
        assert isinstance(step[2], int)
        following = ("set", step[1], step[2] + 1) if step[2] + 1 < maker.blocks else ("publish", step[1])
        key, text = _set(bounds, maker)
        becomes = _stored(_with(world, place, maker._replace(step=following)), key, text)
        yield Move(f"{name} SETs {key}", None, lambda after, code, words: becomes)
    elif step[0] == "publish":
        # published or not: what it is then, the next claim says
        asks = maker._replace(step=("ask",))
        yield Move(f"{name} publishes", _publish(bounds, maker), lambda after, code, words: _with(after, place, asks))
    command = _command(world, bounds, maker)
    if command is None:
        return
    ways: list[tuple[str, tuple[tuple[str, str] | Call, ...]]] = [("", world.late)]
    if command not in world.late:
        ways.append((", and a command is on its way", tuple(sorted((*world.late, command), key=repr))))
    for text, late in ways:
        if world.drops:
            # what was under way is done again from its beginning
            again = ("ask",) if step[0] == "ask" else ("set", step[1], 0)
            lost = _with(world, place, maker._replace(step=again))._replace(late=late, drops=world.drops - 1)
            yield Move(f"{name} loses its connection{text}", None, lambda after, code, words, lost=lost: lost,
                       ordinary=False)  # type: ignore[misc]  # fmt: skip
        if world.deaths:
            # another process comes in its place, some day
            heir = Maker(maker.incarnation + 10, maker.blocks)
            dead = _with(world, place, heir)._replace(
                late=late, deaths=world.deaths - 1, dead=(*world.dead, maker.incarnation)
            )
            yield Move(f"{name} dies{text}", None, lambda after, code, words, dead=dead: dead, ordinary=False)  # type: ignore[misc]


# -- what must hold


def _record(server: Server) -> list[str] | None:
    words = dict(zip(FIXED, server.fixed, strict=True))["tables"]
    return words[1].split(" ") if words else None


def broken_state(world: World) -> Iterator[str]:
    """The rules of a state."""
    now, record = facts(world.server), _record(world.server)
    ready = record is not None and record[1] == "ready"
    if now.config["tables"] != str(int(ready)):
        yield f"tables are counted: the job says {now.config['tables']}, and the table is {record}"
    if record is None or not ready:
        if now.bases or any(key.startswith("R:b:") for key, _ in world.server.blobs):
            yield f"a half-made table is never seen: there is a base, and the table is {record}"
        return
    number, blocks = record[0], int(record[4].split(":")[1])
    if list(now.bases) != [f"{number}.0"]:
        yield f"a table is whole: its bases are {now.bases}"
    found = [world.server.blob(KEYS.base(int(number), block, 0)) for block in range(blocks)]
    writers = {text.partition("|")[2] for text in found if text != "later"}
    if "" in found or len(writers) > 1 or any(writer.split(".")[1] != str(blocks) for writer in writers):
        yield f"a table is whole, and one maker's: its {blocks} blocks are {[text[-6:] for text in found]}"
    for maker in world.makers:
        if maker is not None and maker.step[0] == "done" and maker.step[1:] != (number, record[4]):
            yield f"all see the same table: it is {record}, and maker {maker.incarnation} has {maker.step}"


def broken_step(before: World, move: Move, outcome: Outcome) -> Iterator[str]:
    """The rules of a call."""
    code = outcome.answer.split(" ")[0]
    if code == "ERR":
        yield "scripts do not fail: the server answered with an error in the middle of a script"
    elif code != "0" and outcome.server != before.server:
        yield "refusals write nothing: it did"
    record = _record(before.server)
    if record is not None and record[1] == "ready" and outcome.server != before.server:
        yield f"a table is made once: {move.label} changed something when it was there"


class Walk:
    """Walks every interleaving, breadth first; from every ``sample``-th state, everybody is let go on."""

    def __init__(self, engine: Engine, bounds: Bounds, sample: int = 20, edges: int = 1 << 60) -> None:
        self._engine, self._bounds, self._sample, self._edges = engine, bounds, sample, edges
        self.report = Report()

    def run(self) -> Report:
        first, report = beginning(self._engine, self._bounds), self.report
        seen: dict[World, tuple[World | None, str]] = {first: (None, "a job without tables")}
        level = [first]
        while level and report.edges < self._edges:
            level, now = [], level
            for world in now:
                for move, outcome, new in self._next(world):
                    report.edges += 1
                    whats = list(broken_step(world, move, outcome)) if outcome is not None else []
                    if new not in seen:
                        seen[new] = (world, move.label)
                        level.append(new)
                        whats += broken_state(new)
                        if not whats and len(seen) % self._sample == 0:
                            whats += self._stuck(new)
                    if whats:
                        report.found = Found(whats, [*self._story(seen, world), move.label])
                        return report
            report.depth += 1
            report.states = len(seen)
        report.whole = not level
        return report

    def _next(self, world: World) -> Iterator[tuple[Move, Outcome | None, World]]:
        options = list(moves(world, self._bounds))
        outcomes = iter(self._engine.run(world.server, [move.call for move in options if move.call is not None]))
        for move in options:
            if move.call is None:
                yield move, None, move.then(world, "0", [])
                continue
            outcome = next(outcomes)
            code, *words = outcome.answer.split(" ")
            self.report.calls += 1
            self.report.answers[f"{move.call.script} {code}"] = 1
            yield move, outcome, move.then(world._replace(server=outcome.server), code, words)

    @staticmethod
    def _story(seen: dict[World, tuple[World | None, str]], world: World | None) -> list[str]:
        lines = []
        while world is not None:
            world, label = seen[world]
            lines.append(label)
        return lines[::-1]

    def _stuck(self, world: World) -> list[str]:
        """Let everybody go on from here, in turn, and time pass where all wait: in the end all have the table."""
        story: list[str] = []
        idle = 0
        for turn in range(_PATIENCE):
            todo = [place for place, maker in enumerate(world.makers) if maker is not None and maker.step[0] != "done"]
            if not todo:
                return []
            before = world
            maker = world.makers[todo[turn % len(todo)]]
            assert maker is not None
            for move, outcome, new in self._next(world):
                if move.ordinary and move.label.startswith(f"maker {maker.incarnation} "):
                    world = new
                    story.append(move.label)
                    if outcome is not None and (whats := [*broken_step(before, move, outcome), *broken_state(new)]):
                        return [f"{what} (after: {'; '.join(story)})" for what in whats]
                    break
            idle = idle + 1 if world == before else 0
            if idle >= len(todo):
                # all wait for a claim to run out
                idle, world = 0, _time(world).then(world, "0", [])
        return [f"everybody can go on: they do not get to see the table ({'; '.join(story[-12:])})"]


@dataclass(frozen=True)
class Fault:
    """A rule taken out: ``edit`` breaks the scripts; ``breaks`` is the rule that must be found broken."""

    name: str
    breaks: str
    bounds: Bounds = field(default_factory=Bounds)
    edit: Callable[[Scripts], None] = lambda scripts: None


FAULTS = [
    Fault("a table is published under another's claim", "a table is whole, and one maker's",
          edit=without("publish", "if holder ~= ARGV[3] then", "if not holder then")),
    Fault("publishing does not look whether all scratch is there", "scripts do not fail",
          edit=without("publish", "if redis.call('EXISTS', KEYS[4 + i]) == 0 then", "if false then")),
    Fault("publishing does not look whether it has happened", "a table is made once",
          edit=without("publish", "if state == 'ready' then", "if false then")),
    Fault("a claim is given though the table is there", "a table is made once",
          edit=without("claim", "if state == 'ready' then", "if false then")),
    Fault("scratch has no incarnation in its key", "a table is whole, and one maker's",
          bounds=Bounds(blocks=(2, 2), own_scratch=False)),
    Fault("a claim never runs out", "everybody can go on",
          edit=without("claim", "tonumber(expiry) > now then", "true then")),
]  # fmt: skip
