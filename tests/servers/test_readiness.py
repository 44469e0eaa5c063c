"""Whoever waits for a reply stays awake for a moment, and hardly ever where that is in vain."""

from __future__ import annotations

import socket
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
    turns = [awake(line) for _ in range(300)]
    assert [turn for turn, was in enumerate(turns) if was] == [0, 2, 6, 14, 30, 62, 126, 190, 254]


def test_once_it_is_worth_it_again_all_begins_anew(line: Line) -> None:
    assert sum(awake(line) for _ in range(15)) == 4
    line.far.send(b"x")
    assert not any(awake(line) for _ in range(16))  # 15 of them did not even look
    line.near_end.recv(1)
    assert [awake(line) for _ in range(3)] == [True, False, True]


def test_no_time_is_no_moment(line: Line) -> None:
    assert not line.near.within(0.0)
    assert not line.looks
