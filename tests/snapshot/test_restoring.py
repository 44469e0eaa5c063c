"""A snapshot goes on elsewhere: on another server, under another number of workers, exactly."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from fixtures import background, blocked
from markers import TABLES, begin, check, left_behind, mended
from remote import Remote, eventually

import ssp_redis
from ssp_redis import Job, JobMismatch, ServerRefused, StateLost, UsageError, Worker, list_jobs
from ssp_redis.snapshot.file import save
from ssp_redis.snapshot.state import Snapshot


@pytest.fixture
def taken(tmp_path: Path) -> Snapshot:
    """A snapshot made by hand, in ``hand.npz``."""
    snapshot = Snapshot(
        job="elsewhere",
        run="1",
        epoch=3,
        version=40,
        min_clock=5,
        staleness=4,
        created_staleness=2,
        workers=2,
        lease=7.5,
        retain=3600,
        reproducible="no",
        clocks={"0": 7, "1": 5, "gone": 2},
        departed={"gone": "lost"},
        dtypes={"w": "float32", "b": "bfloat16"},
        tables={"w": np.arange(12, dtype="float32").reshape(3, 4), "b": np.float32(1.001) * np.ones(3, "float32")},
    )
    save(tmp_path / "hand.npz", snapshot)
    return snapshot


@pytest.mark.parametrize("workers", [1, 5])
def test_what_three_workers_did_goes_on_with_one_or_five(
    remote: Callable[..., Remote], url: str, job: str, own_server: Any, tmp_path: Path, workers: int
) -> None:
    children = begin(remote, url, job, 3, workers=3, staleness=2)
    taken = left_behind(url, job, children, tmp_path / "w.npz")
    with Job(own_server.url, "moved") as moved:
        standing = moved.restore(tmp_path / "w.npz", workers=workers)
        assert (standing.run, standing.staleness, standing.workers) == ("1-restored-1", 2, workers)
        assert standing.min_clock == taken.min_clock
        assert not standing.started
        assert {one.worker: one.clock for one in standing.departed} == taken.clocks
        for name in TABLES:
            assert (moved.table(name).get() == taken.tables[name]).all()
        goal = max(taken.clocks.values()) + 12
        children = begin(remote, own_server.url, "moved", workers, goal, workers=workers)
        entered = {str(i): child.result(90)[0] for i, child in enumerate(children)}
        assert entered == {str(i): taken.clocks.get(str(i), taken.min_clock) for i in range(workers)}
        after = moved.snapshot(tmp_path / "after.npz")
        assert after.clocks == taken.clocks | {str(i): goal for i in range(workers)}
        check(after, {"3": taken.min_clock, "4": taken.min_clock})


@pytest.mark.parametrize("size", [4, 100])
def test_a_checkpoint_out_of_redis_carries_the_min_clock_and_restores_elsewhere(
    new_server: Callable[..., Any], tmp_path: Path, size: int
) -> None:
    """sql-machine-learning/elasticdl#1020: parameters in Redis had no checkpoint; with the server all was gone."""
    first, second = new_server(), new_server()
    with ssp_redis.join(first.url, job="train", worker=0, staleness=3) as worker:
        table = worker.table("w", np.zeros(size, "float32"))
        for _ in worker.clocks(9):
            table.inc(np.ones(size, "float32"))
        assert Job(first.url, "train").snapshot(tmp_path / "w.npz").min_clock == 9
    first.kill()
    assert Job(second.url, "train").restore(tmp_path / "w.npz").min_clock == 9
    with ssp_redis.join(second.url, job="train", worker=0) as worker:
        assert (worker.clock, worker.min_clock, worker.staleness) == (9, 9, 3)
        assert worker.table("w").get().tolist() == [9] * size
        assert list(worker.clocks(9)) == [], "what is done is done"
    with ssp_redis.join(second.url, job="train", worker="new") as worker:
        assert worker.clock == 9


