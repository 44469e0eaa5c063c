"""Every interleaving of the steps of workers with a table, within bounds; and planted faults, which are all found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .engine import Engine
from .faults import FAULTS, Fault
from .moves import Bounds
from .walk import Walk

#: What is walked in the suite: bounds, depth, and answers that must have been met. Deeper: ``python -m tests.explore
#: --store``.
SCOPES = {
    "pushes, reads and folds of two": (Bounds(), 22, {"commit -8"}),
    "a log that is trimmed": (Bounds(keep=1, staleness=1), 16, {"commit -8", "read -10"}),
    "of two that are far apart": (Bounds(clocks=3, staleness=1, slots=2, bare=True, asking=True), 6, {"tick 0"}),
    "a table of two shares": (Bounds(shares=2), 12, {"commit 0"}),
    "one who is late": (Bounds(silent="0", folders="1", clocks=3), 22, {"commit 0"}),
    "one who is late, and comes back": (
        Bounds(silent="0", folders="1", slots=2, starts=1, drops=1),
        11,
        {"commit 0"},
    ),
    "deltas in the tags": (Bounds(inline=True, drops=1, rollbacks=1, asking=True), 7, {"tick -4", "read -4"}),
    "lost connections": (Bounds(drops=1), 14, {"commit -8"}),
    "deaths, evictions, returns": (
        Bounds(starts=2, deaths=1, evictions=1, drops=1),
        6,
        {"tick -2", "tick -3", "sync -3"},
    ),
    "an eviction in the middle of a fold": (
        Bounds(starts=1, evictions=1, silent="1", staleness=1),
        9,
        {"commit -2", "commit -3"},
    ),
    "a third joins two": (Bounds(workers=3, starts=1, staleness=1, leaves=1), 6, {"join 0", "leave 0"}),
    "a server that falls back": (Bounds(rollbacks=1, window=3), 10, {"read -4", "tick -4", "commit 0"}),
    "a server that falls back, commits heard": (
        Bounds(rollbacks=1, window=3, ears=True, silent="1", slots=2, staleness=1),
        8,
        {"commit 0"},
    ),
    "a fall and a lost connection": (Bounds(rollbacks=1, drops=1), 8, {"tick -4", "read -4"}),
    "a reproducible run": (Bounds(reproducible=True, keep=1), 22, {"commit -8", "read -10"}),
    "a reproducible run with accidents": (
        Bounds(reproducible=True, slots=2, starts=1, deaths=1, drops=1, rollbacks=1),
        5,
        {"tick 0", "join 0"},
    ),
    "sweeps": (Bounds(starts=1, evictions=1, sweeps=2, silent="1"), 8, {"read 0"}),
    "sweeps, drops and a fall": (Bounds(drops=1, evictions=1, sweeps=2, rollbacks=1, window=3), 6, {"read 0"}),
    "a log that loses its tail": (Bounds(cuts=1, drops=1, staleness=1, keep=1), 9, {"tick -4", "read -10"}),
}


@pytest.mark.parametrize("scope", SCOPES)
def test_nothing_breaks_in_any_interleaving(
    scope: str, url: str, record_property: Callable[[str, object], None]
) -> None:
    bounds, depth, answers = SCOPES[scope]
    walk = Walk(Engine(url, keep=bounds.keep), bounds, depth=depth)
    report = walk.run()
    record_property("explored", str(report))
    print(f"{scope}: {report}, {walk.drained} of them let go on to their end")
    assert report.found is None, str(report.found)
    assert answers <= set(report.answers)
    assert walk.drained


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: Fault, url: str) -> None:
    engine = Engine(url, fault.scripts(), fault.bounds.keep)
    report = Walk(engine, fault.bounds, client=fault.behaviour(), edges=60_000, sample=0, story=fault.story).run()
    assert report.found is not None, f"not found: {report}"
    print(report.found)
    assert any(what.startswith(fault.breaks) for what in report.found.what)


def test_without_a_fault_nothing_breaks_where_faults_are_looked_for(url: str) -> None:
    for fault in FAULTS:
        if "cleans" in fault.client:
            continue  # its story begins with what nobody else does
        engine = Engine(url, keep=fault.bounds.keep)
        report = Walk(
            engine, fault.bounds, edges=1_500, sample=50 if fault.bounds.folders else 0, story=fault.story
        ).run()
        assert report.found is None, f"{fault.name}: {report.found}"
