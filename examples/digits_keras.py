"""Handwritten digits by a small network in Keras: ssp-redis launch -n 3 --staleness 3 examples/digits_keras.py

Needs ssp-redis[keras,jax,data]; $KERAS_BACKEND may name another. (*) is all that a plain training script does not have.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "jax")
import keras
import numpy as np
from sklearn.datasets import load_digits

import ssp_redis
from ssp_redis.frameworks.keras import Replicate


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32, help="of all workers together")
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()

    keras.utils.set_random_seed(0)
    data = load_digits()
    x, y = (data.data / 16).astype("float32"), data.target
    train, test = slice(0, 1437), slice(1437, None)
    layers = [keras.layers.Dense(64, "relu", name="hidden"), keras.layers.Dense(10, "softmax", name="out")]
    model = keras.Sequential([keras.Input((64,)), *layers])
    model.compile(keras.optimizers.SGD(args.lr, momentum=0.9), "sparse_categorical_crossentropy", metrics=["accuracy"])

    with ssp_redis.join() as worker:  # (*)
        shared = Replicate(worker)  # (*)
        batch = max(1, args.batch // worker.workers)
        shares = ssp_redis.Shares(worker, len(x[train]), batch=batch, drop_last=True)
        for epoch in range(args.epochs):
            rows = np.concatenate(list(shares.epoch(epoch)))
            model.fit(x[rows], y[rows], batch_size=batch, shuffle=False, verbose=0, callbacks=[shared])  # (*)
        worker.barrier()
        shared.pull()
        accuracy = model.evaluate(x[test], y[test], verbose=0)[1]
        print(f"worker {worker.id}: accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
