"""Asking the server for rows: of bases by their numbers, of deltas by their places, a window of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...connection import Wire, command, encode
from ...keys import StoreKeys
from ..blob import HEADER_SIZE, rows_base
from .layout import RowLayout
from .pending import Match, Piece

T = TypeVar("T")
Array = NDArray[Any]
#: How many bytes of replies may be on their way at once.
_WINDOW = 1 << 20
#: What a question and its answer cost beside the row itself (bytes), about.
_QUESTION = 128


def _ask(wire: Wire, questions: list[tuple[bytes, int]], read: Callable[[], T]) -> Iterator[T]:
    """Send commands, each with the size of its reply, and read the replies, all of which must be taken."""
    sent = outstanding = 0
    for _, size in questions:
        batch: list[bytes] = []
        while sent < len(questions) and (not outstanding or outstanding + questions[sent][1] <= _WINDOW):
            batch.append(questions[sent][0])
            outstanding += questions[sent][1]
            sent += 1
        if batch:
            wire.send(b"".join(batch))
        yield read()
        outstanding -= size


def read_numbers(wire: Wire, layout: RowLayout, pieces: list[Piece]) -> bool:
    """Ask which rows these pieces touch. False: one is missing or foreign, it was overwritten."""
    questions = []
    for piece in pieces:
        size = HEADER_SIZE + piece.count * layout.number_bytes
        questions.append((command("GETRANGE", piece.key, 0, size - 1), size + _QUESTION))
    whole = True
    for piece, reply in zip(pieces, _ask(wire, questions, wire.read), strict=True):
        if len(reply) == HEADER_SIZE + piece.count * layout.number_bytes and reply.startswith(piece.header):
            piece.numbers = np.frombuffer(reply, layout.number_type, piece.count, HEADER_SIZE).astype(np.int64)
        else:
            whole = False
    return whole


def read_rows(wire: Wire, layout: RowLayout, matches: list[Match]) -> list[Array] | None:
    """The rows of pieces that are not here. None: one of the pieces was overwritten meanwhile."""
    questions: list[tuple[bytes, int]] = []
    plans: list[tuple[Match, list[int], list[int]]] = []
    for match in matches:
        piece, first = match.piece, HEADER_SIZE + match.piece.count * layout.number_bytes
        begins, ends = _spans(match.inside, piece.count, layout.row_bytes)
        for begin, end in zip(begins, ends, strict=True):
            low, high = first + begin * layout.row_bytes, first + end * layout.row_bytes - 1
            questions.append((command("GETRANGE", piece.key, low, high), high - low + _QUESTION))
        # the header last: if it is the right one now, it was then
        questions.append((command("GETRANGE", piece.key, 0, HEADER_SIZE - 1), HEADER_SIZE + _QUESTION))
        plans.append((match, begins, ends))
    replies = _ask(wire, questions, wire.read)
    found: list[Array] = []
    whole = True
    for match, begins, ends in plans:
        data = b"".join([next(replies) for _ in begins])
        header = next(replies)
        lengths = np.subtract(ends, begins)
        if header != match.piece.header or len(data) != int(lengths.sum()) * layout.row_bytes:
            whole = False
            continue
        rows = np.frombuffer(data, np.dtype(layout.stored).newbyteorder("<")).reshape(-1, layout.width)
        span = np.searchsorted(begins, match.inside, side="right") - 1
        found.append(rows[match.inside - np.subtract(begins, np.cumsum(lengths) - lengths)[span]])
    for _ in replies:  # the generator ends when its last reply was taken
        pass
    return found if whole else None


def _spans(inside: Array, count: int, row_bytes: int) -> tuple[list[int], list[int]]:
    """Which ranges of rows to ask for: neighbours together, and all of them where that is cheaper."""
    breaks = np.flatnonzero(np.diff(inside) > 1 + _QUESTION // row_bytes)
    begins = inside[np.concatenate(([0], breaks + 1))].tolist()
    ends = (inside[np.concatenate((breaks, [len(inside) - 1]))] + 1).tolist()
    if (sum(ends) - sum(begins)) * row_bytes + len(begins) * _QUESTION > count * row_bytes + _QUESTION:
        return [0], [count]
    return begins, ends


def read_base(
    wire: Wire, layout: RowLayout, keys: StoreKeys, numbers: Array, epoch: int
) -> tuple[Array, Array, dict[int, tuple[int, int]]] | None:
    """Rows as the bases have them: values, at which version each was read, and (version, generation) of the shares.

    A row that is not there is as the initializer makes it. None: a share is gone from the server, or is foreign.
    """
    questions: list[tuple[bytes, int]] = []
    plans: list[tuple[int, slice]] = []
    most = max(1, _WINDOW // (layout.row_bytes + 16))
    for share, part in enumerate(layout.cut(numbers)):
        for first in range(part.start, part.stop, most):
            chunk = slice(first, min(part.stop, first + most))
            count = chunk.stop - chunk.start
            words = b"*%d\r\n" % (count + 3) + encode(("HMGET", keys.rows(layout.number, share), "h"))
            questions.append((words + fields(layout, numbers[chunk]), count * (layout.row_bytes + 16)))
            plans.append((share, chunk))
    values = np.empty((len(numbers), layout.width), layout.stored)
    versions = np.empty(len(numbers), np.int64)
    absent: list[Array] = []
    stands: dict[int, tuple[int, int]] = {}
    whole = True
    replies = _ask(wire, questions, lambda: wire.read_strings(layout.row_bytes))
    for (share, chunk), (header, data, begins) in zip(plans, replies, strict=True):
        base = rows_base(header or b"", layout.block(share, layout.width), epoch)
        if base is None:
            whole = False
            continue
        stands[share] = max(stands.get(share, base), base)
        versions[chunk] = base[0]
        at = np.array(begins, np.int64)
        there = np.flatnonzero(at >= 0)
        values[chunk.start + there] = gather(data, at[there], layout)
        absent.append(chunk.start + np.flatnonzero(at < 0))
    lacking = np.concatenate(absent) if absent else np.zeros(0, np.int64)
    if len(lacking):
        values[lacking] = layout.first_values(numbers[lacking])
    return (values, versions, stands) if whole else None


def fields(layout: RowLayout, numbers: Array) -> bytes:
    """Numbers as words of a command."""
    head = b"$%d\r\n" % layout.number_bytes
    words = np.empty(len(numbers), [("head", f"S{len(head)}"), ("number", layout.number_type), ("end", "S2")])
    words["head"], words["number"], words["end"] = head, numbers, b"\r\n"
    return words.tobytes()


def gather(data: bytes, begins: Array, layout: RowLayout) -> Array:
    """Rows that stand at those places."""
    if not len(begins):
        return np.empty((0, layout.width), layout.stored)
    size = layout.row_bytes
    flat = np.frombuffer(data, np.uint8)
    windows = np.lib.stride_tricks.as_strided(flat, (len(flat) - size + 1, size), (1, 1), writeable=False)
    rows = np.ascontiguousarray(windows[begins])
    return rows.view(np.dtype(layout.stored).newbyteorder("<")).reshape(-1, layout.width)


def records(layout: RowLayout, numbers: Array, rows: Array) -> list[bytes]:
    """Changed rows as arguments of ``commit_rows``, each of about 64 KiB."""
    packed = np.empty(len(numbers), layout.record)
    packed["number"], packed["row"] = numbers, rows
    step = max(1, (1 << 16) // layout.record.itemsize)
    return [packed[i : i + step].tobytes() for i in range(0, len(numbers), step)]
