"""``ssp-redis snapshot`` and ``ssp-redis restore``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import redis

import ssp_redis
from ssp_redis import Job, Worker


def test_there_and_back(ssp: Any, url: str, new_job: Callable[[], str], tmp_path: Path) -> None:
    first, second = new_job(), new_job()
    with ssp_redis.join(url, job=first, worker=0, staleness=None) as worker:
        table = worker.table("w", np.zeros((1000, 16), "float32"))
        for _ in worker.clocks(3):
            table.inc(np.ones((1000, 16), "float32"))
        done = ssp("snapshot", "--job", first, "--url", url, "w.npz")
        assert done.out == f"job {first}, run 1, at min clock 3: 1 table, 62.5 KiB in w.npz\n"
        words = ssp("snapshot", "w.npz", "--json", SSP_REDIS_JOB=first, SSP_REDIS_URL=url).json
        assert words == words | {
            "path": "w.npz",
            "min_clock": 3,
            "clocks": {"0": 3},
            "staleness": "inf",
            "bytes": 64000,
        }
        assert words["tables"] == [{"name": "w", "dtype": "float32", "shape": [1000, 16]}]
    done = ssp("restore", "--job", second, "--url", url, "w.npz")
    assert done.out == f"job {second}: run 1-restored-1 at min clock 3, begins with 1 worker\n"
    options = ["--run", "again", "-n", "2", "-s", "4", "--lease", "3s", "--json"]
    words = ssp("restore", "w.npz", *options, "--job", second, "--url", url).json
    assert (words["run"], words["workers"], words["staleness"], words["lease"]) == ("again", 2, 4, 3.0)
    assert (Job(url, second).table("w").get() == 3).all()


def test_sparse_tables_say_how_many_rows(ssp: Any, join: Callable[..., Worker], url: str, job: str) -> None:
    worker = join(0)
    worker.sparse_table("emb", (10**9, 4), "float16").inc(np.ones((2, 4), "float16"), [5, 10**8])
    worker.tick()
    words = ssp("snapshot", "--job", job, "--url", url, "w.npz", "--json").json
    assert words["tables"] == [{"name": "emb", "dtype": "float16", "shape": [10**9, 4], "rows": 2}]
    assert words["bytes"] == 2 * (8 + 16)
    assert "1 table, 48 B in w.npz" in ssp("snapshot", "--job", job, "--url", url, "w.npz").out


def test_nothing_is_left_marked_by_one_that_was_ended(
    join: Callable[..., Worker], url: str, job: str, client: redis.Redis, tmp_path: Path
) -> None:
    """The next snapshot would have to wait until the mark runs out."""
    join(0).sparse_table("emb", (50, 2))
    program = (
        "import os, signal, sys\n"
        "from ssp_redis.cli import main\n"
        "from ssp_redis.snapshot import take\n"
        "take.Frozen.read = lambda *_: os.kill(os.getpid(), signal.SIGTERM)\n"
        "main(['snapshot', *sys.argv[1:]])\n"
    )
    command = [sys.executable, "-c", program, job, str(tmp_path / "w.npz"), "--url", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "interrupted by SIGTERM" in done.stderr) == (143, True), done.stderr
    assert not client.keys(f"ssp:{{{job}}}:*:u:*")
    assert not list(tmp_path.iterdir())


def test_what_is_refused(ssp: Any, join: Callable[..., Worker], url: str, job: str, tmp_path: Path) -> None:
    join("anna")
    ssp("snapshot", "--job", job, "--url", url, "w.npz")
    assert "has members (anna)" in ssp("restore", "--job", job, "--url", url, "w.npz", code=1).err
    assert "which job?" in ssp("restore", "--url", url, "w.npz", code=2).err
    (tmp_path / "text.npz").write_text("text")
    done = ssp("restore", "--job", job, "--url", url, "text.npz", code=2)
    assert "text.npz cannot be restored: it is no .npz" in done.err
    assert ".npz or .safetensors" in ssp("snapshot", "--job", job, "--url", url, "w.txt", code=2).err
    assert "no job" in ssp("snapshot", "--job", "nosuch", "--url", url, "w.npz", code=1).err
    ssp("restore", "--job", job, "--url", "redis://127.0.0.1:1", "w.npz", code=69)
