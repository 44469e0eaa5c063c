"""Sparse tables in snapshots: the rows that were touched, at the moment of the clocks; the others come out the same."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from fixtures import background, blocked
from markers import left_behind, mended, under_way
from remote import Remote, eventually

import ssp_redis
from ssp_redis import Job, UsageError, Worker
from ssp_redis.snapshot import restore, take
from ssp_redis.snapshot.file import load, save
from ssp_redis.snapshot.state import Snapshot
from ssp_redis.store.sparse import frozen

_HEIGHT = 100_000
_WORK = """
import random
rng = np.random.default_rng(i)
with ssp_redis.join(url, job=job, worker=i, timeout=60, **settings) as worker:
    large, half = worker.sparse_table('large', (height, 40)), worker.sparse_table('half', (50, 3), 'float16')
    dense, tiny = worker.table('dense', np.zeros((8, 500))), worker.table('tiny', np.zeros(8, 'int64'))
    for clock in worker.clocks(clocks):
        for table in (dense, tiny):
            delta = np.zeros(table.shape, table.dtype)
            delta[i] = 1
            table.inc(delta)
        # the own row, and rows of everybody, some of them new
        rows = np.concatenate([[i], rng.integers(8, height, most)])
        delta = np.zeros((len(rows), 40), 'float32')
        delta[0], delta[1:, i] = 1, 1
        large.inc(delta, rows)
        half.inc(np.ones((1, 3), 'float16'), [i])
        if rng.random() < 0.3:
            large.get(rows[:5])
        time.sleep(random.random() * pause)
worker.clock
"""


def begin(remote: Callable[..., Remote], url: str, job: str, count: int, **more: Any) -> list[Remote]:
    words = {"clocks": 10**6, "most": 200, "pause": 0.01, "height": _HEIGHT} | more
    settings = {name: words.pop(name) for name in ("workers", "staleness", "reproducible") if name in words}
    children = [remote() for _ in range(count)]
    for i, child in enumerate(children):
        child.start(_WORK, url=url, job=job, i=i, settings=settings, **words)
    return children


def check(taken: Snapshot, most: int = 200) -> None:
    """All tables hold exactly the deltas that the clocks say."""
    clocks = np.zeros(8)
    for worker, clock in taken.clocks.items():
        clocks[int(worker)] = clock
    touched = clocks.nonzero()[0]
    assert (taken.tables["dense"] == clocks[:, None]).all()
    assert (taken.tables["tiny"] == clocks).all()
    large, half = taken.sparse["large"], taken.sparse["half"]
    assert half.rows.tolist() == touched.tolist()
    assert (half.values == clocks[touched][:, None]).all()
    shared = large.rows >= 8
    assert large.rows[~shared].tolist() == touched.tolist()
    assert (large.values[~shared] == clocks[touched][:, None]).all()
    assert (large.values[shared, :8].sum(axis=0) == most * clocks).all()


@pytest.mark.parametrize(("most", "pause"), [(5, 0.0), (200, 0.01), (3000, 0.01)])
def test_each_is_of_one_moment_while_three_workers_push(
    remote: Callable[..., Remote],
    url: str,
    job: str,
    client: redis.Redis,
    tmp_path: Path,
    most: int,
    pause: float,
) -> None:
    """In the tick's transaction, as fast as they can; by SET; by SET and folded at once."""
    children = begin(remote, url, job, 3, workers=3, staleness=2, most=most, pause=pause)
    with Job(url, job) as seen:
        under_way(seen)
        taken = [seen.snapshot(tmp_path / f"{i}.npz") for i in range(4)]
        seen.stop()
    for child in children:
        child.result(60)
    for i, one in enumerate(taken):
        check(one, most)
        assert one.min_clock == min(one.clocks.values())
        assert max(one.clocks.values()) - one.min_clock <= 3
        assert load(tmp_path / f"{i}.npz") == one
        check(load(tmp_path / f"{i}.npz"), most)
    assert len({one.version for one in taken}) > 1, "the job stood still"
    assert not client.keys(f"ssp:{{{job}}}:*:u:*"), "the marks are taken off"


