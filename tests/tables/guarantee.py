"""The guarantee as a program (SSPDemo of Petuum's Bösen): run as one worker of several.

Every worker writes its clock into its own rows at every clock, and checks on every read that it sees what bounded
staleness and read-my-writes promise (Ho et al., NIPS 2013, §3). Prints one JSON object at the end.
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
    for name in ("worker", "workers", "clocks", "rows", "width"):
        parser.add_argument(name, type=int)
    parser.add_argument("staleness", type=float)
    parser.add_argument("dtype")
    parser.add_argument("--delay", type=float, default=0.003)
    parser.add_argument("--quorum", type=int)
    options = parser.parse_args()
    me, bound = options.worker, options.staleness
    rng = random.Random(me)
    owner = np.arange(options.rows) % options.workers
    mine = np.flatnonzero(owner == me)
    worst = reads = 0
    with ssp_redis.join(
        options.url, job=options.job, worker=me, workers=options.quorum or options.workers, staleness=bound, timeout=60
    ) as worker:
        table = worker.table("clocks", np.zeros((options.rows, options.width), options.dtype))
        # who comes later than the quorum comes in at the floor: nobody moves before all are there
        deadline = time.monotonic() + 60
        while worker.clock == 0 and len(worker.members) < options.workers and time.monotonic() < deadline:
            time.sleep(0.01)

        def check(own: int) -> None:
            nonlocal worst, reads
            value = table.get() if rng.random() < 0.8 else table.get(rows=range(options.rows))
            reads += 1
            seen = value.min(axis=1)
            assert (seen == value.max(axis=1)).all(), "a row was read half written"
            assert (seen[mine] == own).all(), f"clock {clock}: my own rows hold {seen[mine]}, not {own}"
            for other in range(options.workers):
                if other != me:
                    rows = seen[owner == other]
                    worst = max(worst, int(clock - rows.min()))
                    assert rows.min() >= clock - bound, f"clock {clock}: worker {other}'s rows hold {rows}"
                    # it was at most bound ahead of me when it was admitted, and has ticked at most once since
                    assert rows.max() <= clock + bound + 1, f"clock {clock}: worker {other} is ahead: {rows}"

        for clock in worker.clocks(options.clocks):
            for _ in range(rng.choice((0, 1, 1, 2))):
                check(clock)
            time.sleep(rng.random() ** 4 * options.delay * (4 if rng.random() < 0.02 else 1))
            if rng.random() < 0.5:
                table.inc(np.ones((len(mine), options.width), options.dtype), rows=mine)
            else:
                delta = np.zeros(table.shape, options.dtype)
                delta[mine] = 1
                table.inc(delta)
            if rng.random() < 0.5:
                check(clock + 1)
        stats = worker.stats()
    print(json.dumps({"worst": worst, "reads": reads} | stats))


if __name__ == "__main__":
    main()
