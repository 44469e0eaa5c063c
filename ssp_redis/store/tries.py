"""How often a read is begun again: while others move on, what is missing was overwritten meanwhile, and is not lost."""

from __future__ import annotations

from typing import Protocol

#: Tries, each from the newest bases, in which no base has moved; and all together.
_STILL, _ALL = 8, 1000


class Known(Protocol):
    """Who reads."""

    bases: dict[str, tuple[int, int]]


class Tries:
    """Ask :attr:`more` before each try."""

    def __init__(self, reader: Known) -> None:
        self._reader = reader
        self._bases: dict[str, tuple[int, int]] = {}
        self._still, self._all = 0, 0

    @property
    def more(self) -> bool:
        """Is another try worth it?"""
        if self._bases != self._reader.bases:
            self._bases, self._still = dict(self._reader.bases), 0
        self._still += 1
        self._all += 1
        return self._still <= _STILL and self._all <= _ALL

    @property
    def stuck(self) -> bool:
        """Have half of the tries failed, though no base has moved?"""
        return self._still > _STILL // 2