@pytest.mark.parametrize("workers", [1, 5])
def test_what_three_workers_did_goes_on_with_one_or_five(
    remote: Callable[..., Remote], url: str, job: str, own_server: Any, tmp_path: Path, workers: int
) -> None:
    children = begin(remote, url, job, 3, workers=3, staleness=2)
    taken = left_behind(url, job, children, tmp_path / "w.npz")
    with Job(own_server.url, "moved") as moved:
        assert moved.restore(tmp_path / "w.npz", workers=workers).min_clock == taken.min_clock
        large = taken.sparse["large"]
        values = moved.table("large").get()
        assert (values[large.rows] == large.values).all()
        assert not np.delete(values, large.rows, axis=0).any()
        goal = max(taken.clocks.values()) + 12
        children = begin(remote, own_server.url, "moved", workers, clocks=goal, workers=workers)
        assert [child.result(90) for child in children] == [goal] * workers
        after = moved.snapshot(tmp_path / "after.npz")
        new = {str(i): goal - (0 if str(i) in taken.clocks else taken.min_clock) for i in range(workers)}
        expected = taken.clocks | new
        half = after.sparse["half"]
        assert dict(zip(map(str, half.rows), half.values[:, 0].tolist(), strict=True)) == expected
        shared = after.sparse["large"].values[after.sparse["large"].rows >= 8]
        assert [float(shared[:, int(i)].sum()) for i in expected] == [200 * clock for clock in expected.values()]


