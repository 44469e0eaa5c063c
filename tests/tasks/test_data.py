"""Reading a user's file: what it may look like, and what is said about one that does not."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from ssp_redis.errors import UsageError
from ssp_redis.tasks.data import Rows, load_digits, load_file, split


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_the_digits_are_all_there() -> None:
    pytest.importorskip("sklearn")
    rows = load_digits()
    assert rows.x.shape == (1797, 64)
    assert sorted(set(rows.y.tolist())) == list(range(10))


def test_the_digits_are_those_that_scikit_learn_would_load() -> None:
    theirs = pytest.importorskip("sklearn.datasets").load_digits()
    ours = load_digits()
    assert np.array_equal(ours.x, theirs.data)
    assert np.array_equal(ours.y, theirs.target)


def test_without_scikit_learn_the_digits_name_the_install_line_and_the_other_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'ssp-redis\[data\]'.*--data FILE"):
        load_digits()


def test_an_npz_holds_x_and_y(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.eye(3), y=np.array([0, 1, 0]))
    rows = load_file(tmp_path / "a.npz")
    assert rows.x.dtype == np.float32
    assert rows.x.tolist() == np.eye(3).tolist()
    assert rows.y.tolist() == [0, 1, 0]


def test_an_npz_that_would_have_to_be_unpickled_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.array([[object()]], dtype=object), y=np.array([0]))
    with pytest.raises(UsageError, match=r"a\.npz: not an \.npz file of plain arrays"):
        load_file(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"x": np.eye(2), "y": np.zeros(2)}, r"no array 'X'; it has x, y"),
        ({"X": np.eye(2)}, r"no array 'y'; it has X"),
        ({"X": np.eye(2), "y": np.zeros(3)}, r"X is \(2, 2\) and y \(3,\)"),
        ({"X": np.zeros(2), "y": np.zeros(2)}, r"X is \(2,\)"),
        ({"X": np.array([["a"]]), "y": np.zeros(1)}, r"X holds <U1, not numbers"),
        ({"X": np.array([[0.0, np.nan]]), "y": np.zeros(1)}, r"X\[0, 1\] is not a finite float32"),
        ({"X": np.zeros((0, 2)), "y": np.zeros(0)}, r"no rows"),
    ],
)
def test_an_unfit_npz_says_what_is_wrong(tmp_path: Path, arrays: dict[str, np.ndarray], complaint: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(UsageError, match=r"a\.npz: " + complaint):
        load_file(tmp_path / "a.npz")


def test_what_is_no_npz_at_all_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"not an \.npz file"):
        load_file(write(tmp_path / "a.npz", "hello"))


def test_the_last_column_of_a_csv_is_the_class_by_default(tmp_path: Path) -> None:
    rows = load_file(write(tmp_path / "a.csv", "1,2,yes\n3,4,no\n"))
    assert rows.x.tolist() == [[1, 2], [3, 4]]
    assert rows.y.tolist() == ["yes", "no"]


def test_a_csv_with_a_heading_may_name_the_class_column(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "kind,length,width\n\n1,2.5,3\n2,4,5e-1\n")
    rows = load_file(path, "kind")
    assert rows.x.tolist() == [[2.5, 3], [4, 0.5]]
    assert rows.y.tolist() == [1, 2]
    assert load_file(path, "1").y.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "label", "complaint"),
    [
        ("", None, r"empty file"),
        ("1\n2\n", None, r"line 1: one column only"),
        ("a,b\n", None, r"no rows"),
        ("1,2,0\n3,0\n", None, r"line 2: 2 fields where the first line has 3"),
        ("1,2,0\n3,x,0\n", None, r"line 2, column 2: 'x' is not a finite number"),
        ("1,2,0\n3,,0\n", None, r"line 2, column 2: '' is not a finite number"),
        ("0,1,2\n0,nan,2\n", "1", r"line 2, column 2: 'nan' is not a finite number"),
        ("a,b\n1,2\n", "c", r"no column 'c'; there are a, b"),
        ("1,2\n1,2\n", "c", r"no column 'c'.*number from 1 to 2"),
    ],
)
def test_an_unfit_csv_names_the_line(tmp_path: Path, text: str, label: str | None, complaint: str) -> None:
    with pytest.raises(UsageError, match=r"a\.csv.*" + complaint):
        load_file(write(tmp_path / "a.csv", text), label)


def test_a_svm_file_is_read_without_scikit_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    rows = load_file(write(tmp_path / "a.svm", "# two rows\n+1 1:0.5 3:2 # first\n\n-1 qid:3 2:1\n"))
    assert rows.x.tolist() == [[0.5, 0, 2], [0, 1, 0]]
    assert rows.y.tolist() == [1, -1]


def test_a_svm_file_that_counts_from_zero_is_understood(tmp_path: Path) -> None:
    rows = load_file(write(tmp_path / "a.libsvm", "1 0:5\n0 1:6\n"))
    assert rows.x.tolist() == [[5, 0], [0, 6]]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", r"no rows"),
        ("1 2:3\n1:2 3:4\n", r"line 2: begins with '1:2'"),
        ("1 2:3\n1 x:4\n", r"line 2: 'x:4' is not INDEX:VALUE"),
        ("1 2:inf\n", r"line 1: '2:inf' is not INDEX:VALUE with a finite value"),
        ("1 2\n", r"line 1: '2' is not INDEX:VALUE"),
        ("1\n2\n", r"no feature in any line"),
        ("1 1:1\n2 9000000000:1\n", r"2 rows by 9000000000 columns would take \d+ GiB"),
    ],
)
def test_an_unfit_svm_file_names_the_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=r"a\.svm.*" + complaint):
        load_file(write(tmp_path / "a.svm", text))


def test_an_unknown_ending_a_missing_file_and_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a\.txt: cannot tell the format from '\.txt'"):
        load_file(write(tmp_path / "a.txt", "1,2\n"))
    with pytest.raises(UsageError, match=r"none\.csv: No such file"):
        load_file(tmp_path / "none.csv")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"b\.csv: not a text file"):
        load_file(tmp_path / "b.csv")
    with pytest.raises(UsageError, match=r"--label is for \.csv"):
        load_file(write(tmp_path / "a.svm", "1 1:1\n"), "1")


def rows_of(count: int, classes: int = 3) -> Rows:
    random = np.random.default_rng(7)
    x = random.normal(5.0, 3.0, (count, 4)).astype(np.float32)
    x[:, 3] = 1.0
    return Rows(x, np.arange(count) % classes)


def test_a_split_depends_on_the_seed_alone_and_loses_no_row() -> None:
    one, same, other = split(rows_of(100), 0.2, 1), split(rows_of(100), 0.2, 1), split(rows_of(100), 0.2, 2)
    assert len(one.test_y) == 20
    assert len(one.train_y) == 80
    assert np.array_equal(one.test_x, same.test_x)
    assert not np.array_equal(one.test_y, other.test_y)


def test_features_are_standardized_and_a_constant_one_is_switched_off() -> None:
    part = split(rows_of(3000), 0.1, 0)
    assert part.train_x.shape[1] == 5
    assert np.allclose(part.train_x[:, :3].mean(axis=0), 0, atol=1e-2)
    assert np.allclose(part.train_x[:, :3].std(axis=0), 1, atol=1e-2)
    assert not part.train_x[:, 3].any()
    assert (part.train_x[:, 4] == 1).all()


def test_data_with_nothing_to_tell_apart_is_refused() -> None:
    with pytest.raises(UsageError, match="every row is of class 0"):
        split(rows_of(10, classes=1), 0.2, 0)
    with pytest.raises(UsageError, match="10 classes among 10 rows"):
        split(rows_of(10, classes=10), 0.2, 0)
