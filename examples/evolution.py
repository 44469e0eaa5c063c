"""A policy that balances a pole, found by an evolution strategy: an episode takes as long as the pole stays up.

So no two steps take the same time, and workers that fall early need not wait for those that do not, up to staleness
clocks: ssp-redis launch -n 3 --staleness 5 examples/evolution.py     (Salimans et al. 2017, arXiv:1703.03864)
"""

from __future__ import annotations

import argparse
import zlib

import numpy as np

import ssp_redis


def balance(policy: np.ndarray, random: np.random.Generator, longest: int) -> int:
    """Steps until a pole on a cart falls (Barto, Sutton, Anderson 1983)."""
    x, v, angle, turn = random.uniform(-0.05, 0.05, 4)
    for step in range(longest):
        force = 10.0 if policy @ (x, v, angle, turn) > 0 else -10.0
        push = (force + 0.05 * turn**2 * np.sin(angle)) / 1.1
        spin = (9.8 * np.sin(angle) - np.cos(angle) * push) / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
        pull = push - 0.05 * spin * np.cos(angle) / 1.1
        x, v, angle, turn = x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * turn, turn + 0.02 * spin
        if abs(x) > 2.4 or abs(angle) > 0.2095:
            return step
    return longest


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--longest", type=int, default=500)
    parser.add_argument("--lr", type=float, default=0.3)
    args = parser.parse_args()

    with ssp_redis.join() as worker:
        random = np.random.default_rng(zlib.crc32(worker.id.encode()))  # everyone tries something else
        policy = worker.table("policy", np.zeros(4, np.float32))
        for _ in worker.clocks(args.steps):
            now, noise = policy.get(), random.standard_normal((4, 4))
            tries = np.concatenate([now + noise, now - noise])
            held = np.array([balance(one, random, args.longest) for one in tries], np.float64)
            gain = (held[:4] - held[4:]) / (held.std() + 1e-9)
            policy.inc((args.lr / worker.workers * gain @ noise / 4).astype(np.float32))
        worker.barrier()
        score = np.mean([balance(policy.get(), random, args.longest) for _ in range(20)])
        print(f"worker {worker.id}: holds the pole for {score:.0f} of {args.longest} steps")


if __name__ == "__main__":
    main()
