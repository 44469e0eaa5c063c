"""Ctrl-C at any step of a call, and then going on: nothing is lost, and nothing counts twice."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import fixtures
import numpy as np
import pytest
from fixtures import background
from remote import Remote, RemoteError, eventually

import ssp_redis
from ssp_redis import Job, WaitTimeout, Worker

pytestmark = pytest.mark.usefixtures("collected")

Add = Callable[..., None]
Read = Callable[[], Any]

#: Every so many lines of our own code the call is interrupted once, at the next one each time.
STRIDE = 5


def interrupted_at(line: int) -> AbstractContextManager[list[int]]:
    """Raise KeyboardInterrupt at the line of ours that is reached so many lines from now; counts the lines."""
    return fixtures.interrupted_at(line, "line", lambda file: "ssp_redis" in file and "heartbeat" not in file)


def inline(worker: Worker) -> tuple[Add, Read]:
    """Its deltas stand in the tags."""
    table = worker.table("w", np.zeros(2))
    return lambda amount=1: table.inc(amount * np.ones(2)), table.get


def slotted(worker: Worker) -> tuple[Add, Read]:
    """Its deltas go to slots, in the transaction of the tick."""
    table = worker.table("w", np.zeros(100))
    return lambda amount=1: table.inc(amount * np.ones(100)), table.get


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
                while one.clock == before or one._clock.pending is not None:
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


@pytest.mark.parametrize("flush_every", [1, 5])
def test_a_tick_that_is_interrupted_on_its_way_out_is_the_same_one(
    join: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch, flush_every: int
) -> None:
    with join(0, staleness=5, flush_every=flush_every) as worker:
        table = worker.table("w", np.zeros(2))
        wire = worker._clock.link._wire
        assert wire is not None

        def hurry(seconds: float | None, each: bool = False) -> None:
            if seconds is None:  # all is done, and the time limit of the call is taken off
                monkeypatch.undo()
                raise KeyboardInterrupt

        for clock in range(1, 4):
            table.inc(np.ones(2))
            monkeypatch.setattr(wire, "hurry", hurry)
            with pytest.raises(KeyboardInterrupt):
                worker.tick(3)
            assert worker.tick(3) == clock
        assert worker.tick(3) == 4
        assert (table.get() == 3).all()


def test_a_tick_after_an_interrupted_barrier_is_one_more(
    join: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the barrier was about to flush had been ticked before."""
    with join(0, staleness=5, flush_every=5) as worker:
        table = worker.table("w", np.zeros(2))
        for _ in range(2):
            table.inc(np.ones(2))
            worker.tick()

        def interrupt(*args: object) -> list[str]:
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(worker._clock.scripts, "call_tick", interrupt)
        with pytest.raises(KeyboardInterrupt):
            worker.barrier()
        table.inc(np.ones(2))
        assert worker.tick() == 3
        worker.barrier()
        assert (table.get() == 3).all()


def tiny_rows(worker: Worker) -> tuple[Add, Read]:
    table = worker.table("w", np.zeros((2, 2)))
    return lambda amount=1: table.inc(amount * np.ones((3, 2)) / [[1], [2], [2]], rows=[0, 1, 1]), table.get


def few_rows(worker: Worker) -> tuple[Add, Read]:
    """One row of many: its sum is put where it belongs."""
    table = worker.table("w", np.zeros((100, 2)))
    return lambda amount=1: table.inc(amount * np.ones((2, 2)) / 2, rows=[7, 7]), lambda: table.get(rows=[7])


def all_rows(worker: Worker) -> tuple[Add, Read]:
    table = worker.table("w", np.zeros((100, 2)))
    return lambda amount=1: table.inc(amount * np.ones((100, 2)), rows=np.arange(100)[::-1]), table.get


def sparse_rows(worker: Worker) -> tuple[Add, Read]:
    """Rows that come twice and out of order."""
    table = worker.sparse_table("w", (100, 2))
    return lambda amount=1: table.inc(amount * np.ones((4, 2)) / 2, rows=[9, 7, 9, 7]), lambda: table.get(rows=[7, 9])


INCS = [inline, slotted, tiny_rows, few_rows, all_rows, sparse_rows]


