"""Wrong input of every kind: an error that names the culprit, and nothing sent."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

import ssp_redis
from ssp_redis import (
    Job,
    NonFinite,
    ServerRefused,
    ServerUnavailable,
    SSPError,
    TableMismatch,
    UsageError,
    WaitTimeout,
    Worker,
)

Join = Callable[..., Worker]

NAMES = ["", " ", "a b", "a{b}", "a:b", "a*", "x" * 65, "naïve", "a\n", "a/b", "\x00"]


@pytest.mark.parametrize(
    ("settings", "culprit"),
    [({"job": name}, f"job {name!r}") for name in NAMES[1:]]
    + [({"worker": name}, f"worker {name!r}") for name in NAMES]
    + [({"run": name}, f"run {name!r}") for name in NAMES[1:]]
    + [
        ({"staleness": value}, f"staleness {value!r}")
        for value in (-1.0, -2, 0.5, math.nan, -math.inf, "many", [1], 2**31)
    ]
    + [({"workers": value}, f"workers {value!r}") for value in (0, -1, 1.5, math.nan, math.inf, "two", True)]
    + [({"lease": value}, f"lease {value!r}") for value in (0, -1.0, math.nan, math.inf, 0.001, "long", True)]
    + [({"retain": value}, f"retain {value!r}") for value in (0, -1, math.nan, 0.5)]
    + [({"recheck": value}, f"recheck {value!r}") for value in (0, -1, math.nan, math.inf)]
    + [({"reconnect_timeout": value}, f"reconnect_timeout {value!r}") for value in (0, -1, math.nan)]
    + [({"timeout": value}, f"timeout {value!r}") for value in (-1, math.nan)]
    + [({"refresh": value}, f"refresh {value!r}") for value in (0, -1)]
    + [({name: value}, f"{name} {value!r}") for name in ("reproducible", "strict") for value in (2, 1, 0.0, "yes")]
    + [({"worker": value}, f"worker {value!r}") for value in (True, False, 1.5)]
    + [({"url": value}, f"url {value!r}") for value in (5, b"redis://x", True)],
    ids=repr,
)
def test_join_refuses(client: redis.Redis, url: str, settings: dict[str, Any], culprit: str) -> None:
    before = client.info("stats")["total_connections_received"]
    with pytest.raises(UsageError) as caught:
        ssp_redis.join(**({"url": url, "job": "never", "timeout": 5} | settings))
    assert culprit in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert client.info("stats")["total_connections_received"] == before
    assert client.keys("*") == []


def test_no_job_and_no_server_say_how_to_name_them(url: str) -> None:
    with pytest.raises(UsageError, match=r"no job: give its name \(job=…\) or set SSP_REDIS_JOB"):
        ssp_redis.join(url)
    with pytest.raises(UsageError, match="no server: give its URL .* or set SSP_REDIS_URL"):
        ssp_redis.join(job="j")
    with pytest.raises(UsageError, match="no server"):
        Job(None, "j")


@pytest.mark.parametrize(
    "url",
    [
        "localhost:6379",
        "http://u:S3CRET@localhost",
        "redis:/u:S3CRET@localhost",
        "redis://u:S3CRET@localhost:notaport",
        "redis://u:S3CRET@localhost:99999",
        "redis://u:S3CRET@localhost/notanumber",
        "redis://u:S3CRET@localhost?socket_timeout=soon",
        "redis://u:S3CRET@localhost?nonsense=1",
        "rediss://u:S3CRET@localhost?ssl_cert_reqs=nonsense",
        "redis://u:S3CRET@[::1",
        "redis://u:S3CRET/slash@localhost",
        "redis://u:12S3CRET/@localhost:1",
        "unix://u:S3CRET@",
        "",
        "://",
    ],
)
def test_a_bad_url_is_named_without_its_password(url: str) -> None:
    with pytest.raises(SSPError) as caught:
        ssp_redis.join(url, job="j", timeout=1, reconnect_timeout=0.2)
    assert not isinstance(caught.value, ServerUnavailable) or ":S3CRET@" in url
    error: BaseException | None = caught.value
    while error is not None:
        assert "S3CRET" not in str(error) + repr(error)
        error = error.__cause__


@pytest.mark.parametrize("path", ["", "/nonexistent/redis.sock"])
def test_a_server_that_is_not_there(path: str) -> None:
    url = f"unix://u:S3CRET@{path}" if path else "redis://u:S3CRET@127.0.0.1:1"
    with pytest.raises(ServerUnavailable) as caught:
        ssp_redis.join(url, job="j", reconnect_timeout=0.2)
    assert "given up after 0.2 s" in str(caught.value)
    assert "S3CRET" not in str(caught.value) + repr(caught.value.__cause__)
    assert isinstance(caught.value, ConnectionError)


def test_who_waits_for_a_server_reads_what_for(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    url = f"unix://:s3cret@{tmp_path}/none.sock"
    with pytest.raises(ServerUnavailable):
        ssp_redis.join(url, job="j", reconnect_timeout=1.5)
    assert [record.levelname for record in caplog.records] == ["WARNING"], "once"
    assert re.search(r"/none.sock cannot be reached: .*No such file.*; trying again for up to 1.5 s\n", caplog.text)
    assert "s3cret" not in caplog.text


def test_a_wrong_password_is_refused_and_not_shown(new_server: Callable[..., Any]) -> None:
    server = new_server(tcp=True)
    with redis.Redis.from_url(server.url) as admin:
        admin.config_set("requirepass", "right")
    with pytest.raises(ServerRefused, match="user name or password in the URL is wrong") as wrong:
        ssp_redis.join(server.url.replace("://", "://:WR0NG@"), job="j")
    assert "WR0NG" not in str(wrong.value)
    with pytest.raises(ServerRefused, match="wants a password: put it into the URL"):
        ssp_redis.join(server.url, job="j")
    with ssp_redis.join(server.url.replace("://", "://:right@"), job="j") as worker:
        assert "right" not in repr(worker._clock.endpoint) + repr(vars(worker._clock.link))
        worker.tick()


def test_valkey_urls_are_understood(new_server: Callable[..., Any]) -> None:
    server = new_server(tcp=True)
    with ssp_redis.join(server.url.replace("redis://", "valkey://"), job="j") as worker:
        worker.tick()


class TestTables:
    @pytest.fixture
    def worker(self, join: Join) -> Worker:
        return join(0, staleness=5)

    @pytest.fixture
    def table(self, worker: Worker) -> ssp_redis.Table:
        table = worker.table("w", np.zeros((4, 3), "float32"))
        table.get()
        return table

    @pytest.fixture(autouse=True)
    def nothing_is_sent(self, worker: Worker, table: ssp_redis.Table) -> Any:
        before = worker.stats()
        yield
        after = worker.stats()
        assert (after["bytes_in"], after["bytes_out"]) == (before["bytes_in"], before["bytes_out"])
        assert table.get().tolist() == np.zeros((4, 3)).tolist(), "nor added"
        assert worker.tick() == 1

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_a_delta_that_is_not_finite(self, table: ssp_redis.Table, bad: float) -> None:
        """tensorflow/tensorflow#14494: NaN from stale gradients spreads to everyone."""
        delta = np.zeros((4, 3), "float32")
        delta[2, 1] = bad
        with pytest.raises(NonFinite, match=r"worker 0, clock 0: .* table w has 1 values .* first at \(2, 1\)"):
            table.inc(delta)
        with pytest.raises(NonFinite):
            table.inc(delta[2:], rows=[0, 1])

    def test_a_delta_that_overflows_the_dtype(self, table: ssp_redis.Table) -> None:
        with pytest.raises(NonFinite):
            table.inc(np.full((4, 3), 1e300))

    @pytest.mark.parametrize("shape", [(3, 4), (4,), (), (1, 4, 3), (0, 3)])
    def test_a_delta_of_another_shape(self, table: ssp_redis.Table, shape: tuple[int, ...]) -> None:
        with pytest.raises(TableMismatch, match=r"table w has shape \(4, 3\), the delta"):
            table.inc(np.zeros(shape, "float32"))

    @pytest.mark.parametrize("dtype", ["complex64", "U3", "object", "datetime64[s]", "V8"])
    def test_a_delta_of_another_kind(self, table: ssp_redis.Table, dtype: str) -> None:
        with pytest.raises(SSPError, match="table w"):
            table.inc(np.zeros((4, 3), dtype))

    @pytest.mark.parametrize(
        "rows", [[4], [-1], [0, 99], [0.0], [[0]], "ab", [None], [True, False, True, True], 1, 2**70]
    )
    def test_rows_that_are_none(self, table: ssp_redis.Table, rows: Any) -> None:
        with pytest.raises(UsageError, match="table w"):
            table.get(rows=rows)
        with pytest.raises(UsageError, match="table w"):
            table.inc(np.zeros((1, 3), "float32"), rows=rows)

    @pytest.mark.parametrize("shape", [(1, 3), (3,), (2, 4), (2,), ()])
    def test_rows_and_a_delta_that_do_not_match(self, table: ssp_redis.Table, shape: tuple[int, ...]) -> None:
        with pytest.raises(TableMismatch, match=r"table w: 2 rows need a delta of \(2, 3\)"):
            table.inc(np.zeros(shape, "float32"), rows=[0, 1])

    @pytest.mark.parametrize("dtype", ["complex128", "U3", "object", "bool", "datetime64[s]"])
    def test_a_table_of_another_kind(self, worker: Worker, dtype: str) -> None:
        with pytest.raises(UsageError, match="table new: .* is not supported, use one of float32, float64"):
            worker.table("new", np.zeros(3, dtype))

    @pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5)])
    def test_a_table_that_holds_nothing(self, worker: Worker, shape: tuple[int, ...]) -> None:
        with pytest.raises(UsageError, match="table new: a table of shape .* holds nothing"):
            worker.table("new", np.zeros(shape))

    def test_a_table_that_begins_with_nan(self, worker: Worker) -> None:
        with pytest.raises(UsageError, match="table new: its first value has NaN or infinity"):
            worker.table("new", [1.0, math.nan])

    @pytest.mark.parametrize("name", NAMES)
    def test_a_table_without_a_name(self, worker: Worker, name: str) -> None:
        with pytest.raises(UsageError, match="table"):
            worker.table(name, np.zeros(3))
        with pytest.raises(UsageError, match="table"):
            worker.table(name)

    @pytest.mark.parametrize("name", [None, True, 1.5, b"w", ("w",)])
    def test_a_table_whose_name_is_no_text(self, worker: Worker, name: Any) -> None:
        for make in (worker.table, worker.sparse_table):
            with pytest.raises(UsageError, match="table .* is not a name"):
                make(name)

    @pytest.mark.parametrize("count", ["x", -1, 1.5, None, True])
    def test_clocks_that_are_no_number(self, worker: Worker, count: Any) -> None:
        with pytest.raises(UsageError, match="clocks"):
            next(worker.clocks(count))

    @pytest.mark.parametrize(
        ("dims", "dtype"),
        [
            ((4, 200_000_000), "float32"),
            ((4, 70_000_000), "float64"),
            ((4, 140_000_000), "float16"),
            ((2, 1 << 40, 1 << 40), "float32"),
            ((1 << 40, 1 << 40), "int64"),
            ((2, 10**400), "float32"),
        ],
    )
    def test_sparse_rows_that_no_value_of_the_server_holds(
        self, worker: Worker, dims: tuple[int, ...], dtype: str, url: str, job: str
    ) -> None:
        with pytest.raises(UsageError, match="table s: a row of .* is more than a value in Redis holds"):
            worker.sparse_table("s", dims, dtype)
        assert [table.name for table in Job(url, job).status().tables] == ["w"]

    @pytest.mark.parametrize(
        "wrong",
        [{"shape": shape} for shape in ("ab", "34", 5, (2.5, 3), ([1], 2), (None,), {}, (), (0, 3), (-1, 3), (3, 0))]
        + [{"shape": (1 << 64, 2)}, {"shape": (10**400, 2)}]
        + [{"dtype": dtype} for dtype in ("nonsense", object, "U3", 7, [1])]
        + [{"seed": seed} for seed in ("x", 1.5, None, -1, 1 << 63)]
        + [{"scale": scale} for scale in ("x", None, math.nan, math.inf, 1e38, 1e300, 10**400)],
        ids=repr,
    )
    def test_sparse_tables_that_make_no_sense(self, worker: Worker, wrong: dict[str, Any], url: str, job: str) -> None:
        right: dict[str, Any] = {"shape": (4, 2), "dtype": np.float32, "initializer": "normal"}
        with pytest.raises(UsageError, match="table s"):
            worker.sparse_table("s", **(right | wrong))
        assert [table.name for table in Job(url, job).status().tables] == ["w"]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_sparse_table_of_the_largest_scale_has_finite_rows(join: Join, dtype: str) -> None:
    largest = float(np.finfo(dtype).max) / 9.01
    table = join(0).sparse_table("s", (5000, 4), dtype, "normal", scale=largest)
    assert np.isfinite(table.get(np.arange(5000))).all()


