"""``python -m tests.chaos``: play schedules by hand, more of them than the test suite does."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .ledger import Ledger
from .plan import schedule
from .run import LIMIT, play, report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--server", help="binary of the server (default: as ssp-redis launch)")
    parser.add_argument("--seed", type=int, help="play this one, and tell what happened")
    parser.add_argument("--first", type=int, default=1, help="first seed (default 1)")
    parser.add_argument("--count", type=int, default=20, help="how many seeds (default 20)")
    parser.add_argument("--limit", type=float, default=LIMIT, help=f"seconds for one schedule (default {LIMIT:g})")
    parser.add_argument("--plan", action="store_true", help="only show the schedules")
    parser.add_argument("--json", type=Path, help="write the counts here")
    parser.add_argument("--table", action="store_true", help="print the counts as tables")
    options = parser.parse_args()
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.count)
    ledger = Ledger()
    for seed in seeds:
        if options.plan:
            print(schedule(seed))
            continue
        stage = play(seed, options.server, options.limit)
        ledger.add(stage)
        outcome = stage.outcome
        if outcome.violations or options.seed is not None:
            print(report(stage), flush=True)
        kinds = len({fault.kind for fault in outcome.injected})
        print(
            f"seed {seed}: {len(outcome.injected)} faults of {kinds} kinds, {outcome.seconds:.1f} s, "
            f"{len(outcome.violations)} violations",
            file=sys.stderr,
            flush=True,
        )
        if options.json:
            options.json.write_text(json.dumps(ledger.json(), indent=1, ensure_ascii=False) + "\n")
    if options.table:
        print(ledger.table())
    if not options.plan:
        print(
            f"{ledger.schedules} schedules, {ledger.json()['faults']} faults, {ledger.seconds:.0f} s, "
            f"{ledger.violations} violations" + (f" in seeds {ledger.failed}" if ledger.failed else "")
        )
    return 1 if ledger.violations else 0


if __name__ == "__main__":
    sys.exit(main())
