"""A worker of ``test_tensorflow``. Arguments: what to do, its rank, the server's URL, the job's name, a directory for
checkpoints, places of servers.
"""

from __future__ import annotations

import functools
import sys
import time
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.training import monitored_session, session_manager

import ssp_redis
from ssp_redis.frameworks.tensorflow import SSPHook

WHAT, RANK, URL, JOB, CHECKPOINTS, *PLACES = sys.argv[1:]
STEPS, ROWS = 20, 8


def regression() -> tuple[Any, Any, Any, Any]:
    x, y = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    step = tf.train.get_or_create_global_step()
    w, b = tf.Variable(0.0, name="weight"), tf.Variable(0.0, name="reminder")
    loss = tf.reduce_mean(tf.square(w * x + b - y))
    return x, y, (w, b), tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)


def data() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    x = random.standard_normal((STEPS, 2 * ROWS)).astype(np.float32)
    return x, 2 * x + 10


class Sessions(tf.train.SessionRunHook):
    """Counts sessions and runs, and lets a connection to a server break before some runs."""

    def __init__(self, *breaks: int) -> None:
        self.breaks = set(breaks)
        self.sessions = self.runs = 0
        #: The global step with which the last session began.
        self.begun = 0

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.sessions += 1
        self.begun = session.run(tf.train.get_global_step())

    def before_run(self, run_context: Any) -> None:
        if self.runs in self.breaks:
            self.breaks.remove(self.runs)
            raise tf.errors.UnavailableError(None, None, "broken on purpose")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.runs += 1


def shared() -> None:
    """Two workers with variables of their own are one process on the joined batch; sessions come and go.

    One of them loses a session in the middle, and begins again from a checkpoint that is older than what is shared.
    """
    x, y = data()
    with ssp_redis.join(URL, job=JOB, worker=RANK, workers=2, timeout=120) as worker:
        mine = slice(int(RANK) * ROWS, (int(RANK) + 1) * ROWS)
        hook = SSPHook(worker, share=True)
        for part in (range(STEPS // 2), range(STEPS // 2, STEPS)):
            with tf.Graph().as_default():
                px, py, _, train = regression()
                sessions = Sessions(*[8] * int(RANK))
                hooks = [tf.train.StopAtStepHook(num_steps=len(part)), sessions, hook]
                folder = f"{CHECKPOINTS}/{RANK}-{part[0]}"
                with tf.train.MonitoredTrainingSession(
                    hooks=hooks, checkpoint_dir=folder, save_checkpoint_steps=3
                ) as session:
                    for i in part:
                        session.run(train, {px: x[i, mine], py: y[i, mine]})
                        if i == part[-1]:
                            found = [float(v) for v in hook._read().values()]
                assert (sessions.sessions, sessions.begun) == ((2, 6) if int(RANK) else (1, 0))
        assert worker.clock == STEPS
    w, b = np.float32(0), np.float32(0)
    for i in range(STEPS):
        wrong = w * x[i] + b - y[i]
        w, b = w - 0.2 * (wrong * x[i]).mean(), b - 0.2 * wrong.mean()
    np.testing.assert_allclose(sorted(found), sorted([w, b]), rtol=1e-5)


def cluster() -> tuple[Any, Any]:
    """The server of this worker, and where to place variables; the parameter server never returns."""
    spec = tf.train.ClusterSpec({"ps": [PLACES[0]], "worker": PLACES[1:]})
    if RANK == "ps":
        # held until the test ends it
        tf.train.Server(spec, job_name="ps", task_index=0).join()
    server = tf.train.Server(spec, job_name="worker", task_index=int(RANK))
    return server, tf.train.replica_device_setter(worker_device=f"/job:worker/task:{RANK}", cluster=spec)


def servers() -> None:
    """The clock beside a parameter server: nobody is more than three steps ahead."""
    server, setter = cluster()
    with ssp_redis.join(URL, job=JOB, worker=RANK, workers=2, staleness=3, timeout=120) as worker:
        with tf.Graph().as_default(), tf.device(setter):
            px, py, _, train = regression()
            hooks = [tf.train.StopAtStepHook(last_step=60), SSPHook(worker)]
            session = tf.train.MonitoredTrainingSession(server.target, is_chief=RANK == "0", hooks=hooks)
            with session:
                while not session.should_stop():
                    session.run(train, {px: [1.0], py: [12.0]})
                    assert worker.clock - worker.min_clock <= 3
        print("clock", worker.clock)


def recovery() -> None:
    """The parameter server is killed and comes back: sessions begin again from a checkpoint, the clock goes on."""
    server, setter = cluster()
    with ssp_redis.join(URL, job=JOB, worker=RANK, workers=2, staleness=3, timeout=120) as worker:
        with tf.Graph().as_default(), tf.device(setter):
            px, py, _, train = regression()
            sessions = Sessions()
            hooks = [tf.train.StopAtStepHook(last_step=300), sessions, SSPHook(worker)]
            session = tf.train.MonitoredTrainingSession(
                server.target, RANK == "0", CHECKPOINTS, hooks=hooks, save_checkpoint_steps=25
            )
            with session:
                before = worker.clock
                while not session.should_stop():
                    session.run(train, {px: [1.0], py: [12.0]})
                    assert before < worker.clock <= worker.min_clock + 3
                    before = worker.clock
                    time.sleep(0.01)
        assert worker.clock == sessions.runs
        print("clock", worker.clock, "sessions", sessions.sessions, "from step", sessions.begun)


if __name__ == "__main__":
    tf.disable_v2_behavior()
    # who finds no variables yet shall not look again after 30 s only
    monitored_session.sm.SessionManager = functools.partial(session_manager.SessionManager, recovery_wait_secs=0.2)
    {"shared": shared, "servers": servers, "recovery": recovery}[WHAT]()
