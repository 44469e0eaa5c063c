"""The parts of sparse tables against the obvious way to do the same."""

from __future__ import annotations

import numpy as np
import pytest

from ssp_redis.errors import TableMismatch
from ssp_redis.store.blob import piece_header, rows_base, rows_header, rows_of
from ssp_redis.store.log import Tag
from ssp_redis.store.sparse.cache import RowCache
from ssp_redis.store.sparse.delta import OpenDelta, overlap
from ssp_redis.store.sparse.exchange import spans
from ssp_redis.store.sparse.layout import RowLayout
from ssp_redis.store.sparse.pending import Pending, Piece


@pytest.mark.parametrize("top", [400, 10**6, 2**62])
def test_a_cache_is_a_dictionary(top: int) -> None:
    rng, cache = np.random.default_rng(1), RowCache(3, "float32", 10**6)
    known: dict[int, tuple[float, int]] = {}
    for turn in range(300):
        numbers = np.unique(rng.integers(0, top, rng.integers(0, 200)))
        places = cache.find(numbers)
        versions = cache.versions(places)
        assert versions.tolist() == [known.get(int(number), (0, -1))[1] for number in numbers]
        there = versions >= 0
        assert cache.values(places[there])[:, 2].tolist() == [known[int(number)][0] for number in numbers[there]]
        if turn % 3:
            values = rng.integers(0, 1000, len(numbers)).astype(np.float32)
            cache.put(numbers, places, np.repeat(values[:, None], 3, axis=1), turn)
            known |= {int(n): (float(v), turn) for n, v in zip(numbers, values, strict=True)}
        else:
            positions = rng.integers(0, turn + 1, len(numbers))
            cache.touch(numbers, positions)
            for number, position in zip(numbers.tolist(), positions.tolist(), strict=True):
                if number in known and known[number][1] <= position:
                    known[number] = (0.0, -1)


def test_a_full_cache_begins_anew() -> None:
    cache = RowCache(1, "float32", 100)
    numbers = np.arange(80)
    cache.put(numbers, cache.find(numbers), np.ones((80, 1)), 5)
    lives = cache.lives
    more = np.arange(60, 200)
    cache.put(more, cache.find(more), np.full((140, 1), 2.0), 6)
    assert cache.lives == lives + 1
    found = cache.find(np.arange(200))
    assert (found >= 0).sum() == 100
    assert (cache.values(found[found >= 0]) == 2).all()


def test_what_is_pending_for_rows() -> None:
    rng, pending = np.random.default_rng(2), Pending()
    pieces = []
    for position in range(30):
        numbers = np.unique(rng.integers(0, 500, 40))
        pieces.append(Piece(position, position, "r", b"", b"", len(numbers), None, numbers))
    for piece in pieces[::-1]:
        pending.add([piece])
    gone = pending.purge(7)
    assert [piece.position for piece in gone] == list(range(7))
    assert pending.floor == 7
    for _ in range(20):
        wanted = np.unique(rng.integers(0, 600, 50))
        versions = rng.integers(5, 30, len(wanted))
        found = {
            (match.piece.position, int(number), int(inside))
            for match in pending.matches(wanted, versions)
            for number, inside in zip(wanted[match.places], match.inside, strict=True)
        }
        expected = {
            (piece.position, int(number), inside)
            for piece in pieces[7:]
            for inside, number in enumerate(piece.numbers)  # type: ignore[arg-type]
            if number in wanted and versions[np.searchsorted(wanted, number)] <= piece.position
        }
        assert found == expected
    touched = pending.touched(100, 200, 20)
    union = {int(n) for piece in pieces[20:] for n in piece.numbers if 100 <= n < 200}  # type: ignore[union-attr]
    assert touched.tolist() == sorted(union)


def test_deltas_of_one_clock_together() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        delta, total = OpenDelta(), np.zeros((20, 2))
        for _ in range(rng.integers(1, 4)):
            numbers = rng.integers(0, 20, rng.integers(1, 30))
            rows = rng.integers(-9, 9, (len(numbers), 2)).astype(float)
            delta.add(numbers, rows)
            np.add.at(total, numbers, rows)
            if rng.random() < 0.3:
                delta.together()
        whole = delta.together()
        assert (np.diff(whole.numbers) > 0).all()
        assert (total[whole.numbers] == whole.rows).all()
        assert not np.delete(total, whole.numbers, axis=0).any()


def test_where_sorted_numbers_meet() -> None:
    rng = np.random.default_rng(4)
    for _ in range(100):
        first, second = (np.unique(rng.integers(0, 60, rng.integers(0, 40))) for _ in range(2))
        places, inside = overlap(first, second)
        assert (first[places] == second[inside]).all()
        assert len(places) == len(np.intersect1d(first, second))


def test_neighbours_are_asked_for_together() -> None:
    assert spans(np.array([5]), 256) == ([5], [6])
    assert spans(np.arange(10, 20), 256) == ([10], [20])
    assert spans(np.array([1, 2, 5, 50]), 256) == ([1, 50], [6, 51])
    assert spans(np.array([1, 5]), 256) == ([1, 5], [2, 6])
    assert spans(np.array([1, 5]), 2048) == ([1, 5], [2, 6])
    assert spans(np.array([1, 3, 99]), 4) == ([1], [100])


def test_a_layout_is_its_description() -> None:
    for shape, workers in (((10_000_000, 32), 4), ((3, 2), 8), ((2**33, 5), 100)):
        layout = RowLayout.new("w", "float16", shape, workers, "normal", 7, 1e-05)
        again = RowLayout.parse("w", 0, 0, layout.describe())
        assert again == layout
        rows = np.unique(np.random.default_rng(1).integers(0, shape[0], 1000))
        numbers = layout.numbers(rows)
        assert len(np.unique(numbers)) == len(rows)
        assert numbers.max() < 2 ** (8 * layout.number_bytes)
        order = np.sort(numbers)
        parts = layout.cut(order)
        assert len(parts) == layout.shares == min(workers, 64, shape[0])
        assert [order[part].tolist() for part in parts] == [
            sorted(numbers[rows % layout.shares == share].tolist()) for share in range(layout.shares)
        ]
    for wrong in ("sparse:float32:3x2:1:8:ones:0:1.0", "float32:3x2:1:8:zeros:0:1.0", "sparse:", "-"):
        with pytest.raises(TableMismatch):
            RowLayout.parse("w", 0, 0, wrong)


def test_tags_and_headers() -> None:
    tag = Tag.parse("t:3:178:8:0:0.5,2.1/1000")
    assert tag.slots == {0: 5, 2: 1}
    assert tag.rows == {2: 1000}
    block = RowLayout.new("w", "float32", (10, 4), 1, "zeros", 0, 1.0).block(2, 40)
    assert rows_of(piece_header(block, 1, 2, 3, 4, 77)) == 77
    assert rows_of(b"") == rows_of(b"x" * 64) == rows_of(rows_header(block, 1, 2, 3)) == 0
    assert rows_base(rows_header(block, 5, 90, 3), block, 3) == (90, 5)
    assert rows_base(rows_header(block, 5, 90, 4), block, 3) is None
    assert rows_base(piece_header(block, 1, 2, 3, 4, 5), block, 9) is None
    assert rows_base(b"short", block, 3) is None
