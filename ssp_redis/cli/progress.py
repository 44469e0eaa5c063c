"""The live view on a terminal: one line a worker, redrawn in place, gone when the work is done."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass

import click

from ssp_redis.cli import format
from ssp_redis.cli.account import Account, Total

_BAR = 24
#: Seconds between two drawings.
_PERIOD = 0.1


@dataclass
class Row:
    """One worker as it is shown."""

    account: Account
    note: str = "starting"


class Board:
    """Draws rows on stderr. Silent where that is no terminal, or when told to be quiet."""

    def __init__(self, title: str, clocks: int | None, quiet: bool = False) -> None:
        self.title = title
        self.clocks = clocks
        self.rows: dict[str, Row] = {}
        self._live = sys.stderr.isatty() and not quiet
        self._drawn = 0
        self._next = 0.0
        encoding = (sys.stderr.encoding or "ascii").lower()
        self._full, self._empty = ("━", "─") if encoding.startswith("utf") else ("#", "-")

    @property
    def live(self) -> bool:
        """Whether anybody sees it."""
        return self._live

    def draw(self, force: bool = False) -> None:
        """Draw the present state, unless that was done a moment ago."""
        if not self._live or (time.monotonic() < self._next and not force):
            return
        self._next = time.monotonic() + _PERIOD
        width = max(20, shutil.get_terminal_size().columns - 1)
        lines = [click.style(self._clip(self._heading(), width), bold=True)]
        lines += [self._line(name, row, width) for name, row in self._shown()]
        self._write(self._erasure() + "".join(line + "\033[K\n" for line in lines) + "\033[J")
        self._drawn = len(lines)

    def say(self, message: str, err: bool = True) -> None:
        """A line that stays, above the live view."""
        self._wipe()
        click.echo(message, err=err)
        self.draw(force=True)

    def close(self) -> None:
        """Wipe the live view for good."""
        self._wipe()
        self._live = False

    def _wipe(self) -> None:
        if self._live and self._drawn:
            self._write(self._erasure() + "\033[J")
            self._drawn = 0

    def _heading(self) -> str:
        total = Total([row.account for row in self.rows.values()])
        if not total.ticks:
            return self.title
        return f"{self.title} · {format.count(total.rate)} clocks/s"

    def _shown(self) -> Iterable[tuple[str, Row]]:
        """As many rows as the terminal is high: the slowest first where not all fit, for they hold the others up."""
        rows = list(self.rows.items())
        room = max(1, shutil.get_terminal_size().lines - 3)
        if len(rows) <= room:
            return rows
        return sorted(rows, key=lambda item: item[1].account.clock)[:room]

    def _line(self, name: str, row: Row, width: int) -> str:
        account = row.account
        head = f"  {name:>{max(map(len, self.rows))}}  "
        if not account.admitted:
            return self._clip(f"{head}{row.note}", width)
        waiting = account.wait_seconds / account.seconds if account.seconds else 0.0
        parts = [
            f"{account.clock}/{self.clocks}" if self.clocks else f"clock {account.clock}",
            f"lead {account.lead:+d}" if account.how == "running" else row.note,
            f"waits {waiting:4.0%}",
            "" if account.loss is None else f"loss {format.number(account.loss)}",
        ]
        text = f"{parts[0]:>13}  {parts[1]:<9}  {parts[2]:<10}  {parts[3]}"
        if self.clocks and width > len(head) + _BAR + 2 + len(text):
            return f"{head}{self._bar(account.clock / self.clocks)}  {text}"
        return self._clip(head + text, width)

    def _bar(self, share: float) -> str:
        done = round(_BAR * min(1.0, share))
        return click.style(self._full * done, fg="green") + click.style(self._empty * (_BAR - done), dim=True)

    def _clip(self, text: str, width: int) -> str:
        return text if len(text) <= width else text[: width - 1] + "…"

    def _erasure(self) -> str:
        return f"\033[{self._drawn}F" if self._drawn else ""

    def _write(self, text: str) -> None:
        click.echo(text, err=True, nl=False)
