"""TensorFlow sessions with a hook, each worker in a process of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from remote import environment, eventually, free_ports, run_programs

import ssp_redis

PROGRAM = Path(__file__).with_name("tensorflow_program.py")

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="tensorflow is not installed"),
    pytest.mark.timeout(400),
]


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")


def ranks(what: str, *more: str) -> list[list[str]]:
    return [[what, str(rank), *more] for rank in range(2)]


@contextlib.contextmanager
def parameter_server(what: str, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    server = subprocess.Popen([sys.executable, str(PROGRAM), what, "ps", *more], env=environment())
    try:
        yield server
    finally:
        server.kill()
        server.wait()


def test_variables_of_two_workers_are_kept_together(url: str, job: str, tmp_path: Path) -> None:
    run_programs(PROGRAM, ranks("shared", url, job, str(tmp_path)), 200)


def test_the_clock_alone_bounds_the_lead_beside_a_parameter_server(url: str, job: str, tmp_path: Path) -> None:
    first = free_ports(3)
    more = [url, job, str(tmp_path), *[f"localhost:{first + i}" for i in range(3)]]
    with parameter_server("servers", *more):
        printed = run_programs(PROGRAM, ranks("servers", *more), 200)
    clocks = [int(text.split()[-1]) for text in printed]
    assert 59 <= sum(clocks) <= 62, "the last step is everybody's"


def test_a_parameter_server_that_comes_back_resets_no_clock(url: str, job: str, tmp_path: Path) -> None:
    first = free_ports(3)
    more = [url, job, str(tmp_path), *[f"localhost:{first + i}" for i in range(3)]]

    def clocks() -> list[int]:
        time.sleep(0.05)
        with contextlib.suppress(ssp_redis.SSPError), ssp_redis.Job(url, job) as seen:
            return [member.clock for member in seen.status().members]
        return []

    with contextlib.ExitStack() as stack:
        server = stack.enter_context(parameter_server("recovery", *more))
        workers = [
            subprocess.Popen(
                [sys.executable, str(PROGRAM), *words], stdout=subprocess.PIPE, text=True, env=environment()
            )
            for words in ranks("recovery", *more)
        ]
        for worker in workers:
            stack.callback(worker.wait)
            stack.callback(worker.kill)
        eventually(lambda: sum(clocks()) > 60, "some steps", 150)
        server.kill()
        server.wait()
        time.sleep(1)
        lost = clocks()
        assert len(lost) == 2 and sum(lost) < 300
        stack.enter_context(parameter_server("recovery", *more))
        printed = [worker.communicate(timeout=150)[0] for worker in workers]
        assert [worker.returncode for worker in workers] == [0, 0]
    found = [[int(number) for number in re.findall("[0-9]+", text)] for text in printed]
    assert min(sessions for _, sessions, _ in found) >= 2, "the chief's and the other's began again"
    begun = found[0][2]
    assert begun >= 25, "from a checkpoint of the chief's"
    assert all(clock > before for (clock, _, _), before in zip(found, lost, strict=True)), "the clocks went on"
    assert sum(clock for clock, _, _ in found) >= 299 + sum(lost) - begun, "and counted what was made again"
