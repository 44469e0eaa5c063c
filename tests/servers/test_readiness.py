"""Whoever waits for a reply stays awake for a moment, and hardly ever where that is in vain."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from ssp_redis.connection import readiness
from ssp_redis.connection.readiness import Readiness


class Line(NamedTuple):
    near: Readiness
    near_end: socket.socket
    far: socket.socket
    #: One for each time that others were let run.
    looks: list[None]


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    near, far = socket.socketpair()
    looks: list[None] = []
    monkeypatch.setattr(readiness, "_let_others_run", lambda: looks.append(None))
    with near, far:
        yield Line(Readiness(near), near, far, looks)


def awake(line: Line) -> bool:
    """Was one awake in the next moment?"""
    before = len(line.looks)
    line.near.moment()
    return len(line.looks) > before


def test_what_is_there_is_not_waited_for(line: Line) -> None:
    line.far.send(b"x")
    assert not awake(line)
    assert line.near.within(0.0)


def test_a_moment_ends_when_something_comes(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "_MOMENT", 60.0)
    monkeypatch.setattr(readiness, "_let_others_run", lambda: line.far.send(b"x"))
    line.near.moment()
    assert line.near.within(0.0)


def test_a_short_reply_is_there_when_all_of_it_is(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [b"+O", b"K\r", b"\n"]
    monkeypatch.setattr(readiness, "_MOMENT", 60.0)
    monkeypatch.setattr(readiness, "_let_others_run", lambda: line.far.send(pieces.pop(0)))
    assert line.near.moment(5)
    assert not pieces


def test_an_end_is_something_to_read(line: Line) -> None:
    line.far.close()
    assert line.near.moment(5)
    assert line.near.within(0.0)


def test_in_vain_it_is_done_less_and_less_often(line: Line) -> None:
    turns = [awake(line) for _ in range(800)]
    assert [turn for turn, was in enumerate(turns) if was] == [0, 2, 6, 14, 30, 62, 126, 254, 510, 766]


def test_what_is_worth_it_again_is_done_more_and_more(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum(awake(line) for _ in range(15)) == 4
    assert not any(awake(line) for _ in range(15))
    monkeypatch.setattr(readiness, "_let_others_run", lambda: line.far.send(b"x"))
    turns = []
    for turn in range(15):
        line.near.moment()
        if select.select([line.near_end], [], [], 0)[0]:
            line.near_end.recv(1)
            turns.append(turn)
    assert turns == [0, 8, 12, 14]


def test_a_moment_that_others_made_long_was_in_vain(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    def late() -> None:
        begun = time.perf_counter()
        while time.perf_counter() < begun + 2 * readiness._MOMENT:
            pass
        line.far.send(b"x")

    monkeypatch.setattr(readiness, "_let_others_run", late)
    assert line.near.moment()
    line.near_end.recv(1)
    assert not line.near.moment()  # it did not look


def test_no_time_is_no_moment(line: Line) -> None:
    assert not line.near.within(0.0)
    assert not line.looks
