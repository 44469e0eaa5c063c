"""A failover that forgets a takeover: the process that was superseded ticks on before its successor has synced."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import redis

import ssp_redis
from ssp_redis import Job


def fall_back(client: redis.Redis, job: str) -> Callable[[], None]:
    """Remember every key of the job; the result puts that moment back."""
    pattern = f"ssp:{{{job}}}:*"
    kept = {key: client.dump(key) for key in client.keys(pattern)}

    def restore() -> None:
        for key in client.keys(pattern):
            client.delete(key)
        for key, value in kept.items():
            client.restore(key, 0, value)

    return restore


@pytest.mark.parametrize("size", [3, 100])
def test_a_successor_loses_nothing_to_the_ticks_of_the_process_it_superseded(
    client: redis.Redis, url: str, job: str, size: int
) -> None:
    old = ssp_redis.join(url, job=job, worker=0)
    old.table("w", np.zeros(size)).inc(np.ones(size))
    old.tick()
    back = fall_back(client, job)
    new = ssp_redis.join(url, job=job, worker=0)
    table = new.table("w")
    table.inc(np.full(size, 100.0))
    back()
    old.table("w").inc(np.full(size, 10.0))
    old.tick()  # nobody remembers that it was superseded
    assert new.tick() == 3  # the old one's second clock, then its own
    assert (table.get() == 111).all()
    with Job(url, job) as outside:
        assert (outside.table("w").get() == 111).all()
        assert [(member.worker, member.clock) for member in outside.status().members] == [("0", 3)]
    new.leave()
    old.detach()
