"""What schedules of faults have found, each as a test of its own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import redis
from fixtures import background
from proxy import COMMAND, PASS, Fate, Pair, Proxy
from remote import eventually

from ssp_redis import Evicted, Job, Worker


@pytest.mark.parametrize("size", [100, 300_000])
def test_a_push_that_arrives_after_its_ring_was_swept_leaves_nothing(
    join: Callable[..., Worker], url: str, job: str, client: redis.Redis, size: int
) -> None:
    """Frozen in a push, evicted, its ring swept; then it wakes, and what it writes is in no list of rings any more."""
    with Proxy(url) as proxy:
        mine = background(join, 0, url=proxy.url, workers=2, staleness=9, lease=30.0)
        other = join(1, workers=2, staleness=9, lease=30.0)
        worker = mine.result(20)
        table, theirs = worker.table("w", np.zeros(size)), other.table("w", np.zeros(size))
        table.inc(np.ones(size))
        worker.tick()
        table.inc(np.ones(size))

        def freeze(pair: Pair, chunk: bytes) -> Fate:
            if b":d:" in chunk:
                pair.hold()
            return PASS

        proxy.watch = freeze
        push = background(worker.tick)
        [pair] = proxy.pairs(role=COMMAND)
        eventually(lambda: not pair.moving)
        Job(url, job).evict(0)
        ring = f"{worker.id}:{worker.incarnation}:"

        def slots() -> list[bytes]:
            return list(client.scan_iter(match=f"ssp:{{{job}}}:*:d:*:{ring}*", count=1000))

        def swept() -> bool:
            theirs.inc(np.ones(size))
            other.tick()
            theirs.get()
            return not slots()

        eventually(swept, "the ring is swept")
        proxy.watch = None
        pair.release()
        with pytest.raises(Evicted):
            push.result(10)
        assert slots() == []
        assert (Job(url, job).table("w").get() == 1 + other.clock).all()
