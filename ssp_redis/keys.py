"""Names: of jobs, workers, tables and runs, and of the keys they live under.

Everything of a job carries one hash tag, ``ssp:{JOB}:…``, so that on a cluster every script finds all it must check in
one slot. A name is checked before it enters a key. ``lua/README.md`` is the glossary of what each key holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_UNFIT = re.compile(r"[^A-Za-z0-9._-]")

#: The keys of the clock, in the order in which the scripts that change membership take them (``lua/README.md``).
CONTROL = ("config", "clocks", "order", "ids", "leases", "log", "graced", "runs")


def check_name(kind: str, name: object) -> str:
    """Return ``name`` if it may stand in a key, else raise :class:`UsageError` naming it."""
    text = str(name)
    if not isinstance(name, (str, int)) or isinstance(name, bool) or not _NAME.match(text):
        raise UsageError(f"{kind} {text!r} is not a name: use 1 to 64 of A-Z a-z 0-9 . _ -")
    return text


def fit_name(text: str) -> str:
    """Make ``text`` (a host name, say) fit to stand as one word in an answer of a script."""
    return _UNFIT.sub("_", text)[:64] or "_"


class JobKeys:
    """The keys of one job's clock."""

    def __init__(self, job: str) -> None:
        self.job = check_name("job", job)
        self.prefix = f"ssp:{{{self.job}}}:"
        for name in CONTROL:
            setattr(self, name, self.prefix + name)
        #: Channel on which a change of min, staleness, membership, epoch or stop flag is announced.
        self.min = self.prefix + "min"

    config: str
    clocks: str
    order: str
    ids: str
    leases: str
    log: str
    graced: str
    runs: str

    def control(self) -> list[str]:
        """All keys of the clock, then its channel: the KEYS of ``join``, ``sync`` and ``leave``."""
        return [self.prefix + name for name in CONTROL] + [self.min]


class StoreKeys:
    """The keys of one store: the tables of one run under one tag."""

    def __init__(self, prefix: str, run: str) -> None:
        self.prefix = f"{prefix}{run}:"
        self.tables = self.prefix + "tables"
        self.bases = self.prefix + "bases"
        self.rings = self.prefix + "rings"
        #: Channel on which a new table and a new base are announced.
        self.commits = self.prefix + "commits"
        #: Channel on which sums of small tables are said.
        self.sums = self.prefix + "sums"

    def base(self, table: int, block: int, generation: int) -> str:
        """A block of a base. Generations alternate between two keys, so that one old base stays readable."""
        return f"{self.prefix}b:{table}:{block}:{generation % 2}"

    def rows(self, table: int, share: int) -> str:
        """A share of a sparse table's base."""
        return f"{self.prefix}r:{table}:{share}"

    def undo(self, table: int, share: int) -> str:
        """What rows of a share were before they were overwritten, while somebody reads all of it."""
        return f"{self.prefix}u:{table}:{share}"

    def scratch(self, table: int, block: int, incarnation: int) -> str:
        """A block written by one incarnation, on its way to become a base."""
        return f"{self.prefix}x:{table}:{block}:{incarnation}"

    def slot(self, table: int, block: int, ring: str, slot: int) -> str:
        """A block of one worker's delta; ``ring`` is ``worker:incarnation:number``."""
        return f"{self.prefix}d:{table}:{block}:{ring}:{slot}"

    def every(self, table: int, blocks: int, slots: int, rings: Iterator[str] | list[str]) -> Iterator[str]:
        """Every key that may hold bytes of a table, for expiry and deletion."""
        for block in range(blocks):
            yield self.base(table, block, 0)
            yield self.base(table, block, 1)
        for ring in rings:
            incarnation = int(ring.split(":")[1])
            for block in range(blocks):
                yield self.scratch(table, block, incarnation)
                for slot in range(slots):
                    yield self.slot(table, block, ring, slot)
