"""What the comparisons with peers share: the same work done by both in turns, in one run, and a table of it."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from typing import Any

from ssp_redis.bench import dense
from ssp_redis.bench.dense import Cell
from ssp_redis.bench.scene import scene
from ssp_redis.cli.bench import Many, Sizes
from ssp_redis.cli.format import table

#: Clocks before the measurement.
WARM = 4

Peer = Callable[[int, int, int, float], float]


def missing(package: str) -> SystemExit:
    """The end of a program whose peer is not installed."""
    return SystemExit(f"{sys.argv[0]}: {package} is not installed: pip install {package}")


def compare(name: str, about: str, peer: Peer) -> None:
    """Parse the command line, measure, print.

    Args:
        name: of the peer.
        about: help.
        peer: (workers, nbytes, clocks, timeout) → seconds a clock, of the slowest worker.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("-n", "--workers", default="2,4,8", help="numbers of workers [2,4,8]")
    parser.add_argument("--size", default="40KiB,4MiB", help="sizes of the table [40KiB,4MiB]")
    parser.add_argument(
        "-c", "--clocks", type=int, help="clocks in a round [2000 for a small table, 60 for a large one]"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--url", help="server for ssp-redis [a private one]")
    parser.add_argument("--tcp", action="store_true", help="reach the private server over TCP, not a unix socket")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one run [300]")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cells = [
        Cell(workers, nbytes, 0, 1, options.clocks or (2000 if nbytes < 1 << 18 else 60))
        for nbytes in Sizes().convert(options.size, None, None)
        for workers in Many("numbers", 1).convert(options.workers, None, None)
    ]
    found: list[dict[str, Any]] = []
    times: dict[Cell, tuple[list[float], list[float]]] = {cell: ([], []) for cell in cells}
    with scene(options.url, tcp=options.tcp) as where:
        about_it = where.describe()
        for _ in range(options.rounds):
            for cell, (ours, theirs) in times.items():
                if sys.stderr.isatty():
                    print(f"{cell.nbytes} bytes, {cell.workers} workers", file=sys.stderr)
                ours.append(dense.run(where, cell, options.timeout)["clock"])
                theirs.append(peer(cell.workers, cell.nbytes, cell.clocks, options.timeout))
    for cell, (ours, theirs) in times.items():
        ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        mean = [round(statistics.median(seconds) * 1e3, 4) for seconds in (ours, theirs)]
        found.append(
            {
                "nbytes": cell.nbytes,
                "workers": cell.workers,
                "ssp_redis_ms": mean[0],
                "peer_ms": mean[1],
                "ratio": ratio,
            }
        )
    if options.json:
        print(json.dumps({"peer": name, "about": about_it, "rounds": options.rounds, "cells": found}))
        return
    rows = [["bytes", "workers", "ssp-redis ms", f"{name} ms", "ratio"]]
    for one in found:
        milliseconds = [f"{one['ssp_redis_ms']:.2f}", f"{one['peer_ms']:.2f}"]
        rows.append([f"{one['nbytes']:,}", str(one["workers"]), *milliseconds, f"{one['ratio']:.2f}"])
    print(f"{about_it['server']}, load {about_it['load']}, staleness 0, median of {options.rounds} rounds")
    print(table(rows))
