"""Ctrl-C at any step of a call, and then going on: nothing is lost, and nothing counts twice."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import pytest

import ssp_redis
from ssp_redis import Job, Worker

Add = Callable[[], None]
Read = Callable[[], Any]

#: Every so many lines of our own code the call is interrupted once, at the next one each time.
STRIDE = 5


@contextmanager
def interrupted_at(line: int) -> Iterator[list[int]]:
    """Raise KeyboardInterrupt at the line of ours that is reached so many lines from now; counts the lines."""
    count = [0]

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if "ssp_redis" not in frame.f_code.co_filename or "heartbeat" in frame.f_code.co_filename:
            return None
        if event == "line":
            count[0] += 1
            if count[0] == line:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        yield count
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)


def inline(worker: Worker) -> tuple[Add, Read]:
    """Its deltas stand in the tags."""
    table = worker.table("w", np.zeros(2))
    return lambda: table.inc(np.ones(2)), table.get


def slotted(worker: Worker) -> tuple[Add, Read]:
    """Its deltas go to slots, in the transaction of the tick."""
    table = worker.table("w", np.zeros(100))
    return lambda: table.inc(np.ones(100)), table.get


def mixed(worker: Worker) -> tuple[Add, Read]:
    """One table of each kind, and one that takes calls of its own."""
    tables = [worker.table("w", np.zeros(2)), worker.table("v", np.zeros(100)), worker.table("u", np.zeros(10_000))]
    return (
        lambda: [table.inc(np.ones(table.shape)) for table in tables] and None,
        lambda: np.concatenate([table.get() for table in tables]),
    )


def sparse(worker: Worker) -> tuple[Add, Read]:
    table = worker.sparse_table("w", (100, 2))
    return lambda: table.inc(np.ones((1, 2)), rows=[7]), lambda: table.get(rows=[7])


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", [inline, slotted, mixed, sparse])
@pytest.mark.parametrize("phase", ["tick", "get"])
def test_an_interrupted_call_that_is_made_again_loses_and_doubles_nothing(
    url: str, job: str, kind: Callable[[Worker], tuple[Add, Read]], phase: str
) -> None:
    with ssp_redis.join(url, job=job, worker=0, staleness=3) as one, ssp_redis.join(url, job=job, worker=1) as two:
        add, read = kind(one)
        also, their_read = kind(two)
        expected, line, lines = 0, 1, 10**9
        while line < lines:
            add()
            also()
            expected += 2
            before = one.clock
            if phase == "tick":
                with interrupted_at(line) as count:
                    one.tick(10)
                while one.clock == before or one._clock.interrupted:
                    one.tick(10)
            else:
                one.tick(10)
            two.tick(10)
            if phase == "get":
                with interrupted_at(line) as count:
                    read()
            assert (read() >= 0).all()
            if count[0] < line:
                lines = line  # the whole call was shorter than that: all of it has been tried
            line += STRIDE
        one.advance(10)
        two.advance(10)
        one.advance(10)
        assert (read() == expected).all()
        assert (their_read() == expected).all()
        assert one.stats()["lost_clocks"] == 0
    with Job(url, job) as outside:
        value = outside.table("w").get()
        assert ((value[7] if kind is sparse else value) == expected).all()