@pytest.mark.parametrize("size", [8, 50])
def test_the_same_bits_go_on_in_a_reproducible_run(own_server: Any, tmp_path: Path, size: int) -> None:
    def work(job: str, worker: int, clocks: int) -> Any:
        with ssp_redis.join(own_server.url, job=job, worker=worker, workers=2, reproducible=True, timeout=60) as member:
            table = member.table("w", np.zeros(size, "float32"))
            for clock in member.clocks(clocks):
                rng = np.random.default_rng((clock, worker))
                table.inc((rng.standard_normal(size) * 10.0 ** rng.integers(-4, 4)).astype("float32") + 0 * table.get())

    standing = mended(own_server.url, tmp_path / "w.npz", work)
    assert (standing.reproducible, standing.min_clock) == ("yes", 13)
    first, second = (Job(own_server.url, job).table("w").get() for job in ("straight", "mended"))
    assert first.tobytes() == second.tobytes()
    with pytest.raises(UsageError, match="reproducible run has staleness 0"):
        Job(own_server.url, "other").restore(tmp_path / "w.npz", staleness=3)


def test_values_and_settings_are_those_of_the_file(url: str, job: str, tmp_path: Path, taken: Snapshot) -> None:
    standing = Job(url, job).restore(tmp_path / "hand.npz")
    assert (standing.staleness, standing.created_staleness) == (4, 2)
    assert (standing.workers, standing.lease, standing.min_clock) == (2, 7.5, 5)
    assert [(one.worker, one.clock, one.why) for one in standing.departed] == [
        ("0", 7, "left"),
        ("1", 5, "left"),
        ("gone", 2, "lost"),
    ]
    assert Job(url, job).table("w").get().tolist() == taken.tables["w"].tolist()
    again = Job(url, job).snapshot(tmp_path / "again.npz")
    assert again.tables["b"].tolist() == taken.tables["b"].tolist(), "not rounded to the half type on the way"


def test_the_quorum_is_waited_for_anew_and_a_laggard_enters_at_the_floor(
    join: Callable[..., Worker], url: str, job: str, tmp_path: Path, taken: Snapshot
) -> None:
    Job(url, job).restore(tmp_path / "hand.npz")
    first = background(join, 0)
    assert blocked(first, 0.5)
    with Job(url, job) as view:
        waiting = view.status()
        assert (waiting.min_clock, waiting.members[0].clock, waiting.members[0].lead) == (5, 7, 2)
        assert view.snapshot(tmp_path / "w.npz").min_clock == 5
    second = join("gone")
    assert (first.result(20).clock, second.clock) == (7, 5), "whoever comes first is ahead, and takes no clock from it"
    assert first.result(0).min_clock == 5


def test_what_is_said_beats_the_job_and_the_job_beats_the_file(
    url: str, job: str, tmp_path: Path, taken: Snapshot
) -> None:
    with ssp_redis.join(url, job=job, worker=0, staleness=6, lease=20):
        pass
    standing = Job(url, job).restore(tmp_path / "hand.npz")
    assert (standing.workers, standing.staleness, standing.created_staleness, standing.lease) == (1, 6, 6, 20)
    standing = Job(url, job).restore(tmp_path / "hand.npz", workers=4, staleness=None, lease=3)
    assert (standing.workers, standing.staleness, standing.created_staleness, standing.lease) == (
        4,
        float("inf"),
        float("inf"),
        3,
    )


def test_runs_get_names_that_were_never_used(url: str, job: str, tmp_path: Path, taken: Snapshot) -> None:
    with Job(url, job) as view:
        names = [view.restore(tmp_path / "hand.npz").run for _ in range(2)]
        view.snapshot(tmp_path / "second.npz")
        names.append(view.restore(tmp_path / "second.npz").run)
        assert names == ["1-restored-1", "1-restored-2", "1-restored-3"]
        assert view.restore(tmp_path / "hand.npz", run="mine").run == "mine"
        before = view.status()
        for used in ("mine", "1-restored-1"):
            with pytest.raises(JobMismatch, match=f"run {used} was used") as caught:
                view.restore(tmp_path / "hand.npz", run=used)
            assert caught.value.field == "run"
        assert view.status() == before
        with pytest.raises(UsageError, match="is not a name"):
            view.restore(tmp_path / "hand.npz", run="a b")
        long = dataclasses.replace(taken, run="x" * 64)
        save(tmp_path / "long.npz", long)
        assert view.restore(tmp_path / "long.npz").run == "x" * 53 + "-restored-1"


