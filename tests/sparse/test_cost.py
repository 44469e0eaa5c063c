"""Traffic and memory are in proportion to the rows touched, not to the table."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import redis

import ssp_redis
from ssp_redis import Worker
from ssp_redis.store.sparse import folding


def traffic(workers: list[Worker], height: int, clocks: int, count: int) -> int:
    """Bytes that all workers sent and received."""
    tables = [worker.sparse_table(f"h{height}", (height, 16)) for worker in workers]
    rng = np.random.default_rng(1)
    before = sum(int(worker.stats()["bytes_in"]) + int(worker.stats()["bytes_out"]) for worker in workers)
    for _ in range(clocks):
        for worker, table in zip(workers, tables, strict=True):
            rows = rng.integers(0, height, count)
            table.inc(np.ones((count, 16), np.float32), rows)
            worker.advance()
            table.get(rows)
    return sum(int(worker.stats()["bytes_in"]) + int(worker.stats()["bytes_out"]) for worker in workers) - before


def test_traffic_does_not_depend_on_the_height(together: Callable[..., list[Worker]]) -> None:
    workers = together(3, staleness=math.inf)
    low = traffic(workers, 10**6, 60, 200)
    high = traffic(workers, 10**9, 60, 200)
    assert abs(high - low) < 0.05 * low
    plain = 3 * 60 * 200 * (2 * (64 + 18) + 14)  # HSET and HMGET of the same rows
    assert low < 2.5 * plain
    twice = traffic(workers, 10**8, 60, 400)
    assert twice < 2.1 * low


def test_memory_of_a_table_of_which_one_percent_is_touched(own_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000,000 × 32 scaled down by ten: 128 MB, of which 10,000 random rows are touched."""
    monkeypatch.setattr(folding, "_HEAVY", folding._HEAVY // 10)
    monkeypatch.setattr(folding, "_MUCH", folding._MUCH // 10)
    with redis.Redis.from_url(own_server.url) as client:
        before = client.info("memory")["used_memory"]
        with ssp_redis.join(own_server.url, job="j", worker=0) as worker:
            table = worker.sparse_table("w", (1_000_000, 32), initializer="normal", scale=0.01)
            rows = np.random.default_rng(1).permutation(1_000_000)[:10_000]
            for part in np.split(rows, 10):
                table.inc(np.ones((1000, 32), np.float32), part)
                worker.tick()
                table.get(part)
            assert client.info("memory")["used_memory"] - before < 0.025 * 128e6, "while the job runs"
            table.inc(np.ones((10_000, 32), np.float32), rows)
            worker.tick()
            table.get(rows)
            assert client.info("memory")["used_memory"] - before < 0.025 * 128e6, "a push of all of them at once"
        assert client.info("memory")["used_memory"] - before < 0.025 * 128e6


def test_rings_do_not_keep_what_is_large_and_folded(own_server: Any) -> None:
    with redis.Redis.from_url(own_server.url) as client:
        worker = ssp_redis.join(own_server.url, job="j", worker=0)
        table = worker.sparse_table("w", (1_000_000, 64))
        for _ in range(20):
            table.inc(np.ones((20_000, 64), np.float32), np.arange(20_000))  # 5 MB
            worker.tick()
            table.get([1])
        assert client.info("memory")["used_memory"] < 25e6
        worker.leave()
