"""``Replica.tick()`` of a PyTorch model beside ``inc``, ``tick`` and ``get`` of a bare table of the same bytes.

    pip install 'ssp-redis[server,torch]'
    python benchmarks/replica.py -n 2 --staleness 0,1,inf

In each clock all workers do the one or the other, in an order drawn by seed, so that both meet the same moments of the
same processes. The sums are checked: at the end, when all have met, every number of both is what was added to it.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from typing import NamedTuple

import numpy as np
import torch

from ssp_redis import join
from ssp_redis.bench.crew import Inexact, Seat, together
from ssp_redis.bench.scene import scene
from ssp_redis.cli.bench import Many
from ssp_redis.cli.format import table
from ssp_redis.frameworks.torch import replicate

#: Clocks before the measurement.
WARM = 20


class Cell(NamedTuple):
    """What is measured."""

    workers: int
    staleness: str
    tensors: int
    elements: int
    clocks: int


class Found(NamedTuple):
    """Median seconds of a clock of the one and of the other."""

    bare: float
    replica: float


def work(seat: Seat, url: str, job: str, cell: Cell) -> Found:
    """One worker."""
    torch.set_num_threads(1)
    model = torch.nn.ParameterList([torch.zeros(cell.elements // cell.tensors) for _ in range(cell.tensors)])
    parameters = list(model.parameters())
    elements = sum(parameter.numel() for parameter in parameters)
    delta = np.ones(elements, np.float32)
    draw = random.Random(1)
    spent: dict[bool, list[float]] = {True: [], False: []}
    with join(
        url, job=job, worker=seat.rank, workers=seat.count, staleness=cell.staleness, timeout=seat.timeout
    ) as worker:
        replica, bare = replicate(worker, model, scale=1), worker.table("bare", np.zeros(elements, np.float32))
        chosen = [draw.random() < 0.5 for _ in range(cell.clocks)]
        seat.meet()
        for clock, one in enumerate(chosen):
            if one:
                with torch.no_grad():
                    for parameter in parameters:
                        parameter += 1
                begun = time.perf_counter()
                replica.tick(seat.timeout)
            else:
                begun = time.perf_counter()
                bare.inc(delta)
                worker.tick(seat.timeout)
                bare.get()
            if clock >= WARM:
                spent[one].append(time.perf_counter() - begun)
        worker.barrier(seat.timeout)
        replica.pull()
        steps = sum(chosen) * seat.count, (cell.clocks - sum(chosen)) * seat.count
        if not all(bool((parameter == steps[0]).all()) for parameter in parameters) or (bare.get() != steps[1]).any():
            raise Inexact(f"worker {seat.rank}: not every number is {steps[0]}, and {steps[1]} in the bare table")
    return Found(statistics.median(spent[False]), statistics.median(spent[True]))


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--workers", default="2", help="numbers of workers [2]")
    parser.add_argument("-s", "--staleness", default="0,1,inf", help="bounds [0,1,inf]")
    parser.add_argument("--tensors", default="8", help="numbers of tensors in the model [8]")
    parser.add_argument("--elements", type=int, default=1_000_000, help="numbers in the model [1,000,000]")
    parser.add_argument("-c", "--clocks", type=int, default=400, help="clocks in a round [400]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--url", help="server [a private one]")
    parser.add_argument("--tcp", action="store_true", help="reach the private server over TCP, not a unix socket")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for one run [120]")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cells = [
        Cell(workers, staleness, tensors, options.elements, options.clocks)
        for workers in Many("numbers", 1).convert(options.workers, None, None)
        for staleness in options.staleness.split(",")
        for tensors in Many("numbers", 1).convert(options.tensors, None, None)
    ]
    times: dict[Cell, list[Found]] = {cell: [] for cell in cells}
    with scene(options.url, tcp=options.tcp) as where:
        about = where.describe()
        for _ in range(options.rounds):
            for cell, found in times.items():
                with where.job() as job:
                    found += together(work, cell.workers, options.timeout, where.url, job, cell)
    cells_found = [
        {
            **cell._asdict(),
            "bare_ms": statistics.median(one.bare for one in found) * 1e3,
            "replica_ms": statistics.median(one.replica for one in found) * 1e3,
            "ratio": statistics.median(one.replica / one.bare for one in found),
        }
        for cell, found in times.items()
    ]
    if options.json:
        print(json.dumps({"about": about, "rounds": options.rounds, "cells": cells_found}))
        return
    rows = [["workers", "staleness", "tensors", "bare ms", "replica ms", "ratio"]]
    for one in cells_found:
        measured = [f"{one[key]:.2f}" for key in ("bare_ms", "replica_ms", "ratio")]
        rows.append([str(one["workers"]), str(one["staleness"]), str(one["tensors"]), *measured])
    print(f"{about['server']}, load {about['load']}, {options.elements:,} numbers, median of {options.rounds} rounds")
    print(table(rows))


if __name__ == "__main__":
    main()
