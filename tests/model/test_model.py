"""Any sequence of calls gets the answers of the plain model, publishes what it publishes and leaves what it leaves.

Callers are not well-behaved: they state clocks, epochs and incarnations that are true, late or made up, twice; time
jumps; the store falls back to an earlier state or loses the tail of its log.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from explore.engine import NOW_MS, Call, Engine
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from .protocol import Protocol

WORKERS = st.sampled_from(["0", "1", "w.2"])
#: An offset to what is true: mostly none.
NEAR = st.sampled_from([0] * 8 + [1, -1])


class Machine(RuleBasedStateMachine):
    """The scripts and the model, side by side."""

    engine: Engine

    def __init__(self) -> None:
        super().__init__()
        self.model = Protocol()
        self.server: dict[str, Any] = self.model.keys()  # type: ignore[assignment]
        self.now = 0
        self.nonces: list[str] = []
        self.past: list[tuple[Protocol, dict[str, Any]]] = []

    # -- what callers state --------------------------------------------------------------------------------------------

    def both(self, script: str, arguments: list[object], *, timed: bool = False) -> str:
        """Ask the scripts and the model, twice; both must agree in everything."""
        self.now += 1
        microseconds = NOW_MS * 1000 + self.now
        stated = [str(word) for word in arguments]
        head = ["1"] if script == "join" else []
        outcome = self.engine.run(self.server, [Call(script, head + stated, self.now)])[0]
        ask = getattr(self.model, script)
        before = [microseconds] if timed else []
        for answer, published, after in (
            (outcome.answer, outcome.published, outcome.after),
            (outcome.again, None, outcome.after_again),
        ):
            self.model.published = []
            assert answer == ask(*before, *arguments), (script, stated)
            if published is None:
                assert outcome.published_again == len(self.model.published)
            else:
                assert published == self.model.published
            self.server = after or self.server
            assert self.server == self.model.keys()
        return outcome.answer

    def caller(self, worker: str, incarnation: int, epoch: int, clock: int, data: st.DataObject) -> list[Any]:
        """Run, epoch, worker, incarnation and clock: true, but for the offsets."""
        job = self.model.job
        assert job is not None
        held = job.ids.get(worker)
        run = data.draw(st.sampled_from([job.run] * 9 + ["0" * 16]), label="run")
        return [
            run,
            max(1, job.epoch + epoch),
            worker,
            (held.incarnation if held else NOW_MS * 1000) + incarnation,
            max(0, (held.clock if held else 0) + clock),
        ]

    # -- the calls -----------------------------------------------------------------------------------------------------

    @initialize(workers=st.integers(1, 3), staleness=st.integers(-1, 2), reproducible=st.booleans())
    def begin(self, workers: int, staleness: int, reproducible: bool) -> None:
        bound = 0 if reproducible else staleness
        self.nonces.append(f"{1:016x}")
        arguments = ["0", self.nonces[-1], 0, "host", "1", "", workers, bound, 10_000, "", int(reproducible)]
        arguments[6:10] = map(str, arguments[6:10])
        arguments[10] = str(arguments[10])
        self.both("join", arguments, timed=True)

    @rule(
        worker=WORKERS,
        fresh=st.sampled_from([True, True, False]),
        known=st.sampled_from([0, 0, 0, -1, None]),
        name=st.sampled_from(["", "", "", "1", "2", "3"]),
        workers=st.sampled_from(["", "", "2"]),
        staleness=st.sampled_from(["", "", "0"]),
        reproducible=st.sampled_from(["", "", "", "0"]),
        data=st.data(),
    )
    def join(
        self,
        worker: str,
        fresh: bool,
        known: int | None,
        name: str,
        workers: str,
        staleness: str,
        reproducible: str,
        data: st.DataObject,
    ) -> None:
        job = self.model.job
        assert job is not None
        if fresh:
            self.nonces.append(f"{len(self.nonces) + 1:016x}")
        nonce = self.nonces[-1] if fresh else data.draw(st.sampled_from(self.nonces), label="nonce")
        held = job.ids.get(worker)
        begins = name not in ("", job.name)
        stated = 0 if known is None or held is None or begins else held.incarnation + known
        arguments = [worker, nonce, stated, "host", "1", name, workers, staleness, "", "", reproducible]
        self.both("join", arguments, timed=True)

    @rule(
        worker=WORKERS, incarnation=NEAR, epoch=NEAR, clock=NEAR, step=st.integers(0, 2),
        known=st.sampled_from([-1, -1, 0, 1, 3]), note=st.sampled_from(["-:", "1:0.2"]), data=st.data(),
    )  # fmt: skip
    def tick(
        self, worker: str, incarnation: int, epoch: int, clock: int, step: int, known: int, note: str,
        data: st.DataObject,
    ) -> None:  # fmt: skip
        caller = self.caller(worker, incarnation, epoch, clock, data)
        self.both("tick", [*caller, caller[4] + step, note, known])

    @rule(
        worker=WORKERS, incarnation=NEAR, epoch=NEAR, clock=NEAR, evidence=st.sampled_from([None, -1, 0, 1, 2, 100]),
        true=st.sampled_from([True, True, True, False]), data=st.data(),
    )  # fmt: skip
    def sync(
        self, worker: str, incarnation: int, epoch: int, clock: int, evidence: int | None, true: bool,
        data: st.DataObject,
    ) -> None:  # fmt: skip
        job = self.model.job
        assert job is not None
        position = job.end - 1 if evidence is None else evidence
        inside = job.trimmed <= position < job.end
        tag = job.log[position - job.trimmed] if inside and true else "t:other"
        caller = self.caller(worker, incarnation, epoch, clock, data)
        held = job.ids.get(worker)
        nonce = held.nonce if held else self.nonces[0]
        self.both("sync", [*caller, position, tag, nonce, "host", "1"], timed=True)

    @rule(data=st.data())
    def observe(self, data: st.DataObject) -> None:
        job = self.model.job
        assert job is not None
        self.both("sync", [job.run, job.epoch, "", 0, 0, -1, "-", "-", "-", "0"], timed=True)

    @rule(worker=WORKERS, incarnation=NEAR, epoch=NEAR, clock=NEAR, why=st.sampled_from(["done", "left", "evicted"]),
          data=st.data())  # fmt: skip
    def leave(self, worker: str, incarnation: int, epoch: int, clock: int, why: str, data: st.DataObject) -> None:
        self.both("leave", [*self.caller(worker, incarnation, epoch, clock, data), why])

    @rule(name=st.sampled_from(["staleness", "stop"]), changes=NEAR, new=st.sampled_from(["0", "1"]))
    def configure(self, name: str, changes: int, new: str) -> None:
        job = self.model.job
        assert job is not None
        self.both("configure", [job.run, name, max(0, job.changes + changes), new])

    # -- what befalls the server ---------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 3, 6, 11, 30, -20]))
    def time_passes(self, seconds: int) -> None:
        self.now = max(0, self.now + seconds * 1_000_000)

    @rule()
    def keep(self) -> None:
        """A replica, or the file on disk, is here now."""
        self.past.append((self.model.copy(), copy.deepcopy(self.server)))

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def fall_back(self, data: st.DataObject) -> None:
        model, server = data.draw(st.sampled_from(self.past), label="past")
        self.model, self.server = model.copy(), copy.deepcopy(server)

    @precondition(lambda self: len(self.model.job.log) > 2)
    @rule(count=st.integers(1, 2))
    def lose_the_tail(self, count: int) -> None:
        self.server["log"] = self.server["log"][:-count]
        self.model.job.log = self.model.job.log[:-count]


class LongLog(Machine):
    """The same with a log that is about to be trimmed, or is longer than what a tick hands out."""

    @precondition(lambda self: len(self.model.job.log) < 1000)
    @rule(count=st.sampled_from([1990, 2040, 2046, 3070, 5000]))
    def log_grows(self, count: int) -> None:
        more = ["t:w.2:1:1:-:"] * count
        self.server["log"] = self.server["log"] + more
        self.model.job.log = self.model.job.log + more


@pytest.mark.parametrize(("machine", "examples"), [(Machine, 250), (LongLog, 10)])
def test_any_sequence_of_calls_is_answered_as_the_model_answers(
    machine: type[Machine], examples: int, url: str
) -> None:
    Machine.engine = Engine(url)
    bounds = settings(
        max_examples=examples, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
    )
    try:
        run_state_machine_as_test(machine, settings=bounds)
    finally:
        Machine.engine.close()


WRONG = {
    "a nonce that is none": ("join", 2, "xyz"),
    "a worker's name of two words": ("join", 1, "a b"),
    "a host of two words": ("join", 4, "a b"),
    "a pid that is no number": ("join", 5, "p"),
    "a run's name of two words": ("join", 6, "a b"),
    "a quorum that is no number": ("join", 7, "two"),
    "a staleness that is no number": ("join", 8, "x"),
    "a lease that is no number": ("join", 9, "1.5"),
    "a reproducible run that is stale": ("join", 11, "1"),
    "a field that is none": ("configure", 1, "epoch"),
    "a staleness that is a word": ("configure", 3, "inf"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_refused_before_anything_is_written(what: str, url: str) -> None:
    script, at, word = WRONG[what]
    engine = Engine(url)
    join = ["1", "0", f"{1:016x}", "0", "host", "1", "", "1", "2", "", "", ""]
    joined = engine.run(Protocol().keys(), [Call("join", join, 1)])[0]
    assert joined.after is not None
    arguments = {"join": [*join], "configure": [f"{1:016x}", "staleness", "0", "3"]}[script]
    arguments[at] = word
    for server in (Protocol().keys(), joined.after) if script == "join" else (joined.after,):
        outcome = engine.run(server, [Call(script, arguments, 2)])[0]
        assert outcome.answer.startswith("-12")
        assert outcome.after is None
        assert not outcome.published
    engine.close()
