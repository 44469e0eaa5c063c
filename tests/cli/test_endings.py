"""Signals and deaths: whatever ends, nobody waits for it and nothing stays behind."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
import redis
from commands import Run, Start, environment

from ssp_redis import Job, join
from ssp_redis.errors import SSPError

T = TypeVar("T")

#: Longer than any of these tests: who waits for it, fails.
LEASE = "100"


def until(look: Callable[[], T], what: str, timeout: float = 20) -> T:
    deadline = time.monotonic() + timeout
    while not (value := look()):
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.05)
    return value


def members(url: str, job: str) -> dict[str, int]:
    """Process id of each worker."""
    with Job(url, job) as view:
        try:
            return {member.worker: member.pid for member in view.status().members}
        except SSPError:
            return {}


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.fixture
def running(start: Start, url: str, job: str) -> tuple[subprocess.Popen[str], dict[str, int]]:
    """A launch of three workers in the middle of its work, and their process ids."""
    process = start(
        *("launch", "--url", url, "--job", job, "-n", "3", "-s", "3", "--lease", LEASE),
        *("--clocks", "1000000", "--straggle", "1ms"),
    )
    with Job(url, job) as view:
        until(lambda: view.exists() and view.status().min_clock > 10, "three workers at work")
    return process, members(url, job)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_makes_all_workers_leave(
    running: tuple[subprocess.Popen[str], dict[str, int]], url: str, job: str, number: int
) -> None:
    process, pids = running
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert "the workers have left the job" in err
    assert "Traceback" not in err
    assert "clocks/s" in out, "what was done so far is told"
    assert all(gone(pid) for pid in pids.values())
    with Job(url, job) as view:
        status = view.status()
    assert status.members == []
    assert {one.why for one in status.departed} == {"left"}


def test_a_second_signal_forces(running: tuple[subprocess.Popen[str], dict[str, int]]) -> None:
    process, pids = running
    for pid in pids.values():
        os.kill(pid, signal.SIGSTOP)  # none of them will leave by itself
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=5)
    assert process.returncode == 130
    until(lambda: all(gone(pid) for pid in pids.values()), "no worker is left", 5)


def test_a_killed_launch_leaves_no_worker_behind(
    running: tuple[subprocess.Popen[str], dict[str, int]], url: str, job: str
) -> None:
    process, pids = running
    process.kill()
    until(lambda: all(gone(pid) for pid in pids.values()), "no worker is left", 10)
    assert members(url, job) == {}, "they left the job"


def test_a_killed_launch_leaves_no_private_server_behind_either(start: Start, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, ssp_redis\n"
        "with ssp_redis.join() as worker:\n"
        "    open('pid' + worker.id, 'w').write(str(os.getpid()))\n"
        "    open('socket', 'w').write(os.environ['SSP_REDIS_URL'].removeprefix('unix://'))\n"
        "    for clock in worker.clocks(10**9): pass\n"
    )
    process = start("launch", "-n", "2", "train.py")
    until(lambda: len(list(tmp_path.glob("pid*"))) == 2 and (tmp_path / "socket").exists(), "two workers")
    process.kill()
    for file in tmp_path.glob("pid*"):
        until(lambda file=file: gone(int(file.read_text())), "no worker is left", 10)  # type: ignore[misc]
    until(lambda: not os.path.exists((tmp_path / "socket").read_text()), "the server is gone", 10)


def test_a_killed_worker_is_named_and_the_others_do_not_wait_for_its_lease(
    running: tuple[subprocess.Popen[str], dict[str, int]], url: str, job: str
) -> None:
    process, pids = running
    os.kill(pids["1"], signal.SIGKILL)
    until(lambda: "1" not in members(url, job), "it is evicted at once", 5)
    with Job(url, job) as view:
        before = view.status().min_clock
        until(lambda: view.status().min_clock > before + 20, "the others go on", 10)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert "worker 1 at clock" in err
    assert "killed by SIGKILL; the others go on" in err


def test_a_launch_whose_worker_was_killed_fails(start: Start, url: str, job: str) -> None:
    process = start(
        *("launch", "--url", url, "--job", job, "-n", "2", "--clocks", "300", "--straggle", "5ms"),
        *("--lease", LEASE, "--json"),
    )
    pids = until(lambda: len(found := members(url, job)) == 2 and found, "two workers")
    os.kill(pids["0"], signal.SIGKILL)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "1 of 2 workers failed" in err
    assert '"why": "killed by SIGKILL"' in out


def test_a_worker_that_is_evicted_is_named_with_its_clock(
    running: tuple[subprocess.Popen[str], dict[str, int]], url: str, job: str
) -> None:
    process, pids = running
    with Job(url, job) as view:
        view.evict(2)
        until(lambda: gone(pids["2"]), "it has ended", 15)
        before = view.status().min_clock
        until(lambda: view.status().min_clock > before + 20, "the others go on", 10)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=20)
    assert re.search(r"worker 2, at clock \d+, was evicted; the others go on\n", err), err
    assert "evicted" in out


def test_when_one_cannot_start_the_others_do_not_wait_for_the_quorum(ssp: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, sys, ssp_redis\n"
        "if os.environ['SSP_REDIS_ID'] == '1': sys.exit('no licence for this machine')\n"
        "ssp_redis.join().leave()\n"
    )
    done = ssp("launch", "-n", "3", "train.py", code=1, timeout=15)
    assert "[1] no licence for this machine" in done.err
    assert "worker 1: ended with exit code 1" in done.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_lone_worker_leaves_on_a_signal_also_while_it_waits(start: Start, url: str, job: str, number: int) -> None:
    with join(url, job=job, worker="slow", lease=float(LEASE)):
        process = start("worker", "--url", url, "--job", job, "--id", "fast")
        with Job(url, job) as view:
            until(lambda: len(view.status().members) == 2 and view.status().members[0].clock > 0, "it waits")
        process.send_signal(number)
        _, err = process.communicate(timeout=10)
        assert process.returncode == 128 + number
        assert f"interrupted by {signal.Signals(number).name}" in err
        assert list(members(url, job)) == ["slow"]


def test_a_script_is_taken_out_of_its_job_even_if_it_never_leaves(
    start: Start, tmp_path: Path, url: str, job: str
) -> None:
    (tmp_path / "train.py").write_text("import ssp_redis, time\nworker = ssp_redis.join()\ntime.sleep(100)\n")
    process = start("worker", "--url", url, "--job", job, "--id", "a", "train.py")
    until(lambda: members(url, job), "it has joined")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    assert process.returncode == 143
    assert members(url, job) == {}


def test_the_older_of_two_processes_with_one_id_ends_with_76(start: Start, url: str, job: str) -> None:
    words = ("worker", "--url", url, "--job", job, "--id", "0", "--clocks", "1000000", "--straggle", "1ms", "--json")
    older = start(*words)
    first = until(lambda: members(url, job), "the older one")
    newer = start(*words)
    until(lambda: members(url, job) != first, "the newer one")
    out, err = older.communicate(timeout=10)
    assert older.returncode == 76, err
    assert f"pid {newer.pid}" in err
    assert out == ""
    newer.send_signal(signal.SIGTERM)
    newer.communicate(timeout=10)


def test_on_a_terminal_progress_is_drawn_and_wiped(tmp_path: Path) -> None:
    main_end, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "ssp_redis", "launch", "-n", "2", "--clocks", "300", "--straggle", "5ms"],
        cwd=tmp_path,
        env=environment(COLUMNS="100", LINES="20", PYTHONUTF8="1"),
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
    )
    os.close(terminal)
    drawn = b""
    while select.select([main_end], [], [], 30)[0]:
        try:
            drawn += os.read(main_end, 65536)
        except OSError:
            break
    os.close(main_end)
    out, _ = process.communicate(timeout=10)
    text = drawn.decode()
    assert "linreg · 2 workers" in text
    assert "/300" in text
    assert "lead" in text
    assert "waits" in text
    assert "loss" in text
    assert text.endswith("\033[J"), "nothing of it stays"
    assert "\033" not in out
    assert "600 clocks in" in out


def test_a_private_server_that_dies_ends_the_launch_at_once(start: Start, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, ssp_redis\n"
        "with ssp_redis.join() as worker:\n"
        "    open('url', 'w').write(os.environ['SSP_REDIS_URL'])\n"
        "    for clock in worker.clocks(10**9): pass\n"
    )
    process = start("launch", "-n", "1", "train.py")
    url = until(lambda: (tmp_path / "url").exists() and (tmp_path / "url").read_text(), "a worker")
    with redis.Redis.from_url(url) as client, contextlib.suppress(redis.ConnectionError):
        client.shutdown(nosave=True)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 69
    assert "the private server died" in err
