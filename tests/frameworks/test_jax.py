"""JAX pytrees, with optax where it is there."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from fixtures import background

from ssp_redis import NonFinite, TableMismatch, UsageError, Worker

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from ssp_redis.frameworks.jax import replicate  # noqa: E402

Together = Callable[..., list[Worker]]
Join = Callable[..., Worker]


def mlp(seed: int = 0) -> Any:
    keys = jax.random.split(jax.random.key(seed))
    layer = {"w": jax.random.normal(keys[0], (8, 16)) / 3, "b": jnp.zeros(16)}
    return {"layers": [layer, {"w": jax.random.normal(keys[1], (16, 3)) / 4, "b": jnp.zeros(3)}]}


def loss(params: Any, x: Any, y: Any) -> Any:
    first, last = params["layers"]
    scores = jnp.tanh(x @ first["w"] + first["b"]) @ last["w"] + last["b"]
    return -jnp.mean(jax.nn.log_softmax(scores)[jnp.arange(len(y)), y])


gradient = jax.jit(jax.grad(loss))


def sgd(params: Any, x: Any, y: Any, rate: float = 0.5) -> Any:
    return jax.tree.map(lambda p, g: p - rate * g, params, gradient(params, x, y))


def batch(seed: int, rows: int = 32) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    return random.standard_normal((rows, 8), np.float32), random.integers(3, size=rows)


def ticked(replicas: list[Any], trees: list[Any]) -> list[Any]:
    futures: list[Future[Any]] = [background(r.tick, tree, 30) for r, tree in zip(replicas, trees, strict=True)]
    return [future.result(40) for future in futures]


def test_four_workers_on_parts_of_a_batch_are_one_process_on_all_of_it(together: Together) -> None:
    alone = mlp()
    replicas = [replicate(worker, mlp(seed)) for seed, worker in enumerate(together(4, staleness=0))]
    trees = [replica.params for replica in replicas]
    for clock in range(20):
        x, y = batch(clock)
        alone = sgd(alone, x, y)
        parts = [(x[i * 8 : i * 8 + 8], y[i * 8 : i * 8 + 8]) for i in range(4)]
        trees = ticked(replicas, [sgd(tree, *part) for tree, part in zip(trees, parts, strict=True)])
    for tree in trees:
        assert jax.tree.structure(tree) == jax.tree.structure(alone)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), tree, alone)


def test_optax_keeps_its_state(join: Join) -> None:
    optax = pytest.importorskip("optax")
    optimizer = optax.adam(0.01)
    replica = replicate(join(0), mlp(), every=2)
    trees = [mlp(), replica.params]
    states = [optimizer.init(tree) for tree in trees]
    for clock in range(6):
        for i in range(2):
            updates, states[i] = optimizer.update(gradient(trees[i], *batch(clock)), states[i])
            trees[i] = optax.apply_updates(trees[i], updates)
        trees[1] = replica.tick(trees[1])
    assert replica.replica.worker.clock == 3
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), *trees)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_types_stay_what_they_are(together: Together, dtype: str) -> None:
    replicas = [replicate(w, {"w": jnp.full(100, 256 + i, dtype)}) for i, w in enumerate(together(2))]
    trees = [replica.params for replica in replicas]
    for _ in range(4):
        trees = ticked(replicas, [jax.tree.map(lambda x: x + 2, tree) for tree in trees])
    for tree in trees:
        assert tree["w"].dtype == dtype
        assert (tree["w"] == 264).all()


def test_a_single_array_is_a_pytree(join: Join) -> None:
    replica = replicate(join(0), jnp.zeros(3), scale=1)
    assert (replica.tick(replica.params + 1) == 1).all()
    assert (replica.pull() == 1).all()


def test_errors_name_the_leaf(together: Together) -> None:
    first, second = together(2)
    replica = replicate(first, mlp())
    other = mlp()
    other["layers"][1]["b"] = jnp.zeros(4)
    with pytest.raises(TableMismatch, match=r"\['layers'\]\[1\]\['b'\] is of shape \(4,\) here and \(3,\) in the job"):
        replicate(second, other)
    with pytest.raises(UsageError, match="the pytree has another structure"):
        replica.tick({"w": jnp.zeros(3)})
    broken = mlp()
    broken["layers"][0]["w"] = broken["layers"][0]["w"].at[0, 0].set(jnp.nan)
    with pytest.raises(NonFinite, match=r"\['layers'\]\[0\]\['w'\] has 1 values that became NaN"):
        replica.tick(broken)
    jax.tree.map(np.testing.assert_array_equal, replica.pull(), mlp())
    with pytest.raises(UsageError, match="n'] is int32"):
        replicate(first, {"n": jnp.arange(3)}, name="counts")
