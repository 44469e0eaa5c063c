"""A worker in another language keeps the bound beside Python workers (``examples/client.js``)."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import redis
from fixtures import in_database

import ssp_redis

CLIENT = Path(__file__).resolve().parent.parent / "examples" / "client.js"
CLOCKS = 60
STALENESS = 1


@pytest.fixture(scope="module")
def node() -> str:
    """Node; without it the test is skipped here and fails in CI."""
    found = shutil.which("node")
    if found:
        return found
    if os.environ.get("CI"):
        pytest.fail("CI must run the client in another language: install node")
    pytest.skip("node is not installed")


@pytest.fixture
def start(node: str, url: str, job: str) -> Callable[[str, int], subprocess.Popen[str]]:
    """Starts a JavaScript worker: ``start(worker, clocks)``."""

    def run(worker: str, clocks: int) -> subprocess.Popen[str]:
        command = [node, str(CLIENT), url, job, worker, str(clocks)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return run


def finish(process: subprocess.Popen[str]) -> list[dict[str, int]]:
    """What the JavaScript worker said, line by line."""
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def python_worker(url: str, job: str, name: str, slow: float, staleness: int) -> list[tuple[int, int]]:
    """Tick at random speed, and add to a table; (clock, min clock) at every admission."""
    rng, seen = random.Random(name), []
    with ssp_redis.join(url, job=job, worker=name, workers=3, staleness=staleness, timeout=30) as worker:
        table = worker.table("w", np.zeros(4))
        for clock in worker.clocks(CLOCKS):
            seen.append((clock, worker.min_clock))
            table.inc(np.ones(4))
            time.sleep(rng.random() * slow)
    return seen


def leads(log: list[bytes]) -> dict[str, list[int]]:
    """How far ahead of the slowest each worker was when it ran, as the server's own log orders the ticks.

    Whoever ticks from clock c has run at c, so it had been admitted there; the min has not fallen since.
    """
    clocks: dict[str, int] = {}
    found: dict[str, list[int]] = {}
    for text in log:
        kind, worker, _, clock, _, _ = text.decode().split(":")
        if kind == "t":
            assert int(clock) == clocks[worker] + 1
            found.setdefault(worker, []).append(clocks[worker] - min(clocks.values()))
        if kind == "l":
            del clocks[worker]
        else:
            clocks[worker] = int(clock)
    return found


@pytest.mark.parametrize("staleness", [0, STALENESS])
def test_the_bound_holds_beside_python_workers(
    start: Callable[[str, int], subprocess.Popen[str]], client: redis.Redis, url: str, job: str, staleness: int
) -> None:
    """At staleness 0 messages carry the log's last tags, too, which are not for this worker."""
    with ThreadPoolExecutor(2) as pool:
        python = [
            pool.submit(python_worker, url, job, name, slow, staleness) for name, slow in (("p0", 0.004), ("p1", 0.02))
        ]
        deadline = time.monotonic() + 30
        while not client.exists(f"ssp:{{{job}}}:config"):  # the Python workers say how many there are to be
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process = start("js", CLOCKS)
        seen = {f"p{i}": worker.result(60) for i, worker in enumerate(python)}
    *steps, end = finish(process)
    seen["js"] = [(step["clock"], step["min"]) for step in steps]

    for clocks in seen.values():
        assert [clock for clock, _ in clocks] == list(range(CLOCKS))
        assert all(0 <= clock - low <= staleness for clock, low in clocks)
    counted = leads(client.lrange(f"ssp:{{{job}}}:log", 0, -1))
    assert {worker: len(lead) for worker, lead in counted.items()} == {"p0": CLOCKS, "p1": CLOCKS, "js": CLOCKS}
    assert {lead for measured in counted.values() for lead in measured} <= set(range(staleness + 1))
    # it ran ahead and was held back, and it was messages that let it go on
    assert max(counted["js"]) == staleness
    assert end["clock"] == CLOCKS
    assert end["rechecks"] <= 3  # a slow machine may be late now and then; without messages there are a dozen
    with ssp_redis.Job(url, job) as watched:
        status = watched.status()
    assert (status.epoch, status.members) == (1, [])
    assert {(gone.worker, gone.clock, gone.why) for gone in status.departed} == {(w, CLOCKS, "done") for w in seen}


def test_a_job_that_has_only_this_worker(
    start: Callable[[str, int], subprocess.Popen[str]], url: str, job: str
) -> None:
    *steps, end = finish(start("js", 3))
    assert [step["clock"] for step in steps] == [0, 1, 2]
    assert end["clock"] == 3
    # the record knows it: what is done is done, and what is left goes on
    *steps, end = finish(start("js", 5))
    assert [step["clock"] for step in steps] == [3, 4]
    with ssp_redis.Job(url, job) as watched:
        assert [(gone.worker, gone.clock, gone.why) for gone in watched.status().departed] == [("js", 5, "done")]


def test_a_job_of_the_same_name_in_another_database_does_not_admit_it(
    start: Callable[[str, int], subprocess.Popen[str]], client: redis.Redis, url: str, job: str
) -> None:
    def stands_at(clock: int) -> None:
        deadline = time.monotonic() + 30
        while client.hget(f"ssp:{{{job}}}:clocks", "js") != b"%d" % clock:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    elsewhere = in_database(url, 1)
    with ssp_redis.join(url, job=job, worker="p0", staleness=STALENESS) as slow:
        process = start("js", CLOCKS)
        stands_at(STALENESS + 1)
        with ssp_redis.join(elsewhere, job=job, worker="p0", staleness=STALENESS) as other:
            for _ in range(CLOCKS):
                other.tick()
        ssp_redis.Job(elsewhere, job).delete()
        slow.tick()  # what comes after those messages
        stands_at(STALENESS + 2)
        assert leads(client.lrange(f"ssp:{{{job}}}:log", 0, -1))["js"] == [0, 1, 1]
    finish(process)


def test_its_id_is_taken_over(start: Callable[[str, int], subprocess.Popen[str]], url: str, job: str) -> None:
    process = start("js", 10**9)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # admitted
        process.stdout.readline()  # and past its first tick
        with ssp_redis.join(url, job=job, worker="js", timeout=30) as successor:
            _, err = process.communicate(timeout=60)
            assert process.returncode == 1
            assert f"refused: -2 {successor_host(url, job)}" in err
            assert successor.clock > 0
    finally:
        process.kill()
        process.wait()


def successor_host(url: str, job: str) -> str:
    """The host of the only member, as the server names it to whom it superseded."""
    with ssp_redis.Job(url, job) as watched:
        (member,) = watched.status().members
    return f"{member.host} {member.pid}"
