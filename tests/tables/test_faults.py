"""Every delta counts once, whatever happens to connections, replies, the server and its memory."""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from fixtures import Past, background, blocked
from proxy import CUT, LOSE_REPLY, Fate, Proxy, chaos, once
from remote import eventually

import ssp_redis
from ssp_redis import Job, RolledBack, ServerUnavailable, SSPError, StateLost, Table, WaitTimeout, Worker
from ssp_redis.lua import source

Join = Callable[..., Worker]

#: In the tag of the tick; by one transaction with it; by SETs before it; in several blocks.
INLINE, TRANSACTION, SETS, BLOCKS = SHAPES = [(8,), (100,), (100, 300), (80, 4096)]
#: Elements of a table whose deltas stand in tags, and of one whose deltas go to slots.
BOTH = pytest.mark.parametrize("size", [4, 100])


def sha(name: str) -> bytes:
    """By which the script is called."""
    return hashlib.sha1(source(name).encode()).hexdigest().encode()


@contextmanager
def two(join: Join, url: str, proxy: Proxy, shape: tuple[int, ...], **settings: Any) -> Iterator[tuple[Any, ...]]:
    """Worker 0 behind the proxy, worker 1 not; and a table of each."""
    settings = {"workers": 2, "staleness": 2} | settings
    other = background(join, 1, url=url, **settings)
    worker = join(0, url=proxy.url, **settings)
    peer = other.result(20)
    yield worker, worker.table("w", np.zeros(shape)), peer, peer.table("w", np.zeros(shape))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("match", "fate"),
    [
        ("tick", CUT),
        ("tick", LOSE_REPLY),
        ("tick", Fate(reply=0.5)),
        ("tick", Fate(deliver=0.5, reply=0.0)),
        ("tick", Fate(late=0.05)),
        ("SET", CUT),
        ("SET", LOSE_REPLY),
        ("SET", Fate(deliver=0.7, reply=0.0)),
        ("SET", Fate(late=0.05)),
        ("sync", LOSE_REPLY),
    ],
    ids=str,
)
def test_a_push_and_its_tick_count_once(
    join: Join, url: str, job: str, proxy: Proxy, shape: tuple[int, ...], match: str, fate: Fate
) -> None:
    """redis/redis-py#261, #977; redis/jedis#3187: a timed-out command is sent again, and counted twice."""
    with two(join, url, proxy, shape) as (worker, table, peer, theirs):
        for clock in range(1, 9):
            table.inc(np.full(shape, 1.0))
            theirs.inc(np.full(shape, 100.0))
            target = sha(match) if match in ("tick", "sync") else match.encode() + b"\r\n"
            if match == "sync":
                # the tick's reply is lost, and that of the greeting that would tell what became of it
                first, second = once(sha("tick"), LOSE_REPLY), once(sha("sync"), LOSE_REPLY, 2)
                proxy.fate = lambda chunk, first=first, second=second: max(
                    first(chunk), second(chunk), key=lambda fate: fate.reply is not None
                )
            else:
                proxy.fate = once(target, fate)
            assert worker.advance() == clock
            proxy.fate = None
            value = table.get()
            assert (value % 100 == clock).all(), "mine, exactly"
            assert (value == value.flat[0]).all()
            peer.tick(timeout=5)
            assert (theirs.get() // 100 == clock).all()
        if match == "SET" and shape == INLINE:
            assert proxy.troubles == 0, "there is no SET to be lost"
        else:
            assert proxy.troubles >= 8 or (match == "SET" and shape != TRANSACTION)
        assert (Job(url, job).table("w").get() == 808).all()
        assert worker.stats()["lost_clocks"] == 0
        assert worker.stats()["epoch"] == 1


def slowly(chunk: bytes) -> Fate:
    """A link of 3 MB/s."""
    return Fate(delay=len(chunk) / 3e6)


class TestSlowLink:
    """Something moves all the time, and a table takes seconds."""

    SHAPE = (4_000_000,)

    def test_a_tick_keeps_its_timeout_and_the_next_one_pushes_all_again(
        self, join: Join, url: str, job: str, proxy: Proxy
    ) -> None:
        worker = join(0, url=proxy.url, staleness=3)
        table = worker.table("w", np.zeros(self.SHAPE, np.float32))
        table.inc(np.ones(self.SHAPE, np.float32))
        proxy.fate = slowly
        for _ in range(2):
            begun = time.monotonic()
            with pytest.raises(ServerUnavailable, match="not done in time"):
                worker.tick(timeout=0.2)
            assert time.monotonic() - begun < 0.2 + 1.0 + 1.5
        assert worker.tick(timeout=30) == 1
        assert (Job(url, job).table("w").get() == 1).all()
        assert worker.stats()["lost_clocks"] == 0

    def test_leaving_commits_however_long_that_takes_and_sums_up_no_longer_than_a_moment(
        self, join: Join, url: str, job: str, proxy: Proxy
    ) -> None:
        worker = join(0, url=proxy.url, staleness=3)
        table = worker.table("w", np.zeros(self.SHAPE, np.float32))
        table.inc(np.ones(self.SHAPE, np.float32))
        worker.tick()
        proxy.fate = slowly
        begun = time.monotonic()
        worker.leave()
        assert time.monotonic() - begun < 4.5
        assert Job(url, job).status().members == []
        worker = join(0, url=proxy.url)
        worker.table("w").inc(np.ones(self.SHAPE, np.float32))
        begun = time.monotonic()
        worker.leave()
        assert time.monotonic() - begun > 4.5
        assert Job(url, job).status().members == []
        assert (Job(url, job).table("w").get() == 2).all()

    def test_folding_while_it_waits_does_not_outlast_the_wait(
        self, join: Join, url: str, job: str, proxy: Proxy
    ) -> None:
        with two(join, url, proxy, self.SHAPE, staleness=2) as (worker, table, _, _):
            table.get()
            for _ in range(3):
                table.inc(np.ones(self.SHAPE))
                worker.advance()
            proxy.fate = slowly
            begun = time.monotonic()
            with pytest.raises(WaitTimeout, match="waits for: worker 1"):
                worker.wait(timeout=1.5)
            assert time.monotonic() - begun < 1.5 + 1.0 + 1.5


def test_the_end_of_a_tick_is_found_out_by_another_call(join: Join, url: str, job: str, proxy: Proxy) -> None:
    """The server is away when the tick's reply is lost: the tick gives up, and a later call learns that it happened."""
    for shape in (INLINE, TRANSACTION, SETS):
        name = f"{job}.{math.prod(shape)}"
        with two(join, url, proxy, shape, job=name, staleness=math.inf, reconnect_timeout=0.2) as (
            worker,
            table,
            peer,
            theirs,
        ):
            peer.tick()  # the server knows the script by now: what is lost is no NOSCRIPT
            for clock in range(1, 6):
                table.inc(np.ones(shape))

                def lose(chunk: bytes) -> Fate:
                    if sha("tick") in chunk:
                        proxy.refuse = True
                        return LOSE_REPLY
                    return Fate()

                proxy.fate = lose
                with pytest.raises(ServerUnavailable):
                    worker.tick()
                proxy.refuse, proxy.fate = False, None
                assert (table.get() == clock).all()
                # something that has to ask
                assert worker.members == ["0", "1"]
                assert worker.clock == clock
                peer.tick()
                assert (theirs.get() == clock).all()
                assert (table.get() == clock).all()
            worker.tick()
            assert (table.get() == 5).all()
            assert (Job(url, name).table("w").get() == 5).all()
        with Job(url, name) as seen:
            for member in seen.status().members:
                seen.evict(member.worker)
            seen.delete()


def assert_whole(table: Table) -> None:
    """Of every delta, a read has all that belongs to one share, or nothing."""
    value, layout = table.get().reshape(-1), table._view.layout
    for share in range(layout.shares):
        parts = [value[layout.extent(block)] for block in layout.blocks_of(share)]
        assert all((part == parts[0][0]).all() for part in parts)


@pytest.mark.parametrize(
    ("shape", "clocks", "trouble", "seed"),
    [
        ((8,), 300, 0.1, 1),
        ((8,), 300, 0.1, 2),
        ((100,), 300, 0.06, 1),
        ((100,), 300, 0.06, 2),
        ((60, 300), 150, 0.06, 3),
        ((80, 4096), 40, 0.006, 4),
    ],
)
def test_chaos_on_the_wire(
    join: Join, url: str, job: str, shape: tuple[int, ...], clocks: int, trouble: float, seed: int
) -> None:
    """Connections cut at any point, commands late, replies lost, for hundreds of clocks of three workers."""
    with Proxy(url) as proxy:
        proxy.fate = chaos(seed, trouble)

        def run(number: int) -> Worker:
            worker = join(number, url=proxy.url, workers=3, staleness=3, lease=10.0, recheck=0.3)
            table = worker.table("w", np.zeros(shape))
            rng = random.Random(number)
            for clock in worker.clocks(clocks):
                assert clock == worker.clock
                table.inc(np.full(shape, 10.0**number))
                if rng.random() < 0.4:
                    assert_whole(table)
            return worker

        workers = [future.result(100) for future in [background(run, number) for number in range(3)]]
        assert proxy.troubles > clocks / 4
        proxy.fate = None
        assert [worker.clock for worker in workers] == [clocks] * 3
        assert (Job(url, job).table("w").get() == 111 * clocks).all()
        for worker in workers:
            worker.advance()
        for worker in workers:
            worker.barrier()
            assert (worker.table("w").get() == 111 * clocks).all()
            assert worker.stats()["lost_clocks"] == worker.stats()["repushed_clocks"] == 0


def test_a_flush_of_the_scripts_is_not_noticed(join: Join, client: redis.Redis, url: str, job: str) -> None:
    """redis/ioredis#1438, indico#1757: NOSCRIPT after a restart or inside a pipeline."""
    worker = join(0)
    tiny, small, large = (worker.table(f"{size}", np.zeros(size)) for size in (4, 100, 20_000))
    for clock in range(24):
        for table in (tiny, small, large)[: clock % 3 + 1]:
            table.inc(np.ones(table.shape))
        client.script_flush()
        worker.tick()
        small.get()
        if clock % 5 == 0:
            client.script_flush()
            with join("late"):
                pass
    with Job(url, job) as seen:
        assert [seen.table(f"{size}").get().max() for size in (4, 100, 20_000)] == [24, 16, 8]


@pytest.mark.parametrize("size", [4, 100, 20_000])
def test_connections_killed_by_the_server(join: Join, client: redis.Redis, url: str, job: str, size: int) -> None:
    first, second = (background(join, i, workers=2, staleness=1, recheck=0.3) for i in range(2))
    workers = [first.result(20), second.result(20)]

    def run(worker: Worker) -> None:
        table = worker.table("w", np.zeros(size))
        for _ in worker.clocks(60):
            table.inc(np.ones(size))
            table.get()

    runs = [background(run, worker) for worker in workers]
    while blocked(runs[0], 0.01) or blocked(runs[1], 0.01):
        for kind in ("normal", "pubsub"):
            client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
    for future in runs:
        future.result(20)
    assert (Job(url, job).table("w").get() == 120).all()


# -- the server goes away, and comes back as it was, frozen, empty, or with less


def run_until(worker: Worker, table: Any, clock: int) -> None:
    for _ in worker.clocks(clock):
        table.inc(np.ones(table.shape))


def test_a_restart_that_keeps_its_data_is_not_noticed(new_server: Callable[..., Any]) -> None:
    server = new_server(appendonly=True, args=["--appendfsync", "always"])
    workers = [
        future.result(20)
        for future in [
            background(ssp_redis.join, server.url, job="j", worker=i, workers=2, staleness=1, lease=1.0, recheck=0.3)
            for i in range(2)
        ]
    ]
    done = [background(run_until, worker, worker.table("w", np.zeros((100, 200))), 300) for worker in workers]
    for _ in range(3):
        reached = workers[0].clock
        eventually(lambda reached=reached: workers[0].clock > reached + 10)
        server.restart()
    for future in done:
        future.result(40)
    assert (Job(server.url, "j").table("w").get() == 600).all()
    for worker in workers:
        assert worker.losses == []
        assert worker.stats()["epoch"] == 1
        worker.leave()


@BOTH
def test_a_server_frozen_for_longer_than_a_lease_evicts_nobody(own_server: Any, size: int) -> None:
    workers = [
        future.result(20)
        for future in [
            background(
                ssp_redis.join, own_server.url, job="j", worker=i, workers=2, staleness=1, lease=0.8, recheck=0.3
            )
            for i in range(2)
        ]
    ]
    done = [background(run_until, worker, worker.table("w", np.zeros(size)), 2000) for worker in workers]
    eventually(lambda: workers[0].clock > 10)
    own_server.freeze()
    reached = workers[0].clock
    time.sleep(2.0)  # no condition: it is to last longer than two leases
    assert workers[0].clock <= reached + 1
    own_server.thaw()
    for future in done:
        future.result(30)
    assert (Job(own_server.url, "j").table("w").get() == 4000).all()
    assert Job(own_server.url, "j").status().departed == []
    for worker in workers:
        worker.leave()


CALLS: dict[str, Callable[[Worker, Any], object]] = {
    "tick": lambda worker, table: worker.tick(),
    "advance": lambda worker, table: worker.advance(),
    "push": lambda worker, table: (table.inc(np.ones(table.shape)), worker.tick()),
    "get": lambda worker, table: (worker.advance(), table.get()),
    "table": lambda worker, table: worker.table("new", np.zeros(3)),
    "ask": lambda worker, table: worker.table("new"),
    "clocks": lambda worker, table: list(worker.clocks(10**6)),
}


@BOTH
@pytest.mark.parametrize("call", CALLS)
def test_a_flushed_server_is_state_lost(own_server: Any, call: str, size: int) -> None:
    """sidekiq#2883, rq/rq#1280, taskforcesh/bullmq#921: missing state must not pass for a state of zero."""
    workers = [
        future.result(20)
        for future in [
            background(ssp_redis.join, own_server.url, job="j", worker=i, workers=2, staleness=9, recheck=0.3)
            for i in range(2)
        ]
    ]
    tables = [worker.table("w", np.zeros(size)) for worker in workers]
    for worker, table in zip(workers, tables, strict=True):
        table.inc(np.ones(size))
        worker.advance()
    waiting = background(workers[1].barrier) if call == "tick" and workers[1].advance() else None
    with redis.Redis.from_url(own_server.url) as client:
        client.flushall()
        with pytest.raises(StateLost, match="job j: its state is gone"):
            CALLS[call](workers[0], tables[0])
        if waiting:
            with pytest.raises(StateLost):
                waiting.result(3)

        def left() -> list[bytes]:
            return [key for key in client.keys("*") if b":d:" not in key or size == 4]

        # nothing starts again from zero by itself; a push may leave the slot that it wrote
        assert left() == []
        for worker in workers:
            worker.leave(commit=False)
        assert left() == []


@BOTH
def test_a_job_made_anew_is_another(own_server: Any, size: int) -> None:
    worker = ssp_redis.join(own_server.url, job="j", worker=0, recheck=0.3)
    worker.table("w", np.zeros(size)).inc(np.ones(size))
    worker.tick()
    Job(own_server.url, "j").delete(force=True)
    with ssp_redis.join(own_server.url, job="j", worker=1) as new:
        assert new.clock == 0
        with pytest.raises(StateLost):
            worker.tick()
        with pytest.raises(StateLost):
            worker.wait() or worker.barrier() or worker.tick()
        worker.table("w").inc(np.ones(size))
        with pytest.raises(StateLost):
            worker.tick()
        assert new.table("w", np.full(size, 3.0)).get().tolist() == [3] * size
        assert new.members == ["1"]


def test_a_deleted_block_is_state_lost(join: Join, client: redis.Redis, url: str, job: str) -> None:
    """A memory policy took parameters away: an error, never an array of zeros."""
    worker = join(0)
    worker.table("w", np.ones(4))
    client.delete(*client.scan_iter(match=f"ssp:{{{job}}}:*:b:*"))
    with pytest.raises(StateLost, match="table w: a base or a delta is missing .* noeviction"):
        worker.table("w").get()
    with pytest.raises(StateLost):
        Job(url, job).table("w").get()


def test_a_foreign_block_is_an_error(join: Join, client: redis.Redis, url: str, job: str) -> None:
    worker = join(0)
    worker.table("w", np.ones(4))
    [key] = client.scan_iter(match=f"ssp:{{{job}}}:*:b:*")
    value = client.get(key)
    for wrong in (b"x" * len(value), value[:-8], value + b"12345678", b"", value[:8] + b"\0" * 8 + value[16:]):
        client.set(key, wrong)
        with pytest.raises(SSPError, match="table w"):
            join("late").table("w").get()


@pytest.fixture
def past(new_server: Callable[..., Any], tmp_path: Path) -> Past:
    return Past(new_server, tmp_path)


def accounted(workers: list[Worker]) -> set[tuple[str, int]]:
    """(worker, timestamp) of every delta that is lost, as far as somebody says so: its own worker knows best."""
    fate: dict[tuple[str, int], bool] = {}
    for own in (False, True):
        for worker in workers:
            for loss in worker.losses:
                if own is (loss.worker == worker.id):
                    fate |= {(loss.worker, clock): loss.repushed for clock in range(loss.first, loss.last + 1)}
    return {delta for delta, repushed in fate.items() if not repushed}


@pytest.mark.parametrize("shape", [(8,), (100,), (60, 300)])
@pytest.mark.parametrize(("forgotten", "reads"), [(1, True), (3, True), (10, False), (40, True)])
def test_what_a_rolled_back_server_forgot_is_named_or_pushed_again(
    past: Past, shape: tuple[int, ...], forgotten: int, reads: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Never silent: the sum is exactly what was pushed, less what ``losses`` names."""
    workers = [
        future.result(20)
        for future in [
            background(ssp_redis.join, past.url, job="j", worker=i, workers=2, staleness=2, recheck=0.3, lease=1.5)
            for i in range(2)
        ]
    ]
    tables = [worker.table("w", np.zeros(shape)) for worker in workers]

    def turn(count: int) -> None:
        for _ in range(count):
            for worker, table in zip(workers, tables, strict=True):
                table.inc(np.full(shape, 1.0 + 999 * int(worker.id)))
                worker.tick(timeout=10)
                if reads:
                    table.get()

    turn(20)
    past.remember()
    turn(forgotten)
    past.return_to_it()
    turn(5)
    clocks = 25 + forgotten
    assert [worker.clock for worker in workers] == [clocks] * 2
    missing = accounted(workers)
    expected = sum(
        weight
        for worker, weight in (("0", 1), ("1", 1000))
        for clock in range(clocks)
        if (worker, clock) not in missing
    )
    value = Job(past.url, "j").table("w").get()
    assert (value == value.flat[0]).all()
    assert value.flat[0] == expected, missing
    for worker in workers:
        worker.advance()
    for worker, table in zip(workers, tables, strict=True):
        assert (table.get() == expected).all()
        stats = worker.stats()
        assert stats["epoch"] == 2
        assert stats["lost_clocks"] + stats["repushed_clocks"] >= forgotten
    assert "rolled back" in caplog.text
    if not reads:
        # a worker holds what it has pushed and not seen in the log: those that never read hold all
        assert missing == set()
    for worker in workers:
        worker.leave()


@BOTH
def test_what_was_saved_once_and_is_lost_with_its_second_push_is_named(past: Past, size: int) -> None:
    worker = ssp_redis.join(past.url, job="j", worker=0)
    table = worker.table("w", np.zeros(size))
    run_until(worker, table, 5)
    past.remember()
    run_until(worker, table, 7)
    past.return_to_it()
    worker.tick()  # pushes nothing of its own: finds out
    past.remember()
    worker.tick()  # carries clocks 5 and 6
    assert table.get().tolist() == [7] * size
    past.return_to_it()
    worker.tick()
    worker.tick()
    table.get()
    missing = accounted([worker])
    assert {("0", 5), ("0", 6)} <= missing
    assert Job(past.url, "j").table("w").get().tolist() == [5] * size
    worker.leave()


@BOTH
def test_strict_raises_what_was_lost(past: Past, size: int) -> None:
    worker = ssp_redis.join(past.url, job="j", worker=0, strict=True)
    table = worker.table("w", np.zeros(size))
    run_until(worker, table, 5)
    past.remember()
    for _ in range(3):
        table.inc(np.ones(size))
        worker.tick()
        table.get()
    past.return_to_it()
    with pytest.raises(RolledBack, match=r"worker 0, clocks 5\.\.7: lost") as caught:
        worker.tick()
        table.get()
    [loss] = caught.value.lost
    assert (loss.worker, loss.first, loss.last, loss.repushed) == ("0", 5, 7, False)
    worker.tick()
    assert Job(past.url, "j").table("w").get().tolist() == [5] * size
    worker.leave()


def test_a_strict_worker_that_finds_it_on_its_way_out_leaves(past: Past, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ZeroDivisionError), ssp_redis.join(past.url, job="j", worker=0, strict=True) as worker:
        table = worker.table("w", np.zeros(4))
        past.remember()
        table.inc(np.ones(4))
        worker.tick()
        past.return_to_it()
        raise ZeroDivisionError
    assert "the server was rolled back: worker 0, clock 0" in caplog.text
    assert [gone.worker for gone in Job(past.url, "j").status().departed] == ["0"]


def test_one_that_only_waits_notices_a_rollback(past: Past) -> None:
    """† Every control call states its clock."""
    fast, slow = (
        future.result(20)
        for future in [
            background(ssp_redis.join, past.url, job="j", worker=i, workers=2, staleness=1, recheck=0.2)
            for i in range(2)
        ]
    )
    table = fast.table("w", np.zeros(4))
    past.remember()
    table.inc(np.ones(4))
    fast.tick()
    waiting = background(fast.tick)
    assert blocked(waiting)
    past.return_to_it()
    eventually(lambda: fast.stats()["epoch"] == 2)
    slow.tick(timeout=5)
    assert waiting.result(5) == 2
    assert slow.stats()["epoch"] == 2
    for worker in (fast, slow):
        worker.leave()


def test_a_member_that_the_server_forgot_is_one_again(past: Past) -> None:
    first = ssp_redis.join(past.url, job="j", worker=0, recheck=0.2)
    past.remember()
    second = ssp_redis.join(past.url, job="j", worker=1)
    second.advance()
    past.return_to_it()
    first.advance()
    second.advance()
    assert second.clock == 2
    assert first.members == second.members == ["0", "1"]
    for worker in (first, second):
        worker.leave()


def test_a_commit_that_alone_is_forgotten_costs_no_delta(past: Past) -> None:
    """No entry of the log tells of it: who pushes asks where the bases stand before a slot is written over."""
    shape = (100_000,)  # three slots
    worker = ssp_redis.join(past.url, job="j", worker=0)
    table = worker.table("w", np.zeros(shape))
    for _ in range(3):
        table.inc(np.ones(shape))
        worker.advance()
    past.remember()
    store = worker._store
    store.folder.fold(store.views["w"], list(range(table._view.layout.shares)))
    assert {version for version, _ in store.bases.values()} == {4}
    past.return_to_it()
    worker._clock.sync()
    table.inc(np.ones(shape))
    worker.advance()
    assert (Job(past.url, "j").table("w").get() == 4).all()
    assert worker.stats()["epoch"] == 1
    worker.leave()


def test_who_found_all_in_the_bases_notices_that_it_is_forgotten(past: Past) -> None:
    """Its view holds deltas of which it has seen no tag."""
    first = ssp_redis.join(past.url, job="j", worker=0, staleness=1)
    second = ssp_redis.join(past.url, job="j", worker=1, staleness=1)
    table = first.table("w", np.zeros(100))
    past.remember()
    table.inc(np.ones(100))
    first.advance()
    table.get()
    store = first._store
    store.folder.fold(store.views["w"], [0])
    copy = second.table("w")
    assert (copy.get() == 1).all()
    past.return_to_it()
    first.detach()
    second._clock.sync()
    assert second.stats()["epoch"] == 2
    assert (copy.get() == 0).all()
    second.leave()
