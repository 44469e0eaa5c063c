"""Whom a store works for, as the store sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from ..connection import Endpoint, Wire
from ..scripts import Caller

T = TypeVar("T")


class Host(Protocol):
    """Whom a store works for: a member of the job, or somebody who looks on (``caller.incarnation`` 0)."""

    endpoint: Endpoint
    caller: Caller
    #: Sum in the order (clock, worker), complete clocks only.
    reproducible: bool

    @property
    def clock(self) -> int:
        """The clock that the store knows of."""

    @property
    def bulk(self) -> bool:
        """Is the staleness 0, so that nobody is beyond the next clock before all have come to this one?"""

    @property
    def local(self) -> int:
        """The clock with the ticks that are not flushed yet."""

    def run(self, operation: Callable[[Wire], T]) -> T:
        """Run a repeatable exchange; where the store asks for a sync, sync and run it again."""

    def seen(self, position: int, tag: str) -> None:
        """The last entry of the log that was read."""
