"""The file: a plain ``.npz`` that ``numpy.load`` reads, or ``.safetensors``.

Tables stand under their names; of a sparse one, the rows that were ever touched: which, under ``NAME@rows``, and their
elements, under ``NAME@values``. The metadata is a JSON string under a name that no table can have: an array of its own
in ``.npz``, an entry of the header in ``.safetensors``. Nothing is ever pickled or unpickled.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..errors import SSPError, UsageError
from .replacing import replacing
from .state import Snapshot, of_json

#: Name of the metadata; ``@`` stands in no table's name.
META = "@ssp-redis"
#: Name of the checksum in a ``.safetensors``.
CHECKSUM = "@crc32"

Arrays = dict[str, NDArray[Any]]


def check_target(path: str | os.PathLike[str]) -> Path:
    """Where a snapshot shall go, if one can go there.

    Raises:
        UsageError: an unknown kind of file, no such folder, or a format whose package is not installed.
    """
    target = _resolved(path)
    _format_of(target)
    if not target.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {target.parent}")
    if target.is_dir():
        raise UsageError(f"{path} is a folder")
    return target


def _resolved(path: str | os.PathLike[str]) -> Path:
    """What a symbolic link points to is replaced, not the link."""
    try:
        target = Path(os.path.realpath(path))
        target.exists()  # raises where no file can have that name
    except (OSError, TypeError, ValueError) as error:
        raise UsageError(f"{path!r} is no name of a file: {error}") from None
    return target


def save(target: Path, snapshot: Snapshot) -> None:
    """Write a snapshot; interrupted in the middle, what was at ``target`` stands.

    Raises:
        SSPError: it could not be written.
    """
    write, _ = _format_of(target)
    try:
        with replacing(target) as file:
            write(file, snapshot)
    except OSError as error:
        raise SSPError(f"{target} could not be written: {error.strerror or error}") from error


def load(path: str | os.PathLike[str]) -> Snapshot:
    """Read a snapshot.

    Raises:
        UsageError: there is none, or it is damaged or something else; names the file and why.
    """
    _, read = _format_of(_resolved(path))
    try:
        with open(path, "rb") as file:
            text, arrays = read(file)
        return of_json(text, arrays)
    except UsageError as error:
        raise UsageError(f"{path} cannot be restored: {error}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None


# -- npz ---------------------------------------------------------------------------------------------------------------


def _write_npz(file: BinaryIO, snapshot: Snapshot) -> None:
    # numpy.savez takes names as keywords, and some of them are its own
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in {META: np.array(snapshot.to_json()), **snapshot.arrays}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def _read_npz(file: BinaryIO) -> tuple[str, Arrays]:
    arrays: Arrays = {}
    try:
        with zipfile.ZipFile(file) as archive:
            for member in archive.namelist():
                # numpy.load would take a table "w.npy" for a table "w"
                name = member.removesuffix(".npy")
                if name == member or name in arrays:
                    raise UsageError(f"it holds {member!r}, which is no table")
                with archive.open(member) as content:
                    arrays[name] = _read_array(name, content)
    except UsageError:
        raise
    except Exception as error:  # what foreign bytes make of zipfile and numpy has many names
        raise UsageError(f"it is no .npz, or is damaged ({error})") from None
    if META not in arrays:
        raise UsageError(f"it is an .npz but no snapshot: no {META} in it (Job.load takes plain arrays)")
    text = arrays.pop(META)
    if text.dtype.kind != "U" or text.shape:
        raise UsageError(f"its {META} is no text")
    return str(text), arrays


def _read_array(name: str, content: Any) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.lib.format.read_array(content, allow_pickle=False)
    except ValueError as error:
        if "pickle" in str(error).lower():
            raise UsageError(f"{name} holds pickled objects, which are never loaded") from None
        raise
    if content.read():  # at the end the checksum is compared, too
        raise ValueError(f"{name} is longer than its shape")
    return array


# -- safetensors -------------------------------------------------------------------------------------------------------


def _safetensors() -> ModuleType:
    try:
        import safetensors.numpy
    except ImportError:
        raise UsageError(
            "a .safetensors file needs the package safetensors: pip install 'ssp-redis[safetensors]'"
        ) from None
    return safetensors


def _write_safetensors(file: BinaryIO, snapshot: Snapshot) -> None:
    text, arrays = snapshot.to_json(), snapshot.arrays
    file.write(_safetensors().numpy.save(arrays, {META: text, CHECKSUM: _checksum(text, arrays)}))


def _checksum(text: str, arrays: Arrays) -> str:
    """CRC-32 over all that counts, which this format, unlike a zip archive, has none of."""
    found = zlib.crc32(text.encode())
    for name, array in sorted(arrays.items()):
        found = zlib.crc32(f"{name}:{array.dtype}:{array.shape}".encode(), found)
        found = zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, found)
    return f"{found:08x}"


def _read_safetensors(file: BinaryIO) -> tuple[str, Arrays]:
    package = _safetensors()
    try:
        with package.safe_open(file.name, framework="numpy") as content:
            metadata = content.metadata() or {}
            arrays = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118 - it is no mapping
    except Exception as error:  # its own error, and others where a dtype is unknown to numpy
        raise UsageError(f"it is no .safetensors, or is damaged ({error})") from None
    text = metadata.get(META)
    if text is None:
        raise UsageError(f"it is a .safetensors but no snapshot: no {META} in it (Job.load takes plain arrays)")
    if metadata.get(CHECKSUM) != _checksum(text, arrays):
        raise UsageError("it is damaged: its checksum is another")
    return text, arrays


_Write = Callable[[BinaryIO, Snapshot], None]
_Read = Callable[[BinaryIO], tuple[str, Arrays]]
_FORMATS: dict[str, tuple[_Write, _Read]] = {
    ".npz": (_write_npz, _read_npz),
    ".safetensors": (_write_safetensors, _read_safetensors),
}


def _format_of(path: Path) -> tuple[_Write, _Read]:
    if path.suffix not in _FORMATS:
        raise UsageError(f"{path}: a snapshot is a .npz or .safetensors file")
    if path.suffix == ".safetensors":
        _safetensors()
    return _FORMATS[path.suffix]
