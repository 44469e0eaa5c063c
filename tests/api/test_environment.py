"""Where settings come from: arguments, then our environment, then a launcher's, then the job."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

import ssp_redis
from ssp_redis import Job, UsageError, Worker


def test_everything_can_come_from_the_environment(url: str, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "SSP_REDIS_URL": url,
        "SSP_REDIS_JOB": job,
        "SSP_REDIS_ID": "7",
        "SSP_REDIS_WORKERS": "1",
        "SSP_REDIS_STALENESS": "inf",
        "SSP_REDIS_RUN": "night",
    }.items():
        monkeypatch.setenv(name, value)
    with ssp_redis.join() as worker:
        assert (worker.job, worker.id, worker.staleness) == (job, "7", math.inf)
        status = Job(None, job).status()
        assert (status.run, status.workers) == ("night", 1)


def test_an_argument_beats_ours_and_ours_beats_the_launchers(
    url: str, job: str, monkeypatch: pytest.MonkeyPatch, join: Callable[..., Worker]
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://nowhere.invalid")
    monkeypatch.setenv("SSP_REDIS_URL", url)
    monkeypatch.setenv("SSP_REDIS_JOB", "another")
    monkeypatch.setenv("SSP_REDIS_STALENESS", "3")
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert join(url=None).id == "5"
    monkeypatch.setenv("SSP_REDIS_ID", "6")
    monkeypatch.setenv("SSP_REDIS_WORKERS", "1")
    monkeypatch.setenv("WORLD_SIZE", "9")
    assert join(url=None).id == "6"
    assert join(8, url=None, workers=1).id == "8"
    status = Job(url, job).status()
    assert (status.workers, status.staleness) == (1, 3)
    assert [member.worker for member in status.members] == ["5", "6", "8"]


def test_redis_url_is_the_second_choice(url: str, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", url)
    with ssp_redis.join(job=job, worker=0) as worker:
        assert worker.members == ["0"]


def test_an_explicit_none_is_unbounded_and_beats_the_environment(
    join: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSP_REDIS_STALENESS", "3")
    assert join(0, staleness=None).staleness == math.inf


def test_an_empty_variable_is_none(join: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSP_REDIS_ID", "SSP_REDIS_STALENESS", "SSP_REDIS_WORKERS", "RANK", "WORLD_SIZE", "SSP_REDIS_RUN"):
        monkeypatch.setenv(name, " ")
    worker = join()
    assert (worker.id, worker.staleness) == ("0", 0)


@pytest.mark.parametrize(
    ("name", "value", "culprit"),
    [
        ("SSP_REDIS_ID", "a b", "worker 'a b'"),
        ("RANK", "a b", "worker 'a b'"),
        ("SSP_REDIS_WORKERS", "many", "workers 'many'"),
        ("WORLD_SIZE", "0", "workers '0'"),
        ("SSP_REDIS_STALENESS", "-3", "staleness '-3'"),
        ("SSP_REDIS_RUN", "a:b", "run 'a:b'"),
        ("SSP_REDIS_JOB", "a:b", "job 'a:b'"),
    ],
)
def test_a_bad_variable_is_named(
    url: str, monkeypatch: pytest.MonkeyPatch, name: str, value: str, culprit: str
) -> None:
    monkeypatch.setenv("SSP_REDIS_JOB", "j")
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=culprit):
        ssp_redis.join(url)