@pytest.mark.parametrize(
    ("dtype", "initializer"),
    [("float32", "normal"), ("float64", "uniform"), ("float16", "normal"), ("bfloat16", "uniform"), ("int64", "zeros")],
)
def test_every_row_comes_out_the_same_bit_for_bit(
    join: Callable[..., Worker],
    url: str,
    job: str,
    client: redis.Redis,
    own_server: Any,
    tmp_path: Path,
    dtype: str,
    initializer: str,
) -> None:
    """Touched and folded, touched and not folded yet, touched in both, never touched."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    worker = join(0, workers=1)
    words = {"initializer": initializer, "seed": 2**62 + 1, "scale": 0.1}
    table = worker.sparse_table("w", (1001, 7), dtype, **words)
    rng = np.random.default_rng(1)

    def push(rows: list[int]) -> None:
        table.inc((rng.standard_normal((len(rows), 7)) * 9).astype("int8").astype("float32").astype(table.dtype), rows)
        worker.tick()

    for _ in range(6):
        push([5, 1000, 77])
        table.get([5])
    key = client.keys(f"ssp:{{{job}}}:*:r:*:0")[0]
    assert client.hlen(key) == 4, "folded"
    push([77, 400, 0])
    assert client.hlen(key) == 4, "not folded"
    before = Job(url, job).table("w").get()
    taken = Job(url, job).snapshot(tmp_path / "w.npz")
    assert taken.sparse["w"].rows.tolist() == [0, 5, 77, 400, 1000]
    with Job(own_server.url, "there") as there:
        there.restore(tmp_path / "w.npz", workers=3)
        assert there.table("w").get().tobytes() == before.tobytes()
        there.restore(tmp_path / "w.npz", workers=1)
        with ssp_redis.join(own_server.url, job="there", worker=0) as again:
            mine = again.sparse_table("w", (1001, 7), dtype, **words)
            assert mine.get(range(1001)).tobytes() == before.tobytes()
        second = there.snapshot(tmp_path / "again.npz").sparse["w"]
        assert second == taken.sparse["w"]
        assert second.values.tobytes() == taken.sparse["w"].values.tobytes()


def test_never_touched(join: Callable[..., Worker], url: str, job: str, tmp_path: Path) -> None:
    worker = join(0)
    worker.sparse_table("w", (10**12, 3, 2), "float64", initializer="normal")
    before = Job(url, job).table("w").get([7, 10**12 - 1])
    taken = Job(url, job).snapshot(tmp_path / "w.npz")
    assert taken.sparse["w"].values.shape == (0, 3, 2)
    worker.leave()
    Job(url, job).restore(tmp_path / "w.npz", workers=4)
    assert Job(url, job).table("w").get([7, 10**12 - 1]).tobytes() == before.tobytes()


def test_the_file_is_plain(join: Callable[..., Worker], url: str, job: str, tmp_path: Path) -> None:
    worker = join(0)
    worker.sparse_table("w", (100, 2), seed=3, scale=0.5, initializer="uniform")
    table = worker.sparse_table("v", (100,), "int32")
    table.inc([5, 6], [99, 3])
    worker.tick()
    Job(url, job).snapshot(tmp_path / "w.npz")
    with np.load(tmp_path / "w.npz", allow_pickle=False) as arrays:
        assert sorted(arrays) == ["@ssp-redis", "v@rows", "v@values", "w@rows", "w@values"]
        assert arrays["v@rows"].tolist() == [3, 99]
        assert arrays["v@values"].tolist() == [6, 5]
        words = json.loads(str(arrays["@ssp-redis"]))
    assert words["sparse"]["w"] == {
        "dtype": "float32",
        "shape": [100, 2],
        "initializer": "uniform",
        "seed": 3,
        "scale": 0.5,
    }
    worker.leave()
    pytest.importorskip("safetensors")
    taken = Job(url, job).snapshot(tmp_path / "w.safetensors")
    assert load(tmp_path / "w.safetensors") == taken
    Job(url, job).restore(tmp_path / "w.safetensors")
    assert Job(url, job).table("v").get([3, 99, 4]).tolist() == [6, 5, 0]


def test_a_reproducible_run_goes_on_with_the_same_bits(own_server: Any, tmp_path: Path) -> None:
    def work(job: str, worker: int, clocks: int) -> None:
        with ssp_redis.join(own_server.url, job=job, worker=worker, workers=2, reproducible=True, timeout=60) as member:
            table = member.sparse_table("w", (300, 4), initializer="normal")
            for clock in member.clocks(clocks):
                rng = np.random.default_rng((clock, worker))
                rows = rng.integers(0, 300, 20)
                seen = table.get(rows)
                table.inc(seen * np.float32(0.1) + rng.standard_normal((20, 4)).astype("float32"), rows)

    assert mended(own_server.url, tmp_path / "w.npz", work).reproducible == "yes"
    first, second = (Job(own_server.url, job).table("w").get() for job in ("straight", "mended"))
    assert first.tobytes() == second.tobytes()


def test_a_reproducible_run_at_its_last_complete_clock(
    remote: Callable[..., Remote], url: str, job: str, tmp_path: Path
) -> None:
    children = begin(remote, url, job, 3, workers=3, reproducible=True, most=50)
    with Job(url, job) as seen:
        under_way(seen)
        taken = [seen.snapshot(tmp_path / "r.npz") for _ in range(8)]
        seen.stop()
        for child in children:
            child.kill()
    for one in taken:
        assert set(one.clocks.values()) == {one.min_clock}
        check(one, 50)
    assert taken[-1].version > taken[0].version


# -- while it is taken -------------------------------------------------------------------------------------------------


def test_what_is_folded_while_the_rows_are_read_is_not_in_it(
    join: Callable[..., Worker], url: str, job: str, client: redis.Redis, tmp_path: Path, monkeypatch: Any
) -> None:
    worker = join(0)
    table = worker.sparse_table("w", (5000, 30), initializer="normal")
    table.inc(np.ones((3000, 30), "float32"), np.arange(3000))
    for _ in range(5):
        worker.tick()
        table.get([0])
        table.inc(np.ones((1, 30), "float32"), [0])
    worker.tick()
    before = Job(url, job).table("w").get()
    scan, moved = frozen.Frozen._scan, []

    def scanned(self: Any, wire: Any, key: str, *words: Any) -> Any:
        for page in scan(self, wire, key, *words):
            yield page
            # rows whose page was read, rows whose page was not, and rows that were not there
            table.inc(np.ones((5000, 30), "float32"), np.arange(5000))
            for _ in range(10):
                worker.tick()
                table.inc(np.ones((1, 30), "float32"), [4999])
            moved.append(client.hlen(client.keys(f"ssp:{{{job}}}:*:r:*:0")[0]))

    monkeypatch.setattr(frozen.Frozen, "_scan", scanned)
    monkeypatch.setattr(frozen, "_PAGE", 1 << 16)
    taken = Job(url, job).snapshot(tmp_path / "w.npz")
    assert len(moved) > 3
    assert moved[0] == 5001, "all rows came to the base after the first page"
    assert taken.clocks == {"0": 6}
    assert taken.sparse["w"].rows.tolist() == list(range(3000))
    assert taken.sparse["w"].values.tobytes() == before[:3000].tobytes()


@pytest.mark.parametrize("by", ["delete", "another"])
def test_a_mark_that_is_lost_is_made_again(
    join: Callable[..., Worker],
    url: str,
    job: str,
    client: redis.Redis,
    tmp_path: Path,
    monkeypatch: Any,
    by: str,
) -> None:
    worker = join(0)
    table = worker.sparse_table("w", (50, 2))
    table.inc(np.ones((1, 2)), [3])
    worker.tick()
    scan, lost = frozen.Frozen._scan, []

    def scanned(self: Any, wire: Any, key: str, *words: Any) -> Any:
        if not lost:
            lost.append(key)
            [undo] = client.keys(f"ssp:{{{job}}}:*:u:*")
            client.delete(undo)
            if by == "another":
                client.hset(undo, "h", "00ff.1")
                client.pexpire(undo, 300)
        yield from scan(self, wire, key, *words)

    monkeypatch.setattr(frozen.Frozen, "_scan", scanned)
    taken = Job(url, job).snapshot(tmp_path / "w.npz")
    assert taken.sparse["w"].values.tolist() == [[1, 1]]
    assert lost


def test_several_at_once_take_turns(join: Callable[..., Worker], url: str, job: str, tmp_path: Path) -> None:
    worker = join(0)
    table = worker.sparse_table("w", (5000, 20))
    table.inc(np.ones((4000, 20), "float32"), np.arange(4000))
    worker.tick()
    futures = [background(Job(url, job).snapshot, tmp_path / f"{i}.npz") for i in range(4)]
    for future in futures:
        assert (future.result(60).sparse["w"].values == 1).all()


def test_one_that_dies_holds_the_next_up_until_its_mark_runs_out(
    remote: Callable[..., Remote], join: Callable[..., Worker], url: str, job: str, client: redis.Redis, tmp_path: Path
) -> None:
    worker = join(0)
    table = worker.sparse_table("w", (50, 2))
    table.inc(np.ones((1, 2)), [3])
    worker.tick()
    path = tmp_path / "w.npz"
    Job(url, job).snapshot(path)
    before = path.read_bytes()
    child = remote()
    child.start(
        "from ssp_redis.store.sparse import frozen\n"
        "frozen.Frozen.read = lambda *_: time.sleep(3600)\n"
        "ssp_redis.Job(url, job).snapshot(path)",
        url=url,
        job=job,
        path=str(path),
    )
    [undo] = eventually(lambda: client.keys(f"ssp:{{{job}}}:*:u:*"), "marked", 30)
    child.kill()
    assert path.read_bytes() == before
    assert 0 < client.pttl(undo) <= frozen.HOLD
    waiting = background(Job(url, job).snapshot, path)
    assert blocked(waiting)
    client.pexpire(undo, 1)
    assert waiting.result(30).sparse["w"].values.tolist() == [[1, 1]]


# -- what is no snapshot, and what is not restored ---------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path, join: Callable[..., Worker], url: str, job: str) -> Path:
    """A snapshot of one sparse table w, rows 3 and 7 of 10."""
    worker = join(0)
    table = worker.sparse_table("w", (10, 2), initializer="normal")
    table.inc(np.ones((2, 2)), [7, 3])
    worker.tick()
    worker.leave()
    Job(url, job).snapshot(tmp_path / "w.npz")
    return tmp_path / "w.npz"


def _words(**changed: Any) -> Callable[[dict[str, Any]], None]:
    def change(arrays: dict[str, Any]) -> None:
        words = json.loads(str(arrays["@ssp-redis"]))
        words["sparse"]["w"] |= changed
        arrays["@ssp-redis"] = np.array(json.dumps(words))

    return change


def _array(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda arrays: arrays.update({name: value})


def _without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda arrays: arrays.pop(name)


def _meta(**changed: Any) -> Callable[[dict[str, Any]], None]:
    def change(arrays: dict[str, Any]) -> None:
        arrays["@ssp-redis"] = np.array(json.dumps(json.loads(str(arrays["@ssp-redis"])) | changed))

    return change


WRONG: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "no rows": (_without("w@rows"), "its rows (w@rows, w@values) are not there"),
    "no values": (_without("w@values"), "its rows (w@rows, w@values) are not there"),
    "no description": (_meta(sparse={}), "is in its arrays only"),
    "format": (_meta(format=3), "format 3"),
    "twice": (_meta(dtypes={"w": "float32"}), "in its metadata twice"),
    "sparse is a list": (_meta(sparse=[1]), "not that of a snapshot"),
    "a description is no mapping": (_meta(sparse={"w": [1]}), "not that of a snapshot"),
    "name": (_meta(sparse={"a b": {}}), "is not a name"),
    "descending": (_array("w@rows", np.array([7, 3])), "not ascending from 0 to 9"),
    "one row twice": (_array("w@rows", np.array([3, 3])), "not ascending"),
    "negative": (_array("w@rows", np.array([-1, 3])), "not ascending"),
    "beyond": (_array("w@rows", np.array([3, 10])), "not ascending"),
    "rows of floats": (_array("w@rows", np.array([3.0, 7.0])), "float64 of shape (2,), not int64"),
    "rows in rows": (_array("w@rows", np.array([[3, 7]])), "not int64"),
    "too few values": (_array("w@values", np.ones((1, 2), "float32")), "must be float32 of shape (2, 2)"),
    "too wide": (_array("w@values", np.ones((2, 3), "float32")), "must be float32 of shape (2, 2)"),
    "other values": (_array("w@values", np.ones((2, 2))), "and are float64"),
    "dtype": (_words(dtype="int8"), "a table of int8 is not supported"),
    "shape": (_words(shape="10x2"), "are no numbers"),
    "no shape": (_words(shape=[]), "has no rows"),
    "size": (_words(shape=[10, 2.5]), "are no numbers"),
    "initializer": (_words(initializer="ones"), "no initializer 'ones'"),
    "whole normal": (_words(dtype="int64"), "begin as zeros"),
    "seed": (_words(seed=-1), "seed -1"),
    "seed in words": (_words(seed="1"), "are no numbers"),
    "scale": (_words(scale=float("nan")), "is not a number"),
    "scale in words": (_words(scale="1"), "are no numbers"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_damaged_is_refused_by_name_and_nothing_is_sent(file: Path, tmp_path: Path, kind: str) -> None:
    with np.load(file) as stored:
        arrays = dict(stored)
    change, message = WRONG[kind]
    change(arrays)
    np.savez(tmp_path / "wrong.npz", **arrays)
    with pytest.raises(UsageError, match=r"wrong.npz cannot be restored: ") as caught:
        Job("redis://127.0.0.1:1", "j").restore(tmp_path / "wrong.npz")
    assert message in str(caught.value)


@pytest.mark.parametrize("cut", [0.2, 0.5, 0.9, 0.999])
def test_what_is_cut_off_is_refused(file: Path, cut: float) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * cut)])
    with pytest.raises(UsageError, match="no .npz, or is damaged"):
        Job("redis://127.0.0.1:1", "j").restore(file)


def test_what_has_no_sparse_tables_is_as_it_was(
    join: Callable[..., Worker], url: str, job: str, tmp_path: Path
) -> None:
    join(0).table("w", np.zeros(3))
    words = json.loads(Job(url, job).snapshot(tmp_path / "w.npz").to_json())
    assert words["format"] == 1
    assert "sparse" not in words


@pytest.mark.parametrize("spoil", ["row", "header", "key", "more"])
def test_parts_that_are_spoiled_before_they_count_are_written_again(
    url: str, job: str, client: redis.Redis, file: Path, monkeypatch: Any, spoil: str
) -> None:
    real, spoiled = restore.RestoreScript.call, []

    def spoiling(self: Any, wire: Any, **words: Any) -> str:
        if not spoiled:
            [key] = client.keys(f"ssp:{{{job}}}:*:x:*")
            assert client.pttl(key) > 0
            fields = [field for field in client.hkeys(key) if field != b"h"]
            spoiled.append(key)
            if spoil == "row":
                client.delete(key)
                client.hset(key, fields[0], b"12345678")
            elif spoil == "header":
                client.hset(key, "h", b"x" * 64)
            elif spoil == "key":
                client.delete(key)
            else:
                client.hset(key, b"more", b"12345678")
        return real(self, wire, **words)

    monkeypatch.setattr(restore.RestoreScript, "call", spoiling)
    if spoil == "more":
        with pytest.raises(ssp_redis.SSPError):
            Job(url, job).restore(file)
        return
    Job(url, job).restore(file)
    assert spoiled
    again = Job(url, job).snapshot(file).sparse["w"]
    assert again.rows.tolist() == [3, 7]


def test_rows_that_are_written_late_change_nothing(
    url: str, job: str, client: redis.Redis, file: Path, monkeypatch: Any
) -> None:
    """Another connection's repeated writes arrive when the run has begun."""
    send, sent = restore._send, []

    def kept(wire: Any, writes: Any) -> None:
        sent.append(writes)
        send(wire, writes)

    monkeypatch.setattr(restore, "_send", kept)
    Job(url, job).restore(file)
    with ssp_redis.join(url, job=job, worker=0) as worker:
        table = worker.sparse_table("w")
        for _ in range(6):
            table.inc(np.ones((1, 2)), [3])
            worker.tick()
        before = table.get(range(10))
        worker._clock.link.run(lambda wire: [send(wire, writes) for writes in sent])
        assert (Job(url, job).table("w").get() == before).all()
        assert all(client.pttl(key) > 0 for key in client.keys(f"ssp:{{{job}}}:*:x:*:0"))