@pytest.mark.parametrize("kind", INCS)
@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("look", [False, True])
def test_an_inc_that_is_interrupted_at_any_line_adds_all_or_nothing(
    join: Callable[..., Worker], url: str, job: str, kind: Callable[[Worker], tuple[Add, Read]], before: int, look: bool
) -> None:
    """Whatever the clock had added before, read in between or not, and also when it is made again."""
    with join(0) as worker:
        add, read = kind(worker)
        expected, amount, line, whole = 0.0, 1, 0, False
        while not whole:
            line += 1
            for again in (0, 1):
                amount += 1  # memory that was used before holds other values
                for _ in range(before):
                    add()
                if look:
                    read()
                with interrupted_at(line) as count:
                    add(amount)
                whole = count[0] < line
                if again:
                    add(amount)
                expected += before + again * amount
                if look:
                    assert (read() == read().flat[0]).all()
                worker.tick(10)
                if not look:
                    add()
                    add()  # nor does the next clock write where the last one's delta is held
                    expected += 2
                value = read()
                assert (value == value.flat[0]).all(), f"a part, at line {line}"
                assert value.flat[0] - expected in ((amount,) if whole else (0, amount)), f"line {line}"
                expected = value.flat[0]
    with Job(url, job) as outside:
        value = outside.table("w").get()
        assert ((value[7] if kind in (few_rows, sparse_rows) else value) == expected).all()


@pytest.mark.parametrize("kind", INCS)
def test_whoever_leaves_after_an_interrupted_inc_commits_all_of_it_or_nothing(
    join: Callable[..., Worker], url: str, job: str, kind: Callable[[Worker], tuple[Add, Read]]
) -> None:
    stays = join("stays", staleness=None)
    _, read = kind(stays)
    expected, line, whole = 0, 0, False
    while not whole:
        line += 2
        leaves = join("leaves")
        add, _ = kind(leaves)
        add()
        with interrupted_at(line) as count:
            add()
        whole = count[0] < line
        leaves.leave()
        stays.tick(10)
        value = read()
        assert (value == value.flat[0]).all()
        assert value.flat[0] - expected in ((2,) if whole else (1, 2))
        expected = value.flat[0]
    with Job(url, job) as outside:
        assert [member.worker for member in outside.status().members] == ["stays"]


#: Adds over and over until a SIGINT comes, so many seconds later; gives the number of those that returned.
UNTIL_INTERRUPTED = """
import threading
signal.signal(signal.SIGINT, signal.default_int_handler)

def until_interrupted(add, seconds):
    done = 0
    try:
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()
        while True:
            add()
            done += 1
    except KeyboardInterrupt:
        return done
"""

BIG_INCS = {
    "inline": "table, delta = worker.table('w', np.zeros(4)), np.ones(4); add = lambda: table.inc(delta)",
    "slots": "table, delta = worker.table('w', np.zeros(9000)), np.ones(9000); add = lambda: table.inc(delta)",
    "rows": """
table, delta, numbers = worker.table('w', np.zeros((900, 10))), np.ones((900, 10)), np.arange(900)[::-1]
add = lambda: table.inc(delta, rows=numbers)
""",
    "sparse": """
table, delta, numbers = worker.sparse_table('w', (900, 10), float), np.ones((900, 10)), np.arange(900)[::-1]
add = lambda: table.inc(delta, rows=numbers)
""",
}


@pytest.mark.parametrize("kind", BIG_INCS)
@pytest.mark.parametrize("again", [False, True])
def test_ctrl_c_in_an_inc_leaves_the_worker_usable(
    remote: Callable[..., Remote], url: str, job: str, kind: str, again: bool
) -> None:
    child = remote()
    child.join(url, job, worker=0)
    child.do(UNTIL_INTERRUPTED)
    child.do(BIG_INCS[kind])
    child.do("get = lambda: table.get(numbers) if isinstance(table, ssp_redis.SparseTable) else table.get()")
    expected = 0.0
    for round in range(12):
        done = child.do("until_interrupted(add, seconds)", seconds=0.002 + 0.0017 * round)
        if again:
            child.do("add()")
        if round % 2:
            child.do("worker.tick(10)")
        value = child.do("get()")
        assert (value == value.flat[0]).all()
        assert value.flat[0] - expected - done - again in (0, 1)
        expected = value.flat[0]
    child.do("add(); worker.leave()")
    with Job(url, job) as outside:
        table = outside.table("w")
        value = table.get(np.arange(900)) if kind == "sparse" else table.get()
        assert (value == expected + 1).all()
        assert outside.status().members == []


