"""Several that know where a server is, some of which may be gone or frozen: who is asked first, and for how long."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

Place = tuple[str, int]
#: One of several gets this part of the time that is left; the last ones share it evenly.
_PART = 4
#: In less nobody can answer (seconds).
_LEAST = 0.02


class Witnesses:
    """Asked one after the other, all of them within one time; last those that gave no answer when they were asked.

    >>> for place, seconds in witnesses.within(places, 2.0):
    ...     if (answer := ask(place, seconds)) is not None:
    ...         witnesses.answered(place)
    ...         return answer
    """

    def __init__(self) -> None:
        #: When those were asked that have not answered since.
        self._silent: dict[Place, float] = {}

    def within(self, places: Sequence[Place], seconds: float) -> Iterator[tuple[Place, float]]:
        """Each of ``places``, with the seconds that it gets to answer; fewer when ``seconds`` are over."""
        begun = time.monotonic()
        order = sorted(places, key=lambda place: self._silent.get(place, 0.0))
        for i, place in enumerate(order):
            now = time.monotonic()
            left = begun + seconds - now
            if i and left < _LEAST:
                return
            self._silent[place] = now
            yield place, max(_LEAST, left / min(_PART, len(order) - i))

    def answered(self, place: Place) -> None:
        """It is asked before those that are silent, whatever it said."""
        self._silent.pop(place, None)
