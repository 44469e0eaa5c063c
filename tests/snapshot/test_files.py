"""The file: replaced whole or not at all; what is no snapshot is refused by name, and nothing is sent."""

from __future__ import annotations

import json
import os
import signal
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markers import check
from remote import Remote, eventually

from ssp_redis import Job, SSPError, UsageError, Worker
from ssp_redis.snapshot import replacing
from ssp_redis.snapshot.file import load, save
from ssp_redis.snapshot.state import FORMAT, Snapshot

#: Nobody is there: whatever is sent ends in ServerUnavailable.
NOWHERE = "redis://127.0.0.1:1"


@pytest.fixture
def snapshot() -> Snapshot:
    return Snapshot(
        job="j",
        run="1",
        epoch=1,
        version=5,
        min_clock=2,
        staleness=float("inf"),
        created_staleness=1,
        workers=1,
        lease=10,
        retain=3600,
        reproducible="no",
        clocks={"0": 2},
        departed={},
        dtypes={"w": "float32", "x": "float64"},
        tables={"w": np.ones((8, 3), "float32"), "x": np.full(8, 2.0)},
    )


@pytest.fixture(params=["npz", "safetensors"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "safetensors":
        pytest.importorskip("safetensors")
    folder = tmp_path / "files"
    folder.mkdir()
    return folder / f"job.{request.param}"


def test_what_is_written_is_read(path: Path, snapshot: Snapshot) -> None:
    snapshot.tables["scalar"] = np.array(3.5)
    snapshot.dtypes["scalar"] = "float64"
    save(path, snapshot)
    read = load(path)
    assert read == snapshot
    assert {name: table.tolist() for name, table in read.tables.items()} == {
        name: table.tolist() for name, table in snapshot.tables.items()
    }
    assert {name: table.shape for name, table in read.tables.items()} == {"w": (8, 3), "x": (8,), "scalar": ()}
    assert os.listdir(path.parent) == [path.name]
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


def test_an_older_one_is_replaced_and_a_link_is_followed(path: Path, snapshot: Snapshot) -> None:
    link = path.parent / f"latest{path.suffix}"
    link.symlink_to(path.name)
    path.write_bytes(b"older")
    Job(NOWHERE, "j")
    from ssp_redis.snapshot.file import check_target

    save(check_target(link), snapshot)
    assert link.is_symlink()
    assert load(path) == load(link) == snapshot


@pytest.mark.parametrize("nameless", [True, False])
def test_interrupted_in_the_middle_the_old_file_stands(
    path: Path, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch, nameless: bool
) -> None:
    save(path, snapshot)
    before = path.read_bytes()
    if not nameless:
        monkeypatch.setattr(replacing, "nameless", lambda folder: None)

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for place in (["fsync"], ["replace"]):
        with monkeypatch.context() as patch:
            for name in place:
                patch.setattr(os, name, interrupt)
            with pytest.raises(KeyboardInterrupt):
                save(path, snapshot)
        assert path.read_bytes() == before
        assert os.listdir(path.parent) == [path.name]
    save(path, snapshot)
    assert load(path) == snapshot


def test_killed_in_the_middle_the_old_file_stands(
    remote: Callable[..., Remote], join: Callable[..., Worker], url: str, job: str, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    path = folder / "w.npz"
    worker = join(0)
    tables = [worker.table(name, np.zeros((8, 50_000))) for name in "abc"]

    def step() -> None:
        for table in tables:
            table.inc(np.ones((1, 50_000)), rows=[0])
        worker.tick()

    step()
    Job(url, job).snapshot(path)
    before = path.read_bytes()
    step()
    child = remote()
    child.start(
        "write, written = np.lib.format.write_array, []\n"
        "def slow(*words, **more):\n"
        "    write(*words, **more)\n"
        "    written.append(1)\n"
        "    if len(written) == 3:\n"
        "        open(marker, 'w').close()\n"
        "        time.sleep(3600)\n"
        "np.lib.format.write_array = slow\n"
        "ssp_redis.Job(url, job).snapshot(path)",
        url=url,
        job=job,
        path=str(path),
        marker=str(tmp_path / "there"),
    )
    eventually(lambda: (tmp_path / "there").exists(), "half is written", 60)
    child.signal(signal.SIGKILL)
    child.process.wait(10)
    assert path.read_bytes() == before
    handle = os.open(folder, os.O_RDONLY)
    probe = replacing.nameless(handle)
    if probe is not None:  # this file system has nameless files
        os.close(probe)
        assert os.listdir(folder) == ["w.npz"]
    os.close(handle)
    check(load(path))
    check(Job(url, job).snapshot(path))
    assert load(path).clocks == {"0": 2}


def test_a_full_disk_is_named_and_leaves_the_old_file(
    path: Path, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(path, snapshot)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SSPError, match=rf"{path.name} could not be written: No space left"):
        save(path, snapshot)
    assert load(path) == snapshot
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("w.pt", "a snapshot is a .npz or .safetensors file"),
        ("w", "a snapshot is a .npz or .safetensors file"),
        ("missing/w.npz", "there is no folder"),
        (".npz/", "a snapshot is a .npz or .safetensors file"),
        ("folder.npz", "is a folder"),
        ("w" * 300 + ".npz", "is no name of a file: .*name too long"),
        ("w\0.npz", "is no name of a file: embedded null byte"),
    ],
)
def test_where_no_file_can_go_nothing_is_asked(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(UsageError, match=message):
        Job(NOWHERE, "j").snapshot(tmp_path / name)


# -- files that are no snapshots ---------------------------------------------------------------------------------------


def _arrays(snapshot: Snapshot, **changed: Any) -> dict[str, Any]:
    words = json.loads(snapshot.to_json()) | changed
    return {"@ssp-redis": np.array(json.dumps(words))} | snapshot.tables


def _savez(path: Path, arrays: dict[str, Any], pickled: bool = False) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=pickled)


class Exploit:
    """What unpickling would run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return sys.exit, ("unpickled",)


WRONG: dict[str, tuple[Callable[[Path, Snapshot], object], str]] = {
    "empty": (lambda path, _: path.write_bytes(b""), "no .npz, or is damaged"),
    "text": (lambda path, _: path.write_text("a,b\n1,2\n"), "no .npz, or is damaged"),
    "an array": (lambda path, one: np.save(path.open("wb"), one.tables["w"]), "no .npz, or is damaged"),
    "truncated": (lambda path, _: path.write_bytes(path.read_bytes()[:-200]), "no .npz, or is damaged"),
    "half": (lambda path, _: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]), "damaged"),
    "a bit": (lambda path, _: path.write_bytes(path.read_bytes().replace(b"\x80?", b"\x80>", 1)), "CRC"),
    "plain arrays": (lambda path, one: _savez(path, one.tables), "no snapshot: no @ssp-redis in it"),
    "pickled": (
        lambda path, one: _savez(path, _arrays(one) | {"w": np.array([Exploit()], dtype=object)}, pickled=True),
        "w holds pickled objects, which are never loaded",
    ),
    "pickled metadata": (
        lambda path, one: _savez(path, {"@ssp-redis": np.array([Exploit()], dtype=object)}, pickled=True),
        "@ssp-redis holds pickled objects",
    ),
    "no text": (lambda path, one: _savez(path, _arrays(one) | {"@ssp-redis": np.zeros(3)}), "is no text"),
    "no json": (lambda path, one: _savez(path, _arrays(one) | {"@ssp-redis": np.array("{")}), "no JSON"),
    "other json": (lambda path, one: _savez(path, _arrays(one) | {"@ssp-redis": np.array("[1]")}), "not that of a sn"),
    "later format": (
        lambda path, one: _savez(path, _arrays(one, format=FORMAT + 1)),
        f"format {FORMAT + 1}, and this version reads format {FORMAT}",
    ),
    "dtype": (
        lambda path, one: _savez(path, _arrays(one, dtypes={"w": "int8", "x": "float64"})),
        "table w: a table of int8 is not supported",
    ),
    "other dtype": (
        lambda path, one: _savez(path, _arrays(one) | {"w": np.ones(3, "int64")}),
        "table w is float32: its array must be float32, and is int64",
    ),
    "no array": (lambda path, one: _savez(path, {**_arrays(one, dtypes=one.dtypes | {"y": "float32"})}), "y is in its"),
    "no dtype": (lambda path, one: _savez(path, _arrays(one) | {"y": np.ones(2)}), "y is in its arrays only"),
    "empty table": (lambda path, one: _savez(path, _arrays(one) | {"w": np.ones((0, 2), "float32")}), "holds nothing"),
    "table name": (
        lambda path, one: _savez(path, _arrays(one, dtypes=one.dtypes | {"../y": "float64"}) | {"../y": np.ones(2)}),
        "is not a name",
    ),
    "no clocks": (lambda path, one: _savez(path, _arrays(one, clocks={})), "no clocks"),
    "clock": (lambda path, one: _savez(path, _arrays(one, clocks={"0": -1})), "clock of worker 0"),
    "worker": (lambda path, one: _savez(path, _arrays(one, clocks={"a b": 1})), "'a b' is not a name"),
    "clocks": (lambda path, one: _savez(path, _arrays(one, clocks=[1])), "not that of a snapshot"),
    "staleness": (lambda path, one: _savez(path, _arrays(one, staleness="much")), "staleness"),
    "promise": (lambda path, one: _savez(path, _arrays(one, reproducible="maybe")), "reproducible 'maybe'"),
    "no lease": (
        lambda path, one: _savez(
            path,
            _arrays(one)
            | {
                "@ssp-redis": np.array(json.dumps({k: v for k, v in json.loads(one.to_json()).items() if k != "lease"}))
            },
        ),
        "says nothing of 'lease'",
    ),
    "a foreign member": (
        lambda path, one: zipfile.ZipFile(path, "a").writestr("readme.txt", "x"),
        "'readme.txt', which is no table",
    ),
    "encrypted": (lambda path, _: path.write_bytes(_encrypted(path.read_bytes())), "damaged"),
    "huge": (lambda path, one: _huge(path, _arrays(one)), "damaged"),
}


def _encrypted(data: bytes) -> bytes:
    """The flag of an encrypted member, in the directory at the end."""
    at = data.index(b"PK\x01\x02")
    return data[: at + 8] + b"\x01" + data[at + 9 :]


def _huge(path: Path, arrays: dict[str, Any]) -> None:
    """An array whose shape says more than there is."""
    _savez(path, {name: array for name, array in arrays.items() if name != "w"})
    with zipfile.ZipFile(path, "a") as archive, archive.open("w.npy", "w") as member:
        header = {"descr": "<f4", "fortran_order": False, "shape": (10**15, 10)}
        np.lib.format.write_array_header_1_0(member, header)
        member.write(b"\0" * 64)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("kind", WRONG)
def test_what_is_no_snapshot_is_refused_by_name_and_nothing_is_sent(
    tmp_path: Path, snapshot: Snapshot, kind: str
) -> None:
    path = tmp_path / "wrong.npz"
    save(path, snapshot)
    make, message = WRONG[kind]
    make(path, snapshot)
    with pytest.raises(UsageError, match="wrong.npz cannot be restored: ") as caught:
        Job(NOWHERE, "j").restore(path)
    assert message in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"w.npz cannot be read: No such file"):
        Job(NOWHERE, "j").restore(tmp_path / "w.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(UsageError, match="folder.npz cannot be read: Is a directory"):
        Job(NOWHERE, "j").restore(tmp_path / "folder.npz")
    with pytest.raises(UsageError, match="a snapshot is a .npz"):
        Job(NOWHERE, "j").restore(tmp_path / "w.bin")


def test_files_that_other_programs_wrote_again(tmp_path: Path, snapshot: Snapshot) -> None:
    """Compressed, in Fortran order, big-endian: still the same numbers."""
    path = tmp_path / "again.npz"
    arrays = _arrays(snapshot) | {"w": np.asfortranarray(np.arange(24, dtype=">f4").reshape(8, 3))}
    np.savez_compressed(path, **arrays)
    table = load(path).tables["w"]
    assert table.dtype == np.dtype("float32") and table.dtype.isnative and table.flags.c_contiguous
    assert table.tolist() == np.arange(24).reshape(8, 3).tolist()


def test_wrong_safetensors(tmp_path: Path, snapshot: Snapshot) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "wrong.safetensors"
    for content in (b"", b"\xff" * 100, numpy.save(snapshot.tables)[:-8]):
        path.write_bytes(content)
        with pytest.raises(UsageError, match="wrong.safetensors cannot be restored: it is no .safetensors, or is dam"):
            Job(NOWHERE, "j").restore(path)
    numpy.save_file(snapshot.tables, path)
    with pytest.raises(UsageError, match="no snapshot: no @ssp-redis in it"):
        Job(NOWHERE, "j").restore(path)


def test_a_flipped_bit_does_not_go_unnoticed(path: Path, snapshot: Snapshot) -> None:
    save(path, snapshot)
    whole, refused = path.read_bytes(), 0
    for place in range(0, len(whole), max(1, len(whole) // 500)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            read = load(path)
        except UsageError:
            refused += 1
            continue
        assert read == snapshot
        assert all(np.array_equal(read.tables[name], table) for name, table in snapshot.tables.items())
    assert refused > 100


def test_safetensors_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("safetensors", "safetensors.numpy"):
        monkeypatch.setitem(sys.modules, name, None)
    for use in (Job(NOWHERE, "j").snapshot, Job(NOWHERE, "j").restore):
        with pytest.raises(UsageError, match=r"pip install 'ssp-redis\[safetensors\]'"):
            use(tmp_path / "w.safetensors")
