"""Marking the shares of sparse tables, so that what is overwritten in them while they are read is kept."""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections.abc import Sequence

from ..connection import Wire
from ..errors import SSPError
from ..lua import Code, Refusal
from ..store.reader import Reader
from ..store.sparse.frozen import HOLD, Frozen

logger = logging.getLogger("ssp_redis")
#: Seconds to wait for another snapshot of the job, after which that is said, and between two looks.
_PATIENCE, _QUIET, _PAUSE = 120.0, 1.0, 0.05


class Marks:
    """One onlooker's marks on all sparse tables of a run; made anew they replace those before."""

    def __init__(self, reader: Reader, tables: Sequence[Frozen]) -> None:
        self._reader = reader
        self._tables = tables
        self._id = secrets.token_hex(8)
        self._count = 0
        self._names = [name for table in tables for name in table.names]
        self.undo = [key for table in tables for key in table.undo]

    @property
    def text(self) -> str:
        """What the undo hashes say whose they are."""
        return f"{self._id}.{self._count}"

    def make(self) -> list[list[int]]:
        """Mark all shares at one moment; returns for each table the versions of its bases then.

        Raises:
            SSPError: somebody else is taking a snapshot, and does not come to an end.
        """
        if not self._tables:
            return []
        begun, told = time.monotonic(), False
        while True:
            try:
                versions = self._reader.host.run(lambda wire: self._call(wire, HOLD))
                break
            except Refusal as refusal:
                if refusal.code is not Code.CLAIMED:
                    raise
            waited, job = time.monotonic() - begun, self._reader.job.job
            if waited > _PATIENCE:
                raise SSPError(f"job {job}: another snapshot of it is being taken: try again later")
            if waited > _QUIET and not told:
                told = True
                logger.warning(
                    "job %s: another snapshot of it is being taken, or was killed less than %g s ago; waiting for that",
                    job,
                    HOLD / 1000,
                )
            time.sleep(_PAUSE)
        counts = iter(versions)
        return [[next(counts) for _ in table.names] for table in self._tables]

    def drop(self) -> None:
        """Take the marks off; those that cannot be run out."""
        if self._tables:
            with contextlib.suppress(SSPError, Refusal):
                self._reader.host.run(lambda wire: self._call(wire, 0))

    def _call(self, wire: Wire, hold: int) -> list[int]:
        # said again, over another connection, it is another mark: what comes late of this one is refused
        self._count += 1
        run = self._reader.host.caller.run
        return self._reader.scripts.mark(wire, run, self.text, hold, self._names, self.undo)
