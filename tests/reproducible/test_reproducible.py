"""Reproducible runs: the same bits whatever the speeds, and whatever dies on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest
from fixtures import background

import ssp_redis
from ssp_redis import Job, JobMismatch, UsageError, WaitTimeout

SHAPES = {"tiny": (7,), "small": (257,), "large": (600, 600)}
CLOCKS = 12

#: A worker that computes something order-dependent in float32, at a speed of its own. Prints a digest of every read.
PROGRAM = """
import hashlib, os, random, sys, time
import numpy as np
import ssp_redis

url, job, number, workers, delay, shape = sys.argv[1:7]
rows = tuple(map(int, shape.split("x")))
random.seed()
place = dict(job=job, worker=number, workers=int(workers), reproducible=True)
with ssp_redis.join(url, **place, lease=1.0, timeout=60) as worker:
    table = worker.table("w", np.zeros(rows, np.float32))
    for clock in worker.clocks(int(sys.argv[7])):
        value = table.get()
        print(clock, hashlib.sha256(value.tobytes()).hexdigest(), flush=True)
        noise = np.random.default_rng([clock, int(number)]).standard_normal(rows)
        table.inc((noise * 10.0 ** (int(number) % 5) - 0.1 * value).astype(np.float32))
        time.sleep(random.random() * float(delay))
