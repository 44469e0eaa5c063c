"""Sparse tables against plain Redis: random rows of a large table, pushed and read back each clock by several workers.

    python benchmarks/sparse.py [--workers 4] [--rows 1000] [--table 1000000x64] [--staleness 0] [--runs 3]

Each run measures, one after the other with as many processes and the same rows on a server of its own, what a hash
takes (one HSET and one HMGET of all rows, pipelined, nobody waits for anybody), a sparse table, and the hash again.
The hash is used in two ways: *plain*, by redis-py's pipeline, and *packed*, with all words put together by numpy
and the reply taken apart at once, which no program would do and which is about what the server can at the best. Every
run checks that all deltas are in the table exactly once, and that every read is within its bound. Bytes are the
server's own count (INFO stats).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import redis

import ssp_redis
from ssp_redis.connection import Endpoint, Wire, encode
from ssp_redis.server import EmbeddedServer
from ssp_redis.store.sparse.exchange import fields, together
from ssp_redis.store.sparse.layout import RowLayout

Options = argparse.Namespace


class Work:
    """What one worker pushes at each clock: the same in every phase."""

    def __init__(self, options: Options, worker: int) -> None:
        self.height, self.width = map(int, options.table.split("x"))
        self.count, self.workers, self.worker = options.rows, options.workers, worker
        self.plan = []
        for clock in range(options.warm + options.clocks):
            rng = np.random.default_rng((worker, clock))
            free = rng.choice(self.height - self.workers, self.count - self.workers, replace=False) + self.workers
            self.plan.append((np.concatenate((np.arange(self.workers), free)), float(rng.integers(1, 9))))

    def at(self, clock: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows and delta; the first rows are the workers' own marks, to which each adds 1 a clock."""
        rows, value = self.plan[clock]
        delta = np.full((self.count, self.width), value, np.float32)
        delta[: self.workers] = 0
        delta[self.worker] = 1
        return rows, delta


def table_phase(url: str, job: str, options: Options, worker: int, pipe: Connection) -> None:
    """Push and read back through a sparse table."""
    work = Work(options, worker)
    with ssp_redis.join(url, job=job, worker=worker, workers=options.workers, staleness=options.staleness) as member:
        table = member.sparse_table("rows", (work.height, work.width))
        for clock in range(options.warm + options.clocks):
            if clock == options.warm:
                begun = go(pipe)
            rows, delta = work.at(clock)
            table.inc(delta, rows)
            member.tick()
            marks = table.get(rows)[: options.workers, 0]
            assert marks[worker] == clock + 1, (marks, clock)
            assert marks.min() >= clock + 1 - member.staleness, (marks, clock)
        pipe.send(time.process_time() - begun)
        pipe.recv()


def plain_phase(url: str, job: str, options: Options, worker: int, pipe: Connection) -> None:
    """The same rows by HSET and HMGET through redis-py."""
    work, key = Work(options, worker), f"plain:{job}"
    client = redis.Redis.from_url(url)
    for clock in range(options.warm + options.clocks):
        if clock == options.warm:
            begun = go(pipe)
        rows, delta = work.at(clock)
        fields = rows.astype("<u4").tobytes()
        names = [fields[i : i + 4] for i in range(0, len(fields), 4)]
        pipeline = client.pipeline(transaction=False)
        pipeline.hset(key, mapping=dict(zip(names, map(bytes, delta), strict=True)))
        pipeline.hmget(key, names)
        got = np.frombuffer(b"".join(pipeline.execute()[1]), np.float32).reshape(delta.shape)
        assert got.shape == delta.shape
    pipe.send(time.process_time() - begun)
    pipe.recv()


def packed_phase(url: str, job: str, options: Options, worker: int, pipe: Connection) -> None:
    """The same rows by HSET and HMGET, as fast as can be."""
    work, key = Work(options, worker), f"packed:{job}"
    layout = RowLayout.new("plain", "float32", (work.height, work.width), 1, "zeros", 0, 1.0)
    wire = Endpoint(url).connect()
    for clock in range(options.warm + options.clocks):
        if clock == options.warm:
            begun = go(pipe)
        rows, delta = work.at(clock)
        got = exchange(wire, key, layout, rows, delta)
        assert got.shape == delta.shape
    pipe.send(time.process_time() - begun)
    pipe.recv()


