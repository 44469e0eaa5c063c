"""The slots that one incarnation of a worker writes its deltas to: overwritten in turn, never deleted meanwhile.

A connection that died in the middle of a push leaves doubt about what is still on its way: a late duplicate of a SET
may land in a slot at any time. So the next push goes to a fresh ring, and the tag in the log says which ring counts.
"""

from __future__ import annotations


class Ring:
    """Which slots are taken, and until which version of the bases."""

    def __init__(self, worker: str, incarnation: int) -> None:
        self.worker = worker
        self.incarnation = incarnation
        self.number = -1
        self.renew()

    def renew(self) -> None:
        """Turn to a fresh ring."""
        self.number += 1
        #: As in keys: worker:incarnation:number.
        self.name = f"{self.worker}:{self.incarnation}:{self.number}"
        #: True once the store's list of rings has it.
        self.registered = False
        #: (table, block, slot) → what a SET to it begins with.
        self.heads: dict[tuple[int, int, int], bytes] = {}
        self._next: dict[int, int] = {}
        self._taken: dict[tuple[int, int], int] = {}

    def last_names(self) -> set[str]:
        """This ring and the one before, to which something may have been on its way when it was given up."""
        numbers = (self.number - 1, self.number)
        return {f"{self.worker}:{self.incarnation}:{number}" for number in numbers if number >= 0}

    def slot(self, table: int, slots: int) -> int:
        """The slot whose turn it is."""
        return self._next.get(table, 0) % slots

    def needs(self, table: int, slots: int) -> int:
        """The version that every base of the table must have reached before that slot may be overwritten."""
        return self._taken.get((table, self.slot(table, slots)), 0)

    def take(self, table: int, slots: int, version: int) -> None:
        """The slot was pushed; its tag is among the first ``version`` entries of the log."""
        slot = self.slot(table, slots)
        self._taken[table, slot] = version
        self._next[table] = slot + 1