"""


def start(url: str, job: str, number: int, workers: int, delay: float, shape: tuple[int, ...]) -> subprocess.Popen[str]:
    words = [url, job, str(number), str(workers), str(delay), "x".join(map(str, shape)), str(CLOCKS)]
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *words], stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> list[str]:
    out, _ = process.communicate(timeout=90)
    assert process.returncode == 0
    return out.split("\n")[:-1]


def run(url: str, job: str, workers: int, shape: tuple[int, ...], kill: int | None = None) -> tuple[bytes, list[str]]:
    """One run; returns the final bytes and what worker 0 read at each clock."""
    processes = [start(url, job, i, workers, 0.02 * (i % 3), shape) for i in range(workers)]
    try:
        if kill is not None:
            victim = processes[kill]
            assert victim.stdout is not None
            for line in victim.stdout:
                if line.startswith("5 "):
                    break
            os.kill(victim.pid, signal.SIGKILL)
            victim.wait()
            victim.stdout.close()
            processes[kill] = start(url, job, kill, workers, 0.0, shape)
        reads = [finish(process) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    with Job(url, job) as outside:
        value = outside.table("w").get()
    for read in reads:
        known = dict(line.split() for line in reads[0])
        assert all(known.get(line.split()[0], line.split()[1]) == line.split()[1] for line in read)
    return value.tobytes(), reads[0]


@pytest.mark.parametrize("size", SHAPES)
@pytest.mark.parametrize("workers", [2, 3])
def test_two_runs_end_in_the_same_bits(url: str, new_job: Callable[[], str], workers: int, size: str) -> None:
    first, second = (run(url, new_job(), workers, SHAPES[size]) for _ in range(2))
    assert first == second


@pytest.mark.timeout(240)
def test_eight_workers_end_in_the_same_bits(url: str, new_job: Callable[[], str]) -> None:
    first, second = (run(url, new_job(), 8, SHAPES["small"]) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("size", SHAPES)
def test_a_worker_killed_and_restarted_changes_no_bit(url: str, new_job: Callable[[], str], size: str) -> None:
    whole, _ = run(url, new_job(), 3, SHAPES[size])
    broken, _ = run(url, new_job(), 3, SHAPES[size], kill=1)
    assert whole == broken


def test_nobody_is_reaped_the_others_wait_for_the_return(url: str, job: str) -> None:
    lost = ssp_redis.join(url, job=job, worker=0, workers=1, reproducible=True, lease=0.2)
    lost.detach()
    deadline = time.monotonic() + 1.0
    with Job(url, job) as outside:
        while time.monotonic() < deadline:  # five leases
            assert [member.worker for member in outside.status().members] == ["0"]
        assert outside.status().reproducible == "yes"
        outside.evict("0")
        assert outside.status().reproducible == "broken"


def test_a_join_that_times_out_does_not_end_the_promise(url: str, job: str) -> None:
    """Before the start nobody has added anything; after it, whoever comes back and gives up is waited for again."""
    place = {"job": job, "workers": 2, "reproducible": True, "timeout": 20.0}
    with Job(url, job) as outside:
        with pytest.raises(WaitTimeout, match="1 of 2 joined"):
            ssp_redis.join(url, worker=0, **place | {"timeout": 0.1})  # type: ignore[arg-type]
        assert outside.status().reproducible == "yes"
        joining = background(ssp_redis.join, url, worker=1, **place)
        first, second = ssp_redis.join(url, worker=0, **place), joining.result(20)  # type: ignore[arg-type]
        with pytest.raises(WaitTimeout, match="waits for: worker 1"):
            first.tick(0.1)
        first.detach()
        with pytest.raises(WaitTimeout, match="waits for: worker 1"):
            ssp_redis.join(url, worker=0, **place | {"timeout": 0.1})  # type: ignore[arg-type]
        assert outside.status().reproducible == "yes"
        assert [member.worker for member in outside.status().members] == ["0", "1"]
        second.tick(20)
        second.detach()


def test_another_id_is_refused(url: str, job: str) -> None:
    with ssp_redis.join(url, job=job, worker=0, workers=1, reproducible=True):
        with pytest.raises(JobMismatch, match="no place for worker 7"):
            ssp_redis.join(url, job=job, worker=7)


@pytest.mark.parametrize("wrong", [{"staleness": 1}, {"staleness": None}, {"flush_every": 2}])
def test_what_cannot_be_reproduced_is_refused(url: str, job: str, wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        ssp_redis.join(url, job=job, reproducible=True, **wrong)  # type: ignore[arg-type]


def test_a_job_is_reproducible_from_its_beginning_or_not_at_all(url: str, job: str) -> None:
    with ssp_redis.join(url, job=job, worker=0):
        with pytest.raises(JobMismatch, match="reproducible"):
            ssp_redis.join(url, job=job, worker=1, reproducible=True)


@pytest.mark.parametrize("staleness", [1, None])
def test_the_staleness_of_such_a_job_stays_0(url: str, job: str, staleness: float | None) -> None:
    """Also when the promise was broken: what was read before would not tell of it."""
    worker = ssp_redis.join(url, job=job, worker=0, workers=1, reproducible=True)
    with Job(url, job) as outside:
        for promise in ("yes", "broken"):
            assert outside.status().reproducible == promise
            with pytest.raises(UsageError, match=f"job {job} is reproducible, so its staleness stays 0"):
                outside.set_staleness(staleness)
            assert outside.status().staleness == 0
            outside.set_staleness(0)
            if promise == "yes":
                worker.tick(10)
                outside.evict("0")
    worker.detach()


def test_the_workers_of_such_a_job_stay_as_many(url: str, job: str) -> None:
    with ssp_redis.join(url, job=job, worker=0, workers=1, reproducible=True) as worker:
        assert list(worker.clocks(2)) == [0, 1]
    with pytest.raises(JobMismatch, match=f"job {job} is reproducible, so its start quorum stays 1"):
        Job(url, job).gather(2)
    Job(url, job).gather(1)


def reads_of(url: str, job: str, elements: int, within: str) -> list[bytes]:
    """What worker 0 of 2 reads at the end of each clock, after ``within`` has happened in the middle of it."""
    place = {"job": job, "workers": 2, "reproducible": True, "timeout": 20.0}
    joining = background(ssp_redis.join, url, worker=1, **place)
    worker, other = ssp_redis.join(url, worker=0, **place), joining.result(20)  # type: ignore[arg-type]
    table = worker.table("w", np.full(elements, 0.1, np.float32))
    seen = []
    for clock in range(12):
        draw = np.random.default_rng(clock)
        *deltas, last = [(draw.standard_normal(elements) * 10.0**power).astype(np.float32) for power in (1, -1, 0, 2)]
        for delta in deltas:
            table.inc(delta)
            if within != "nothing":
                table.get()
            if within == "return":
                other.detach()
                other = ssp_redis.join(url, worker=1, **place)  # type: ignore[arg-type]
                worker._clock.sync()  # as after a reconnection
        other.table("w").inc(last)
        seen.append(table.get().tobytes())
        ticking = background(other.tick, 20)
        worker.tick(20)
        ticking.result(20)
        seen.append(table.get().tobytes())
    other.detach()
    worker.detach()
    return seen


@pytest.mark.parametrize("elements", [7, 16, 17, 300])
@pytest.mark.parametrize("within", ["read", "return"])
def test_what_happens_in_the_middle_of_a_clock_changes_no_bit(
    url: str, new_job: Callable[[], str], elements: int, within: str
) -> None:
    """Reads, and a worker that returns; tables of at most 64 bytes keep their value laid out between reads."""
    assert reads_of(url, new_job(), elements, within) == reads_of(url, new_job(), elements, "nothing")
