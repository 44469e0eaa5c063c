"""Asking the server for rows: of bases by their numbers, of deltas by their places, a window of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...connection import Wire, encode
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
#: Up to so many bytes that nobody wants are less trouble than another question.
_GAP = 512


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
        questions.append((_range(piece, 0, size), size + _QUESTION))
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
    plans: list[tuple[list[int], list[int]]] = []
    oldest: dict[str, Piece] = {}
    for match in matches:
        piece, first = match.piece, HEADER_SIZE + match.piece.count * layout.number_bytes
        begins, ends = spans(match.inside, layout.row_bytes)
        for begin, end in zip(begins, ends, strict=True):
            size = (end - begin) * layout.row_bytes
            questions.append((_range(piece, first + begin * layout.row_bytes, size), size + _QUESTION))
        plans.append((begins, ends))
        oldest.setdefault(piece.ring, piece)
    # A ring is overwritten in its order: if what is first in it is the right one after all was read, all was.
    questions += [(_range(piece, 0, HEADER_SIZE), HEADER_SIZE + _QUESTION) for piece in oldest.values()]
    replies = list(_ask(wire, questions, wire.read))
    if replies[len(replies) - len(oldest) :] != [piece.header for piece in oldest.values()]:
        return None
    at, found = 0, []
    for match, (begins, ends) in zip(matches, plans, strict=True):
        data = replies[at] if len(begins) == 1 else b"".join(replies[at : at + len(begins)])
        at += len(begins)
        if len(data) != (sum(ends) - sum(begins)) * layout.row_bytes:
            return None
        rows = np.frombuffer(data, np.dtype(layout.stored).newbyteorder("<")).reshape(-1, layout.width)
        if len(rows) != len(match.inside):
            starts, lengths = np.array(begins), np.subtract(ends, begins)
            span = np.searchsorted(starts, match.inside, side="right") - 1
            rows = rows[match.inside - (starts - np.cumsum(lengths) + lengths)[span]]
        found.append(rows)
    return found


def _range(piece: Piece, first: int, size: int) -> bytes:
    """``GETRANGE`` as a command, put together quickly: there are dozens of them in a read."""
    begin, end = b"%d" % first, b"%d" % (first + size - 1)
    return b"*4\r\n$8\r\nGETRANGE\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
        len(piece.key),
        piece.key,
        len(begin),
        begin,
        len(end),
        end,
    )


def spans(inside: Array, row_bytes: int) -> tuple[list[int], list[int]]:
    """Which ranges of rows to ask for: neighbours together, and what lies between them where it is little."""
    breaks = (inside[1:] - inside[:-1] > 1 + _GAP // row_bytes).nonzero()[0]
    if not len(breaks):
        return [int(inside[0])], [int(inside[-1]) + 1]
    begins = inside[np.concatenate(([0], breaks + 1))].tolist()
    ends = (inside[np.concatenate((breaks, [len(inside) - 1]))] + 1).tolist()
    return begins, ends


def read_base(
    wire: Wire, layout: RowLayout, keys: StoreKeys, wanted: Array, lacking: Array, values: Array, epoch: int
) -> tuple[Array, dict[int, tuple[int, int]]] | None:
    """Put into ``values`` those of the rows ``wanted`` that are ``lacking``, as the bases have them.

    A row that is not there is as the initializer makes it. Returns at which version each lacking row was read, and
    (version, generation) of the shares. None: a share is gone from the server, or is foreign.
    """
    numbers = wanted[lacking]
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
    versions = np.empty(len(numbers), np.int64)
    absent: list[Array] = []
    stands: dict[int, tuple[int, int]] = {}
    whole = True
    replies = _ask(wire, questions, lambda: wire.read_strings(layout.row_bytes))
    for (share, chunk), (header, rows) in zip(plans, replies, strict=True):
        base = rows_base(header or b"", layout.block(share, layout.width), epoch)
        if base is None:
            whole = False
            continue
        stands[share] = max(stands.get(share, base), base)
        versions[chunk] = base[0]
        there = np.fromiter(map(len, rows), np.int64, len(rows)) > 0
        values[lacking[chunk][there]] = together(layout, rows)
        absent.append(lacking[chunk][~there])
    fresh = np.concatenate(absent) if absent else lacking
    if len(fresh):
        values[fresh] = layout.first_values(wanted[fresh])
    return (versions, stands) if whole else None


def fields(layout: RowLayout, numbers: Array) -> bytes:
    """Numbers as words of a command."""
    head = b"$%d\r\n" % layout.number_bytes
    words = np.empty(len(numbers), [("head", f"S{len(head)}"), ("number", layout.number_type), ("end", "S2")])
    words["head"], words["number"], words["end"] = head, numbers, b"\r\n"
    return words.tobytes()


def together(layout: RowLayout, rows: list[bytes]) -> Array:
    """Those that are not empty, as rows."""
    return np.frombuffer(b"".join(rows), np.dtype(layout.stored).newbyteorder("<")).reshape(-1, layout.width)


def records(layout: RowLayout, numbers: Array, rows: Array) -> list[bytes]:
    """Changed rows as arguments of ``commit_rows``, each of about 64 KiB."""
    packed = np.empty(len(numbers), layout.record)
    packed["number"], packed["row"] = numbers, rows
    step = max(1, (1 << 16) // layout.record.itemsize)
    return [packed[i : i + step].tobytes() for i in range(0, len(numbers), step)]
