"""``restore.lua``, typed: its wrapper's signature is the script's calling contract."""

from __future__ import annotations

from collections.abc import Sequence

from ..connection import Wire
from ..keys import JobKeys, StoreKeys
from ..lua import SCHEMA, Script
from ..store.layout import Layout
from .state import Snapshot


class RestoreScript:
    """The script for one new run, with the keys of all its tables' blocks."""

    def __init__(self, keys: JobKeys, store: StoreKeys, layouts: Sequence[Layout], snapshot: Snapshot) -> None:
        self._layouts = layouts
        self._snapshot = snapshot
        blocks = [store.base(layout.number, block, 0) for layout in layouts for block in range(layout.blocks)]
        self._script = Script("restore", [*keys.control()[:-1], store.tables, store.bases, *blocks])

    def call(
        self, wire: Wire, replaces: str, run: str, name: str, settings: dict[str, str], headers: list[bytes]
    ) -> str:
        """Returns the run that was replaced, whose tables are to be swept, or ""."""
        snapshot = self._snapshot
        fields = ("workers", "created", "staleness", "lease", "retain", "reproducible")
        tables = [word for layout in self._layouts for word in (layout.name, layout.describe(), layout.shares)]
        ids = [
            word
            for worker, clock in snapshot.clocks.items()
            for word in (worker, clock, snapshot.departed.get(worker, "left"))
        ]
        answer = self._script.call(
            wire,
            SCHEMA,
            replaces,
            run,
            name,
            *(settings[field] for field in fields),
            snapshot.min_clock,
            len(self._layouts),
            len(snapshot.clocks),
            *tables,
            *ids,
            *headers,
        )
        return answer[0] if answer else ""
