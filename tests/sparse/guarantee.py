"""Bounded staleness and read-my-writes on a sparse table, checked on every read: run as one worker of several.

Each worker adds 1 to rows of its own at every clock, and to some that all share. Prints one JSON object at the end.
"""

from __future__ import annotations

import argparse
import json
import random
import time

import numpy as np

import ssp_redis


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("url", "job"):
        parser.add_argument(name)
    for name in ("worker", "workers", "clocks", "own", "width"):
        parser.add_argument(name, type=int)
    parser.add_argument("staleness", type=float)
    options = parser.parse_args()
    me, count, bound = options.worker, options.workers, options.staleness
    rng = random.Random(me)
    # rows of one worker are spread over the shares, and few of the table's
    rows = np.random.default_rng(7).permutation(100_000)[: count * options.own + 3]
    shared, owned = rows[:3], rows[3:].reshape(count, options.own)
    reads = 0
    with ssp_redis.join(options.url, job=options.job, worker=me, workers=count, staleness=bound, timeout=60) as worker:
        table = worker.sparse_table("rows", (100_000, options.width), "float64")

        def check(clock: int, own: int) -> None:
            nonlocal reads
            reads += 1
            some = rng.sample(range(options.own), rng.randint(1, min(20, options.own)))
            value = table.get(np.concatenate([shared, owned[:, some].reshape(-1)]))
            assert (value == value[:, :1]).all(), "a row was read half written"
            seen = value[3:, 0].reshape(count, len(some))
            assert (seen == seen[:, :1]).all(), f"clock {clock}: rows of one delta were read at two moments: {seen}"
            assert (seen[me] == own).all(), f"clock {clock}: my own rows hold {seen[me]}, not {own}"
            assert (value[:3, 0] == seen[:, 0].sum()).all(), f"clock {clock}: {value[:3, 0]} of {seen[:, 0]}"
            for other in set(range(count)) - {me}:
                # it was at most bound ahead of me when it was admitted, and has ticked at most once since
                assert clock - bound <= seen[other, 0] <= clock + bound + 1, f"clock {clock}: worker {other}: {seen}"

        for clock in worker.clocks(options.clocks):
            for _ in range(rng.choice((0, 1, 1, 2))):
                check(clock, clock)
            time.sleep(rng.random() ** 4 * 0.003 * (4 if rng.random() < 0.02 else 1))
            touched = np.concatenate([shared, owned[me]])
            table.inc(np.ones((len(touched), options.width)), touched)
            if rng.random() < 0.5:
                check(clock, clock + 1)
        stats = worker.stats()
    print(json.dumps({"reads": reads} | stats))


if __name__ == "__main__":
    main()
