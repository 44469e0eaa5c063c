"""``evict``, ``stop``, ``set`` and ``delete``."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from click.testing import CliRunner
from commands import Run
from fixtures import long_ago

from ssp_redis import Evicted, Job, StateLost, join
from ssp_redis.cli import main
from ssp_redis.keys import CONTROL


def test_evict_removes_a_worker_and_says_so(ssp: Run, url: str, job: str) -> None:
    with join(url, job=job, worker="a"):
        victim = join(url, job=job, worker="b")
        done = ssp("evict", "b", "--url", url, "--job", job)
        assert f"worker b evicted from job {job} at clock 0" in done.out
        with pytest.raises(Evicted):
            victim.tick(timeout=5)
        victim.leave()
        again = ssp("evict", "b", "--url", url, "--job", job)
        assert "no member" in again.out


@pytest.mark.parametrize("words", ["status", "set -s 3", "snapshot w.npz", "evict b", "stop"])
def test_a_job_may_stand_by_itself_or_behind_a_flag(url: str, job: str, tmp_path: Path, words: str) -> None:
    command, *rest = words.replace("w.npz", f"{tmp_path}/w.npz").split()

    def shown(*words: str, **environment: str) -> str:
        done = CliRunner().invoke(main, [command, *words, "--url", url], env=environment)
        assert done.exit_code == 0, done.output
        return done.output

    with join(url, job=job, worker="a"), join(url, job=job, worker="b"):
        assert job in shown(job, *rest)
        assert job in shown(*rest, "-j", job)
        assert job in shown(*rest, SSP_REDIS_JOB=job)
        if command != "evict":
            assert job in shown(job, *rest, SSP_REDIS_JOB="other")


def test_so_it_may_where_it_must_be_named(ssp: Run, url: str, job: str) -> None:
    join(url, job=job, worker="a").leave()
    ssp("snapshot", job, "w.npz", "--url", url)
    assert job in ssp("tick", job, "--id", "c", "--clock", "0", "--leave", "--json", "--url", url).out
    for named in ([job], ["-j", job]):
        assert f"job {job} deleted" in ssp("delete", *named, "--url", url).out
        assert f"job {job}: run 1-restored-1 at" in ssp("restore", *named, "w.npz", "--url", url).out


def test_evict_takes_a_lone_word_for_a_worker_of_the_only_job(ssp: Run, own_server: Any) -> None:
    with join(own_server.url, job="j", worker="a"), join(own_server.url, job="j", worker="b"):
        done = ssp("evict", "a", "b", "--url", own_server.url, code=1)
        assert "no job 'a' on this server" in done.err
        assert "worker a evicted from job j" in ssp("evict", "a", "--url", own_server.url).out
        assert "worker b evicted from job j" in ssp("evict", "j", "b", "--url", own_server.url).out


def test_evict_of_an_unknown_worker_names_those_there_are_and_evicts_nobody(ssp: Run, url: str, job: str) -> None:
    with join(url, job=job, worker="a"), Job(url, job) as view:
        done = ssp("evict", "a", "zz", "--url", url, "--job", job, code=2)
        assert "no worker 'zz'; it has a" in done.err
        assert len(view.status().members) == 1


def test_stop_and_resume(ssp: Run, url: str, job: str) -> None:
    with join(url, job=job, worker="a") as worker, Job(url, job) as view:
        assert f"ssp-redis stop --resume --job {job}" in ssp("stop", job, "--url", url).out
        assert view.status().stopped
        assert len(list(worker.clocks(10))) <= 1
        ssp("stop", "--resume", "--job", job, "--url", url)
        assert not view.status().stopped


def test_a_higher_staleness_wakes_whoever_it_admits(ssp: Run, url: str, job: str) -> None:
    with join(url, job=job, worker="slow", staleness=0), join(url, job=job, worker="fast") as fast:
        waiting = threading.Thread(target=fast.tick, kwargs={"timeout": 20})
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        done = ssp("set", job, "--staleness", "5", "--url", url)
        assert done.out == f"job {job}: staleness 0 -> 5\n"
        waiting.join(1)
        assert not waiting.is_alive()
        assert fast.staleness == 5
    assert "5 -> inf" in ssp("set", job, "-s", "inf", "--url", url).out


def test_delete_refuses_while_workers_are_at_work_unless_forced(ssp: Run, url: str, job: str) -> None:
    worker = join(url, job=job, worker="a")
    done = ssp("delete", job, "--url", url, code=1)
    assert f"job {job} has members (a): stop it first" in done.err
    assert f"ssp-redis delete --force {job}" in done.err
    assert ssp("delete", job, "--url", url, "--force").out == f"job {job} deleted\n"
    worker.detach()
    assert "nothing to delete" in ssp("delete", "--job", job, "--url", url).out


def test_delete_waits_for_workers_that_may_be_dead_and_says_so(
    ssp: Run, url: str, job: str, client: redis.Redis
) -> None:
    join(url, job=job, worker="a", lease=1).detach()
    long_ago(client, job, 60)
    done = ssp("delete", job, "--url", url)
    assert done.out == f"job {job} deleted\n"
    assert f"job {job} has members that may be dead" in done.err
    assert "worker a at clock 0, last seen 6" in done.err


@pytest.mark.parametrize(
    ("key", "force"),
    [(key, False) for key in ("config", "clocks", "ids", "log", "runs")]
    + [(key, True) for key in CONTROL if key != "graced"],
)
def test_a_job_of_which_part_is_gone_is_deleted_by_the_command_that_the_error_names(
    ssp: Run, url: str, job: str, client: redis.Redis, key: str, force: bool
) -> None:
    worker = join(url, job=job, worker="a")
    worker.table("w", np.zeros(3)).inc(np.ones(3))
    worker.tick()
    worker.detach() if force else worker.leave()
    assert client.delete(f"ssp:{{{job}}}:{key}")
    if key != "runs":
        for run in (None, "fresh") if key == "config" else (None,):
            with pytest.raises(StateLost, match=f"ssp-redis delete {job}"):
                join(url, job=job, worker="a", run=run, timeout=5)
    done = ssp("delete", job, *(["--force"] if force else []), "--url", url)
    assert ("was gone but for" if key == "config" else "deleted") in done.out
    assert client.keys(f"ssp:{{{job}}}*") == []
    join(url, job=job, worker="a", timeout=5).leave()


def test_delete_never_guesses_which_job(ssp: Run, own_server: Any) -> None:
    with join(own_server.url, job="only", worker=0):
        pass
    assert "which job?" in ssp("delete", "--url", own_server.url, code=2).err


def test_the_staleness_of_a_reproducible_job_stays_0(ssp: Run, url: str, job: str) -> None:
    with join(url, job=job, worker=0, workers=1, reproducible=True) as worker, Job(url, job) as view:
        done = ssp("set", job, "--staleness", "2", "--url", url, code=2)
        assert f"job {job} is reproducible, so its staleness stays 0" in done.err
        assert view.status().staleness == 0
        assert worker.tick(timeout=5) == 1
        worker.leave("done")
