"""More of the public reports: keys evicted one by one, deadlines on a frozen server, dead joiners, hot blocks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import redis
from fixtures import background
from remote import Remote, eventually

import ssp_redis
from ssp_redis import Job, ServerUnavailable, StateLost, UsageError, WaitTimeout, Worker

Join = Callable[..., Worker]
Together = Callable[..., list[Worker]]


def rounds(workers: list[Worker], tables: list[Any], count: int, shape: tuple[int, ...]) -> None:
    for _ in range(count):
        for table in tables:
            table.inc(np.ones(shape))
        for ticking in [background(worker.tick, 5) for worker in workers]:
            ticking.result(10)
        for table in tables:
            table.get()


@pytest.mark.parametrize("size", [3, 300])
@pytest.mark.parametrize("key", ["log", "order", "leases", "clocks", "ids", "config", "*:tables", "*:bases"])
def test_one_key_that_was_evicted_is_state_lost(
    together: Together, client: redis.Redis, url: str, job: str, key: str, size: int
) -> None:
    """sidekiq#2883, rq/rq#1280, taskforcesh/bullmq#921: ``allkeys-lru`` deletes live data, key by key.

    Numbers that are read are right or StateLost, for members, newcomers and onlookers."""
    workers = together(2, staleness=0, recheck=0.3)
    tables = [worker.table("w", np.zeros(size)) for worker in workers]
    rounds(workers, tables, 4, (size,))
    assert client.delete(*client.keys(f"ssp:{{{job}}}:{key}"))
    with contextlib.suppress(StateLost):
        rounds(workers, tables, 6, (size,))
        assert [table.get().max() for table in tables] == [20, 20]
    with contextlib.suppress(StateLost):
        seen = Job(url, job).table("w").get()
        assert seen.max() in (8, 20) and seen.min() == seen.max()
    with contextlib.suppress(StateLost):
        late = ssp_redis.join(url, job=job, worker=2, timeout=5)
        try:
            assert late.table("w", np.zeros(size)).get().max() in (8, 20), "begun anew from zero"
        finally:
            late.detach()


def test_an_evicted_order_does_not_let_anybody_run_ahead(together: Together, client: redis.Redis, job: str) -> None:
    """sidekiq#2883, rq/rq#1280, taskforcesh/bullmq#921."""
    fast, slow = together(2, staleness=2)
    fast.tick(timeout=5)
    slow.tick(timeout=5)
    client.delete(f"ssp:{{{job}}}:order")
    with contextlib.suppress(StateLost, WaitTimeout):
        for _ in range(10):
            fast.tick(timeout=1)
    assert fast.clock <= slow.clock + 2 + 1


def test_evicted_leases_do_not_keep_the_dead(
    join: Join, remote: Callable[..., Remote], client: redis.Redis, url: str, job: str
) -> None:
    child = remote()
    begin = background(child.join, url, job, worker=1, workers=2, lease=1.0)
    worker = join(0, workers=2, lease=1.0, recheck=0.3)
    begin.result(20)
    child.kill()
    client.delete(f"ssp:{{{job}}}:leases")
    with contextlib.suppress(StateLost):
        worker.tick(timeout=5)


@pytest.mark.parametrize("timeout", [0.0, 0.5, 1.7])
@pytest.mark.parametrize("call", ["tick", "wait", "barrier"])
def test_the_second_call_on_a_frozen_server_owns_its_deadline_too(own_server: Any, call: str, timeout: float) -> None:
    """securefederatedai/openfederatedlearning#981, tensorflow/tensorflow#25858."""
    other = background(ssp_redis.join, own_server.url, job="j", worker=1, workers=2)
    worker = ssp_redis.join(own_server.url, job="j", worker=0, workers=2, recheck=0.3)
    other.result(20).advance()
    worker.advance()
    worker.wait(timeout=5)
    worker.advance()
    own_server.freeze()
    for _ in range(2):  # the first drops the connection, the second has to make one
        begun = time.monotonic()
        with pytest.raises((WaitTimeout, ServerUnavailable)):
            getattr(worker, call)(timeout=timeout)
        assert time.monotonic() - begun < timeout + 1.0 + 0.4
    own_server.thaw()


def test_reconnect_timeout_and_a_jobs_timeout_hold_on_a_frozen_server(own_server: Any) -> None:
    """tensorflow/tensorflow#25858."""
    worker = ssp_redis.join(own_server.url, job="j", worker=0, reconnect_timeout=1.0)
    seen = Job(own_server.url, "j", timeout=0.5)
    own_server.freeze()
    begun = time.monotonic()
    with pytest.raises(ServerUnavailable):
        worker.tick()
    assert time.monotonic() - begun < 1.0 + 5.0 + 0.5  # one step of the connection, and the limit
    begun = time.monotonic()
    with pytest.raises(ServerUnavailable):
        seen.status()
    assert time.monotonic() - begun < 0.5 + 5.0 + 0.5
    own_server.thaw()


