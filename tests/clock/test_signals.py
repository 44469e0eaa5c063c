"""Handlers of signals wait until a block is over, and stand where they stood."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType

import pytest
from fixtures import sigint_at

from ssp_redis.signals import held_back

pytestmark = pytest.mark.usefixtures("collected")


class Terminated(BaseException):
    """What SIGTERM raises here."""


@pytest.fixture(autouse=True)
def ran() -> Iterator[list[int]]:
    """The signals whose handlers have run, of SIGINT and SIGTERM; each raises."""
    numbers: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        numbers.append(number)
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


def test_what_came_in_the_block_comes_at_its_end() -> None:
    done = False
    with pytest.raises(KeyboardInterrupt), held_back():
        signal.raise_signal(signal.SIGINT)
        done = True
    assert done
    with pytest.raises(Terminated):
        signal.raise_signal(signal.SIGTERM)


def test_of_two_that_came_none_is_lost(ran: list[int]) -> None:
    with pytest.raises((KeyboardInterrupt, Terminated)), held_back():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert ran == []
    assert sorted(ran) == [signal.SIGINT, signal.SIGTERM]


def test_an_interruption_at_any_line_leaves_no_signal_without_its_handler() -> None:
    line, met, files = 0, True, ("ssp_redis/signals.py", "contextlib.py")
    while met:
        line += 1
        try:
            with sigint_at(line, lambda code: code.co_filename.endswith(files)) as seen, held_back():
                pass
        except KeyboardInterrupt:
            pass
        met = seen[0] >= line
        for number, error in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)):
            with pytest.raises(error):
                signal.raise_signal(number)
    assert line > 10
