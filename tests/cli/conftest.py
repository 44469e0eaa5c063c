"""The fixtures of this folder's tests, and the modules beside it: ``commands`` and ``fixtures``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from commands import ssp, start
from fixtures import no_environment_of_ours

__all__ = ["handlers_as_before", "no_environment_of_ours", "ssp", "start"]


@pytest.fixture(autouse=True)
def handlers_as_before() -> Iterator[None]:
    """A command takes the signals of its process, which it mostly has for itself."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
