"""A table is made once, whole, by whoever comes first."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import redis
from fixtures import background, blocked
from remote import Remote, eventually

from ssp_redis import Job, TableMismatch, Worker
from ssp_redis.store import claiming


@pytest.mark.parametrize("shape", [(4,), (64, 4096)])
def test_made_by_all_at_once_it_has_the_winners_values(
    together: Callable[..., list[Worker]], url: str, job: str, shape: tuple[int, ...]
) -> None:
    workers = together(6)
    tables = [background(w.table, "w", np.full(shape, float(w.id))) for w in workers]
    values = [table.result(20).get() for table in tables]
    winner = values[0].flat[0]
    assert winner in range(6)
    assert all((value == winner).all() for value in values)
    assert len(Job(url, job).tables()) == 1


def test_many_tables_at_once(together: Callable[..., list[Worker]], url: str, job: str) -> None:
    def make(worker: Worker) -> list[float]:
        order = np.random.default_rng(int(worker.id)).permutation(12)
        for number in order:
            worker.table(f"t{number}", np.full(3, float(number)))
        return [float(worker.table(f"t{number}").get()[0]) for number in range(12)]

    made = [background(make, worker) for worker in together(4)]
    assert all(future.result(30) == list(range(12)) for future in made)
    assert len(Job(url, job).tables()) == 12


@pytest.mark.parametrize("blocks_written", [0, 1])
def test_a_claim_of_one_that_died_is_taken_over(
    remote: Callable[..., Remote],
    join: Callable[..., Worker],
    client: redis.Redis,
    url: str,
    job: str,
    monkeypatch: pytest.MonkeyPatch,
    blocks_written: int,
) -> None:
    """† A half-made table is never seen."""
    child = remote()
    child.join(url, job, worker=0)
    child.do("from ssp_redis.store import claiming; claiming._LEASE = 1000")
    child.do(
        """
from ssp_redis.connection import Wire
send_set, sent = Wire.send_set, 0
def dies(self, *words, **more):
    global sent
    if sent == limit:
        os.kill(os.getpid(), signal.SIGKILL)
    sent += 1
    return send_set(self, *words, **more)
Wire.send_set = dies
""",
        limit=blocks_written,
    )
    child.start("worker.table('w', np.ones((64, 8192)))")
    child.process.wait(20)
    assert Job(url, job).tables() == []
    monkeypatch.setattr(claiming, "_LEASE", 1000)
    worker = join(1)
    with pytest.raises(TableMismatch, match="has no table w"):
        worker.table("w")
    begun = time.monotonic()
    table = worker.table("w", np.full((64, 8192), 2.0))
    assert time.monotonic() - begun < 3
    assert (table.get() == 2).all()
    assert (Job(url, job).table("w").get() == 2).all()
    worker.leave()
    Job(url, job).evict(0)
    stay = [key for key in client.scan_iter(match=f"ssp:{{{job}}}:*") if client.ttl(key) == -1]
    assert stay == [], "what the dead one wrote stays for ever"


def test_who_finds_a_claim_waits_for_the_table(
    remote: Callable[..., Remote], join: Callable[..., Worker], url: str, job: str, tmp_path: Path
) -> None:
    child, flag = remote(), tmp_path / "go"
    child.join(url, job, worker=0)
    child.do(
        """
from ssp_redis.scripts import StoreScripts
publish = StoreScripts.publish
def waits(*words, **more):
    while not os.path.exists(flag):
        time.sleep(0.005)
    return publish(*words, **more)
StoreScripts.publish = waits
""",
        flag=str(flag),
    )
    child.start("worker.table('w', np.ones(5)).get().tolist()")
    worker = join(1)
    eventually(lambda: worker._clock.run(lambda wire: wire.call("HLEN", worker._tables().keys.tables)))
    waiting = background(worker.table, "w", np.full(5, 2.0))
    assert blocked(waiting, 0.2)
    with pytest.raises(TableMismatch):
        Job(url, job).table("w")
    flag.touch()
    begun = time.monotonic()
    assert waiting.result(5).get().tolist() == [1] * 5
    assert time.monotonic() - begun < 1
    assert child.result() == [1] * 5


def test_the_same_shape_and_dtype_everywhere(together: Callable[..., list[Worker]]) -> None:
    first, second = together(2)
    first.table("w", np.zeros((3, 4), "float32"))
    for wrong in (np.zeros((4, 3), "float32"), np.zeros(12, "float32"), np.zeros((3, 4))):
        for worker in (first, second):
            with pytest.raises(TableMismatch, match=r"table w is float32 of shape \(3, 4\), not"):
                worker.table("w", wrong)


def test_a_table_twice_is_one(join: Callable[..., Worker]) -> None:
    worker = join(0)
    worker.table("w", np.zeros(2)).inc(np.ones(2))
    assert worker.table("w", np.full(2, 9.0)).get().tolist() == [1, 1]
    assert worker.table("w").get().tolist() == [1, 1]
    worker.tick()
    assert worker.table("w").get().tolist() == [1, 1]


def test_one_that_exists_when_the_job_has_run_for_long(join: Callable[..., Worker], url: str, job: str) -> None:
    """Made in the middle of a run, far behind in the log."""
    worker = join(0)
    for name, before in (("a", 3000), ("b", 10)):
        for _ in range(before):
            worker.advance()
        worker.table(name, np.zeros(2))
    for _ in range(5):
        worker.table("a").inc(np.ones(2))
        worker.table("b").inc(np.ones(2))
        worker.advance()
    assert Job(url, job).table("a").get().tolist() == [5, 5]
    assert join(1).table("b").get().tolist() == [5, 5]
