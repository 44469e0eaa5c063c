"""Handwritten digits by a small network in JAX and optax: ssp-redis launch -n 3 --staleness 3 examples/digits_jax.py

Needs ssp-redis[jax,data]. Marked with (*) is all that a plain training script does not have.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import optax
from sklearn.datasets import load_digits

import ssp_redis
from ssp_redis.frameworks.jax import replicate


def scores(params: Any, x: Any) -> Any:
    return jax.nn.relu(x @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]


def loss(params: Any, x: Any, y: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(scores(params, x), y).mean()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32, help="of all workers together")
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()

    data = load_digits()
    x, y = jnp.asarray(data.data / 16, jnp.float32), jnp.asarray(data.target)
    train, test = slice(0, 1437), slice(1437, None)
    keys = jax.random.split(jax.random.key(0))
    params = {"w1": jax.random.normal(keys[0], (64, 64)) / 8, "b1": jnp.zeros(64)}
    params |= {"w2": jax.random.normal(keys[1], (64, 10)) / 8, "b2": jnp.zeros(10)}
    optimizer = optax.sgd(args.lr, momentum=0.9)
    state = optimizer.init(params)
    gradient = jax.jit(jax.grad(loss))

    with ssp_redis.join() as worker:  # (*)
        replica = replicate(worker, params)  # (*)
        shares = ssp_redis.Shares(worker, len(x[train]), batch=max(1, args.batch // worker.workers), drop_last=True)
        params = replica.params
        for epoch in range(args.epochs):
            for rows in shares.epoch(epoch):
                updates, state = optimizer.update(gradient(params, x[rows], y[rows]), state)
                params = replica.tick(optax.apply_updates(params, updates))  # (*)
        worker.barrier()
        accuracy = (scores(replica.pull(), x[test]).argmax(1) == y[test]).mean()
        print(f"worker {worker.id}: accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