@pytest.mark.parametrize("timeout", [10**400, 1e300, 10**9])
def test_a_timeout_of_ages(join: Join, timeout: Any) -> None:
    worker = join(0)
    assert worker.tick(timeout=timeout) == 1
    assert worker.advance(timeout=timeout) == 2
    worker.wait(timeout=timeout)
    worker.barrier(timeout=timeout)


def test_a_table_that_is_not_there(join: Join, url: str, job: str) -> None:
    worker = join(0)
    with pytest.raises(TableMismatch, match=r"has no table missing: give its first value, table\('missing', array\)"):
        worker.table("missing")
    worker.table("a", np.zeros(1))
    worker.table("b", np.zeros(1))
    with pytest.raises(TableMismatch, match=f"job {job} has no table missing; there are: a, b"):
        Job(url, job).table("missing")


def test_a_shape_is_not_taken_for_a_first_value(join: Join) -> None:
    worker = join(0)
    with pytest.raises(UsageError, match=r"table w: its first value, not its shape: np.zeros\(\(10, 3\)\)"):
        worker.table("w", (10, 3))
    assert worker.table("w", (10.0, 3.0)).shape == (2,)


def test_a_mask_is_no_list_of_rows(join: Join) -> None:
    table = join(0).table("w", np.zeros((3, 2)))
    with pytest.raises(UsageError, match=r"rows are a list of whole numbers.*np.flatnonzero\(mask\)"):
        table.inc(np.ones((2, 2)), rows=np.array([True, False, True]))


