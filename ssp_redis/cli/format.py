"""Numbers and tables for people."""

from __future__ import annotations

from collections.abc import Sequence


def count(number: float) -> str:
    """A whole number with its thousands marked."""
    return f"{number:,.0f}"


def counted(number: int, noun: str) -> str:
    """So many of something: 1 worker, 2 workers."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def seconds(value: float) -> str:
    """A duration in at most three figures: 0.31 s, 12.4 s, 3 min 20 s."""
    if value < 0.1:
        return f"{value * 1000:.1f} ms"
    if value < 10:
        return f"{value:.2f} s"
    if value < 120:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def size(value: float) -> str:
    """Bytes."""
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def number(value: float) -> str:
    """A loss or a parameter, in four figures."""
    return f"{value:.4g}" if abs(value) < 1e-3 or abs(value) >= 1e5 else f"{value:.4f}"


def table(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """Columns as wide as they need to be; the first row is the heading. ``left`` columns are aligned left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            text.ljust(width) if column in left else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
