"""Workers that are slow on purpose, to see what a bound on staleness buys.

``--straggle 0:3x`` makes every clock of worker 0 take three times as long as its own work does; ``0:20ms`` adds 20 ms;
``20ms@10%`` does so to everybody, in one clock of ten drawn at random. Waiting for others is not work: not slowed.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from ssp_redis.cli.options import Name, ParamType, parse_seconds

_FORM = re.compile(r"(?:(?P<worker>[^:]*):)?(?P<how>[^:@]+)(?:@(?P<share>[^:@]+)%)?\Z")
#: Shorter pauses are saved up: the system sleeps no less than this, with its own error on top (seconds).
_SHORTEST = 0.001


@dataclass(frozen=True)
class Straggle:
    """One rule: whom it slows, and how."""

    text: str
    #: None slows everybody.
    worker: str | None
    #: How many times as long a clock takes.
    factor: float
    #: Seconds on top.
    extra: float
    #: Share of the clocks that are slowed, 0 to 1.
    share: float


class StraggleType(ParamType):
    """``[ID:]3x`` or ``[ID:]20ms``, then ``@10%`` for some clocks only; several separated by commas."""

    name = "[id:]3x|20ms[@10%]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Straggle]:
        """Called by click."""
        if isinstance(value, list):
            return value
        return [self._rule(text.strip(), param, ctx) for text in str(value).split(",") if text.strip()]

    def _rule(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> Straggle:
        match = _FORM.match(text)
        if not match:
            self.fail(
                f"{text!r} is not ID:3x or ID:20ms, with @10% behind it if only some clocks are meant", param, ctx
            )
        worker, how, share = match["worker"], match["how"].strip(), match["share"]
        if worker is not None:
            worker = Name("worker").convert(worker, param, ctx)
        factor, extra = 1.0, 0.0
        try:
            if how.endswith("x"):
                factor = float(how[:-1])
            else:
                extra = parse_seconds(how)
            part = 1.0 if share is None else float(share) / 100
        except ValueError:
            self.fail(f"{text!r}: {how!r} is neither a factor (3x) nor a time (20ms, 1.5s)", param, ctx)
        if not 1 <= factor < float("inf"):
            self.fail(f"{text!r}: a worker can only be slowed, by a factor of 1x or more", param, ctx)
        if not 0 < part <= 1:
            self.fail(f"{text!r}: {share}% is not a share of the clocks: use 1 to 100", param, ctx)
        return Straggle(text, worker, factor, extra, part)


class Drag:
    """Slows one worker by the rules that name it: called at the end of each clock's work."""

    def __init__(self, rules: Sequence[Straggle], worker: str, waited: Callable[[], float]) -> None:
        self._rules = [rule for rule in rules if rule.worker in (None, worker)]
        self._random = random.Random(worker)
        #: Seconds spent waiting for others so far: not the worker's own doing.
        self._waited = waited
        self._debt = 0.0
        self._start = time.perf_counter()
        self._waited_before = waited()

    def __bool__(self) -> bool:
        return bool(self._rules)

    def pause(self) -> None:
        """Sleep as long as the rules ask for the work since the last call."""
        now, waited = time.perf_counter(), self._waited()
        busy = max(0.0, now - self._start - (waited - self._waited_before))
        for rule in self._rules:
            if rule.share == 1 or self._random.random() < rule.share:
                self._debt += (rule.factor - 1) * busy + rule.extra
        if self._debt >= _SHORTEST:
            time.sleep(self._debt)
            overslept = time.perf_counter() - now
            self._debt -= overslept
        self._start, self._waited_before = time.perf_counter(), self._waited()