def test_refused_while_members_live_and_names_them(
    join: Callable[..., Worker], url: str, job: str, client: redis.Redis, tmp_path: Path, taken: Snapshot
) -> None:
    worker = join("anna", lease=1)
    table = worker.table("w", np.zeros(2))
    before = set(client.keys(f"ssp:{{{job}}}:*"))
    with Job(url, job) as view:
        with pytest.raises(JobMismatch, match="has members \\(anna\\)"):
            view.restore(tmp_path / "hand.npz")
        assert set(client.keys(f"ssp:{{{job}}}:*")) == before
        table.inc(np.ones(2))
        worker.tick()
        assert table.get().tolist() == [1, 1]
        worker.detach()
        standing = eventually(lambda: _restored(view, tmp_path / "hand.npz"), "the dead are noticed", 20)
        assert standing.members == []


def _restored(view: Job, path: Path) -> Any:
    try:
        return view.restore(path)
    except JobMismatch:
        return None


def test_a_worker_of_the_run_before_is_told(url: str, job: str, tmp_path: Path, taken: Snapshot) -> None:
    worker = ssp_redis.join(url, job=job, worker=0)
    Job(url, job).evict(0)
    Job(url, job).restore(tmp_path / "hand.npz")
    with pytest.raises(ssp_redis.SSPError):
        worker.tick()
    worker.detach()
    assert Job(url, job).status().min_clock == 5


def test_the_run_before_leaves_nothing_and_all_expires_until_somebody_joins(
    join: Callable[..., Worker], url: str, job: str, client: redis.Redis, tmp_path: Path, taken: Snapshot
) -> None:
    with ssp_redis.join(url, job=job, worker=0, retain=500) as worker:
        table = worker.table("w", np.zeros(300_000))
        for _ in worker.clocks(3):
            table.inc(np.ones(300_000))
    old = Job(url, job).status().run_id
    Job(url, job).restore(tmp_path / "hand.npz", workers=1)
    keys = client.keys(f"ssp:{{{job}}}:*")
    assert not [key for key in keys if old in key.decode()]
    assert not client.hexists(f"ssp:{{{job}}}:config", "dropped")
    assert all(0 < client.ttl(key) <= 500 for key in keys)
    join(0)
    assert all(client.ttl(key) == -1 for key in client.keys(f"ssp:{{{job}}}:*"))


@pytest.mark.parametrize("exists", [False, True])
def test_half_of_a_restoration_is_never_seen(
    remote: Callable[..., Remote],
    join: Callable[..., Worker],
    url: str,
    job: str,
    client: redis.Redis,
    tmp_path: Path,
    taken: Snapshot,
    exists: bool,
) -> None:
    if exists:
        with ssp_redis.join(url, job=job, worker=0) as worker:
            worker.table("mine", np.ones(2))
    before = Job(url, job).status() if exists else None
    known = set(client.keys(f"ssp:{{{job}}}:*"))
    child = remote()
    child.start(
        "from ssp_redis.snapshot import restore\n"
        "restore.Restorer._begin = lambda *_: time.sleep(3600)\n"
        "ssp_redis.Job(url, job).restore(path)",
        url=url,
        job=job,
        path=str(tmp_path / "hand.npz"),
    )
    half = eventually(lambda: set(client.keys(f"ssp:{{{job}}}:*")) - known, "blocks are written", 30)
    assert all(client.ttl(key) > 0 for key in half), "nobody else would ever delete them"
    child.kill()
    assert (job in list_jobs(url)) == Job(url, job).exists() == exists
    if before is not None:
        assert Job(url, job).status() == before
    worker = join(0)
    assert worker.clock == 0
    assert [table.name for table in Job(url, job).tables()] == (["mine"] if exists else [])
    worker.leave()
    assert Job(url, job).restore(tmp_path / "hand.npz").min_clock == 5


