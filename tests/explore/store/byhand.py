"""``python -m tests.explore --store``: the steps of tables, deeper than the test suite walks them."""

from __future__ import annotations

import argparse
import dataclasses
import sys

from ssp_redis.server import EmbeddedServer

from ..walk import Report
from .engine import Engine
from .moves import Bounds
from .walk import Walk

_HELP = {
    "joined": "workers that are there from the beginning",
    "clocks": "ticks end here",
    "slots": "of a ring",
    "inline": "deltas stand in the tags",
    "bare": "some ticks carry nothing",
    "asking": "some ticks ask for the tags",
    "keep": "tags that stay when the log is trimmed (the script as it ships: 256)",
    "starts": "joins after the beginning",
    "drops": "lost connections",
    "window": "changes of the server that a rollback undoes at most",
    "reproducible": "complete clocks only, summed in the order of clocks and workers",
    "sweeps": "how often rings are swept",
    "cuts": "how often the log's tail alone is lost",
    "ears": "commits are heard on their channel",
    "folders": "workers that fold, as 012",
    "silent": "workers that push nothing, as 1",
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.explore --store", description=__doc__)
    parser.add_argument("--server", help="binary of the server (default: as ssp-redis launch)")
    parser.add_argument("--depth", type=int, default=10, help="moves (default 10)")
    parser.add_argument("--edges", type=int, default=1 << 60, help="stop after the level that reaches so many")
    parser.add_argument("--sample", type=int, default=50,
                        help="from every so many states, let the workers go on to their end (0: never)")  # fmt: skip
    for option in dataclasses.fields(Bounds):
        how = {"action": "store_true"} if option.type == "bool" else {"type": str if option.type == "str" else int}
        about = f"{_HELP.get(option.name, '')} (default {option.default})".strip()
        parser.add_argument(f"--{option.name}", default=option.default, help=about, **how)  # type: ignore[arg-type]
    options = vars(parser.parse_args(arguments))
    binary, depth, edges, sample = (options.pop(name) for name in ("server", "depth", "edges", "sample"))
    bounds = Bounds(**options)

    def progress(report: Report) -> None:
        print(f"depth {report.depth}: {report.states:,} states, {report.edges:,} edges, {report.seconds:.1f} s",
              file=sys.stderr)  # fmt: skip

    with EmbeddedServer(binary) as server:
        engine = Engine(server.url, keep=bounds.keep)
        walk = Walk(engine, bounds, depth=depth, edges=edges, sample=sample, progress=progress)
        report = walk.run()
    for answer, count in sorted(report.answers.items()):
        print(f"{answer:>14}: {count:,}")
    print(f"{report}; {walk.drained:,} let go on to their end, {engine.asked:,} different calls")
    if report.found:
        print(report.found)
        return 1
    return 0
