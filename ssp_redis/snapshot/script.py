"""``restore.lua``, typed: its wrapper's signature is the script's calling contract."""

from __future__ import annotations

from collections.abc import Sequence

from ..connection import Wire
from ..keys import JobKeys, StoreKeys
from ..lua import SCHEMA, Script
from ..store.layout import Layout
from ..store.sparse.layout import RowLayout
from .parts import Part
from .state import Snapshot


class RestoreScript:
    """The script for one new run, with the keys of all its tables' parts."""

    def __init__(
        self,
        keys: JobKeys,
        store: StoreKeys,
        layouts: Sequence[Layout | RowLayout],
        snapshot: Snapshot,
        parts: Sequence[Part],
    ) -> None:
        self._layouts = layouts
        self._snapshot = snapshot
        self._stated = [part.stated for part in parts]
        written = [part.key for part in parts]
        become = [part.becomes for part in parts if part.becomes is not None]
        self._script = Script("restore", [*keys.control()[:-1], store.tables, store.bases, *written, *become])

    def call(self, wire: Wire, replaces: str, run: str, name: str, settings: dict[str, str]) -> str:
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
            *self._stated,
        )
        return answer[0] if answer else ""
