"""y = 2x + 10 + noise by SGD, the variables on a TensorFlow parameter server, one sample a step, in a training session.

ssp-redis launch -n 3 --staleness 10 examples/linreg_tensorflow.py

Needs ssp-redis[tensorflow]. Worker 0 is the chief and the parameter server. (*) is all that bounds the staleness.
"""

from __future__ import annotations

import argparse
import os

import numpy as np

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
import tensorflow.compat.v1 as tf

import ssp_redis
from ssp_redis.frameworks.tensorflow import SSPHook


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3000, help="of all workers together")
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--port", type=int, default=2222, help="of the parameter server; the workers take the next")
    args = parser.parse_args()
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.disable_v2_behavior()
    with ssp_redis.join() as worker:  # (*)
        rank = int(worker.id)
        places = [f"localhost:{args.port + 1 + each}" for each in range(worker.workers)]
        cluster = tf.train.ClusterSpec({"ps": [f"localhost:{args.port}"], "worker": places})
        server = tf.train.Server(cluster, job_name="worker", task_index=rank)
        with tf.device(tf.train.replica_device_setter(worker_device=f"/job:worker/task:{rank}", cluster=cluster)):
            x, y, step = tf.placeholder(tf.float32), tf.placeholder(tf.float32), tf.train.get_or_create_global_step()
            w, b = tf.Variable(0.0), tf.Variable(0.0)
            loss = tf.reduce_mean(tf.square(w * x + b - y))
            train = tf.train.GradientDescentOptimizer(args.lr).minimize(loss, global_step=step)
        if rank == 0:
            ps = tf.train.Server(cluster, job_name="ps", task_index=0)
            tf.Session(ps.target).run(tf.global_variables_initializer())
        worker.advance()
        worker.barrier()  # the variables are there
        random = np.random.default_rng(rank)
        hooks = [SSPHook(worker)]  # (*)
        with tf.train.MonitoredTrainingSession(server.target, is_chief=rank == 0, hooks=hooks) as session:
            for _ in range(args.steps // worker.workers):
                sample = random.standard_normal(1)
                session.run(train, {x: sample, y: 2 * sample + 10 + 0.33 * random.standard_normal(1)})
            worker.barrier()
            slope, bias = session.run([w, b])
        worker.advance()
        worker.barrier()  # nobody needs the parameter server, which ends with worker 0, any more
        print(f"worker {worker.id}: error {np.hypot(slope - 2, bias - 10):.3f}, y = {slope:.2f}x + {bias:.2f}")


if __name__ == "__main__":
    main()
