"""How long it takes to go on after a fault, and whether lost replies count once: ``python -m tests.chaos.figures``.

killed      kill -9 of the slowest of three workers: until another that it had blocked has ticked again
replies     every tenth tick and push delivered, then its connection cut before the reply, for 10,000 clocks
sentinel    kill -9 of a master with two replicas and three Sentinels: until every worker has ticked again
cluster     kill -9 of one of three masters with a replica each, the same
restarted   kill -9 of a server with an AOF in the middle of a job, and a start with all of it, or without its end:
            until anybody, and everybody, has ticked again; what was forgotten
"""

# ruff: noqa: E402

from __future__ import annotations

import argparse
import contextlib
import hashlib
import statistics
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

_TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(_TESTS), str(_TESTS / "servers")]

from clusters import Cluster
from crews import Crew
from proxy import LOSE_REPLY, PASS, Fate, Proxy
from remote import Remote, eventually
from sentinels import Watched

import ssp_redis
from ssp_redis.lua import source
from ssp_redis.server import EmbeddedServer, find_binary

from . import restarted

_LEASE = 1.5
_TICKING = """
worker = ssp_redis.join(url, job=job, worker=i, workers=3, staleness=1, lease=lease, recheck=lease)
import time
def run(pause):
    ticks = []
    while len(ticks) < 2 or ticks[-1] - ticks[-2] < lease / 2:
        worker.tick(60)
        ticks.append(time.monotonic())
        time.sleep(pause)
    return ticks
"""


def killed(turns: int) -> list[float]:
    """Seconds from the kill to the tick of one that was blocked, less the lease."""
    spent = []
    with EmbeddedServer() as server, contextlib.ExitStack() as stack:
        for turn in range(turns):
            children = [Remote() for _ in range(3)]
            for i, child in enumerate(children):
                stack.callback(child.close)
                child.start(_TICKING, url=server.url, job=f"k{turn}", i=i, lease=_LEASE)
            for child in children:
                child.result(30)
            for i, child in enumerate(children):
                child.start(f"run({0.05 if i == 0 else 0.001})")
            with ssp_redis.Job(server.url, f"k{turn}") as job:
                eventually(lambda job=job: job.status().min_clock >= 5)  # type: ignore[misc]
                begun = time.monotonic()
                children[0].kill()
                ticks = [child.result(30) for child in children[1:]]
                spent.append(max(series[-1] for series in ticks) - begun - _LEASE)
                for child in children[1:]:
                    child.do("worker.leave()", 30)
    return spent


def replies(clocks: int) -> tuple[int, list[float], list[int]]:
    """How many replies were lost, the sums of two tables and the clocks."""
    shas = hashlib.sha1(source("tick").encode()).hexdigest().encode()
    lock, seen, lost = threading.Lock(), [0], [0]

    def fate(chunk: bytes) -> Fate:
        if shas not in chunk and b"$3\r\nSET\r\n" not in chunk:
            return PASS
        with lock:
            seen[0] += 1
            lost[0] += seen[0] % 10 == 0
            return LOSE_REPLY if seen[0] % 10 == 0 else PASS

    with EmbeddedServer() as server, Proxy(server.url) as proxy:
        proxy.fate = fate

        def run(i: int) -> int:
            with ssp_redis.join(proxy.url, job="r", worker=i, workers=4, staleness=3, recheck=0.5) as worker:
                tables = [worker.table("tag", np.zeros(3)), worker.table("slot", np.zeros(100))]
                for _ in worker.clocks(clocks):
                    for table in tables:
                        table.inc(np.ones(table.shape))
                return worker.clock

        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(run, range(4)))
        proxy.fate = None
        with ssp_redis.Job(server.url, "r") as job:
            values = [job.table(name).get() for name in ("tag", "slot")]
    for value in values:
        assert (value == 4 * clocks).all(), np.unique(value)
    return lost[0], [float(value[0]) for value in values], done


def failover(turns: int, begin: Callable[[], Watched | Cluster]) -> list[float]:
    """Seconds from the kill of the master to the moment at which every worker has ticked again."""
    spent = []
    for _ in range(turns):
        with begin() as servers, contextlib.ExitStack() as stack:

            def remote(stack: contextlib.ExitStack = stack) -> Remote:
                child = Remote()
                stack.callback(child.close)
                return child

            crew = Crew(remote, servers.url, "fail")
            crew.advance()
            old = servers.master if isinstance(servers, Watched) else servers.owner(crew.job)
            begun = time.monotonic()
            old.kill()
            if isinstance(servers, Watched):
                servers.failed_over(old)
            else:
                servers.failed_over(old, crew.job)
            reached = max(crew.clocks())
            eventually(lambda crew=crew, reached=reached: min(crew.clocks(), default=0) > reached, "", 60)  # type: ignore[misc]
            spent.append(time.monotonic() - begun)
            crew.check()
    return spent


def _said(what: str, values: list[float]) -> None:
    print(f"{what}: median {statistics.median(values):.3f} s, {min(values):.3f} to {max(values):.3f} ({len(values)})")


def _restarts(found: list[restarted.Restart]) -> None:
    what = "log cut" if any(one.cut for one in found) else "log whole"
    _said(f"{what}, server up", [one.up for one in found])
    _said(f"{what}, first tick", [one.first for one in found])
    _said(f"{what}, all ticked", [one.last for one in found])
    cuts, torn, again, lost = zip(*((one.cut, one.torn, one.again, one.lost) for one in found), strict=True)
    print(f"{min(cuts)} to {max(cuts)} bytes cut off, {sum(torn)} times within a command")
    print(f"deltas pushed again: {sum(again)}; lost and named: {sum(lost)}")


def main() -> None:
    """Measure what is named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["killed", "replies", "sentinel", "cluster", "restarted"])
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--clocks", type=int, default=10_000)
    args = parser.parse_args()
    binary = str(find_binary())
    if "killed" in args.what:
        _said("after the lease", killed(args.turns))
    if "replies" in args.what:
        lost, sums, done = replies(args.clocks)
        print(f"replies lost: {lost}; sums {sums}, clocks {done}")
    if "sentinel" in args.what:
        _said("Sentinels", failover(min(5, args.turns), lambda: Watched(binary)))
    if "cluster" in args.what:
        _said("cluster", failover(min(5, args.turns), lambda: Cluster(binary)))
    if "restarted" in args.what:
        for cut in (False, True):
            _restarts([restarted.play(seed, cut) for seed in range(args.turns)])


if __name__ == "__main__":
    main()
