"""What the processes of a crew do in these tests. Of its own, for they import it by name."""

from __future__ import annotations

import os
import time

from ssp_redis.bench.crew import Inexact, Seat
from ssp_redis.errors import UsageError


def place(seat: Seat, addend: int) -> tuple[int, int, int]:
    seat.meet()
    return seat.rank, seat.count, seat.rank + addend


def one_fails(seat: Seat, how: str) -> None:
    if seat.rank == 1:
        if how == "wrong":
            raise Inexact("3 is not 4")
        if how == "refused":
            raise UsageError("no such thing")
        if how == "bug":
            raise KeyError("nobody caught this")
        if how == "dies":
            os._exit(9)
    if how != "alone":
        time.sleep(600)
    seat.meet() if seat.rank == 0 else time.sleep(600)


def sleep(seat: Seat, seconds: float) -> None:
    time.sleep(seconds)
