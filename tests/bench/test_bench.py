"""The command: every measurement ends, is exact, says what it promises to say, and leaves nothing on the server.

Nothing here looks at a time: what the machine does besides is not known.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from ssp_redis.bench.suite import KINDS

_ROOT = Path(__file__).parents[2]
_CELL = {
    *("workers", "nbytes", "staleness", "flush_every", "clocks", "compute", "slowest"),
    *("clock_ms", "blob_ms", "blocks_ms", "blob_ratio", "blocks_ratio", "in_tables", "out_tables"),
    *("wait_ms", "push_ms", "pull_ms"),
}
_KEYS = {
    "tick": {
        *("calls", "bare", "bare_server_us", "cases", "growth_server", "growth_trip", "commands_per_tick"),
    },
    "wake": {"hops", "tick", "publish", "poll", "ratio", "poll_ratio", "missed"},
    "idle": {
        *("seconds", "recheck_seconds", "lease_seconds", "commands", "commands_per_recheck", "heartbeats"),
        "per_second",
    },
    "rate": {"workers", "staleness", "clocks", "clocks_per_second", "least", "most", "scripts_per_second"},
}


def bench(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(_ROOT)}
    if server := os.environ.get("SSP_REDIS_TEST_SERVER"):
        environment["SSP_REDIS_SERVER"] = server
    done = subprocess.run(
        [sys.executable, "-m", "ssp_redis", "bench", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize("kind", KINDS)
def test_a_measurement_ends_and_says_what_is_documented(kind: str, new_server: Callable[..., Any]) -> None:
    server = new_server(tcp=True)
    done = bench(kind, "--quick", "--json", "--url", server.url)
    document = json.loads(done.stdout)
    assert set(document) == {"ssp_redis", "about", "rounds", "quick", kind}
    documented = set(re.findall(r"`(\w+)`", (_ROOT / "docs" / "performance.md").read_text()))
    assert set(document["about"]) <= documented
    found = document[kind]
    for one in found if isinstance(found, list) else [found]:
        assert set(one) == _KEYS.get(kind, _CELL)
        assert set(one) <= documented
    with redis.Redis.from_url(server.url) as client:
        assert client.keys("*") == []
    if kind in ("tick", "idle"):
        {"tick": _tick, "idle": _idle}[kind](found)


def _tick(found: dict[str, Any]) -> None:
    assert found["commands_per_tick"] == 1
    assert {(case["members"], case["min"]) for case in found["cases"]} == {
        (members, low) for members in (2, 500) for low in ("still", "moves")
    }


def _idle(found: dict[str, Any]) -> None:
    """Once in every re-check, and the heartbeats."""
    assert 1 <= found["commands"] <= found["seconds"] / found["recheck_seconds"] + 1
    assert 1 <= found["heartbeats"] <= 3 * found["seconds"] / found["lease_seconds"] + 1


def test_tables_are_exact_at_every_staleness() -> None:
    words = ["dense", "-n", "3", "--size", "1000KB", "-s", "0,3,inf", "-c", "10", "--rounds", "1", "--json"]
    cells = json.loads(bench(*words).stdout)["dense"]
    assert {cell["nbytes"] for cell in cells} == {1_000_000}
    assert [cell["staleness"] for cell in cells] == [0, 3, None]


def test_people_get_a_table() -> None:
    done = bench("rate", "small", "--quick", "--tcp")
    assert "clocks/s in all" in done.stdout
    assert re.search(r"^40 KiB +2 +0 +1 ", done.stdout, re.MULTILINE)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nothing"], "'nothing' is not one of"),
        (["--size", "4 apples"], "is not a size"),
        (["-n", "0"], "is not a whole number from 1 up"),
        (["-s", "-1"], "is not a whole number from 0 up or inf"),
        (["dense", "-s", "0", "--flush-every", "2"], "flush_every"),
        (["dense", "--slowest", "nan"], "nan is not a number"),
        (["dense", "--slowest", "inf"], "inf is not in the range"),
    ],
)
def test_wrong_usage_is_said_before_anything_runs(words: list[str], says: str) -> None:
    assert says in bench(*words, code=2).stderr


def test_no_server_is_its_own_code() -> None:
    assert "cannot be reached" in bench("tick", "--url", "redis://127.0.0.1:1", code=69).stderr


def test_a_deadline_ends_it() -> None:
    done = bench("straggler", "-c", "1000", "--timeout", "4s", code=75)
    assert "no answer within 4 s" in done.stderr or "did not come" in done.stderr
