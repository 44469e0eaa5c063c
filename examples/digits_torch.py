"""Handwritten digits by a small network in PyTorch: ssp-redis launch -n 3 --staleness 3 examples/digits_torch.py

Needs ssp-redis[torch,data]. Marked with (*) is all that a plain training script does not have.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits

import ssp_redis
from ssp_redis.frameworks.torch import replicate


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32, help="of all workers together")
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = load_digits()
    x = torch.tensor(data.data / 16, dtype=torch.float32)
    y = torch.tensor(data.target)
    train, test = slice(0, 1437), slice(1437, None)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    with ssp_redis.join() as worker:  # (*)
        replica = replicate(worker, model)  # (*)
        shares = ssp_redis.Shares(worker, len(x[train]), batch=max(1, args.batch // worker.workers))
        for epoch in range(args.epochs):
            for rows in shares.epoch(epoch):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
                optimizer.step()
                replica.tick()  # (*)
        worker.barrier()
        replica.pull()
        with torch.no_grad():
            accuracy = (model(x[test]).argmax(1) == y[test]).float().mean()
        print(f"worker {worker.id}: accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
