"""Walks every interleaving within bounds, breadth first, each state once; a broken rule ends it, with its story."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .client import after
from .engine import Call, Engine, Server
from .moves import Bounds, Client, Move, beginning, moves
from .rules import Step, broken
from .world import World, canonical, revive


@dataclass
class Found:
    """The rules that broke, and the shortest way there."""

    what: list[str]
    story: list[str]

    def __str__(self) -> str:
        lines = [f"{number:3}. {line}" for number, line in enumerate(self.story, 1)]
        return "\n".join([*lines, *(f"=> {what}" for what in self.what)])


@dataclass
class Report:
    """What a walk has seen."""

    states: int = 0
    #: Moves made, those that led to a known state included; replays are not counted.
    edges: int = 0
    #: Of them, calls of the scripts; each was also replayed.
    calls: int = 0
    depth: int = 0
    #: Was everything within the bounds seen?
    whole: bool = False
    seconds: float = 0.0
    found: Found | None = None
    #: Calls by move and code.
    answers: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        extent = "the whole space" if self.whole else f"to depth {self.depth}"
        return f"{self.states:,} states, {self.edges:,} edges ({self.calls:,} calls), {extent}, {self.seconds:.1f} s"


class Walk:
    """One exploration. ``depth`` bounds the number of moves, ``edges`` the work."""

    def __init__(
        self,
        engine: Engine,
        bounds: Bounds,
        *,
        client: Client | None = None,
        depth: int = 1 << 30,
        edges: int = 1 << 60,
        progress: Callable[[Report], None] = lambda report: None,
    ) -> None:
        self._engine = engine
        self._bounds = bounds
        self._client = client or Client()
        self._depth = depth
        self._edges = edges
        self._progress = progress
        self._seen: set[bytes] = set()
        #: For every state found: the state it was found from, and by which move.
        self._from: list[tuple[int, str]] = []
        self.report = Report()

    def run(self) -> Report:
        begun = time.monotonic()
        level = [self._begin()]
        while level and self.report.depth < self._depth and not self.report.found:
            if self.report.edges >= self._edges:
                break
            level = self._expand(level)
            self.report.depth += 1
            self.report.seconds = time.monotonic() - begun
            self._progress(self.report)
        self.report.whole = not level and not self.report.found
        self.report.seconds = time.monotonic() - begun
        self._engine.close()
        return self.report

    def _begin(self) -> tuple[int, str]:
        text = canonical(beginning(self._bounds))
        story = "nobody has joined"
        if self._bounds.joined:
            for worker in range(self._bounds.workers):
                for label in (f"a process for worker {worker} starts", f"worker {worker} joins"):
                    text = self._take(text, label)
            story = "everybody has joined"
        self._seen.add(self._name(text))
        self._from.append((-1, story))
        self.report.states = 1
        return 0, text

    def _take(self, text: str, label: str) -> str:
        """The state after one chosen move."""
        world = revive(text)
        move = next(move for move in moves(world, self._bounds, self._client) if move.label == label)
        if move.call is None:
            assert move.becomes is not None
            return canonical(move.becomes)
        outcome = self._engine.run(world.server, [move.call])[0]
        return canonical(after(world, move, outcome, self._bounds, self._client))

    @staticmethod
    def _name(text: str) -> bytes:
        return hashlib.blake2b(text.encode(), digest_size=12).digest()

    def _expand(self, level: list[tuple[int, str]]) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        asked: list[tuple[int, World, list[Move]]] = []

        def questions() -> Iterator[tuple[Server, list[Call]]]:
            for number, text in level:
                world = revive(text)
                options = list(moves(world, self._bounds, self._client))
                calls = [move for move in options if move.call is not None]
                self.report.edges += len(options)
                self.report.calls += len(calls)
                for move in options:
                    if move.becomes is not None:
                        self._arrive(number, move.label, move.becomes, found)
                asked.append((number, world, calls))
                yield world.server, [move.call for move in calls if move.call is not None]

        for outcomes in self._engine.run_all(questions()):
            number, world, calls = asked.pop(0)
            for move, outcome in zip(calls, outcomes, strict=True):
                kind = f"{move.kind} {outcome.answer.split(' ', 1)[0]}"
                self.report.answers[kind] = self.report.answers.get(kind, 0) + 1
                new = after(world, move, outcome, self._bounds, self._client)
                step = Step(world, move, outcome, new, self._bounds)
                whats = list(broken(step))
                if whats:
                    self.report.found = Found(whats, [*self._story(number), move.label])
                    return []
                if new is not world:
                    self._arrive(number, move.label, new, found)
        return found

    def _arrive(self, number: int, label: str, world: World, found: list[tuple[int, str]]) -> None:
        text = canonical(world)
        name = self._name(text)
        if name in self._seen:
            return
        self._seen.add(name)
        found.append((len(self._from), text))
        self._from.append((number, label))
        self.report.states += 1

    def _story(self, number: int) -> list[str]:
        lines: list[str] = []
        while number >= 0:
            number, label = self._from[number]
            lines.append(label)
        return lines[::-1]
