"""JAX: ``replica = replicate(worker, params)``, and ``params = replica.tick(params)`` after each step; any pytree."""

from __future__ import annotations

from typing import Any

import numpy as np

from ssp_redis.errors import UsageError
from ssp_redis.frameworks import MissingFramework
from ssp_redis.given import Array
from ssp_redis.replica import Replica
from ssp_redis.worker import Worker

try:
    import jax
except ImportError as error:
    raise MissingFramework("jax", "jax") from error


def replicate(
    worker: Worker, params: Any, *, name: str = "model", scale: float | str = "workers", every: int = 1
) -> PytreeReplica:
    """Keep a pytree of floating-point arrays together with those of the other workers.

    Optimizer state (optax's, say) stays everyone's own.

    Args:
        worker: a member.
        params: any pytree; its leaves are named by their paths.
        name: of the model, should a job have several.
        scale: what local changes are multiplied with, see :class:`Replica`.
        every: steps for each clock.

    Raises:
        TableMismatch, UsageError: see :class:`Replica`.
    """
    return PytreeReplica(worker, params, name, scale, every)


class PytreeReplica:
    """A pytree in, a pytree out. Made by :func:`replicate`."""

    def __init__(self, worker: Worker, params: Any, name: str, scale: float | str, every: int) -> None:
        #: What to go on from: a pytree like the one given.
        self.params = params
        self._tree = jax.tree_util.tree_structure(params)
        self.replica = Replica(worker, self._read, self._write, copies=True, name=name, scale=scale, every=every)

    def tick(self, params: Any, timeout: float | None = None) -> Any:
        """End a local step with these parameters; what to go on from. Errors as :meth:`Replica.tick`."""
        if jax.tree_util.tree_structure(params) != self._tree:
            raise UsageError("the pytree has another structure than when it was replicated: replicate the new one")
        self.params = params
        self.replica.tick(timeout)
        return self.params

    def pull(self) -> Any:
        """The shared parameters, without what changed here since the last tick."""
        self.replica.pull()
        return self.params

    def _named(self) -> list[tuple[str, Any]]:
        leaves = jax.tree_util.tree_flatten_with_path(self.params)[0]
        return [(jax.tree_util.keystr(path) or "params", leaf) for path, leaf in leaves]

    def _read(self) -> dict[str, Array]:
        return {key: np.asarray(leaf) for key, leaf in self._named()}

    def _write(self, values: dict[str, Array]) -> None:
        leaves = [_like(leaf, values[key]) if key in values else leaf for key, leaf in self._named()]
        self.params = jax.tree_util.tree_unflatten(self._tree, leaves)


def _like(leaf: Any, value: Array) -> Any:
    # a copy: on the CPU, JAX may take memory as it is
    return jax.device_put(np.array(value, leaf.dtype), getattr(leaf, "sharding", None))
