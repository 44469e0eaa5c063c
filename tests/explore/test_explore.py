"""Every interleaving of two workers over the real scripts, within bounds; and planted faults, which are all found."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import redis

from ssp_redis.keys import CONTROL
from ssp_redis.lua import source

from .engine import Call, Engine, parse_keys, shipped
from .faults import FAULTS, Fault
from .moves import Bounds
from .walk import Walk

#: What is walked in the suite: bounds, depth, and answers that must have been met. Deeper: ``python -m tests.explore``.
SCOPES = {
    "joins and takeovers, late and replayed": (Bounds(time=False), 7, {"join -3", "join -6", "tick -2", "tick -3"}),
    "leases": (Bounds(joined=True, starts=1, clocks=1), 5, {"sync -3", "sync -2", "leave -2"}),
    "patience with who does not tick": (
        Bounds(joined=True, starts=1, clocks=1, time=False, evicting=False, leaving=False, patience=True),
        6,
        {"sync -3", "tick -3"},
    ),
    "changes of staleness": (
        Bounds(
            joined=True,
            starts=0,
            clocks=3,
            time=False,
            leaving=False,
            evicting=False,
            other_staleness=(1, -1),
            stopping=True,
        ),
        6,
        {"configure 0", "configure -8"},
    ),
    "a new run": (
        Bounds(joined=True, starts=1, clocks=1, time=False, evicting=False, runs=True),
        5,
        {"join -5", "tick -1", "sync -1"},
    ),
    "rollbacks of a running job": (
        Bounds(joined=True, starts=0, time=False, leaving=False, evicting=False, rollbacks=1, cuts=1, window=3),
        6,
        {"tick -4"},
    ),
    "rollbacks of a job that begins": (
        Bounds(starts=1, staleness=1, time=False, leaving=False, evicting=False, rollbacks=1),
        9,
        {"tick -4"},
    ),
    "rollbacks of departures and takeovers": (
        Bounds(joined=True, starts=1, clocks=1, time=False, rollbacks=1, window=2),
        5,
        {"join -6", "sync -2"},
    ),
}


@pytest.mark.parametrize("scope", SCOPES)
def test_nothing_breaks_in_any_interleaving(
    scope: str, url: str, record_property: Callable[[str, object], None]
) -> None:
    bounds, depth, answers = SCOPES[scope]
    report = Walk(Engine(url), bounds, depth=depth).run()
    record_property("explored", str(report))
    print(f"{scope}: {report}")
    assert report.found is None, str(report.found)
    assert answers <= set(report.answers)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: Fault, url: str) -> None:
    report = Walk(Engine(url, fault.scripts()), fault.bounds, client=fault.client, edges=60_000).run()
    assert report.found is not None, f"not found: {report}"
    print(report.found)
    assert any(what.startswith(fault.breaks) for what in report.found.what)


def test_what_the_explorer_runs_is_what_clients_run(url: str, job: str, client: redis.Redis) -> None:
    """The frame around the scripts changes nothing: the same calls, plainly, on the keys of a job."""
    keys = [f"ssp:{{{job}}}:{name}" for name in (*CONTROL, "min")]
    now = int(client.time()[0])
    engine = Engine(url, seconds=now)

    def look() -> dict[str, object]:
        return parse_keys(client, keys)

    def plainly(script: str, arguments: list[str]) -> str:
        names = [f"ssp:{{{job}}}:{name}" for name in engine.keys_of(script)]
        return client.eval(source(script), len(names), *names, *engine.padded(script, arguments)).decode()

    run = "00000000000000aa"
    incarnations: list[str] = []
    story: list[tuple[str, Callable[[], list[str]]]] = [
        ("join", lambda: ["1", "0", run, "0", "h", "1", "", "2", "0", "10000", ""]),
        ("join", lambda: ["1", "1", "00000000000000bb", "0", "h", "2", "", "2", "0", "10000", ""]),
        ("tick", lambda: [run, "1", "0", incarnations[0], "0", "1", "-:", "-1"]),
        ("tick", lambda: [run, "1", "1", incarnations[1], "0", "1", "-:", "0"]),
        ("sync", lambda: [run, "1", "0", incarnations[0], "1", "-1", "-", run, "h", "1"]),
        ("configure", lambda: [run, "staleness", "0", "3"]),
        ("leave", lambda: [run, "1", "1", incarnations[1], "1", "left"]),
        ("tick", lambda: [run, "1", "1", incarnations[1], "1", "2", "-:", "-1"]),
    ]
    moving = {"time", "last"}
    for script, arguments in story:
        before = look()
        outcome = engine.run(before, [Call(script, arguments(), 999_999)])[0]
        answer = plainly(script, arguments())
        after = look()
        words, framed = answer.split(" "), outcome.answer.split(" ")
        if script == "join":
            incarnations.append(words[9])
            framed = [word.replace(framed[9], words[9]) for word in framed]
        if script == "sync":
            del words[10], framed[10]  # how long until the next lease runs out
        assert framed == words
        expected = after if outcome.after is not None else before
        reached = outcome.after or before
        for name in (*CONTROL, "expires"):
            theirs, ours = expected[name], reached[name]
            if name == "config":
                theirs, ours = ({k: v for k, v in side.items() if k not in moving} for side in (theirs, ours))
            if name == "leases":
                theirs, ours = set(theirs), set(ours)
            if script == "join" and name in ("ids", "log"):
                theirs, ours = (str(side).replace(framed[9], "?") for side in (theirs, ours))
                ours = ours.replace(outcome.answer.split(" ")[9], "?")
            assert ours == theirs, name
    assert time.time() - now < 5
    engine.close()


def test_the_scripts_under_test_are_those_that_ship() -> None:
    assert shipped() == {name: source(name) for name in ("join", "tick", "sync", "leave", "configure")}
