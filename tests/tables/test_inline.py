"""Deltas of at most 64 bytes stand in the tags of their ticks: no slot is written for them, and none is read."""

from __future__ import annotations

import math
from binascii import b2a_base64
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import redis
from fixtures import background
from proxy import PASS, Fate, Proxy
from remote import Remote

import ssp_redis
from ssp_redis import Job, StateLost, Worker
from ssp_redis.connection import Endpoint
from ssp_redis.store.log import Tag
from ssp_redis.store.push import TablePush

Join = Callable[..., Worker]
Together = Callable[..., list[Worker]]

#: In tags, while all that a tick carries of them is at most 256 bytes; and in slots of every kind.
TABLES: dict[str, tuple[tuple[int, ...], str]] = {
    "scalar": ((), "float64"),
    "one": ((1,), "int32"),
    "eight": ((8,), "float64"),
    "cube": ((2, 2, 2), "int64"),
    "half": ((16,), "float16"),
    "sixteen": ((4, 4), "float32"),
    "whole": ((16,), "int32"),
    "small": ((100,), "float64"),
    "middle": ((100, 300), "float32"),
    "large": ((64, 4096), "float64"),
}

_ADDER = """
rng = np.random.default_rng(i)
with ssp_redis.join(url, job=job, worker=i, workers=3, staleness=staleness, timeout=60) as worker:
    tables = {name: worker.table(name, np.zeros(shape, dtype)) for name, (shape, dtype) in kinds.items()}
    total = {name: np.zeros(shape) for name, (shape, _) in kinds.items()}
    for clock in worker.clocks(60):
        names = rng.choice(sorted(kinds), rng.integers(0, len(kinds) + 1), replace=False)
        for name in names:
            delta = rng.integers(-9, 10, tables[name].shape)
            tables[name].inc(delta.astype(tables[name].dtype))
            total[name] += delta
        if rng.random() < 0.4:
            for name in names:
                tables[name].get()
total
"""


def tags(client: redis.Redis, job: str) -> list[Tag]:
    """The log's ticks."""
    found = [Tag.parse(text.decode()) for text in client.lrange(f"ssp:{{{job}}}:log", 0, -1)]
    return [tag for tag in found if tag.kind == "t"]


def slots(client: redis.Redis, job: str) -> set[int]:
    """Numbers of the tables that have slots."""
    return {int(key.split(b":d:")[1].split(b":")[0]) for key in client.scan_iter(match=f"ssp:{{{job}}}:*:d:*")}


@pytest.mark.parametrize("staleness", [0, 3, math.inf])
def test_sums_of_tables_of_every_size_in_one_tick(
    remote: Callable[..., Remote], url: str, job: str, staleness: float
) -> None:
    children = [remote() for _ in range(3)]
    for i, child in enumerate(children):
        child.start(_ADDER, url=url, job=job, i=i, staleness=staleness, kinds=TABLES)
    totals = [child.result(90) for child in children]
    with Job(url, job) as seen:
        for name in TABLES:
            assert (seen.table(name).get() == sum(total[name] for total in totals)).all(), name


def test_sums_of_threads_that_read_each_others(together: Together, url: str, job: str) -> None:
    """What a reader has summed from tags is what a newcomer starts from."""
    workers = together(3, staleness=1)

    def run(worker: Worker) -> None:
        table, other = worker.table("w", np.zeros(4)), worker.table("v", np.zeros(100))
        for clock in worker.clocks(700):
            table.inc(np.full(4, 1000.0 ** int(worker.id)))
            if clock % 7 == 0:
                other.inc(np.ones(100))
            value = table.get()
            assert (value == value[0]).all()
            assert value[0] // 1000.0 ** int(worker.id) % 1000 == clock + 1, "my own are all in it"

    for future in [background(run, worker) for worker in workers]:
        future.result(60)
    with Job(url, job) as seen:
        assert seen.table("w").get().tolist() == [700 * 1001001] * 4
        assert seen.table("v").get().tolist() == [300] * 100