def test_all_of_it_expires_until_somebody_joins(
    join: Callable[..., Worker], url: str, job: str, client: redis.Redis, file: Path
) -> None:
    old = Job(url, job).status().run_id
    standing = Job(url, job).restore(file, workers=1)
    keys = client.keys(f"ssp:{{{job}}}:*")
    assert not [key for key in keys if old in key.decode()]
    assert [key for key in keys if f"{standing.run_id}:r:" in key.decode()]
    assert all(client.ttl(key) > 0 for key in keys)
    join(0)
    assert all(client.ttl(key) == -1 for key in client.keys(f"ssp:{{{job}}}:*"))


# -- what it takes -----------------------------------------------------------------------------------------------------


def test_it_takes_what_the_touched_rows_take(new_server: Callable[..., Any], tmp_path: Path) -> None:
    """A table of 10,000,000 × 32, of which 20,000 rows were touched: 2.56 MB of 1.28 GB."""
    first, second = new_server(), new_server()
    count, size = 20_000, 20_000 * 32 * 4
    rows = np.random.default_rng(1).permutation(10_000_000)[:count]
    with ssp_redis.join(first.url, job="j", worker=0) as worker:
        table = worker.sparse_table("w", (10_000_000, 32), initializer="normal", scale=0.01)
        for part in np.split(rows, 10):
            table.inc(np.ones((len(part), 32), np.float32), part)
            worker.tick()
    with redis.Redis.from_url(first.url) as client:
        began, used = client.info("stats"), client.info("memory")["used_memory"]
        Job(first.url, "j").snapshot(tmp_path / "w.npz")
        ended = client.info("stats")
        assert client.info("memory")["used_memory"] - used < 0.2 * size, "nothing of it stays"
        assert ended["total_net_output_bytes"] - began["total_net_output_bytes"] < 2.5 * size
    assert size < os.path.getsize(tmp_path / "w.npz") < 1.1 * size
    with redis.Redis.from_url(second.url) as client:
        began, used = client.info("stats"), client.info("memory")["used_memory"]
        Job(second.url, "j").restore(tmp_path / "w.npz")
        ended = client.info("stats")
        assert ended["total_net_input_bytes"] - began["total_net_input_bytes"] < 1.3 * size
        assert client.info("memory")["used_memory"] - used < 2 * size


