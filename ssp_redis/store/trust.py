"""Whether somebody who was late is worth waiting for again: after each time less often."""

from __future__ import annotations

#: Turns for which nobody waits after somebody was late, doubled each time it is late again, and the most of them.
_FIRST, _MOST = 2, 256


class Trust:
    """Of those that are waited for a moment, by name: ask :meth:`given` in each turn, then tell what came of it."""

    def __init__(self) -> None:
        #: Of who was late: turns until it is waited for again, and the number of them last time.
        self._distrust: dict[str, tuple[int, int]] = {}

    def given(self, name: str) -> bool:
        """Is it worth waiting for this one?"""
        return not self._distrust.get(name, (0, 0))[0]

    def turn(self) -> None:
        """Another turn has begun."""
        for name, (turns, last) in self._distrust.items():
            self._distrust[name] = (max(0, turns - 1), last)

    def late(self, name: str) -> None:
        """It was waited for, and did not come."""
        turns = min(_MOST, 2 * self._distrust.get(name, (0, _FIRST // 2))[1])
        self._distrust[name] = (turns, turns)

    def came(self, name: str) -> None:
        """It came in time."""
        self._distrust.pop(name, None)
