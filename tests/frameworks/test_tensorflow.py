"""TensorFlow sessions with a hook, each worker in a process of its own."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from remote import environment, run_programs

PROGRAM = Path(__file__).with_name("tensorflow_program.py")

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="tensorflow is not installed"),
    pytest.mark.timeout(240),
]


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")


def test_variables_of_two_workers_are_kept_together(url: str, job: str) -> None:
    run_programs(PROGRAM, [["shared", str(rank), url, job] for rank in range(2)], 200)


def test_the_clock_alone_bounds_the_lead_beside_a_parameter_server(url: str, job: str) -> None:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    places = [f"localhost:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    server = subprocess.Popen([sys.executable, str(PROGRAM), "servers", "ps", url, job, *places], env=environment())
    try:
        printed = run_programs(PROGRAM, [["servers", str(rank), url, job, *places] for rank in range(2)], 200)
    finally:
        server.kill()
        server.wait()
    clocks = [int(text.split()[-1]) for text in printed]
    assert 59 <= sum(clocks) <= 62, "the last step is everybody's"
