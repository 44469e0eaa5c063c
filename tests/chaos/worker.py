"""The program of one life: joins, adds its marks clock by clock, and writes down what it does and is told.

What it writes goes to standard output, one line of JSON for each event: the time (monotonic, the same for all processes
of a machine), what, and details. A line that was written is kept whatever becomes of the process.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parents[2]))

import ssp_redis
from tests.chaos.marks import Marks, read

T = TypeVar("T")


def say(what: str, *details: Any) -> None:
    """Write an event down."""
    os.write(1, json.dumps([time.monotonic(), what, *details]).encode() + b"\n")


def insist(call: str, function: Callable[[], T]) -> T:
    """Repeat a call that the server's state prevents, as an operator would who mends it meanwhile."""
    while True:
        try:
            return function()
        except (ssp_redis.ServerRefused, ssp_redis.ServerUnavailable) as error:
            say("error", type(error).__name__, str(error), call)
            time.sleep(0.05)  # a pause between attempts


class Life:
    """One process under a worker's id."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.told = told
        #: Seconds for which it lets itself be held up in all.
        self.patience = 4.0
        self.number, self.life, self.clocks = int(told["worker"]), int(told["life"]), int(told["clocks"])
        self.marks = Marks(told["seed"], told["workers"], self.clocks)
        self.rng = random.Random(f"{told['seed']} {self.number} {self.life}")

    def run(self) -> None:
        told = self.told
        self.hold()
        say("joining", os.getpid())
        self.worker = worker = insist(
            "join",
            lambda: ssp_redis.join(
                told["url"],
                job=told["job"],
                worker=self.number,
                workers=told["workers"],
                staleness=told["staleness"],
                lease=told["lease"],
                recheck=told["recheck"],
                reproducible=told["reproducible"] or None,
                flush_every=told["flush"],
                reconnect_timeout=20.0,
            ),
        )
        say("joined", worker.incarnation, worker.clock, worker.min_clock)
        try:
            if told["loop"]:
                with worker:
                    self.loop()
                    say("leaving")
                self.say_left()
            else:
                self.halves()
        finally:
            losses = [[loss.worker, loss.first, loss.last, loss.repushed] for loss in worker.losses]
            say("losses", losses, worker.stats()["epoch"])

    def loop(self) -> None:
        """As most programs are written: any error ends the life."""
        self.tables = self.marks.open(self.worker)
        for turn, clock in enumerate(self.worker.clocks(self.clocks)):
            if turn:
                self.say_advanced()
                say("admitted", self.worker.clock, self.worker.min_clock)
            self.turn(clock)
        if self.worker.clock >= self.clocks:
            self.say_advanced()

    def halves(self) -> None:
        """A program that rides out what an operator mends, and sees both halves of a tick."""
        worker = self.worker
        self.tables = insist("table", lambda: self.marks.open(worker))
        insist("wait", worker.wait)
        while worker.clock < self.clocks:
            clock = worker.clock
            self.turn(clock)
            insist("advance", worker.advance)
            self.say_advanced()
            say("waiting", worker.clock)
            insist("wait", worker.wait)
            say("admitted", worker.clock, worker.min_clock)
        if worker.clock == self.clocks:
            self.begin(worker.clock)  # leaving commits what is open
        say("leaving")
        worker.leave("done")
        self.say_left()

    def say_left(self) -> None:
        """And whether the server answered that this life was out already."""
        say("left", self.worker._clock._refused is not None)

    def say_advanced(self) -> None:
        """With the clock up to which all is flushed."""
        say("advanced", self.worker.clock, self.worker.min_clock, self.worker._clock.clock)

    def begin(self, clock: int) -> None:
        say("begin", clock)
        self.marks.mark(self.tables, self.number, self.life, clock)

    def turn(self, clock: int) -> None:
        self.begin(clock)
        for table, odds in (("small", 0.5), ("tiny", 0.3), ("sparse", 0.15), ("large", 0.1)):
            if self.rng.random() < odds:
                value = insist("get", partial(read, self.tables[table]))
                try:
                    say("read", clock, table, *map(self.marks.packed, self.marks.parts(table, value)))
                except ValueError as error:
                    say("wrong", clock, table, str(error))
        time.sleep(self.rng.expovariate(1 / self.told["work"]))  # the work of a clock
        self.hold()

    def hold(self) -> None:
        """One that shall be late is, until the others have waited long enough for it."""
        begun = time.monotonic()
        while os.path.exists(self.told["hold"]) and time.monotonic() - begun < min(1.5, self.patience):
            time.sleep(0.01)
        self.patience -= time.monotonic() - begun


def main() -> None:
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    told = json.loads(sys.argv[1])
    exec(told["sabotage"], {"ssp_redis": ssp_redis})
    try:
        Life(told).run()
    except ssp_redis.SSPError as error:
        say("end", type(error).__name__, str(error))
    except BaseException as error:
        say("end", type(error).__name__, str(error))
        raise
    else:
        say("end", "done", "")


if __name__ == "__main__":
    main()
