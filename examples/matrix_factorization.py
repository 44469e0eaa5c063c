"""Ratings explained by a vector for each user and each item; a step pulls and pushes only the rows in its batch.

ssp-redis launch -n 3 --staleness 3 examples/matrix_factorization.py
"""

from __future__ import annotations

import argparse

import numpy as np

import ssp_redis


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--items", type=int, default=500)
    parser.add_argument("--ratings", type=int, default=100_000)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()

    random = np.random.default_rng(0)  # the same ratings for everyone
    users, items = random.integers(args.users, size=args.ratings), random.integers(args.items, size=args.ratings)
    true = [random.standard_normal((n, args.rank), np.float32) for n in (args.users, args.items)]
    ratings = (true[0][users] * true[1][items]).sum(1) + random.normal(0, 0.1, args.ratings).astype(np.float32)
    train = args.ratings * 9 // 10

    with ssp_redis.join() as worker:
        p = worker.sparse_table("users", (args.users, args.rank), initializer="normal", seed=1, scale=0.3)
        q = worker.sparse_table("items", (args.items, args.rank), initializer="normal", seed=2, scale=0.3)

        def error(rows: np.ndarray, learn: float = 0.0) -> float:
            u, i = p.get(users[rows]), q.get(items[rows])
            wrong = (u * i).sum(1) - ratings[rows]
            if learn:
                p.inc(-learn * wrong[:, None] * i, users[rows])
                q.inc(-learn * wrong[:, None] * u, items[rows])
            return float(np.sqrt((wrong**2).mean()))

        shares = ssp_redis.Shares(worker, train, batch=args.batch)
        for epoch in range(args.epochs):
            for rows in shares.epoch(epoch):
                error(rows, args.lr / worker.workers)
                worker.tick()
        worker.barrier()
        print(f"worker {worker.id}: error {error(np.arange(train, args.ratings)):.3f}")


if __name__ == "__main__":
    main()
