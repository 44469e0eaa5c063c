"""Walks every interleaving within bounds, breadth first, each state once; a broken rule ends it, with its story."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..walk import Found, Report
from .client import NO_BASE, Client
from .engine import Engine
from .moves import Bounds, Move, after, beginning, eviction, join_move, moves, own
from .rules import broken_state, broken_step
from .world import Process, World, facts, parsed

#: Steps in which everybody must get to the end from any state, left alone.
_PATIENCE = 200


class Walk:
    """One exploration. ``depth`` bounds the number of moves, ``edges`` the work.

    From every ``sample``-th state the workers are let go on without any more misfortune, and must get to their last
    clock and read everything there. ``story``: what happens first, by the beginnings of the moves' labels.
    """

    def __init__(
        self,
        engine: Engine,
        bounds: Bounds,
        *,
        client: Client | None = None,
        depth: int = 1 << 30,
        edges: int = 1 << 60,
        sample: int = 50,
        story: tuple[str, ...] = (),
        progress: Callable[[Report], None] = lambda report: None,
    ) -> None:
        self._engine = engine
        self._bounds = bounds
        self._client = client or bounds.client()
        self._depth = depth
        self._edges = edges
        self._sample = sample
        self._first = story
        self._progress = progress
        #: States by their hash: two in a million million are taken for one.
        self._seen: set[int] = set()
        self._from: list[tuple[int, str]] = []
        #: States from which it was seen that everybody can go on.
        self.drained = 0
        self.report = Report()

    def run(self) -> Report:
        begun = time.monotonic()
        report = self.report
        level = [(0, self._begin())]
        while level and report.depth < self._depth and not report.found and report.edges < self._edges:
            level = self._expand(level)
            report.depth += 1
            report.seconds = time.monotonic() - begun
            self._progress(report)
        report.whole = not level and not report.found
        report.seconds = time.monotonic() - begun
        self._engine.close()
        return report

    def _begin(self) -> World:
        world = beginning(self._bounds)
        for worker in range(self._bounds.joined):
            world = self._take(world, join_move(world, self._bounds, self._client, str(worker)))
        # who joined first has not heard of the others yet
        for worker in range(self._bounds.joined):
            process = world.process(str(worker))
            world = self._take(world, next(own(world, self._bounds, self._client, process._replace(connected=False))))
        config = dict(facts(world.server).config, tables="1")
        words = tuple(word for item in sorted(config.items()) for word in item)
        world = world._replace(server=world.server.having(config=words))
        told = ["everybody has joined, and has opened the table"]
        for start in self._first:
            options = list(moves(world, self._bounds, self._client))
            chosen = [move for move in options if move.label.startswith(start)]
            if not chosen:
                raise AssertionError(f"{start}: can not happen here, but {[move.label for move in options]}")
            told.append(chosen[0].label)
            world = self._take(world, chosen[0])
        self._seen.add(hash(world))
        self._from.append((-1, "; ".join(told)))
        self.report.states = 1
        return world

    def _take(self, world: World, move: Move) -> World:
        if move.call is None:
            assert move.becomes is not None
            return move.becomes
        return after(world, move, self._engine.run(world.server, [move.call])[0], self._bounds)

    def _expand(self, level: list[tuple[int, World]]) -> list[tuple[int, World]]:
        found: list[tuple[int, World]] = []
        for number, world in level:
            options = list(moves(world, self._bounds, self._client))
            calls = [move for move in options if move.call is not None]
            outcomes = self._engine.run(world.server, [move.call for move in calls if move.call is not None])
            self.report.edges += len(options)
            self.report.calls += len(calls)
            answers = iter(outcomes)
            for move in options:
                whats: list[str] = []
                if move.becomes is not None:
                    new = move.becomes
                else:
                    outcome = next(answers)
                    code = f"{move.kind} {outcome.answer.split(' ', 1)[0]}"
                    self.report.answers[code] = self.report.answers.get(code, 0) + 1
                    new = after(world, move, outcome, self._bounds)
                    whats += broken_step(world, move, outcome, new, self._client)
                name = hash(new)
                fresh = name not in self._seen
                if fresh and not whats:
                    whats += broken_state(new, self._client)
                if fresh and not whats and self._sample and len(self._from) % self._sample == 0:
                    whats += self._stuck(new)
                if whats:
                    self.report.found = Found(whats, [*self._story(number), move.label])
                    return []
                if fresh:
                    self._seen.add(name)
                    found.append((len(self._from), new))
                    self._from.append((number, move.label))
                    self.report.states += 1
        return found

    def _story(self, number: int) -> list[str]:
        lines: list[str] = []
        while number >= 0:
            number, label = self._from[number]
            lines.append(label)
        return lines[::-1]

    # -- going on ----------------------------------------------------------------------------------------------------

    def _stuck(self, world: World) -> list[str]:
        """Let everybody go on from here, without misfortunes, in turn: to the last clock, and to the whole sum."""
        self.drained += 1
        story: list[str] = []
        now = facts(world.server)
        world = world._replace(left=world.left._replace(evictions=9))
        for worker, record in now.ids.items():
            process = world.processes[int(worker)]
            if record[1] == "-" and (process is None or str(process.incarnation) != record[0]):
                # its process is no more: its lease runs out, or where it would be waited for, it comes back
                back = join_move(world, self._bounds, self._client, worker)
                world = self._take(world, back if self._bounds.reproducible else eviction(world, worker))
        for turn in range(_PATIENCE):
            todo = [one.worker for one in world.processes if one is not None and not self._done(world, one)]

            if not todo:
                return []
            worker = todo[turn % len(todo)]
            move = self._chosen(world, worker)
            story.append(move.label)
            before = world
            if move.call is not None:
                outcome = self._engine.run(world.server, [move.call])[0]
                world = after(world, move, outcome, self._bounds)
                whats = list(broken_step(before, move, outcome, world, self._client))
            else:
                assert move.becomes is not None
                world = move.becomes
                whats = []
            whats += broken_state(world, self._client)
            if whats:
                return [f"{what} (after: {'; '.join(story)})" for what in whats]
        return [f"everybody can go on: they do not get to the end ({'; '.join(story[-12:])})"]

    def _done(self, world: World, process: Process) -> bool:
        if not process.connected or process.step or process.pending or process.clock < self._bounds.clocks:
            return False
        now = facts(world.server)
        return set(process.versions) == {self._end(world, process)} and process.epoch == now.epoch

    def _end(self, world: World, process: Process) -> int:
        """The version that a view can be brought to."""
        order = facts(world.server).order
        low = min(order.values(), default=0) if self._bounds.reproducible else process.clock
        if self._bounds.staleness or not (self._bounds.reproducible or order.keys() - {process.worker}):
            return len(world.history)
        for place, (text, _) in enumerate(world.history):
            if text[0] == "t" and parsed(text).clock > low:
                return place
        return len(world.history)

    def _chosen(self, world: World, worker: str) -> Move:
        """What a worker does first: push if it may, else read, fold, and read."""
        process = world.process(worker)
        options = [move for move in own(world, self._bounds, self._client, process) if move.ordinary]
        if len(options) == 1:
            return options[0]
        kinds = {move.kind: move for move in reversed(options)}
        if (
            "set" in kinds
            and process.admitted
            and self._client.has_room(process)
            and process.clock < self._bounds.clocks
        ):
            return kinds["set"]
        if "tick" in kinds:
            return kinds["tick"]
        behind = any(version < self._end(world, process) for version in process.versions)
        stale = process.end < len(world.history) or not process.known or NO_BASE in process.bases
        if (behind and stale) or ("bring" not in kinds and behind):
            return kinds["read"]
        if behind:
            return kinds["bring"]
        for kind in ("set", "commit", "sync"):
            if kind in kinds:
                return kinds[kind]
        return kinds["read"]
