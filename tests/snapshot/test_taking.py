"""A snapshot shows one moment of a job that runs: its tables hold exactly the deltas that its clocks say."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from markers import TABLES, begin, check, under_way
from remote import Remote

import ssp_redis
from ssp_redis import Job, StateLost, Worker
from ssp_redis.snapshot.file import load


def test_each_is_of_one_moment_while_three_workers_run(
    remote: Callable[..., Remote], url: str, job: str, tmp_path: Path
) -> None:
    children = begin(remote, url, job, 3, workers=3, staleness=2)
    with Job(url, job) as seen:
        under_way(seen)
        taken = [seen.snapshot(tmp_path / f"{i}.npz") for i in range(8)]
        seen.stop()
    for child in children:
        child.result(60)
    for i, one in enumerate(taken):
        check(one)
        assert one.min_clock == min(one.clocks.values())
        assert max(one.clocks.values()) - one.min_clock <= 3, "staleness, and the tick that is waiting"
        assert (one.run, one.staleness, one.workers, one.lease, one.departed) == ("1", 2, 3, 10, {})
        assert one.dtypes == {name: dtype for name, (_, dtype) in TABLES.items()}
        stored = load(tmp_path / f"{i}.npz")
        assert stored == one
        check(stored)
    assert len({one.version for one in taken}) > 3, "the job stood still"


def test_members_come_and_go_meanwhile(remote: Callable[..., Remote], url: str, job: str, tmp_path: Path) -> None:
    tables = {name: TABLES[name] for name in ("small", "count")}
    children = begin(remote, url, job, 2, tables=tables, pause=0.001, workers=2, staleness=4)
    over = threading.Event()

    def visit() -> None:
        while not over.is_set():
            with ssp_redis.join(url, job=job, worker="visitor", timeout=30) as visitor:
                if not visitor.stopped:
                    visitor.advance()

    with Job(url, job) as seen:
        under_way(seen)
        visitor = threading.Thread(target=visit)
        visitor.start()
        taken = [seen.snapshot(tmp_path / "one.npz") for _ in range(30)]
        over.set()
        visitor.join(30)
        seen.stop()
    for child in children:
        child.result(60)
    for one in taken:
        check(one)
        members = [clock for worker, clock in one.clocks.items() if worker not in one.departed]
        assert one.min_clock == min(members)
    lows = [one.min_clock for one in taken]
    assert lows == sorted(lows)
    assert {"left"} <= {one.departed.get("visitor", "") for one in taken}


def test_departed_workers_keep_their_clocks_in_it(
    together: Callable[..., list[Worker]], url: str, job: str, tmp_path: Path
) -> None:
    first, second = together(2, staleness=5)
    for worker, clocks in ((first, 4), (second, 2)):
        table = worker.table("w", np.zeros((8, 2)))
        for _ in range(clocks):
            table.inc([[1, 1]], rows=[int(worker.id)])
            worker.tick(timeout=10)
    second.leave("done")
    taken = Job(url, job).snapshot(tmp_path / "w.npz")
    assert (taken.clocks, taken.departed, taken.min_clock) == ({"0": 4, "1": 2}, {"1": "done"}, 4)
    first.leave()
    taken = Job(url, job).snapshot(tmp_path / "w.npz")
    assert (taken.clocks, taken.min_clock) == ({"0": 4, "1": 2}, 4)
    assert taken.departed == {"0": "left", "1": "done"}
    check(taken)


def test_an_open_clock_is_not_in_it(join: Callable[..., Worker], url: str, job: str, tmp_path: Path) -> None:
    worker = join(0)
    table = worker.table("w", np.zeros((8, 1)))
    table.inc(np.ones((8, 1)))
    taken = Job(url, job).snapshot(tmp_path / "w.npz")
    assert taken.clocks == {"0": 0}
    check(taken)


def test_a_job_without_tables(join: Callable[..., Worker], url: str, job: str, tmp_path: Path) -> None:
    worker = join(0)
    worker.tick()
    taken = Job(url, job).snapshot(tmp_path / "clock.npz")
    assert (taken.clocks, taken.tables, taken.min_clock) == ({"0": 1}, {}, 1)
    assert load(tmp_path / "clock.npz") == taken


def test_a_reproducible_run_at_its_last_complete_clock(
    remote: Callable[..., Remote], url: str, job: str, tmp_path: Path
) -> None:
    tables = {name: TABLES[name] for name in ("small", "half")}
    children = begin(remote, url, job, 3, tables=tables, workers=3, reproducible=True)
    with Job(url, job) as seen:
        under_way(seen)
        taken = [seen.snapshot(tmp_path / "r.npz") for _ in range(20)]
        seen.stop()
        for one in taken:
            assert set(one.clocks.values()) == {one.min_clock}
            assert one.reproducible == "yes"
            check(one)
        assert taken[-1].version > taken[0].version
        for child in children:
            child.kill()


def test_the_file_is_plain(join: Callable[..., Worker], url: str, job: str, tmp_path: Path) -> None:
    """Names that numpy.savez would take for its own, or for others, are tables like any."""
    worker = join(0)
    names = ["file", "w", "w.npy", "allow_pickle", "-", "arr_0"]
    for i, name in enumerate(names):
        worker.table(name, np.full((2, 3), i, "float32"))
    Job(url, job).snapshot(tmp_path / "plain.npz")
    with np.load(tmp_path / "plain.npz", allow_pickle=False) as arrays:
        assert arrays["file"].tolist() == [[0, 0, 0], [0, 0, 0]]
        assert '"min_clock": 0' in str(arrays["@ssp-redis"])
    stored = load(tmp_path / "plain.npz")
    assert [float(stored.tables[name][0, 0]) for name in names] == [0, 1, 2, 3, 4, 5]


def test_no_such_job(url: str, job: str, tmp_path: Path) -> None:
    with pytest.raises(StateLost, match=f"no job {job}"):
        Job(url, job).snapshot(tmp_path / "w.npz")
    assert not list(tmp_path.iterdir())
