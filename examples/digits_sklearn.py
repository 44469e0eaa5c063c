"""Handwritten digits by scikit-learn's SGDClassifier: ssp-redis launch -n 3 --staleness 3 examples/digits_sklearn.py

Needs ssp-redis[sklearn]. Marked with (*) is all that a plain training script does not have.
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

import ssp_redis
from ssp_redis.frameworks.sklearn import replicate


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()

    data = load_digits()
    x, y = data.data / 16, data.target
    train, test = slice(0, 1437), slice(1437, None)
    model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=args.lr, random_state=0)
    model.partial_fit(x[:1], y[:1], classes=np.arange(10))  # makes its arrays

    with ssp_redis.join() as worker:  # (*)
        replica = replicate(worker, model, scale=1)  # (*) all steps add up, each is on one sample
        shares = ssp_redis.Shares(worker, len(x[train]), batch=args.batch)
        for epoch in range(args.epochs):
            for rows in shares.epoch(epoch):
                model.partial_fit(x[rows], y[rows])
                replica.tick()  # (*)
        worker.barrier()
        replica.pull()
        print(f"worker {worker.id}: accuracy {model.score(x[test], y[test]):.3f}")


if __name__ == "__main__":
    main()