def test_one_that_fails_takes_back_what_it_wrote(
    url: str, job: str, client: redis.Redis, tmp_path: Path, taken: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ssp_redis.snapshot.restore._send", _after(interrupted))
    with pytest.raises(KeyboardInterrupt):
        Job(url, job).restore(tmp_path / "hand.npz")
    assert client.keys(f"ssp:{{{job}}}:*") == []


def _after(interrupted: Callable[..., None]) -> Callable[..., None]:
    from ssp_redis.snapshot.restore import _send

    def send(wire: Any, writes: Any) -> None:
        _send(wire, writes)
        interrupted()

    return send


def test_several_at_once_leave_one_of_them_whole(
    url: str, job: str, client: redis.Redis, tmp_path: Path, taken: Snapshot
) -> None:
    for i in range(4):
        changed = dataclasses.replace(taken, tables={"w": np.full((3, 4), i, "float32"), "b": np.full(3, i, "float32")})
        save(tmp_path / f"{i}.npz", changed)
    gate = threading.Barrier(4)

    def one(i: int) -> None:
        gate.wait()
        with contextlib.suppress(StateLost):  # replaced at once by another's
            Job(url, job).restore(tmp_path / f"{i}.npz")

    for future in [background(one, i) for i in range(4)]:
        future.result(60)
    view = Job(url, job)
    values = {value for name in ("w", "b") for value in np.ravel(view.snapshot(tmp_path / "end.npz").tables[name])}
    assert len(values) == 1
    run = view.status().run_id
    blocks = [key.decode() for key in client.keys(f"ssp:{{{job}}}:*:b:*")]
    assert {key.split(":")[2] for key in blocks} == {run}


def test_a_repeated_script_restores_once(
    url: str, job: str, tmp_path: Path, taken: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the script is lost: said again, it answers the same."""
    from ssp_redis.snapshot.script import RestoreScript

    call, calls = RestoreScript.call, []

    def lossy(self: Any, wire: Any, **words: Any) -> str:
        answer = call(self, wire, **words)
        calls.append(answer)
        if len(calls) == 1:
            raise ConnectionError("the answer is lost")
        return answer

    monkeypatch.setattr(RestoreScript, "call", lossy)
    assert Job(url, job).restore(tmp_path / "hand.npz").run == "1-restored-1"
    assert calls == ["", ""]


def test_a_server_without_the_memory_refuses_before_anything_is_written(
    own_server: Any, tmp_path: Path, taken: Snapshot
) -> None:
    large = dataclasses.replace(taken, dtypes={"w": "float64"}, tables={"w": np.zeros((100, 100_000))})
    save(tmp_path / "large.npz", large)
    with redis.Redis.from_url(own_server.url) as client:
        client.config_set("maxmemory", 200 << 20)
        with pytest.raises(ServerRefused, match=r"may need \d+ MiB in Redis with a quorum of 2"):
            Job(own_server.url, "job").restore(tmp_path / "large.npz")
        assert client.dbsize() == 0
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory", 2000 << 20)
        Job(own_server.url, "job").restore(tmp_path / "large.npz")


def test_a_job_of_which_part_is_gone_is_not_built_upon(
    url: str, job: str, client: redis.Redis, tmp_path: Path, taken: Snapshot
) -> None:
    with ssp_redis.join(url, job=job, worker=0):
        pass
    client.delete(f"ssp:{{{job}}}:config")
    view = Job(url, job)
    with pytest.raises(StateLost, match="delete the rest first"):
        view.restore(tmp_path / "hand.npz")
    view.delete()
    assert view.restore(tmp_path / "hand.npz").min_clock == 5
