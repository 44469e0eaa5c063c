"""SSPHook beside a hook that polls: the same TensorFlow program, a parameter server and workers, in turns in one run.

    pip install 'ssp-redis[server,tensorflow]'     # or tensorflow-cpu
    python benchmarks/tensorflow_hook.py -n 2,4 --staleness 10

The program fits y = 2x + 10 by SGD, one sample a step, in tf.compat.v1's MonitoredTrainingSession with the variables on
a parameter server. The polling hook is the usual way to bound staleness there: every worker's count of steps is a
variable on the parameter server; before a step all are read, every 10 ms until nobody is more than staleness behind.

Each worker makes so many steps, equal workers and then with worker 0 slowed by a pause in each step. From when every
step began and ended, on all workers, the run finds out whether the bound was kept, and fails if it was not.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import time
from typing import Any, NamedTuple

import numpy as np

from ssp_redis import join
from ssp_redis.bench.crew import Inexact, Seat, together
from ssp_redis.bench.scene import scene
from ssp_redis.cli.bench import Many
from ssp_redis.cli.format import table

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
import tensorflow.compat.v1 as tf

from ssp_redis.frameworks.tensorflow import SSPHook

HOOKS = ("SSPHook", "polling")
#: Steps before those that count.
WARM = 20


class PollingHook(tf.train.SessionRunHook):
    """Keeps every worker's steps on the parameter server and looks at all of them every 10 ms."""

    def __init__(self, rank: int, workers: int, staleness: int) -> None:
        self.rank, self.staleness = rank, staleness
        self.waited = 0.0
        self.steps = [tf.Variable(0, trainable=False, name=f"steps_of_{each}") for each in range(workers)]
        self.count = tf.assign_add(self.steps[rank], 1)
        self.reset = tf.variables_initializer(self.steps)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Every new session of anybody begins from zero, for all."""
        session.run(self.reset)

    def before_run(self, run_context: Any) -> None:
        """Wait until nobody is more than staleness behind."""
        steps = run_context.session.run(self.steps)
        begun = time.perf_counter()
        while steps[self.rank] - min(steps) > self.staleness:
            time.sleep(0.01)
            steps = run_context.session.run(self.steps)
            self.waited += time.perf_counter() - begun
            begun = time.perf_counter()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Count the step."""
        run_context.session.run(self.count)


class Watched(tf.train.SessionRunHook):
    """A hook, when the steps between its calls begin and end, and how long its calls take."""

    def __init__(self, hook: Any) -> None:
        self.hook = hook
        self.begin, self.after_create_session = hook.begin, hook.after_create_session
        self.spent = 0.0
        self.begun: list[float] = []
        self.ended: list[float] = []

    def before_run(self, run_context: Any) -> Any:
        """Before the step."""
        before = time.monotonic()
        wanted = self.hook.before_run(run_context)
        self.begun.append(time.monotonic())
        self.spent += self.begun[-1] - before
        return wanted

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """After the step."""
        self.ended.append(time.monotonic())
        self.hook.after_run(run_context, run_values)
        self.spent += time.monotonic() - self.ended[-1]


class Run(NamedTuple):
    """What all do once: a hook, and how many seconds worker 0 pauses in each step."""

    hook: str
    pause: float
    job: str


class Told(NamedTuple):
    """What one worker found in a run. Shares are of the time in which it made its steps."""

    begun: list[float]
    ended: list[float]
    seconds: float
    waiting: float
    hook: float
    found: tuple[float, float]


def work(seat: Seat, url: str, places: list[str], runs: list[Run], steps: int, staleness: int) -> list[Told]:
    """The parameter server, rank 0, or a worker: all runs one after the other."""
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.disable_v2_behavior()
    cluster = tf.train.ClusterSpec({"ps": places[:1], "worker": places[1:]})
    job, rank = ("worker", seat.rank - 1) if seat.rank else ("ps", 0)
    server = tf.train.Server(cluster, job_name=job, task_index=rank)
    found = []
    for number, run in enumerate(runs):
        seat.meet()
        if job == "worker":
            setter = tf.train.replica_device_setter(worker_device=f"/job:worker/task:{rank}", cluster=cluster)
            # what one run leaves on the parameter server is not the next one's
            with tf.Graph().as_default(), tf.container(f"run{number}"), tf.device(setter):
                found.append(train(seat, rank, server.target, url, run, steps, staleness))
        else:
            seat.meet()
            seat.meet()
    seat.meet()
    return found


def train(seat: Seat, rank: int, master: str, url: str, run: Run, steps: int, staleness: int) -> Told:
    """One run of a worker."""
    x, y = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    step = tf.train.get_or_create_global_step()
    w, b = tf.Variable(0.0, name="weight"), tf.Variable(0.0, name="bias")
    loss = tf.reduce_mean(tf.square(w * x + b - y))
    op = tf.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=step)
    random = np.random.default_rng(rank)
    workers = seat.count - 1
    pause = 0 if rank else run.pause
    with join(url, job=run.job, worker=rank, workers=workers, staleness=staleness, timeout=seat.timeout) as worker:
        ours = run.hook == "SSPHook"
        hook: Any = SSPHook(worker) if ours else PollingHook(rank, workers, staleness)
        watched = Watched(hook)
        if rank:
            seat.meet()  # after the chief, which makes the variables: who finds none looks again after 30 s only
        with tf.train.MonitoredTrainingSession(master, is_chief=rank == 0, hooks=[watched]) as session:
            if not rank:
                seat.meet()
            seat.meet()  # all have their sessions: nobody resets counts from now on

            def waited() -> float:
                return float(worker.stats()["wait_seconds"] if ours else hook.waited)

            for each in range(WARM + steps):
                if each == WARM:
                    start, spent, before = time.monotonic(), watched.spent, waited()
                if pause:
                    time.sleep(pause)
                sample = random.standard_normal(1)
                session.run([op, loss, step], {x: sample, y: 2 * sample + 10 + 0.33 * random.standard_normal(1)})
            seconds = time.monotonic() - start
            waiting, spent = (waited() - before) / seconds, (watched.spent - spent) / seconds
            w_, b_ = session.run([w, b])
    return Told(watched.begun, watched.ended, seconds, waiting, spent, (float(w_), float(b_)))