@pytest.fixture
def interrupted(
    join: Callable[..., Worker], remote: Callable[..., Remote], url: str, job: str
) -> tuple[Remote, Worker]:
    """A child whose first tick was interrupted (SIGINT) while it waited for the other worker."""
    child = remote()
    joining = background(child.join, url, job, worker=0, workers=2)
    other = join(1, workers=2)
    joining.result(30)
    child.do("signal.signal(signal.SIGINT, signal.default_int_handler)")
    child.do("table = worker.table('w', np.zeros(3)); table.inc(np.ones(3))")
    child.start("worker.tick()")
    with Job(url, job) as outside:
        eventually(lambda: max(member.clock for member in outside.status().members) == 1)
    assert not child.ended(0.2), "it waits"
    child.signal(signal.SIGINT)
    with pytest.raises(RemoteError, match="KeyboardInterrupt"):
        child.result()
    assert child.do("worker.clock") == 1
    return child, other


@pytest.mark.parametrize("call", ["tick", "advance", "wait"])
def test_a_tick_interrupted_in_its_wait_and_said_again_is_one_tick(
    interrupted: tuple[Remote, Worker], call: str
) -> None:
    child, other = interrupted
    child.start(f"worker.{call}(timeout=10), worker.clock")
    assert other.tick(timeout=10) == 1
    assert child.result()[1] == 1
    child.start("worker.tick(timeout=10)")
    assert other.tick(timeout=10) == 2
    assert child.result() == 2, "the next one is another"
    assert child.do("table.get()").tolist() == [1, 1, 1]


@pytest.mark.parametrize("call", ["tick", "advance"])
def test_a_tick_interrupted_in_its_wait_is_another_once_something_was_added(
    interrupted: tuple[Remote, Worker], call: str
) -> None:
    child, other = interrupted
    child.do("table.inc(np.ones(3))")
    child.start(f"worker.{call}(timeout=10)")
    assert not child.ended(0.1), "the wait that is owed comes first"
    assert other.tick(timeout=10) == 1
    ticking = background(other.tick, 10)
    assert child.result() == 2
    assert ticking.result(10) == 2
    child.do("worker.wait(10)")
    assert child.do("table.get()").tolist() == [2, 2, 2]


@pytest.mark.parametrize("again", ["tick", "advance"])
def test_after_a_wait_timeout_the_next_call_finishes_the_wait_and_ticks(
    together: Callable[..., list[Worker]], again: str
) -> None:
    """Other than after an interruption: whoever was told that the wait was too long knows that it has ticked."""
    fast, slow = together(2, staleness=0)
    for clock in (1, 2, 3):
        with pytest.raises(WaitTimeout):
            fast.tick(timeout=0.02)
        assert fast.clock == 2 * clock - 1
        slow.advance()
        going = background(getattr(fast, again), 10)
        eventually(lambda clock=clock: fast.clock == 2 * clock)  # type: ignore[misc]
        slow.tick(timeout=10)
        assert going.result(10) == 2 * clock
        fast.wait(10)
        slow.wait(10)


@pytest.mark.parametrize("added", [False, True])
def test_an_advance_that_is_interrupted_at_any_line_and_said_again_is_one_clock(
    join: Callable[..., Worker], added: bool
) -> None:
    worker = join(0)
    table = worker.table("w", np.zeros(2))
    line, returned = 0, False
    while not returned:
        line += 1
        before = worker.clock
        if added:
            table.inc(np.ones(2))
        with interrupted_at(line) as count:
            worker.advance(10)
        # the call does not know any more that it is under way: only its last line was left
        returned = count[0] < line or (worker.clock > before and not worker._half)
        if not returned:
            worker.advance(10)
        assert worker.clock == before + 1, f"line {line}"
        assert (table.get() == worker.clock * added).all()
    assert line > 30
