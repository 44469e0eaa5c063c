"""Keras 3, on any backend: ``model.fit(…, callbacks=[Replicate(worker)])``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ssp_redis.errors import JobStopped, UsageError
from ssp_redis.frameworks import MissingFramework
from ssp_redis.given import Array
from ssp_redis.replica import Replica
from ssp_redis.worker import Worker

try:
    import keras
except ImportError as error:
    raise MissingFramework("keras", "keras") from error


class Replicate(keras.callbacks.Callback):
    """Keeps the model that is fitted together with those of the other workers: a tick after each batch.

    Trainable weights are scaled and added, the other weights, running statistics, averaged; those of a layer that is
    frozen, or whole numbers, are made the same for everyone once or left alone. Optimizers keep their own state. When
    the job is stopped, so is the training.
    """

    def __init__(self, worker: Worker, *, name: str = "model", scale: float | str = "workers", every: int = 1) -> None:
        """Nothing is shared before ``fit``.

        Args:
            worker: a member.
            name: of the model, should a job have several.
            scale: what local changes are multiplied with, see :class:`Replica`.
            every: batches for each clock. With ``steps_per_execution`` Keras calls once for so many batches.
        """
        super().__init__()
        self.worker = worker
        #: There from the beginning of ``fit``.
        self.replica: Replica | None = None
        self._settings: dict[str, Any] = {"name": name, "scale": scale, "every": every}

    def on_train_begin(self, logs: Any = None) -> None:
        """Take over the shared weights."""
        if self.replica is not None:
            self.replica.pull()  # fit is called again
            return
        if not self.model.built:
            raise UsageError("the model has no weights yet: build it before fit, with an Input or model.build(shape)")
        weights = self._weights()
        trained = {self._path(weight) for weight in self.model.trainable_weights}
        layers = [layer for layer in self.model._flatten_layers() if not layer.trainable]
        frozen = {self._path(weight) for layer in layers for weight in layer.weights}
        self.replica = Replica(
            self.worker,
            self._read,
            self._write,
            copies=True,
            averaged=weights.keys() - trained - frozen,
            fixed=frozen & weights.keys(),
            **self._settings,
        )

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Push, tick, wait and pull."""
        assert self.replica is not None
        self._sync()
        try:
            self.replica.tick()
        except JobStopped:
            self.model.stop_training = True

    def pull(self) -> None:
        """Take the shared weights, after ``fit``: those of others who were behind are in them by now."""
        if self.replica is not None:
            self.replica.pull()

    def _weights(self) -> dict[str, Any]:
        floats = [w for w in self.model.weights if keras.backend.is_float_dtype(w.dtype)]
        named = {self._path(weight): weight for weight in floats}
        if len(named) < len(floats):
            raise UsageError("two weights of the model have the same path: give its layers different names")
        return named

    def _path(self, weight: Any) -> str:
        """Without the model's name, which Keras numbers as models are made."""
        return str(weight.path).removeprefix(f"{self.model.name}/")

    def _sync(self) -> None:
        # on JAX, fit holds the weights elsewhere, and takes them back from the model after this
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()

    def _read(self) -> dict[str, Array]:
        return {path: _array(weight) for path, weight in self._weights().items()}

    def _write(self, values: dict[str, Array]) -> None:
        weights = self._weights()
        for path, value in values.items():
            weights[path].assign(np.array(value))  # a copy: a backend may take memory as it is


def _array(weight: Any) -> Array:
    return np.asarray(keras.ops.convert_to_numpy(weight))
