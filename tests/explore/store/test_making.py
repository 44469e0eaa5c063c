"""Every interleaving of several processes that make the same table; and planted faults, which are all found."""

from __future__ import annotations

import pytest

from .engine import Engine, shipped
from .making import FAULTS, Bounds, Fault, Walk

SCOPES = {
    "two, of which a connection breaks and one dies": (Bounds(), {"claim -9", "publish -8", "publish 0"}),
    "two that lose their claims": (Bounds(drops=1, deaths=0, times=2), {"claim -9", "publish -8"}),
    "three": (Bounds(blocks=(1, 1, 2), drops=0, deaths=1), {"publish -8"}),
}


@pytest.mark.parametrize("scope", SCOPES)
def test_a_table_is_made_once_and_whole_in_any_interleaving(scope: str, url: str) -> None:
    bounds, answers = SCOPES[scope]
    report = Walk(Engine(url), bounds).run()
    print(f"{scope}: {report}")
    assert report.found is None, str(report.found)
    assert report.whole
    assert answers <= set(report.answers)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_in_making_is_found(fault: Fault, url: str) -> None:
    scripts = shipped()
    fault.edit(scripts)
    report = Walk(Engine(url, scripts), fault.bounds).run()
    assert report.found is not None, f"not found: {report}"
    print(report.found)
    assert any(what.startswith(fault.breaks) for what in report.found.what), report.found.what
