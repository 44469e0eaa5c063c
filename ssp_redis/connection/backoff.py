"""Pauses between attempts."""

from __future__ import annotations

import time


class Backoff:
    """Pauses between attempts, growing from 5 ms to ``most`` seconds, until a deadline."""

    def __init__(self, limit: float, most: float = 0.5) -> None:
        self.deadline = time.monotonic() + limit
        self._pause = 0.005
        self._most = most

    def pause(self) -> bool:
        """Sleep a little; False when the deadline has passed."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(self._pause, left))
        self._pause = min(self._pause * 2, self._most)
        return True
