"""``python -m tests.chaos``: play schedules by hand, more of them than the test suite does."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from .ledger import Ledger
from .plan import VARIANTS, schedule
from .run import LIMIT, result


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _kept(files: list[Path]) -> list[dict[str, Any]]:
    """What the files of results hold, of each seed the last."""
    lines = [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines()]
    return list({one["seed"]: one for one in lines}.values())


def _played(options: argparse.Namespace, seeds: list[int]) -> Iterator[tuple[dict[str, Any], str]]:
    """Play them, several at once where that is asked for; begin none after the time is up."""
    deadline = time.monotonic() + options.seconds if options.seconds else float("inf")
    rest = (options.server, options.limit, len(seeds) == 1, options.variant)
    if options.jobs == 1:
        for seed in seeds:
            if time.monotonic() > deadline:
                return
            yield result(seed, *rest)
        return
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        pending: set[Future[tuple[dict[str, Any], str]]] = set()
        waiting = iter(seeds)
        while True:
            while len(pending) < options.jobs and time.monotonic() < deadline:
                if (seed := next(waiting, None)) is None:
                    break
                pending.add(pool.submit(result, seed, *rest))
            if not pending:
                return
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--server", help="binary of the server (default: as ssp-redis launch)")
    parser.add_argument("--seeds", default=_seeds("1-20"), type=_seeds, help="17 or 1-20 (default 1-20)")
    parser.add_argument("--variant", default="", choices=VARIANTS, help="the same faults, other settings of the job")
    parser.add_argument("--jobs", type=int, default=1, help="how many schedules at the same time (default 1)")
    parser.add_argument("--limit", type=float, default=LIMIT, help=f"seconds for one schedule (default {LIMIT:g})")
    parser.add_argument("--seconds", type=float, help="begin no further schedule after so many seconds")
    parser.add_argument("--results", type=Path, help="append each result to this file; skip seeds that are in it")
    parser.add_argument("--plan", action="store_true", help="only show the schedules")
    parser.add_argument("--table", action="store_true", help="print the counts as tables")
    parser.add_argument("--report", type=Path, nargs="+", metavar="FILE", help="only print the tables of such files")
    options = parser.parse_args()
    if options.report:
        print(Ledger.of(_kept(options.report)).table())
        return 0
    if options.plan:
        print("\n".join(str(schedule(seed, options.variant)) for seed in options.seeds))
        return 0
    known = {one["seed"] for one in _kept([options.results])} if options.results else set()
    ledger = Ledger()
    for one, text in _played(options, [seed for seed in options.seeds if seed not in known]):
        ledger.add(one)
        if text:
            print(text, flush=True)
        kinds = len({kind for kind, _, _ in one["faults"]})
        print(
            f"seed {one['seed']}: {len(one['faults'])} faults of {kinds} kinds, {len(one['missed'])} missed, "
            f"{one['seconds']:.1f} s, {len(one['violations'])} violations",
            file=sys.stderr,
            flush=True,
        )
        if options.results:
            with options.results.open("a") as results:
                results.write(json.dumps(one, ensure_ascii=False) + "\n")
    if options.table:
        print(ledger.table())
    print(ledger.summary())
    return 1 if ledger.failed else 0


if __name__ == "__main__":
    sys.exit(main())
