"""Rows with a class each: read from a file or from scikit-learn's digits, checked, and split for training and test.

No file is ever unpickled. An error names the file, the line and the way out.
"""

from __future__ import annotations

import csv
import importlib.util
import math
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ssp_redis.errors import UsageError

#: Bytes of features, dense as float32, above which a sparse file is refused rather than the machine filled.
_MOST_BYTES = 4 << 30


@dataclass(frozen=True)
class Rows:
    """Features (rows by columns), and the class of each row as it is called in the data."""

    x: NDArray[np.float32]
    y: NDArray[Any]


@dataclass(frozen=True)
class Split:
    """Standardized features with a column of ones for the intercept; classes numbered as in ``classes``."""

    train_x: NDArray[np.float32]
    train_y: NDArray[np.intp]
    test_x: NDArray[np.float32]
    test_y: NDArray[np.intp]
    classes: list[Any]


def load_digits() -> Rows:
    """The 1,797 handwritten digits (8 by 8 pixels) that scikit-learn ships."""
    try:
        file = _digits_file()
        if file is not None:
            table = np.loadtxt(file, delimiter=",", dtype=np.float32)
            return Rows(table[:, :-1], table[:, -1].astype(np.int64))
        from sklearn.datasets import load_digits as load
    except ImportError:
        raise UsageError(
            "the digits come with scikit-learn, which is not installed: pip install 'ssp-redis[data]', "
            "or name a file of your own with --data FILE (.npz, .csv, .svm)"
        ) from None
    digits = load()
    return Rows(np.asarray(digits.data, np.float32), np.asarray(digits.target))