def exchange(wire: Wire, key: str, layout: RowLayout, rows: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """HSET and HMGET of these rows in one pipeline."""
    head = b"$%d\r\n" % layout.row_bytes
    pairs = np.empty(
        len(rows), [("field", f"S{8 + 2}"), ("head", f"S{len(head)}"), ("row", "f4", layout.width), ("end", "S2")]
    )
    words = np.frombuffer(fields(layout, rows), f"V{10}")
    pairs.dtype = [("field", "V10"), *pairs.dtype.descr[1:]]
    pairs["field"], pairs["head"], pairs["row"], pairs["end"] = words, head, delta, b"\r\n"
    wire.send(b"*%d\r\n" % (2 + 2 * len(rows)) + encode(("HSET", key)) + pairs.tobytes())
    wire.send(b"*%d\r\n" % (3 + len(rows)) + encode(("HMGET", key, "h")) + fields(layout, rows))
    wire.read()
    return together(layout, wire.read_strings(layout.row_bytes)[1])


def go(pipe: Connection) -> float:
    """Warm: wait until all are."""
    pipe.send("warm")
    pipe.recv()
    return time.process_time()


def measure(url: str, job: str, options: Options, phase: Any) -> dict[str, float]:
    """Milliseconds per clock, and per worker and clock milliseconds of processor and bytes."""
    context = multiprocessing.get_context("spawn")
    pipes, children = [], []
    for worker in range(options.workers):
        mine, theirs = context.Pipe()
        pipes.append(mine)
        children.append(context.Process(target=phase, args=(url, job, options, worker, theirs)))
        children[-1].start()
    client = redis.Redis.from_url(url)

    def stand() -> np.ndarray:
        info = client.info("everything")
        busy = info["used_cpu_user"] + info["used_cpu_sys"]
        return np.array([info["total_net_input_bytes"], info["total_net_output_bytes"], 1000 * busy])

    for pipe in pipes:
        assert pipe.recv() == "warm"
    before, begun = stand(), time.perf_counter()
    for pipe in pipes:
        pipe.send("go")
    busy = [pipe.recv() for pipe in pipes]
    seconds, (into, out, server) = time.perf_counter() - begun, stand() - before
    for pipe in pipes:
        pipe.send("end")
    for child in children:
        child.join()
        assert child.exitcode == 0
    turns = options.workers * options.clocks
    return {
        "ms": 1000 * seconds / options.clocks,
        "client_ms": 1000 * sum(busy) / turns,
        "server_ms": server / turns,
        "in": into / turns,
        "out": out / turns,
    }


def check(url: str, job: str, options: Options) -> None:
    """Every delta is in the table, once."""
    expected: dict[int, np.ndarray] = {}
    clocks = options.warm + options.clocks
    for worker in range(options.workers):
        work = Work(options, worker)
        for clock in range(clocks):
            rows, delta = work.at(clock)
            for row, value in zip(rows.tolist(), delta[:, 0].tolist(), strict=True):
                expected[row] = expected.get(row, 0.0) + value
    rows = np.array(sorted(expected))
    value = ssp_redis.Job(url, job).table("rows").get(rows)
    assert (value == np.array([expected[row] for row in rows.tolist()], np.float32)[:, None]).all()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", help="the server's binary")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--table", default="1000000x64")
    parser.add_argument("--staleness", type=float, default=0)
    parser.add_argument("--clocks", type=int, default=100)
    parser.add_argument("--warm", type=int, default=20)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    results = []
    for run in range(options.runs):
        with EmbeddedServer(options.server) as server:
            before = [measure(server.url, f"before{run}", options, phase) for phase in (plain_phase, packed_phase)]
            ours = measure(server.url, f"run{run}", options, table_phase)
            after = [measure(server.url, f"after{run}", options, phase) for phase in (plain_phase, packed_phase)]
            check(server.url, f"run{run}", options)
        plain, packed = (
            {key: statistics.mean((first[key], second[key])) for key in first}
            for first, second in zip(before, after, strict=True)
        )
        total = (ours["in"] + ours["out"]) / (plain["in"] + plain["out"])
        rates = {"rate": plain["ms"] / ours["ms"], "rate_packed": packed["ms"] / ours["ms"]}
        results.append({"plain": plain, "packed": packed, "table": ours, "bytes": total} | rates)
        print(json.dumps(results[-1], default=lambda value: round(float(value), 3)), flush=True)
    for key in ("bytes", "rate", "rate_packed"):
        print(f"{key}, table / hash: {statistics.median(result[key] for result in results):.2f}")


if __name__ == "__main__":
    main()
