"""``status`` and ``jobs``: what they show and which job they mean."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from commands import Run, Start

from ssp_redis import Job, join


def test_status_shows_every_worker_its_clock_and_its_lease(ssp: Run, url: str, job: str) -> None:
    with join(url, job=job, worker="a", staleness=3, lease=20) as one, join(url, job=job, worker="b") as two:
        one.table("w", np.zeros((10, 2), np.float32))
        for _ in range(2):
            two.tick()
        done = ssp("status", "--url", url, "--job", job)
        lines = done.out.splitlines()
        assert lines[0].startswith(f"job {job} · run 1 · running · staleness 3 · min clock 0 · 2 members · quorum 1")
        rows = {line.split()[0]: line.split() for line in lines if line.startswith(("a ", "b "))}
        assert rows["a"][1:3] == ["0", "+0"]
        assert rows["b"][1:3] == ["2", "+2"]
        assert "table w: float32 (10, 2), 80 B" in done.out


def test_status_as_json_is_one_object_without_infinity(ssp: Run, url: str, job: str) -> None:
    with join(url, job=job, worker="a", staleness=None):
        done = ssp("status", "--url", url, "--json", SSP_REDIS_JOB=job)
    assert done.json["staleness"] == "inf"
    assert done.json["state"] == "running"
    assert [member["worker"] for member in done.json["members"]] == ["a"]
    later = ssp("status", job, "--url", url, "--json")
    assert later.json["state"] == "idle"
    assert later.json["departed"] == [{"worker": "a", "clock": 0, "why": "left"}]


def test_status_without_a_name_means_the_only_job_there_is(ssp: Run, own_server: Any, start: Start) -> None:
    assert "which job?" in ssp("status", "--url", own_server.url, code=2).err
    with join(own_server.url, job="one", worker=0):
        pass
    assert ssp("status", "--url", own_server.url).out.startswith("job one")
    with join(own_server.url, job="two", worker=0):
        pass
    assert "there are one, two" in ssp("status", "--url", own_server.url, code=2).err


def test_a_job_that_is_not_there_is_named(ssp: Run, url: str, job: str) -> None:
    assert f"no job '{job}' on this server" in ssp("status", job, "--url", url, code=1).err


def test_status_can_be_looked_at_again_and_again(start: Start, url: str, job: str) -> None:
    with join(url, job=job, worker=0) as worker:
        watching = start("status", job, "--url", url, "--interval", "50ms", "--json")
        assert watching.stdout is not None
        seen = [json.loads(watching.stdout.readline())["min_clock"]]
        worker.tick()
        while seen[-1] == 0:
            seen.append(json.loads(watching.stdout.readline())["min_clock"])
    watching.terminate()
    assert watching.wait(5) != 0


def test_jobs_lists_them_all(ssp: Run, own_server: Any) -> None:
    assert ssp("jobs", "--url", own_server.url).out == "no jobs on this server\n"
    assert ssp("jobs", "--url", own_server.url, "--json").json == []
    with join(own_server.url, job="running", worker=0, staleness=2):
        with join(own_server.url, job="over", worker=0):
            pass
        with Job(own_server.url, "over") as view:
            view.stop()
        done = ssp("jobs", "--url", own_server.url)
        found = ssp("jobs", "--url", own_server.url, "--json").json
    assert [line.split()[0] for line in done.out.splitlines()] == ["job", "over", "running"]
    assert [(one["job"], one["state"], one["members"]) for one in found] == [
        ("over", "stopped", 0),
        ("running", "running", 1),
    ]


@pytest.mark.parametrize("words", ["status x", "jobs", "check"])
def test_a_server_that_does_not_answer_is_code_69(ssp: Run, words: str) -> None:
    done = ssp(*words.split(), "--url", "unix:///no/such/socket", code=69)
    assert "unix:///no/such/socket" in done.err