def lead(told: list[Told]) -> int:
    """By how many steps somebody was ahead of the slowest when it began one, at the most."""
    most = 0
    for one in told:
        done = [np.searchsorted(other.ended, one.begun) for other in told]
        most = max(most, int((np.arange(len(one.begun)) - np.min(done, axis=0)).max()))
    return most


def late(told: list[Told], pause: float, staleness: int) -> float:
    """Seconds that passed before a step although the last one was over and the bound allowed the next; the mean."""
    found = []
    for rank, one in enumerate(told):
        begun = np.array(one.begun[WARM:]) - (0 if rank else pause)
        allowed = np.array(one.ended[WARM - 1 : -1])
        behind = np.arange(len(begun)) + WARM - staleness - 1
        for other in told:
            allowed = np.where(behind < 0, allowed, np.maximum(allowed, np.array(other.ended)[np.maximum(behind, 0)]))
        found.append(begun - allowed)
    return float(np.mean(found))


def measure(url: str, workers: int, runs: list[Run], steps: int, staleness: int, timeout: float) -> list[list[Told]]:
    """For each run what each worker found."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(workers + 1)]
    places = [f"localhost:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    found = together(work, workers + 1, timeout, url, places, runs, steps, staleness)[1:]
    by_run = [list(told) for told in zip(*found, strict=True)]
    for run, told in zip(runs, by_run, strict=True):
        if (most := lead(told)) > staleness:
            raise Inexact(f"{run.hook} let somebody be {most} steps ahead, where {staleness} is the bound")
        w, b = told[0].found
        if abs(w - 2) > 0.5 or abs(b - 10) > 1:
            raise Inexact(f"with {run.hook} the fit is y = {w:.2f}x + {b:.2f}")
    return by_run


def summary(run: Run, told: list[Told], steps: int, staleness: int) -> dict[str, float]:
    """Of one run: steps a second of all, and shares of the workers' time."""
    first, last = min(one.ended[WARM - 1] for one in told), max(one.ended[-1] for one in told)
    return {
        "steps_per_second": len(told) * steps / (last - first),
        "waiting": statistics.fmean(one.waiting for one in told),
        "hook": statistics.fmean(one.hook for one in told),
        "late_ms": late(told, run.pause, staleness) * 1e3,
        "lead": lead(told),
    }


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--workers", default="2", help="numbers of workers [2]")
    parser.add_argument("-s", "--staleness", type=int, default=10)
    parser.add_argument("-c", "--steps", type=int, default=500, help="of each worker in each run [500]")
    parser.add_argument("--pause", type=float, default=10, help="milliseconds by which worker 0 is slowed [10]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--url", help="server for ssp-redis [a private one]")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for one number of workers [600]")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cells = []
    with scene(options.url) as where:
        about = where.describe() | {"tensorflow": tf.__version__}
        for workers in Many("numbers", 1).convert(options.workers, None, None):
            runs = [
                Run(hook, pause, f"hook-{os.getpid()}-{workers}-{number}-{pause}-{hook}")
                for number in range(options.rounds)
                for pause in (0.0, options.pause / 1e3)
                for hook in HOOKS[:: 1 if number % 2 else -1]
            ]
            found = measure(where.url, workers, runs, options.steps, options.staleness, options.timeout)
            for pause in (0.0, options.pause / 1e3):
                for hook in HOOKS:
                    rounds = [
                        summary(run, told, options.steps, options.staleness)
                        for run, told in zip(runs, found, strict=True)
                        if (run.hook, run.pause) == (hook, pause)
                    ]
                    cells.append(
                        {"workers": workers, "pause_ms": pause * 1e3, "hook": hook, "rounds": rounds}
                        | {f"median_{key}": statistics.median(one[key] for one in rounds) for key in rounds[0]}
                    )
    if options.json:
        print(json.dumps({"about": about, "staleness": options.staleness, "steps": options.steps, "cells": cells}))
        return
    rows = [["workers", "worker 0", "hook", "steps/s", "in the hook", "of it waiting", "late by", "largest lead"]]
    for cell in cells:
        slowed = f"+{cell['pause_ms']:g} ms" if cell["pause_ms"] else "equal"
        shares = [f"{cell[f'median_{key}']:.0%}" for key in ("hook", "waiting")]
        most = max(one["lead"] for one in cell["rounds"])
        speed, delay = f"{cell['median_steps_per_second']:.0f}", f"{cell['median_late_ms']:.2f} ms"
        rows.append([str(cell["workers"]), slowed, cell["hook"], speed, *shares, delay, str(most)])
    print(f"TensorFlow {tf.__version__}, {about['server']}, load {about['load']}, staleness {options.staleness}")
    print(f"{options.steps} steps of each worker, medians of {options.rounds} rounds")
    print(table(rows, left=(1, 2)))


if __name__ == "__main__":
    main()
