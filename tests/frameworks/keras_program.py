"""A worker of ``test_keras``. Arguments: its rank, the server's URL, and names of jobs."""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import keras
import numpy as np

import ssp_redis
from ssp_redis.frameworks.keras import Replicate

RANK, URL, *JOBS = sys.argv[1:]
WORKERS, STEPS, ROWS = 4, 12, 8


def mlp() -> Any:
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(16, "tanh", name="first"), keras.layers.Dense(3, name="last")]
    model = keras.Sequential([keras.Input((8,)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.5), loss)
    return model


def same(first: Any, second: Any, **tolerance: float) -> None:
    for a, b in zip(first.weights, second.weights, strict=True):
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(a), keras.ops.convert_to_numpy(b), **tolerance, err_msg=a.path
        )


def fit(model: Any, x: Any, y: Any, batch: int, *callbacks: Any) -> None:
    model.fit(x, y, batch_size=batch, shuffle=False, verbose=0, callbacks=list(callbacks))


def equality(job: str) -> None:
    """Four workers on equal parts of each batch are one process on all of it."""
    random = np.random.default_rng(0)
    x = random.standard_normal((STEPS * WORKERS * ROWS, 8), np.float32)
    y = random.integers(3, size=len(x))
    alone, model = mlp(), mlp()
    fit(alone, x, y, WORKERS * ROWS)
    mine = np.arange(len(x)).reshape(STEPS, WORKERS, ROWS)[:, int(RANK)].reshape(-1)
    with ssp_redis.join(URL, job=job, worker=RANK, workers=WORKERS, timeout=120) as worker:
        fit(model, x[mine], y[mine], ROWS, Replicate(worker))
        assert worker.clock == STEPS, worker.clock
    same(alone, model, rtol=2e-5, atol=2e-6)
    weights = [keras.ops.convert_to_numpy(weight).tobytes() for weight in model.weights]
    print("weights", hashlib.sha256(b"".join(weights)).hexdigest())


def alone_with_all_kinds(job: str) -> None:
    """Statistics, half types, frozen layers and counters, with an optimizer that has a state, over two fits."""
    random = np.random.default_rng(1)
    x = random.standard_normal((64, 8), np.float32)
    y = random.standard_normal((64, 1), np.float32)

    def make() -> Any:
        keras.utils.set_random_seed(3)
        model = keras.Sequential(
            [
                keras.Input((8,)),
                keras.layers.Dense(4, name="frozen"),
                keras.layers.BatchNormalization(name="norm"),
                keras.layers.Dense(1, name="last", dtype="mixed_bfloat16"),
            ]
        )
        model.get_layer("frozen").trainable = False
        model.compile(keras.optimizers.Adam(0.01), "mse")
        return model

    alone, model = make(), make()
    with ssp_redis.join(URL, job=job, timeout=60) as worker:
        callback = Replicate(worker, every=2)
        for _ in range(2):
            fit(alone, x, y, 8)
            fit(model, x, y, 8, callback)
        assert worker.clock == 8
        same(alone, model, rtol=1e-4, atol=1e-5)
        with ssp_redis.Job(URL, job) as outside:
            assert outside.table("model.fixed.float32").get().shape == (8 * 4 + 4,)
            assert outside.table("model.float32").get().shape == (2 * 4 + 4 + 1 + 2 * 4,)


def stopped(job: str) -> None:
    """A job that is stopped ends the training."""

    class Stop(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 3:
                with ssp_redis.Job(URL, job) as outside:
                    outside.stop()

    with ssp_redis.join(URL, job=job, timeout=60) as worker:
        fit(mlp(), np.zeros((80, 8), np.float32), np.zeros(80), 8, Replicate(worker), Stop())
        assert worker.clock == 4, worker.clock


def errors(job: str) -> None:
    with ssp_redis.join(URL, job=job, timeout=60) as worker:
        model = keras.Sequential([keras.layers.Dense(2)])
        model.compile("sgd", "mse")
        callback = Replicate(worker)
        callback.set_model(model)
        try:
            callback.on_train_begin()
        except ssp_redis.UsageError as error:
            assert "the model has no weights yet: build it before fit" in str(error)
        else:
            raise AssertionError("an unbuilt model was taken")
        x = np.full((8, 8), np.nan, np.float32)
        try:
            fit(mlp(), x, np.zeros(8), 8, Replicate(worker))
        except ssp_redis.NonFinite as error:
            assert "first/bias has 16 values that became NaN" in str(error)
        else:
            raise AssertionError("NaN was taken")


if __name__ == "__main__":
    first, *others = JOBS
    equality(first)
    if RANK == "0":
        for part, name in zip((alone_with_all_kinds, stopped, errors), others, strict=True):
            part(name)
