"""A worker of ``test_tensorflow``. Arguments: what to do, its rank, the server's URL, the job's name, ports."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

import ssp_redis
from ssp_redis.frameworks.tensorflow import SSPHook

WHAT, RANK, URL, JOB, *PORTS = sys.argv[1:]
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


def shared() -> None:
    """Two workers with variables of their own are one process on the joined batch; sessions come and go."""
    x, y = data()
    with ssp_redis.join(URL, job=JOB, worker=RANK, workers=2, reproducible=True, timeout=120) as worker:
        mine = slice(int(RANK) * ROWS, (int(RANK) + 1) * ROWS)
        hook = SSPHook(worker, share=True)
        for part in (range(STEPS // 2), range(STEPS // 2, STEPS)):
            with tf.Graph().as_default():
                px, py, _, train = regression()
                hook_stop = tf.train.StopAtStepHook(num_steps=len(part))
                with tf.train.MonitoredTrainingSession(hooks=[hook_stop, hook]) as session:
                    for i in part:
                        session.run(train, {px: x[i, mine], py: y[i, mine]})
                        if i == part[-1]:
                            found = [float(v) for v in hook._read().values()]
        assert worker.clock == STEPS
    w, b = np.float32(0), np.float32(0)
    for i in range(STEPS):
        wrong = w * x[i] + b - y[i]
        w, b = w - 0.2 * (wrong * x[i]).mean(), b - 0.2 * wrong.mean()
    np.testing.assert_allclose(sorted(found), sorted([w, b]), rtol=1e-5)


def servers() -> None:
    """The clock beside a parameter server: nobody is more than three steps ahead."""
    cluster = tf.train.ClusterSpec({"ps": [PORTS[0]], "worker": PORTS[1:]})
    if RANK == "ps":
        # held until the test ends it
        tf.train.Server(cluster, job_name="ps", task_index=0).join()
    rank = int(RANK)
    server = tf.train.Server(cluster, job_name="worker", task_index=rank)
    setter = tf.train.replica_device_setter(worker_device=f"/job:worker/task:{rank}", cluster=cluster)
    with ssp_redis.join(URL, job=JOB, worker=rank, workers=2, staleness=3, timeout=120) as worker:
        with tf.Graph().as_default(), tf.device(setter):
            px, py, _, train = regression()
            hooks = [tf.train.StopAtStepHook(last_step=60), SSPHook(worker)]
            session = tf.train.MonitoredTrainingSession(server.target, is_chief=rank == 0, hooks=hooks)
            with session:
                while not session.should_stop():
                    session.run(train, {px: [1.0], py: [12.0]})
                    assert worker.clock - worker.min_clock <= 3
        print("clock", worker.clock)


if __name__ == "__main__":
    tf.disable_v2_behavior()
    {"shared": shared, "servers": servers}[WHAT]()