@pytest.mark.parametrize("leases", [2, 6])
def test_a_joiner_killed_leases_ago_does_not_make_a_quorum(
    remote: Callable[..., Remote], url: str, job: str, leases: int
) -> None:
    """meta-pytorch/torchft#63: a killed joiner is still counted. Nobody looks at the job in between."""
    child = remote()
    child.start("ssp_redis.join(url, job=job, worker=0, workers=2, lease=0.5)", url=url, job=job)
    eventually(lambda: Job(url, job).exists() and Job(url, job).status().members)
    child.kill()
    time.sleep(0.5 * leases)
    with pytest.raises(WaitTimeout, match="1 of 2 joined"):
        ssp_redis.join(url, job=job, worker=1, workers=2, timeout=2.0).detach()


def test_a_sparse_row_that_no_server_takes_is_refused_first(own_server: Any) -> None:
    """redis/redis-py#850: a blob over 512 MB shows as "connection reset" and is retried."""
    with ssp_redis.join(own_server.url, job="j", worker=0) as worker:
        with pytest.raises(UsageError, match="row"):
            worker.sparse_table("s", (4, 70_000_000), np.float64)


def test_a_worker_that_beats_and_does_not_work_is_no_longer_waited_for(
    join: Join, remote: Callable[..., Remote], url: str, job: str
) -> None:
    """celery/celery#8030, #9054: alive and beating, but no longer working. (``progress_timeout``)"""
    child = remote()
    begin = background(child.join, url, job, worker=1, workers=2, lease=1.0)
    worker = join(0, workers=2, lease=1.0, progress_timeout=1.5)
    begin.result(20)
    child.start("import threading; threading.Event().wait()")
    worker.tick(timeout=5)
    [gone] = Job(url, job).status().departed
    assert gone.worker == "1"


@pytest.mark.parametrize("workers", [2, 3])
def test_blocks_are_spread_and_their_bytes_reported(together: Together, url: str, job: str, workers: int) -> None:
    """tensorflow/tensorflow#45291: one hot shard."""
    members = together(workers, staleness=0)
    tables = [worker.table("w", np.zeros((3000, 301))) for worker in members]
    rounds(members, tables, 3, (3000, 301))
    layout = tables[0]._view.layout
    sizes = [layout.block(block).elements for block in range(layout.blocks)]
    assert sum(sizes) == 3000 * 301
    assert layout.blocks >= workers and max(sizes) <= 1.25 * min(sizes)
    [seen] = Job(url, job).status().tables
    assert sum(seen.block_bytes) >= 3000 * 301 * 8


@pytest.mark.parametrize("kind", ["inline", "slots", "rows", "sparse"])
@pytest.mark.filterwarnings("ignore:overflow")
def test_finite_deltas_that_overflow_together_are_refused_too(together: Together, kind: str) -> None:
    """tensorflow/tensorflow#14494: NaN spreads to everyone. Each ``inc`` is finite, their sum in the clock is not."""
    members = together(2, staleness=0)
    if kind == "sparse":
        tables: list[Any] = [worker.sparse_table("s", (9, 2)) for worker in members]
    else:
        tables = [worker.table("w", np.zeros((2 if kind == "inline" else 90, 2), np.float32)) for worker in members]
    for table, sign in zip(tables, (1, -1), strict=True):
        delta = np.full((1, 2) if kind in ("rows", "sparse") else table.shape, sign * 3e38, np.float32)
        more = {"rows": [1]} if kind in ("rows", "sparse") else {}
        table.inc(delta, **more)
        with pytest.raises(ssp_redis.NonFinite, match=r"worker \d, clock 0"):
            table.inc(delta, **more)
    for ticking in [background(worker.tick, 5) for worker in members]:
        ticking.result(10)
    assert np.isfinite(tables[0].get([1]) if kind == "sparse" else tables[0].get()).all()


def test_a_huge_sparse_table_costs_what_was_touched(own_server: Any) -> None:
    """apache/mxnet#10835: huge sparse tables are initialised in full."""
    with redis.Redis.from_url(own_server.url) as client, ssp_redis.join(own_server.url, job="j", worker=0) as worker:
        before = client.info("memory")["used_memory"]
        table = worker.sparse_table("s", (50_000_000, 64), np.float32, "normal", scale=0.1)
        table.inc(np.ones((100, 64), np.float32), np.arange(100) * 499_999)
        worker.tick(timeout=5)
        assert table.get([49_999_999]).any(), "a row that nobody touched has its first values"
        assert client.info("memory")["used_memory"] - before < 2_000_000  # 12.8 GB in full