@pytest.mark.parametrize("workers", [3, "3"])
def test_more_workers_than_were_started_are_waited_for_aloud(
    url: str, job: str, workers: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SSP_REDIS_WORKERS", "2")
    with pytest.raises(WaitTimeout, match="1 of 3 joined"):
        ssp_redis.join(url, job=job, worker=0, workers=workers, timeout=0.1)
    assert "workers=3, which comes before SSP_REDIS_WORKERS=2" in caplog.text
    caplog.clear()
    Job(url, job).delete()
    ssp_redis.join(url, job=job, worker=0, workers=1).leave()
    assert not caplog.records


def test_a_single_value_has_no_rows(join: Join) -> None:
    table = join(0).table("bias", 3.5)
    assert table.get() == 3.5
    assert table.get().shape == ()
    table.inc(1.0)
    assert float(table.get()) == 4.5
    with pytest.raises(UsageError, match="table bias is a single value and has no rows"):
        table.get(rows=[0])


def test_whole_numbers_and_narrower_floats_fit_into_a_table(join: Join) -> None:
    table = join(0).table("w", np.zeros(3, "float64"))
    for delta in ([1, 1, 1], np.ones(3, "int8"), np.ones(3, "float16"), np.ones(3, "float32"), np.ones(3, ">f8")):
        table.inc(delta)
    assert table.get().tolist() == [5, 5, 5]
    assert table.get().dtype == np.dtype("float64")


def test_arrays_of_any_order_and_stride(join: Join) -> None:
    value = np.arange(24.0).reshape(4, 6)
    table = join(0).table("w", np.asfortranarray(value))
    assert table.get().tolist() == value.tolist()
    table.inc(np.asfortranarray(value))
    table.inc(np.repeat(value, 2, axis=1)[:, ::2])
    table.inc(value[::-1], rows=[3, 2, 1, 0])
    assert table.get().tolist() == (4 * value).tolist()


class TestAfterTheEnd:
    def test_of_a_worker(self, join: Join) -> None:
        worker = join(0)
        table = worker.table("w", np.zeros(3))
        table.get()
        worker.leave()
        before = worker.stats()
        for call in (
            worker.tick,
            worker.wait,
            worker.advance,
            worker.barrier,
            table.get,
            lambda: table.inc(np.ones(3)),
            lambda: worker.table("w"),
            lambda: worker.table("new", np.ones(3)),
            lambda: list(worker.clocks(5)),
        ):
            with pytest.raises(SSPError, match="this worker has left its job: join again"):
                call()
        assert worker.stats() == before

    def test_of_a_job(self, url: str) -> None:
        from ssp_redis import StateLost

        job = Job(url, "there.is.none")
        assert not job.exists()
        for call in (
            job.status,
            job.tables,
            job.stop,
            job.resume,
            lambda: job.gather(2),
            lambda: job.set_staleness(1),
            lambda: job.table("w"),
            lambda: job.evict(0),
            lambda: job.load({"w": np.ones(3)}),
        ):
            with pytest.raises(StateLost, match=r"there is no job there\.is\.none on unix://"):
                call()
        assert job.delete() == 0


@pytest.mark.parametrize("name", NAMES)
def test_job_refuses_a_bad_name(url: str, name: str) -> None:
    with pytest.raises(UsageError, match="job"):
        Job(url, name)


@pytest.mark.parametrize("staleness", [-2, 0.5, math.nan, "many"])
def test_set_staleness_refuses(join: Join, url: str, job: str, staleness: Any) -> None:
    join(0)
    with pytest.raises(UsageError, match="staleness"):
        Job(url, job).set_staleness(staleness)
    assert Job(url, job).status().staleness == 0


def test_a_load_that_does_not_fit(join: Join, url: str, job: str) -> None:
    join(0).table("w", np.zeros((2, 2)))
    for wrong in (np.zeros(4), np.zeros((2, 2), "float32"), np.full((2, 2), math.nan)):
        with pytest.raises(SSPError, match="table w"):
            Job(url, job).load({"w": wrong})
    assert Job(url, job).table("w").get().tolist() == [[0, 0], [0, 0]]
    assert [member.worker for member in Job(url, job).status().members] == ["0"]
