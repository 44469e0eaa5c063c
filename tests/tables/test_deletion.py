"""A job that is deleted while its workers are at work: nothing of it is left, whatever they had under way."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import redis
from fixtures import background
from proxy import COMMAND, PASS, Fate, Pair, Proxy
from remote import eventually

import ssp_redis
from ssp_redis import Job, StateLost, Worker

Join = Callable[..., Worker]

LARGE = 300_000
ROWS = np.arange(100_000)


def push(worker: Worker) -> None:
    worker.tick()


def fold(worker: Worker) -> None:
    for _ in range(20):
        worker.tick()
        table = worker.table("w")
        table.inc(np.ones(table.shape))
        table.get()


def make(worker: Worker) -> None:
    worker.table("another", np.zeros(LARGE))


def make_sparse(worker: Worker) -> None:
    worker.sparse_table("another", (1000, 4))


#: What is under way, on a table of which size, and a word of the command in the middle of which the job is deleted.
UNDER_WAY: dict[str, tuple[Callable[[Worker], None], int, bytes]] = {
    "a push in one transaction with its tick": (push, 100, b":d:"),
    "a push of several blocks": (push, LARGE, b":d:0:1:"),
    "a push of rows in several pieces": (push, 0, b":d:0:1:"),
    "folding": (fold, LARGE, b":x:"),
    "making a table": (make, 100, b":x:"),
    "making a sparse table": (make_sparse, 100, b":x:"),
}


@pytest.mark.parametrize("what", UNDER_WAY)
def test_what_a_worker_had_under_way_leaves_no_key(
    join: Join, url: str, job: str, client: redis.Redis, what: str
) -> None:
    act, size, word = UNDER_WAY[what]
    with Proxy(url) as proxy:
        worker = join(0, url=proxy.url, lease=30.0)
        if size:
            worker.table("w", np.zeros(size)).inc(np.ones(size))
        else:
            worker.sparse_table("w", (len(ROWS), 4)).inc(np.ones((len(ROWS), 4)), rows=ROWS)

        def freeze(pair: Pair, chunk: bytes) -> Fate:
            if word in chunk:
                pair.hold()
            return PASS

        proxy.watch = freeze
        acting = background(act, worker)
        [pair] = proxy.pairs(role=COMMAND)
        eventually(lambda: not pair.moving, "the worker is in the middle of it")
        assert Job(url, job).delete(force=True) > 0
        proxy.watch = None
        pair.release()
        with pytest.raises(StateLost):
            acting.result(20)
        assert client.keys(f"ssp:{{{job}}}*") == []


def test_what_comes_while_it_is_deleted_goes_too(join: Join, url: str, job: str, client: redis.Redis) -> None:
    worker = join(0)
    worker.table("w", np.zeros(100))
    [bases] = client.keys(f"ssp:{{{job}}}:*:bases")
    late = bases.replace(b"bases", b"d:0:0:0:1:0:0")

    def write(pair: Pair, chunk: bytes) -> Fate:
        if b"UNLINK" in chunk and bases in chunk:
            client.set(late, "rest of a push")
        return PASS

    with Proxy(url) as proxy:
        proxy.watch = write
        Job(proxy.url, job).delete(force=True)
    assert client.keys(f"ssp:{{{job}}}*") == []


def test_who_joins_while_it_is_deleted_begins_it_anew(join: Join, url: str, job: str, client: redis.Redis) -> None:
    join(0).table("w", np.zeros(100))
    heirs = []

    def begin(pair: Pair, chunk: bytes) -> Fate:
        if b"SCAN" in chunk and not heirs:
            heirs.append(ssp_redis.join(url, job=job, worker=0))
            heirs[0].table("w", np.ones(100))
        return PASS

    with Proxy(url) as proxy:
        proxy.watch = begin
        Job(proxy.url, job).delete(force=True)
    [heir] = heirs
    assert heir.tick(timeout=5) == 1
    assert (heir.table("w").get() == 1).all()
    runs = {key.split(b":")[2] for key in client.keys(f"ssp:{{{job}}}:*:*")}
    assert runs == {client.hget(f"ssp:{{{job}}}:config", "run")}
    heir.leave()
