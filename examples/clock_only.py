"""Five processes of any kind, kept within three steps of each other by the clock alone; no parameter is shared.

mkdir steps && ssp-redis launch -n 5 --staleness 3 examples/clock_only.py steps

Each writes into a file of a directory that all share how many steps it has done, and reads those of the others.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import ssp_redis


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path, help="must be the same for all, and empty")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--pause", type=float, default=0.01, help="longest time a step takes, in seconds")
    args = parser.parse_args()

    with ssp_redis.join() as worker:
        mine = args.directory / worker.id
        furthest = 0
        for clock in worker.clocks(args.steps):
            others = [int(file.read_text()) for file in args.directory.iterdir() if not file.suffix]
            if len(others) == worker.workers:
                furthest = max(furthest, clock - min(others))
            time.sleep(random.uniform(0, args.pause))
            mine.with_suffix(".new").write_text(str(clock + 1))
            mine.with_suffix(".new").replace(mine)
        print(f"worker {worker.id}: at most {furthest} steps ahead of the slowest")


if __name__ == "__main__":
    main()