def _digits_file() -> Path | None:
    """The file itself: to import scikit-learn for it would take each worker more than a second."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None:
        raise ImportError("sklearn")
    for directory in spec.submodule_search_locations or ():
        file = Path(directory, "datasets", "data", "digits.csv.gz")
        if file.is_file():
            return file
    return None


def load_file(path: Path, label: str | None = None) -> Rows:
    """Read ``path`` by its ending: ``.npz`` (arrays X and y), ``.csv``, or ``.svm`` / ``.libsvm``.

    ``label`` names (or, from 1, numbers) the column of a ``.csv`` that holds the class; by default it is the last.
    """
    ending = path.suffix.lower()
    if ending not in (".npz", ".csv", ".svm", ".libsvm"):
        raise UsageError(f"{path}: cannot tell the format from {ending or 'no ending'!r}: use .npz, .csv or .svm")
    if label is not None and ending != ".csv":
        raise UsageError(f"{path}: --label is for .csv files; here the class has its fixed place")
    try:
        if ending == ".npz":
            rows = _load_npz(path)
        elif ending == ".csv":
            rows = _load_csv(path, label)
        else:
            rows = _load_svm(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not a text file in UTF-8") from None
    if not len(rows.y):
        raise UsageError(f"{path}: no rows in it")
    return rows


def split(rows: Rows, held_out: float, seed: int) -> Split:
    """Hold ``held_out`` of the rows out by ``seed``, and standardize by what the training part shows."""
    classes, y = np.unique(rows.y, return_inverse=True)
    if len(classes) < 2:
        raise UsageError(f"every row is of class {classes[0]}: there is nothing to tell apart")
    if len(classes) > len(y) // 2:
        raise UsageError(f"{len(classes)} classes among {len(y)} rows: is the class really in that column?")
    order = np.random.default_rng([seed, 0]).permutation(len(y))
    tests = min(len(y) - 1, max(1, round(held_out * len(y))))
    test, train = order[:tests], order[tests:]
    mean = rows.x[train].mean(axis=0, dtype=np.float64)
    deviation = rows.x[train].std(axis=0, dtype=np.float64)
    # A column that does not vary in training says nothing; dividing by it would blow up whatever the test shows there.
    scale = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 1e-12)

    def ready(part: NDArray[np.intp]) -> NDArray[np.float32]:
        # A rare pixel is a dozen deviations out; clipped, it does not throw a step off.
        x = np.clip((rows.x[part] - mean) * scale, -5.0, 5.0)
        return np.hstack([x, np.ones((len(part), 1))]).astype(np.float32)

    return Split(ready(train), y[train], ready(test), y[test], classes.tolist())


def _load_npz(path: Path) -> Rows:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            missing = [name for name in ("X", "y") if name not in arrays]
            if missing:
                raise UsageError(f"{path}: no array {missing[0]!r}; it has {', '.join(arrays) or 'none'}")
            x, y = arrays["X"], arrays["y"]
    except (zipfile.BadZipFile, ValueError, EOFError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path}: not an .npz file of plain arrays ({error}): write it with numpy.savez") from None
    if x.ndim != 2 or y.ndim != 1 or len(x) != len(y):
        raise UsageError(f"{path}: X is {x.shape} and y {y.shape}; they must be (rows, columns) and (rows,)")
    if not np.issubdtype(x.dtype, np.number) or np.issubdtype(x.dtype, np.complexfloating):
        raise UsageError(f"{path}: X holds {x.dtype}, not numbers")
    x = x.astype(np.float32)
    wrong = np.argwhere(~np.isfinite(x))
    if len(wrong):
        raise UsageError(f"{path}: X[{wrong[0][0]}, {wrong[0][1]}] is not a finite float32: clean or impute it first")
    return Rows(x, y)


def _load_csv(path: Path, label: str | None) -> Rows:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        lines = ((reader.line_num, row) for row in reader if row)
        first = next(lines, None)
        if first is None:
            raise UsageError(f"{path}: empty file")
        number, row = first
        width = len(row)
        if width < 2:
            raise UsageError(f"{path}, line {number}: one column only; a class and at least one feature are needed")
        header = row if all(_number(field) is None for field in row) else None
        column = _label_column(path, header, width, label)
        x: list[list[float]] = []
        y: list[str] = []
        for number, row in lines if header else _chain(first, lines):
            if len(row) != width:
                raise UsageError(f"{path}, line {number}: {len(row)} fields where the first line has {width}")
            y.append(row.pop(column).strip())
            x.append(_features(path, number, row, column))
    return Rows(np.array(x, np.float32).reshape(len(x), width - 1), _labels(y))


def _label_column(path: Path, header: list[str] | None, width: int, label: str | None) -> int:
    if label is None:
        return width - 1
    names = [name.strip() for name in header or []]
    if label in names:
        return names.index(label)
    if label.isdigit() and 1 <= int(label) <= width:
        return int(label) - 1
    if header is None:
        raise UsageError(f"{path}: no column {label!r}, for the first line names none; use a number from 1 to {width}")
    raise UsageError(f"{path}: no column {label!r}; there are {', '.join(names)}")


def _features(path: Path, number: int, row: list[str], label: int) -> list[float]:
    values = [_number(field) for field in row]
    for place, value in enumerate(values):
        if value is None or not math.isfinite(value):
            column = place + 1 + (place >= label)
            raise UsageError(
                f"{path}, line {number}, column {column}: {row[place]!r} is not a finite number: clean or impute it"
            )
    return [value for value in values if value is not None]


def _load_svm(path: Path) -> Rows:
    labels: list[str] = []
    places: list[tuple[int, int, float]] = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            if ":" in words[0]:
                raise UsageError(f"{path}, line {number}: begins with {words[0]!r}; a line is CLASS INDEX:VALUE ...")
            for word in words[1:]:
                place, colon, text = word.partition(":")
                if place == "qid":
                    continue
                value = _number(text)
                if not colon or not place.isdigit() or value is None or not math.isfinite(value):
                    raise UsageError(f"{path}, line {number}: {word!r} is not INDEX:VALUE with a finite value")
                places.append((len(labels), int(place), value))
            labels.append(words[0])
    # The format counts from 1; some writers count from 0, which shows by an index 0.
    base = min((index for _, index, _ in places), default=1) and 1
    width = max((index for _, index, _ in places), default=base - 1) - base + 1
    if labels and width < 1:
        raise UsageError(f"{path}: no feature in any line")
    if len(labels) * width * 4 > _MOST_BYTES:
        gib = len(labels) * width * 4 / (1 << 30)
        raise UsageError(f"{path}: {len(labels)} rows by {width} columns would take {gib:.0f} GiB: reduce the columns")
    x = np.zeros((len(labels), max(0, width)), np.float32)
    for row, index, value in places:
        x[row, index - base] = value
    return Rows(x, _labels(labels))


def _labels(words: list[str]) -> NDArray[Any]:
    """Numbers where all are, so that 1 and 1.0 are one class; else the words as they stand."""
    numbers = [_number(word) for word in words]
    if all(value is not None and math.isfinite(value) for value in numbers):
        exact = np.array(numbers, np.float64)
        return exact.astype(np.int64) if np.all(exact == np.rint(exact)) else exact
    return np.array(words)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _chain(first: tuple[int, list[str]], rest: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    yield first
    yield from rest
