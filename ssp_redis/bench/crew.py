"""Several processes that do one thing together, and hand back what they found.

They are spawned, not forked, as workers on several machines are; they start each part at the same moment (``meet``);
they end with a deadline, with the first of them that fails, and with the process that started them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, cast

from ..errors import SSPError, WaitTimeout

P = ParamSpec("P")
T = TypeVar("T")

#: Seconds that a process gets to end by itself once it has answered.
_GRACE = 5.0


class BenchFailed(SSPError):
    """A measurement came to nothing: a process failed, or the deadline passed."""


class BenchLate(BenchFailed, WaitTimeout):
    """The deadline passed."""


class Inexact(BenchFailed):
    """A value was not what it must be: whatever was measured does not count."""


class Seat:
    """A process's place in a crew.

    Attributes:
        rank: number of this process, from 0.
        count: number of processes.
        timeout: seconds that a step of it may take.
    """

    def __init__(self, rank: int, count: int, timeout: float, barrier: Barrier) -> None:
        self.rank = rank
        self.count = count
        self.timeout = timeout
        self._barrier = barrier

    def meet(self) -> None:
        """Wait until every process of the crew is here."""
        try:
            self._barrier.wait(self.timeout)
        except BrokenBarrierError:
            raise BenchLate(f"process {self.rank}: the others did not come within {self.timeout:g} s") from None


def together(
    work: Callable[Concatenate[Seat, P], T], count: int, timeout: float, *args: P.args, **kwargs: P.kwargs
) -> list[T]:
    """Run ``work(seat, *args, **kwargs)`` in ``count`` processes; their results by rank.

    Args:
        work: a function of a module; it, its arguments and its result are pickled.
        timeout: seconds until all must have answered.

    Raises:
        Inexact: one of them found a wrong value.
        BenchFailed: one of them failed, or has not answered in time.
    """
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(count)
    deadline = time.monotonic() + timeout
    members: list[_Member] = []
    try:
        for rank in range(count):
            ours, theirs = context.Pipe()
            seat = Seat(rank, count, timeout, barrier)
            process = context.Process(target=_serve, args=(theirs, work, seat, args, kwargs), daemon=True)
            # what is blocked here is so in the child, until it ignores it
            before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            try:
                process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
            members.append(_Member(process, ours))
        found = _collect(members, deadline, timeout)
        for member in members:
            member.process.join(_GRACE)
    finally:
        for member in members:
            if member.process.is_alive():
                member.process.kill()
                member.process.join(_GRACE)
            member.pipe.close()
    return [cast(T, found[rank]) for rank in range(count)]


class _Member(NamedTuple):
    process: BaseProcess
    pipe: Connection


def _collect(members: Sequence[_Member], deadline: float, timeout: float) -> dict[int, Any]:
    found: dict[int, Any] = {}
    while len(found) < len(members):
        pending = {member.pipe: rank for rank, member in enumerate(members) if rank not in found}
        ready = wait(list(pending), max(0.0, deadline - time.monotonic()))
        if not ready:
            late = ", ".join(map(str, sorted(pending.values())))
            raise BenchLate(f"no answer within {timeout:g} s from process {late} of {len(members)}")
        for pipe in ready:
            assert isinstance(pipe, Connection)
            rank = pending[pipe]
            try:
                kind, value = pipe.recv()
            except EOFError:
                members[rank].process.join(_GRACE)
                code = members[rank].process.exitcode
                raise BenchFailed(f"process {rank} of {len(members)} died with exit code {code}") from None
            if kind is not None:
                raise kind(f"process {rank} of {len(members)}: {value}")
            found[rank] = value
    return found


def _serve(
    pipe: Connection, work: Callable[..., Any], seat: Seat, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """What a process of a crew does."""
    # Ctrl-C goes to the whole terminal; the process in front ends the others
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        answer: tuple[type[BenchFailed] | None, Any] = None, work(seat, *args, **kwargs)
    except BenchFailed as error:
        answer = type(error), str(error)
    except SSPError as error:
        answer = BenchFailed, str(error)
    except BaseException:
        answer = BenchFailed, f"\n{traceback.format_exc()}"
    pipe.send(answer)
    pipe.close()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