def test_a_server_without_the_memory_refuses(own_server: Any, tmp_path: Path, file: Path) -> None:
    taken = load(file)
    big = taken.sparse["w"]
    rows = np.arange(200_000)
    wide = big.of(big.layout("w", 1), rows[:10], np.zeros((10, 2), "float32"))
    assert wide == big
    with redis.Redis.from_url(own_server.url) as client:
        client.config_set("maxmemory", 4 << 20)
        with ssp_redis.join(own_server.url, job="other", worker=0) as worker:
            layout = worker.sparse_table("w", (10**6, 30))._view.layout
        many = big.of(layout, rows, np.zeros((200_000, 30), "float32"))
        words = {name: getattr(taken, name) for name in taken.__dataclass_fields__}
        save(tmp_path / "many.npz", Snapshot(**(words | {"sparse": {"w": many}})))
        before = client.dbsize()
        with pytest.raises(ssp_redis.ServerRefused, match=r"may need \d+ MiB in Redis"):
            Job(own_server.url, "job").restore(tmp_path / "many.npz")
        assert client.dbsize() == before


def test_nothing_is_left_marked_when_it_fails(
    join: Callable[..., Worker], url: str, job: str, client: redis.Redis, tmp_path: Path, monkeypatch: Any
) -> None:
    join(0).sparse_table("w", (50, 2))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(take.Frozen, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Job(url, job).snapshot(tmp_path / "w.npz")
    assert not client.keys(f"ssp:{{{job}}}:*:u:*")
    assert not list(tmp_path.iterdir())
