"""What is announced to a worker that never has to wait."""

from __future__ import annotations

import threading
import time

import ssp_redis

#: Far below one re-check (2 s) a turn.
LIMIT = 20.0


def test_reading_the_subscription_in_passing_loses_no_wake_up(url: str, job: str) -> None:
    """Workers in lock-step, for many more ticks than pass between two such readings: none waits for a re-check."""

    def run(number: int) -> None:
        with ssp_redis.join(url, job=job, worker=number, workers=2, staleness=0, recheck=30.0) as worker:
            for _ in worker.clocks(1000):
                pass

    begun = time.monotonic()
    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert time.monotonic() - begun < LIMIT
