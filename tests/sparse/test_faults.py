"""Every sparse delta counts once, whatever happens to connections, replies, the server and its memory."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from fixtures import Past, background
from proxy import CUT, LOSE_REPLY, Fate, Proxy, chaos, once
from remote import Remote

import ssp_redis
from ssp_redis import Job, SSPError, StateLost, Worker
from ssp_redis.lua import source
from ssp_redis.store.sparse import folding

Join = Callable[..., Worker]

#: Rows touched at each clock: by one transaction with the tick; by SET before it; in three pieces.
COUNTS = [5, 600, 40_000]
HEIGHT = 100_000


def sha(name: str) -> bytes:
    """By which the script is called."""
    return hashlib.sha1(source(name).encode()).hexdigest().encode()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    ("match", "fate"),
    [
        (sha("tick"), CUT),
        (sha("tick"), LOSE_REPLY),
        (sha("tick"), Fate(late=0.05)),
        (b"SET\r\n", CUT),
        (b"SET\r\n", LOSE_REPLY),
        (b"SET\r\n", Fate(deliver=0.7, reply=0.0)),
        (b"SET\r\n", Fate(late=0.05)),
        (b"GETRANGE\r\n", Fate(reply=0.5)),
        (b"HMGET\r\n", Fate(reply=0.9)),
        (sha("commit_rows"), CUT),
        (sha("commit_rows"), LOSE_REPLY),
        (sha("commit_rows"), Fate(late=0.05)),
    ],
)
def test_a_push_and_a_fold_count_once(
    join: Join, url: str, job: str, proxy: Proxy, count: int, match: bytes, fate: Fate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "_HEAVY", 1000)
    other = background(join, 1, workers=2, staleness=2)
    worker = join(0, url=proxy.url, workers=2, staleness=2)
    peer = other.result(20)
    table, theirs = (member.sparse_table("w", (HEIGHT, 16)) for member in (worker, peer))
    rows = np.random.default_rng(1).permutation(HEIGHT)[:count]
    looked = np.concatenate([rows[:20], rows[-20:]])
    for clock in range(1, 7):
        table.inc(np.ones((count, 16), np.float32), rows)
        theirs.inc(np.full((count, 16), 100.0, np.float32), rows)
        proxy.fate = once(match, fate)
        assert worker.advance() == clock
        value = table.get(looked)
        proxy.fate = None
        assert (value % 100 == clock).all(), "mine, exactly"
        assert (value == value.flat[0]).all()
        peer.tick(timeout=5)
        assert (theirs.get(looked) // 100 == clock).all()
    assert proxy.troubles >= 1 or match == b"SET\r\n", "a small delta is set together with the tick"
    assert (Job(url, job).table("w").get(rows) == 606).all()
    assert worker.stats()["lost_clocks"] == 0
    assert worker.stats()["epoch"] == 1


@pytest.mark.parametrize(("count", "clocks", "trouble", "seed"), [(20, 200, 0.04, 1), (900, 120, 0.04, 2)])
def test_chaos_on_the_wire(
    join: Join, url: str, job: str, count: int, clocks: int, trouble: float, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections cut at any point, commands late, replies lost, for hundreds of clocks of three workers."""
    monkeypatch.setattr(folding, "_HEAVY", 100_000)
    with Proxy(url) as proxy:
        proxy.fate = chaos(seed, trouble)

        def run(number: int) -> tuple[Worker, np.ndarray]:
            worker = join(number, url=proxy.url, workers=3, staleness=3, lease=10.0, recheck=0.3)
            table = worker.sparse_table("w", (2000, 32))
            rng, total = random.Random(number), np.zeros((2000, 32))
            for _ in worker.clocks(clocks):
                rows = np.array([rng.randrange(2000) for _ in range(count)])
                table.inc(np.full((count, 32), 10.0**number, np.float32), rows)
                np.add.at(total, rows, 10.0**number)
                if rng.random() < 0.4:
                    value = table.get(rows)
                    assert (value == value[:, :1]).all()
                    assert (value[:, 0] // 10**number > 0).all()
            return worker, total

        results = [future.result(100) for future in [background(run, number) for number in range(3)]]
        assert proxy.troubles > clocks / 4
        proxy.fate = None
        expected = sum(total for _, total in results)
        assert (Job(url, job).table("w").get() == expected).all()
        for worker, _ in results:
            worker.advance()
            assert (worker.sparse_table("w").get(range(2000)) == expected).all()
            assert worker.stats()["lost_clocks"] == worker.stats()["repushed_clocks"] == 0


def test_a_killed_worker_leaves_whole_clocks(
    remote: Callable[..., Remote], join: Join, client: redis.Redis, url: str, job: str
) -> None:
    """What was ticked is there, what was not is not; the ring of the dead goes."""
    child, worker = remote(), None
    other = background(join, 1, workers=2, staleness=math.inf)
    child.join(url, job, worker=0, workers=2, staleness=math.inf)
    worker = other.result(20)
    child.start(
        """
table = worker.sparse_table('w', (100_000, 64))
for clock in range(10**6):
    table.inc(np.ones((9000, 64), np.float32), np.arange(9000))
    worker.tick()
"""
    )
    table = None
    while (clock := int(client.hget(f"ssp:{{{job}}}:clocks", "0") or 0)) < 12:
        pass
    child.kill()
    clock = int(client.hget(f"ssp:{{{job}}}:clocks", "0"))
    Job(url, job).evict(0)
    table = worker.sparse_table("w", (100_000, 64))
    for _ in range(3):
        worker.tick()
        assert (table.get([0, 8999]) == clock).all()
    for _ in range(40):  # enough for another's share to be folded too
        table.inc(np.zeros((1, 64), np.float32), [1])
        worker.tick()
        table.get([1])
    assert len(client.smembers(next(iter(client.scan_iter(match=f"ssp:{{{job}}}:*:rings"))))) == 1
    left = [key.decode().rpartition(":d:")[2].split(":") for key in client.scan_iter(match=f"ssp:{{{job}}}:*:d:*")]
    assert {worker for _, _, worker, *_ in left} == {"1"}


@pytest.mark.parametrize("what", ["r", "d"])
def test_a_deleted_part_is_state_lost(join: Join, client: redis.Redis, url: str, job: str, what: str) -> None:
    """A memory policy took parameters away: an error, never rows as they began."""
    worker = join(0)
    table = worker.sparse_table("w", (100, 4))
    table.inc(np.ones((2, 4), np.float32), [1, 2])
    worker.tick()
    if what == "r":
        folding.fold(worker._tables(), table._view, [0])
    client.delete(*client.scan_iter(match=f"ssp:{{{job}}}:*:{what}:*"))
    for read in (join("late").sparse_table("w").get, Job(url, job).table("w").get):
        with pytest.raises(StateLost, match="table w: a share or a delta is missing .* noeviction"):
            read([1])


def test_a_foreign_part_is_an_error(join: Join, client: redis.Redis, url: str, job: str) -> None:
    worker = join(0)
    worker.sparse_table("w", (100, 4)).inc(np.ones((2, 4), np.float32), [1, 2])
    worker.tick()
    [key] = client.scan_iter(match=f"ssp:{{{job}}}:*:d:*")
    value = client.get(key)
    for wrong in (b"x" * len(value), value[:-8], b"", value[:8] + b"\0" * 8 + value[16:]):
        client.set(key, wrong)
        with pytest.raises(SSPError, match="table w"):
            Job(url, job).table("w").get([1, 2])
    client.set(key, value)
    [key] = client.scan_iter(match=f"ssp:{{{job}}}:*:r:*")
    header = client.hget(key, "h")
    for wrong in (b"", b"x" * 64, header[:8] + b"\0" * 8 + header[16:]):
        client.hset(key, "h", wrong)
        with pytest.raises(SSPError, match="table w"):
            Job(url, job).table("w").get([1])


def test_a_commit_of_another_past_is_refused(join: Join, client: redis.Redis, url: str, job: str) -> None:
    """Who sums up another log than the server's, and who is no member any more, changes nothing."""
    worker = join(0)
    table = worker.sparse_table("w", (100, 4))
    table.inc(np.ones((2, 4), np.float32), [1, 2])
    worker.tick()
    table.get([1])
    store = worker._tables()
    store.log.tags[-1] = store.log.tags[-1].parse(store.log.tags[-1].text.replace(":0.0/2", ":0.1/2"))
    with pytest.raises(SSPError):
        folding.fold(store, table._view, [0])
    Job(url, job).evict(0)
    with pytest.raises(SSPError):
        folding.fold(store, table._view, [0])
    [key] = client.scan_iter(match=f"ssp:{{{job}}}:*:r:*")
    assert client.hkeys(key) == [b"h"]
    assert (Job(url, job).table("w").get([1, 2, 3])[:, 0] == [1, 1, 0]).all()


@pytest.mark.parametrize("count", [5, 600])
@pytest.mark.parametrize(("forgotten", "reads", "heavy"), [(1, True, 1 << 20), (3, True, 0), (10, False, 1 << 20)])
def test_what_a_rolled_back_server_forgot_is_named_or_pushed_again(
    new_server: Callable[..., Any],
    tmp_path: Path,
    count: int,
    forgotten: int,
    reads: bool,
    heavy: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Never silent: the sum is exactly what was pushed, less what ``losses`` names."""
    monkeypatch.setattr(folding, "_HEAVY", heavy)
    past = Past(new_server, tmp_path)
    workers = [
        future.result(20)
        for future in [
            background(ssp_redis.join, past.url, job="j", worker=i, workers=2, staleness=2, recheck=0.3)
            for i in range(2)
        ]
    ]
    tables = [worker.sparse_table("w", (1000, 32)) for worker in workers]
    rows = np.arange(count) * 1000 // count

    def turn(clocks: int) -> None:
        for _ in range(clocks):
            for worker, table in zip(workers, tables, strict=True):
                table.inc(np.full((count, 32), 1.0 + 999 * int(worker.id), np.float32), rows)
                worker.tick(timeout=10)
                if reads:
                    table.get(rows[:10])

    turn(20)
    past.remember()
    turn(forgotten)
    past.return_to_it()
    turn(5)
    clocks = 25 + forgotten
    assert [worker.clock for worker in workers] == [clocks] * 2
    own = {
        (worker.id, clock)
        for worker in workers
        for loss in worker.losses
        if loss.repushed and loss.worker == worker.id
        for clock in range(loss.first, loss.last + 1)
    }
    missing = {
        (loss.worker, clock)
        for worker in workers
        for loss in worker.losses
        if not loss.repushed
        for clock in range(loss.first, loss.last + 1)
    } - own
    weights = {"0": 1, "1": 1000}
    expected = sum(weights[w] for w in weights for clock in range(clocks) if (w, clock) not in missing)
    assert (Job(past.url, "j").table("w").get(rows) == expected).all(), missing
    for worker in workers:
        worker.advance()
    for worker, table in zip(workers, tables, strict=True):
        assert (table.get(rows) == expected).all()
        assert worker.stats()["epoch"] == 2
        worker.leave()
    if reads and heavy:
        assert missing == set(), "a worker holds what a base has not"
