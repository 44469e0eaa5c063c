"""TensorFlow, session style: ``SSPHook(worker)`` among the hooks of ``tf.compat.v1.train.MonitoredTrainingSession``."""

from __future__ import annotations

from typing import Any

from ssp_redis.errors import JobStopped
from ssp_redis.frameworks import MissingFramework
from ssp_redis.given import Array
from ssp_redis.replica import Replica
from ssp_redis.worker import Worker

try:
    import tensorflow.compat.v1 as tf
except ImportError as error:
    raise MissingFramework("tensorflow", "tensorflow") from error


class SSPHook(tf.train.SessionRunHook):
    """Ticks after each run and waits while this worker is too far ahead of the slowest; without polling.

    Alone it is the clock beside TensorFlow's own parameter servers, which hold the variables. With ``share=True`` each
    worker has variables of its own, and tables hold them together: no parameter server is needed.

    The clock is the job's and not the session's: a session that is made again goes on where it was.
    """

    def __init__(
        self,
        worker: Worker,
        *,
        share: bool = False,
        name: str = "model",
        scale: float | str = "workers",
        every: int = 1,
    ) -> None:
        """Nothing is shared before the session is made.

        Args:
            worker: a member; leave when the training is over, with ``with``, or others wait for its lease.
            share: keep the trainable variables of the graph together, by tables.
            name: of the model, should a job have several.
            scale: what local changes are multiplied with, see :class:`Replica`.
            every: runs for each clock.
        """
        self.worker = worker
        #: With ``share``, there from the first session on.
        self.replica: Replica | None = None
        self._share = share
        self._settings: dict[str, Any] = {"name": name, "scale": scale, "every": every}
        self._every, self._runs = every, 0
        self._session: Any = None

    def begin(self) -> None:
        """Add to the graph, before it is final, what writes the variables."""
        if self._share:
            self._variables = {variable.op.name: variable for variable in tf.trainable_variables()}
            self._values = {key: tf.placeholder(v.dtype.base_dtype, v.shape) for key, v in self._variables.items()}
            self._assign = {key: v.assign(self._values[key]).op for key, v in self._variables.items()}

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Take over the shared values; whatever a checkpoint has restored is older."""
        if not self._share:
            return
        self._session = session
        if self.replica is None:
            self.replica = Replica(self.worker, self._read, self._write, **self._settings)
        else:
            self.replica.pull()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Tick after the step: before it, a lead of staleness + 1 would slip through."""
        self._session = run_context.session
        try:
            if self.replica is not None:
                self.replica.tick()
                return
            self._runs += 1
            if self._runs % self._every == 0:
                self.worker.tick()
        except JobStopped:
            run_context.request_stop()

    def _read(self) -> dict[str, Array]:
        values: dict[str, Array] = self._session.run(self._variables)
        return values

    def _write(self, values: dict[str, Array]) -> None:
        feed = {self._values[key]: value for key, value in values.items()}
        self._session.run([self._assign[key] for key in values], feed)
