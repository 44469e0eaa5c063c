"""What a snapshot holds, and how the part of it that is no array reads as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..config import parse_count, parse_seconds, parse_staleness
from ..errors import TableMismatch, UsageError
from ..keys import check_name
from ..store.blob import HALVES, dtype_of
from .rows import ROWS, VALUES, TouchedRows, of_words

#: Version of the file's contents: 1 has no sparse tables, and is what is written where there are none.
FORMAT = 2
#: How a run stands to its promise to be reproducible, as the server writes it.
PROMISES = {"no": "0", "yes": "1", "broken": "2"}


@dataclass(frozen=True)
class Snapshot:
    """One moment of a job: the sum of its log's first ``version`` entries, and the clocks at exactly that place."""

    job: str
    #: Name of the run.
    run: str
    epoch: int
    #: Length of the log prefix that the tables hold.
    version: int
    min_clock: int
    #: Clocks, inf when unbounded: then, and as created.
    staleness: float
    created_staleness: float
    #: Start quorum.
    workers: int
    #: Seconds that a silent member is waited for, and that a job without members is kept.
    lease: float
    retain: float
    #: no, yes or broken.
    reproducible: str
    #: Of every id of the run, members and departed.
    clocks: dict[str, int]
    #: Why those who were no members any more had left: done, left, evicted or lost.
    departed: dict[str, str]
    #: What each dense table is of. Half types are stored and summed as float32, and so in the file: nothing is lost.
    dtypes: dict[str, str]
    tables: dict[str, NDArray[Any]] = field(repr=False, compare=False)
    #: Sparse tables: the rows that were ever touched.
    sparse: dict[str, TouchedRows] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of all tables."""
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """All arrays by the names that they have in the file."""
        found = dict(self.tables)
        for name, table in self.sparse.items():
            found[name + ROWS], found[name + VALUES] = table.rows, table.values
        return found

    def to_json(self) -> str:
        """Everything but the arrays."""
        sparse = {"sparse": {name: table.words() for name, table in self.sparse.items()}} if self.sparse else {}
        return json.dumps(
            {
                "format": FORMAT if self.sparse else 1,
                "job": self.job,
                "run": self.run,
                "epoch": self.epoch,
                "version": self.version,
                "min_clock": self.min_clock,
                "staleness": _whole(self.staleness),
                "created_staleness": _whole(self.created_staleness),
                "workers": self.workers,
                "lease": self.lease,
                "retain": self.retain,
                "reproducible": self.reproducible,
                "clocks": self.clocks,
                "departed": self.departed,
                "dtypes": self.dtypes,
                **sparse,
            }
        )


def of_json(text: str, arrays: dict[str, NDArray[Any]]) -> Snapshot:
    """The inverse of :meth:`Snapshot.to_json`, for words that anybody may have written.

    Raises:
        UsageError: saying what is wrong with them.
    """
    try:
        words = json.loads(text)
    except ValueError as error:
        raise UsageError(f"its metadata is no JSON: {error}") from None
    if not isinstance(words, dict) or "format" not in words:
        raise UsageError("its metadata is not that of a snapshot")
    if words["format"] not in (1, FORMAT):
        raise UsageError(f"it is a snapshot of format {words['format']}, and this version reads format {FORMAT}")
    tables = dict(arrays)
    try:
        snapshot = Snapshot(
            job=check_name("job", words["job"]),
            run=check_name("run", words["run"]),
            epoch=parse_count("epoch", words["epoch"]),
            version=parse_count("version", words["version"], 0),
            min_clock=parse_count("min_clock", words["min_clock"], 0),
            staleness=_bound(words["staleness"]),
            created_staleness=_bound(words["created_staleness"]),
            workers=parse_count("workers", words["workers"]),
            lease=parse_seconds("lease", words["lease"], 0.05),
            retain=parse_seconds("retain", words["retain"], 1.0),
            reproducible=words["reproducible"],
            clocks={
                check_name("worker", worker): parse_count(f"clock of worker {worker}", clock, 0)
                for worker, clock in words["clocks"].items()
            },
            departed={
                check_name("worker", worker): check_name("why", why) for worker, why in words["departed"].items()
            },
            dtypes=dict(words["dtypes"]),
            tables={},
            sparse={name: of_words(name, one, tables) for name, one in words.get("sparse", {}).items()},
        )
    except KeyError as error:
        raise UsageError(f"its metadata says nothing of {error}") from None
    except (AttributeError, TypeError) as error:
        raise UsageError(f"its metadata is not that of a snapshot: {error}") from None
    if snapshot.reproducible not in PROMISES:
        raise UsageError(f"its metadata has reproducible {snapshot.reproducible!r}: use {', '.join(PROMISES)}")
    if not snapshot.clocks:
        raise UsageError("its metadata has no clocks")
    for name in snapshot.dtypes.keys() & snapshot.sparse.keys():
        raise UsageError(f"table {name} is in its metadata twice")
    for name in snapshot.dtypes.keys() ^ tables.keys():
        raise UsageError(f"table {name} is in its {'metadata' if name in snapshot.dtypes else 'arrays'} only")
    for name, array in tables.items():
        snapshot.tables[name] = _checked(name, snapshot.dtypes[name], array)
    return snapshot


def _checked(name: str, dtype: str, array: NDArray[Any]) -> NDArray[Any]:
    check_name("table", name)
    try:
        dtype_of(dtype)
    except TableMismatch as error:
        raise UsageError(f"table {name}: {error}") from None
    stored = HALVES.get(dtype, dtype)
    if array.dtype.name != stored:
        raise UsageError(f"table {name} is {dtype}: its array must be {stored}, and is {array.dtype}")
    if array.size == 0:
        raise UsageError(f"table {name} has shape {array.shape} and holds nothing")
    return np.ascontiguousarray(array, stored).reshape(array.shape)


def _whole(staleness: float) -> int | str:
    return "inf" if math.isinf(staleness) else int(staleness)  # JSON has no infinity


def _bound(value: object) -> float:
    clocks = parse_staleness(value)
    return math.inf if clocks < 0 else clocks
