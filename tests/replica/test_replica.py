"""A replica: local changes go out once, shared values come back in place, whatever the program does in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fixtures import background

from ssp_redis import Job, JobStopped, NonFinite, Replica, TableMismatch, UsageError, WaitTimeout, Worker

Together = Callable[..., list[Worker]]
Join = Callable[..., Worker]


def model(value: float = 1.0, dtype: Any = np.float32) -> dict[str, np.ndarray[Any, Any]]:
    return {"w": np.full((3, 2), value, dtype), "b": np.full((), value, dtype)}


def ticked(replicas: list[Replica]) -> None:
    """All tick at once, so that at staleness 0 nobody waits for ever."""
    for future in [background(replica.tick, 20) for replica in replicas]:
        future.result(30)


def test_all_begin_with_the_values_of_whoever_comes_first(together: Together) -> None:
    workers = together(3)
    models = [model(float(i)) for i in range(3)]
    arrays = [list(m.values()) for m in models]
    for worker, values in zip(workers, models, strict=True):
        Replica(worker, values)
    for values, before in zip(models, arrays, strict=True):
        assert all(value is old for value, old in zip(values.values(), before, strict=True)), "written in place"
        assert all((value == 0).all() for value in values.values())


@pytest.mark.parametrize(("scale", "sum_of_steps"), [(1, 6.0), ("workers", 2.0), ("members", 2.0), (0.5, 3.0)])
def test_changes_of_all_come_back_scaled(together: Together, scale: Any, sum_of_steps: float) -> None:
    models = [model(), model(), model()]
    replicas = [Replica(w, m, scale=scale) for w, m in zip(together(3), models, strict=True)]
    for clock in range(1, 4):
        for step, values in enumerate(models, start=1):
            for value in values.values():
                value += step
        ticked(replicas)
        for values in models:
            assert all(value == pytest.approx(1 + clock * sum_of_steps) for value in values.values())


def test_the_scale_follows_the_members(together: Together, join: Join) -> None:
    workers = together(2, staleness=None)
    first = model()
    replica = Replica(workers[0], first, scale="members")
    first["w"] += 2
    replica.tick()
    assert (first["w"] == 2).all()
    workers[1].leave()
    workers[0].tick()  # hears of it
    first["w"] += 2
    replica.tick()
    assert (first["w"] == 4).all()


def test_a_clock_may_have_several_local_steps(join: Join) -> None:
    worker, values = join(0), model()
    replica = Replica(worker, values, every=3, scale=1)
    for step in range(1, 8):
        values["w"] += 1
        assert replica.tick() == step // 3
    with Job(worker._clock.settings.url, worker.job) as job:
        assert (job.table("model.float32").get()[1:] == 1 + 6).all()
    replica.pull()
    assert (values["w"] == 7).all(), "the seventh step was local and is undone"


def test_clocks_ticks_at_the_end_of_each_turn(join: Join) -> None:
    worker, values = join(0), model(0.0)
    turns = []
    for clock in Replica(worker, values, every=2, scale=1).clocks(3):
        turns.append((clock, float(values["b"])))
        values["b"] += 1
    assert turns == [(0, 0), (0, 1), (1, 2), (1, 3), (2, 4), (2, 5)]
    assert values["b"] == 6
    assert worker.clock == 3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_types_keep_their_type_and_rounding_is_no_change(together: Together, dtype: str) -> None:
    kind = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    models = [model(256.0, kind), model(256.0, kind)]
    replicas = [Replica(w, m, scale=0.125) for w, m in zip(together(2), models, strict=True)]
    for _ in range(4):
        models[0]["w"] += 2  # 0.25 after scaling, which bfloat16 and float16 round away at 256
        ticked(replicas)
    assert models[0]["w"].dtype == models[1]["w"].dtype == kind
    expected = 257.0 if dtype == "float64" else float(np.asarray(257.0, kind))
    assert (models[1]["w"].astype(np.float64) == expected).all()
    with Job(replicas[0].worker._clock.settings.url, replicas[0].worker.job) as job:
        stored = "float64" if dtype == "float64" else "float32"
        assert (job.table(f"model.{stored}").get()[1:] == 257.0).all()


def test_statistics_are_averaged_whatever_the_scale(together: Together) -> None:
    models = [model(), model()]
    replicas = [Replica(w, m, scale=1, averaged=["b"]) for w, m in zip(together(2), models, strict=True)]
    models[0]["b"][...] = 3.0
    models[1]["b"][...] = 9.0
    ticked(replicas)
    assert [float(m["b"]) for m in models] == [6.0, 6.0]


def test_fixed_arrays_are_made_alike_once(together: Together) -> None:
    models = [model(1.0), model(2.0)]
    replicas = [Replica(w, m, fixed=["b"]) for w, m in zip(together(2), models, strict=True)]
    assert models[1]["b"] == 1.0
    models[0]["b"] += 5
    ticked(replicas)
    assert [float(m["b"]) for m in models] == [6.0, 1.0], "nobody looks at it again"


def test_values_may_be_read_and_written_by_functions(join: Join) -> None:
    held = {"value": {"w": np.ones(3, np.float32)}}

    def write(values: dict[str, Any]) -> None:
        assert not values["w"].flags.writeable
        held["value"] = values

    replica = Replica(join(0), lambda: held["value"], write, scale=1)
    for _ in range(3):
        held["value"] = {"w": held["value"]["w"] + 1}
        replica.tick()
    assert (held["value"]["w"] == 4).all()


def test_arrays_that_are_not_contiguous_are_written_in_place(join: Join) -> None:
    whole = np.zeros((4, 6), np.float32)
    replica = Replica(join(0), {"t": whole[:, ::2].T}, scale=1)
    whole += 1
    replica.tick()
    whole[:, ::2] += 1
    replica.tick()
    assert (whole[:, ::2] == 2).all()
    assert (whole[:, 1::2] == 1).all()


# -- sparse arrays -----------------------------------------------------------------------------------------------------


def test_only_rows_in_use_are_pushed_and_pulled(together: Together) -> None:
    tables = [np.arange(40, dtype=np.float32).reshape(20, 2) for _ in range(2)]
    first = tables[0].copy()
    replicas = [Replica(w, {"e": t}, sparse=["e"], scale=1) for w, t in zip(together(2), tables, strict=True)]
    for replica, table, rows in zip(replicas, tables, ([3, 5, 3], [5, 7]), strict=True):
        replica.use("e", rows)
        table[rows] += 1
    ticked(replicas)
    expected = first.copy()
    expected[[3, 5, 7]] += [[1], [2], [1]]
    assert (tables[0][[3, 5]] == first[[3, 5]] + 1).all(), "what is not in use stays as it is"
    replicas[0].use("e", [5, 7])
    assert (tables[0][[5, 7]] == expected[[5, 7]]).all()
    replicas[1].refresh()
    assert (tables[1] == expected).all()
    [view] = replicas[0].worker._store.sparse.values()  # type: ignore[union-attr]
    assert sum(len(delta.numbers) for delta in view.held.values()) <= 2


def test_what_momentum_does_to_rows_is_pushed_when_they_are_used_again(join: Join) -> None:
    table = np.zeros((10, 2), np.float32)
    replica = Replica(join(0), {"e": table}, sparse=["e"], scale=1)
    replica.use("e", [4])
    table[4] += 1
    replica.tick()
    table[4] += 1  # not announced
    replica.tick()
    replica.use("e", [4])
    assert (table[4] == 2).all()
    replica.tick()
    table[4] += 1
    replica.refresh()
    assert (table[4] == 3).all()
    replica.tick()
    with Job(replica.worker._clock.settings.url, replica.worker.job) as job:
        assert (job.table("model.rows0").get([4]) == 3).all()


def test_sparse_arrays_must_begin_alike(together: Together) -> None:
    first, second = together(2)
    Replica(first, {"e": np.zeros((4, 2), np.float32)}, sparse=["e"])
    with pytest.raises(TableMismatch, match="e, which is sparse, begins with other values here than in the job: seed"):
        Replica(second, {"e": np.ones((4, 2), np.float32)}, sparse=["e"])


# -- one clear error each ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"w": np.zeros((2, 2)), "b": np.zeros(())}, r"w is of shape \(2, 2\) here and \(3, 2\) in the job"),
        ({"v": np.zeros((3, 2)), "b": np.zeros(())}, "w is missing here; v is unknown to the job"),
        ({"w": np.zeros((3, 2)), "b": np.zeros((), "f4")}, "b is of dtype float32 here and float64 in the job"),
        ({"w": np.zeros((3, 2))}, "b is missing here"),
    ],
)
def test_a_model_that_differs_is_named(together: Together, other: dict[str, Any], message: str) -> None:
    first, second = together(2)
    Replica(first, model(dtype=np.float64))
    with pytest.raises(TableMismatch, match=message):
        Replica(second, other)


def test_a_model_of_two_workers_at_once_is_compared_too(together: Together) -> None:
    workers = together(4)
    widths = [3, 3, 4, 3]
    futures = [
        background(Replica, w, {f"layer{i}": np.zeros(n, "f4") for i in range(50)})
        for w, n in zip(workers, widths, strict=True)
    ]
    errors = [future.exception(30) for future in futures]
    named = [error for error in errors if error is not None]
    assert len(named) in (1, 3), "who comes first is right"
    assert all(isinstance(error, TableMismatch) and "layer0 is of shape" in str(error) for error in named)


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ({"n": np.zeros(3, np.int64)}, {}, "n is int64: a replica is of float32"),
        ({"c": np.zeros(3, complex)}, {}, "c is complex128"),
        ({"w": np.array([1.0, np.nan])}, {}, "w has NaN or infinity"),
        ({"w": [1.0, 2.0]}, {}, "w cannot be written to in place: give write="),
        ({"w": np.broadcast_to(np.float32(1), 3)}, {}, "w cannot be written to in place"),
        ({}, {}, "no array has anything in it"),
        ({"w": np.zeros(2)}, {"scale": "mean"}, "scale 'mean' is not a number, 'workers' or 'members'"),
        ({"w": np.zeros(2)}, {"every": 0}, "every 0 is not a whole number from 1"),
        ({"w": np.zeros(2)}, {"averaged": ["v"]}, "there is no array v; there are w"),
        ({"w": np.zeros(2)}, {"name": "my model"}, "model"),
    ],
)
def test_what_makes_no_sense_is_refused(join: Join, arrays: Any, options: Any, message: str) -> None:
    worker = join(0)
    with pytest.raises(UsageError, match=message):
        Replica(worker, arrays, **options)
    assert worker._store is None, "nothing was sent"


def test_nan_is_named_before_anything_is_pushed(join: Join) -> None:
    values = model() | {"wide": np.ones(2), "e": np.zeros((5, 2), np.float32)}
    worker = join(0)
    replica = Replica(worker, values, sparse=["e"], scale=1)
    values["w"] += 1
    values["wide"][1] = np.inf
    with pytest.raises(NonFinite, match=r"worker 0, clock 0: wide has 1 values .* at \(1,\); nothing was pushed"):
        replica.tick()
    values["wide"][1] = 1
    replica.use("e", [3])
    values["e"][3, 1] = np.nan
    with pytest.raises(NonFinite, match=r"e has 1 values .* at \(3, 1\)"):
        replica.tick()
    assert worker.clock == 0
    replica.pull()
    assert (values["w"] == 1).all()
    assert (values["e"] == 0).all()
    values["w"] += 1
    assert replica.tick() == 1
    assert (values["w"] == 2).all()


def test_an_array_that_was_replaced_is_named(join: Join) -> None:
    values = model()
    replica = Replica(join(0), values)
    values["w"] = np.zeros((2, 2), np.float32)
    with pytest.raises(UsageError, match=r"w was replaced: it is float32 of shape \(2, 2\), and was float32 of \(3, 2"):
        replica.tick()
    del values["w"]
    with pytest.raises(UsageError, match="w is gone since the replica was made"):
        replica.tick()


def test_a_base_stands_while_the_table_is_read_on(together: Together) -> None:
    """What a replica compares with may be the memory of the table, which a read brings forward."""
    models = [model(0.0), model(0.0)]
    workers = together(2, staleness=None)
    first, second = (Replica(w, m, scale=1) for w, m in zip(workers, models, strict=True))
    models[1]["w"] += 8
    second.tick()
    first.tick()
    for clock in range(1, 4):
        models[1]["w"] += 8
        second.tick()
        models[0]["w"] += 1
        workers[0].tick()  # learns of it
        assert workers[0].table("model.float32").get().max() == 8 * (clock + 1) + clock - 1, "was read before the push"
        first.tick()
        assert (models[0]["w"] == 8 * (clock + 1) + clock).all()


def test_of_two_replicas_of_one_table_each_has_its_own_base(together: Together) -> None:
    workers = together(2, staleness=None)
    models = [model(0.0), model(0.0), model(0.0)]
    first, again = (Replica(workers[0], m, scale=1) for m in models[:2])
    other = Replica(workers[1], models[2], scale=1)
    for clock in range(1, 4):
        for replica in (first, again):
            replica.pull()
        for values in models:
            values["w"] += 1
        for replica in (again, first, other):
            replica.tick()
        with Job(workers[0]._clock.settings.url, workers[0].job) as job:
            assert (job.table("model.float32").get()[1:] == 3 * clock).all()


def test_what_write_is_given_may_be_kept(together: Together) -> None:
    workers = together(2, staleness=None)
    values, kept, other = model(0.0), dict[str, Any](), model(0.0)
    first = Replica(workers[0], lambda: values, kept.update, scale=1)
    second = Replica(workers[1], other, scale=1)
    other["w"] += 8
    second.tick()
    first.tick()
    before = {key: value.copy() for key, value in kept.items()}
    other["w"] += 8
    second.tick()
    workers[0].tick()
    assert (workers[0].table("model.float32").get()[1:] != before["w"][0, 0]).all(), "the table went on"
    assert all((kept[key] == value).all() for key, value in before.items())


# -- interruptions -----------------------------------------------------------------------------------------------------


def test_a_tick_that_timed_out_has_pushed_once(together: Together) -> None:
    models = [model(0.0), model(0.0)]
    first, second = (Replica(w, m, scale=1) for w, m in zip(together(2), models, strict=True))
    models[0]["w"] += 1
    with pytest.raises(WaitTimeout, match="worker 1 at clock 0"):
        first.tick(timeout=0.05)
    assert (models[0]["w"] == 1).all()
    models[0]["w"] += 10
    ticking = background(first.tick, 20)
    second.tick(20)
    assert (models[1]["w"] == 1).all()
    second.tick(20)
    ticking.result(30)
    assert all((m["w"] == 11).all() for m in models)


def test_a_job_that_is_stopped_ends_clocks(join: Join, url: str, job: str) -> None:
    values = model(0.0)
    replica = Replica(join(0), values, scale=1)
    turns = 0
    for _ in replica.clocks(100):
        turns += 1
        values["w"] += 1
        if turns == 3:
            with Job(url, job) as outside:
                outside.stop()
    assert turns == 3
    assert (values["w"] == 3).all()
    with pytest.raises(JobStopped):
        replica.tick()


def test_a_worker_that_returns_goes_on_with_the_shared_values(join: Join) -> None:
    values = model(0.0)
    worker = join(0)
    replica = Replica(worker, values, scale=1)
    values["w"] += 4
    replica.tick()
    worker.leave()
    again = model(7.0)
    replica = Replica(join(0), again, scale=1)
    assert (again["w"] == 4).all()
    assert replica.worker.clock == 1