def test_numbers_arrive_bit_for_bit(together: Together) -> None:
    one, two = together(2, staleness=math.inf)
    extremes = {
        "float64": np.array([5e-324, -1.7976931348623157e308, math.pi, -1e-300]),
        "float32": np.array([1e-45, 3.4e38, 1 / 3, -1e-38], "float32"),
        "int64": np.array([2**63 - 1, -(2**63), 2**53 + 1, -1]),
        "int32": np.array([2**31 - 1, -(2**31), 7, -1], "int32"),
    }
    for name, delta in extremes.items():
        one.table(name, np.zeros_like(delta)).inc(delta)
    one.tick()
    for name, delta in extremes.items():
        assert two.table(name).get().tobytes() == delta.tobytes()


def test_a_half_type_stands_in_its_tag_unrounded(join: Join, client: redis.Redis, job: str) -> None:
    worker = join(0)
    table = worker.table("w", np.full(16, 2048, np.float16))
    for _ in range(2):
        table.inc(np.ones(16, np.float16))
        table.inc(np.full(16, 2048, np.float16))
    worker.tick()
    [tag] = tags(client, job)
    assert np.frombuffer(tag.values[0], np.float32).tolist() == [4098] * 16, "as float32: in float16 it is 4096"


# -- what stands in a tag


def test_a_tag_of_every_kind_of_words() -> None:
    value = np.arange(8.0)
    text = f"t:w:7:9:2:0.5,1={b2a_base64(value, newline=False).decode()},2=AAAAAA==,3.1/1000,12.63"
    tag = Tag.parse(text)
    assert (tag.kind, tag.worker, tag.incarnation, tag.clock, tag.ring) == ("t", "w", 7, 9, "w:7:2")
    assert tag.text == text
    assert tag.slots == {0: 5, 3: 1, 12: 63}
    assert tag.rows == {3: 1000}
    assert tag.values == {1: value.tobytes(), 2: bytes(4)}
    assert [table for table in range(20) if tag.touches(table)] == [0, 1, 2, 3, 12]
    for bare in ("t:w:7:9:-:", "j:w:7:9:-:", "l:w:7:9:-:left"):
        tag = Tag.parse(bare)
        assert (tag.number, tag.slots, tag.rows, tag.values) == (-1, {}, {}, {})


def test_what_is_beyond_256_bytes_goes_to_slots(join: Join, client: redis.Redis, url: str, job: str) -> None:
    worker = join(0)
    sizes = [8, 8, 8, 6, 8, 2]  # of float64: the fifth finds 16 bytes left, the sixth takes them
    tables = [worker.table(f"t{number}", np.zeros(size)) for number, size in enumerate(sizes)]
    for table in tables:
        table.inc(np.full(table.shape, 2.0))
    worker.tick()
    [tag] = tags(client, job)
    assert (set(tag.values), set(tag.slots)) == ({0, 1, 2, 3, 5}, {4})
    assert slots(client, job) == {4}
    tables[4].inc(np.ones(8))
    worker.tick()
    tag = tags(client, job)[-1]
    assert (set(tag.values), set(tag.slots)) == ({4}, set())
    with Job(url, job) as seen:
        assert [seen.table(f"t{number}").get().max() for number in range(6)] == [2, 2, 2, 2, 3, 2]


def test_a_table_now_in_tags_and_now_in_slots_sums_exactly(together: Together, url: str, job: str) -> None:
    """For more turns than its ring has slots; read by one that follows, and by one that comes last."""
    workers = together(2, staleness=1)
    rng = np.random.default_rng(5)
    plans = [rng.random((800, 7)) < 0.8 for _ in workers]

    def run(worker: Worker, plan: Any) -> None:
        tables = [worker.table(f"t{number}", np.zeros(8)) for number in range(7)]
        for clock in worker.clocks(len(plan)):
            for table in np.array(tables)[plan[clock]]:
                table.inc(np.full(8, clock + 1.0))
            if worker.id == "0" and clock % 3 == 0:
                for number, table in enumerate(tables):
                    mine = plan[: clock + 1, number] @ np.arange(1.0, clock + 2)
                    value = table.get()
                    assert (value == value[0]).all()
                    assert value[0] >= mine

    for future in [background(run, worker, plan) for worker, plan in zip(workers, plans, strict=True)]:
        future.result(60)
    expected = sum(np.arange(1.0, 801.0) @ plan for plan in plans)
    with Job(url, job) as seen:
        assert [seen.table(f"t{number}").get().tolist() for number in range(7)] == [[total] * 8 for total in expected]


# -- what does not count, and what counts once


def test_a_tick_that_arrives_again_counts_once(join: Join, url: str, job: str, proxy: Proxy) -> None:
    """At once, and long after: each says from which clock to which."""
    heard: list[bytes] = []

    def listen(chunk: bytes) -> Fate:
        heard.append(chunk)
        return PASS

    worker = join(0, url=proxy.url, staleness=math.inf)
    table = worker.table("w", np.zeros(8))
    again = Endpoint(url).connect()
    for clock in range(1, 6):
        table.inc(np.full(8, 10.0**clock))
        heard.clear() if clock == 1 else None
        proxy.fate = listen
        worker.tick()
        proxy.fate = None
        ticks = [chunk for chunk in heard if b"0:0=" in chunk]
        assert len(ticks) == clock
        again.call_all([*ticks, *reversed(ticks)])
        with Job(url, job) as seen:
            assert seen.table("w").get().tolist() == [sum(10.0**past for past in range(1, clock + 1))] * 8
        assert len(worker._clock.run(lambda wire: wire.call("LRANGE", worker._clock.keys.log, 0, -1))) == clock + 1
    again.close()
    assert table.get().tolist() == [111110] * 8


def said(worker: Worker, note: str) -> None:
    """Tick as a client would that states this note."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TablePush, "note", note)
        worker.tick(timeout=5)


def word(table: int, *values: float) -> str:
    return f"{table}={b2a_base64(np.array(values, float), newline=False).decode()}"


GONE = "table w: a base or a delta is missing or foreign, and stays so"
WRONG = {
    "short": word(0, 1, 1, 1),
    "long": word(0, 1, 1, 1, 1, 1),
    "one number": word(0, 1),
    "nothing": word(0),
    "of another table": word(0, *range(7)),
    "half a number": "0=AAAA",
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_payload_of_another_length_is_never_taken_for_numbers(
    together: Together, url: str, job: str, wrong: str
) -> None:
    """By one who follows the log, by a newcomer, and from outside; other tables in the same tag are as they were."""
    one, two = together(2, staleness=math.inf)
    mine, other = one.table("w", np.zeros(4)), one.table("v", np.zeros(7))
    table, beside = two.table("w"), two.table("v")
    mine.inc(np.ones(4))
    one.tick()
    assert table.get().tolist() == [1] * 4
    mine.inc(np.ones(4))
    other.inc(np.ones(7))
    said(one, f"0:{wrong},{word(1, *[1.0] * 7)}")
    mine.inc(np.ones(4))
    one.tick()
    two.tick()
    for _ in range(2):
        with pytest.raises(StateLost, match=GONE):
            table.get()
    assert beside.get().tolist() == [1] * 7
    with Job(url, job) as seen:
        with pytest.raises(StateLost, match=GONE):
            seen.table("w").get()
        assert seen.table("v").get().tolist() == [1] * 7
    with ssp_redis.join(url, job=job, worker="new", timeout=10) as newcomer:
        with pytest.raises(StateLost, match=GONE):
            newcomer.table("w").get()
    assert two.tick() == 2


def test_a_wrong_payload_between_slots_leaves_the_connection_in_order(together: Together, client: redis.Redis) -> None:
    """Values that were asked for before it was found are not taken for the answers to what is said next."""
    one, two = together(2, staleness=math.inf)
    before = [one.table(f"t{number}", np.zeros(8)) for number in range(4)]
    mine = one.table("w", np.zeros(8))
    table = two.table("w")
    assert table.get().tolist() == [0] * 8

    def push() -> None:
        for filled in (*before, mine):
            filled.inc(np.ones(8))
        one.tick()

    push()
    mine.inc(np.ones(8))
    said(one, f"0:{word(4, 1)}")
    push()
    push()
    two.tick()
    for _ in range(3):
        with pytest.raises(StateLost, match=GONE):
            table.get()
        assert two.members == ["0", "1"]
        assert two.table("t0").get().tolist() == [3] * 8
    assert two.tick() == 2


def test_a_payload_for_a_table_that_nobody_has_is_passed_over(together: Together, url: str, job: str) -> None:
    one, two = together(2, staleness=math.inf)
    mine, table = one.table("w", np.zeros(4)), two.table("w", np.zeros(4))
    mine.inc(np.ones(4))
    said(one, f"0:{word(9, 1, 1, 1, 1)},{word(0, 1, 1, 1, 1)}")
    assert table.get().tolist() == mine.get().tolist() == [1] * 4
    assert Job(url, job).table("w").get().tolist() == [1] * 4


# -- what it costs


@pytest.mark.parametrize("size", [4, 100])
@pytest.mark.parametrize("count", [1, 2])
def test_who_only_adds_keeps_the_log_short(
    together: Together, client: redis.Redis, url: str, job: str, count: int, size: int
) -> None:
    """Nobody reads, and yet somebody folds: when the turns of a ring are over."""
    workers = together(count, staleness=math.inf)
    tables = [worker.table("w", np.zeros(size)) for worker in workers]
    lengths = []
    for clock in range(2500):
        for worker, table in zip(workers, tables, strict=True):
            table.inc(np.ones(size))
            worker.advance()
        if clock % 50 == 0:
            lengths.append(client.llen(f"ssp:{{{job}}}:log"))
    assert max(lengths) < 600 * count + 512
    assert Job(url, job).table("w").get().tolist() == [2500 * count] * size
    assert slots(client, job) == ({0} if size == 100 else set())


def calls(client: redis.Redis) -> dict[str, int]:
    """How often each command was called, by clients and by scripts."""
    return {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in client.info("commandstats").items()}


def test_a_clock_is_one_call_that_writes_no_slot_and_a_read_is_none(own_server: Any) -> None:
    """Two in turn: the tick brings the other's deltas along, so that reading them asks for nothing."""
    joining = [
        background(ssp_redis.join, own_server.url, job="j", worker=i, workers=2, staleness=1, lease=3600.0)
        for i in range(2)
    ]
    workers = [future.result(20) for future in joining]
    tables = [worker.table("w", np.zeros(8)) for worker in workers]

    def turn(clock: int) -> None:
        for worker, table in zip(workers, tables, strict=True):
            table.inc(np.ones(8))
            worker.advance()
        for worker, table in zip(workers, tables, strict=True):
            worker.wait(timeout=5)
            value = table.get()
            assert 2 * clock - 1 <= value[0] <= 2 * clock

    for clock in range(1, 4):
        turn(clock)
    with redis.Redis.from_url(own_server.url) as client:
        client.config_resetstat()
        for clock in range(4, 104):
            turn(clock)
        found = calls(client)
        assert {"set", "get", "mget", "multi", "exec", "sadd", "rename", "eval"} & set(found) == set()
        assert found["evalsha"] == found["zadd"] == 200, "one call a tick"
        assert client.keys("*:d:*") == []
    for worker in workers:
        worker.leave()


def test_what_goes_to_a_slot_is_one_transaction(own_server: Any) -> None:
    """The same count for a table that is not tiny, and for one of each: one SET a clock, of the larger one."""
    with redis.Redis.from_url(own_server.url) as client:
        with ssp_redis.join(own_server.url, job="j", worker=0, lease=3600.0) as worker:
            tiny, small = worker.table("tiny", np.zeros(8)), worker.table("small", np.zeros(100))
            small.inc(np.ones(100))
            worker.tick()
            client.config_resetstat()
            for _ in range(30):
                tiny.inc(np.ones(8))
                small.inc(np.ones(100))
                worker.tick()
            found = calls(client)
            assert [found[name] for name in ("set", "multi", "exec", "evalsha")] == [30] * 4
            assert client.keys("*:d:0:*") == []
            assert len(client.keys("*:d:1:*")) == 31
