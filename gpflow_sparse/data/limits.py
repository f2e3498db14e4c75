"""Guards against files that would exhaust memory, and texts of files in errors."""

import gzip
import math
import os
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.lib import format as npy

# A compressed file may grow to this many bytes, or by this factor, whichever is more. Tables of
# measurements shrink to a third or a tenth; the deflate method can reach a factor of 1,032.
_SMALL = 2**24
_MAX_GROWTH = 100
_MAX_CHARACTERS = 2**24  # of a line: more than a million columns
_MAX_NAMES = 20
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the methods that NumPy writes
_ENCRYPTED_OR_PATCHED = 0x1 | 0x20 | 0x40


class TooLargeError(ValueError):
    """A file that expands far beyond its size on disk."""


def require_plausible_growth(path: Path, size: int, remedy: str) -> None:
    """
    Refuse a compressed file that is much larger in memory than on disk.

    :param size: bytes when decompressed.
    :param remedy: advice on how to store the data without compression.
    :raises TooLargeError: naming the file and the limit.
    """
    packed = os.path.getsize(path)
    limit = max(_SMALL, _MAX_GROWTH * packed)
    if size > limit:
        raise TooLargeError(
            f"{path}: its {packed} compressed bytes hold {size} or more, and at most {limit} are "
            f"read; if they are sound, {remedy}"
        )


def text_pieces(path: Path) -> Iterator[bytes]:
    """
    The bytes of a text file in pieces, decompressed.

    :raises TooLargeError: for a .gz file that is much larger in memory than on disk.
    """
    is_packed, size = path.name.lower().endswith(".gz"), 0
    with (gzip.open if is_packed else open)(path, "rb") as file:
        while piece := file.read(2**20):
            size += len(piece)
            if is_packed:
                require_plausible_growth(path, size, "decompress it first")
            yield piece


def bounded_line(path: Path, file: TextIO) -> str:
    """The next line of a text file, empty at its end; refused if it is too long for a table."""
    line = file.readline(_MAX_CHARACTERS)
    if len(line) == _MAX_CHARACTERS:
        raise TooLargeError(
            f"{path}: a line has {_MAX_CHARACTERS} characters or more, and is not a table"
        )
    return line


def quoted(text: str) -> str:
    """Text from a file in quotes, shortened, with control characters escaped."""
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def listed(values: Sequence[Any]) -> str:
    """The first 20 values and the number of others, names quoted where they are not plain."""
    texts = [v if str(v).isprintable() and len(str(v)) <= 40 else quoted(v) for v in values]
    shown = ", ".join(map(str, texts[:_MAX_NAMES]))
    return shown if len(texts) <= _MAX_NAMES else f"{shown}, and {len(texts) - _MAX_NAMES} more"


def read_npz(path: Path, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Read the arrays of an .npz file without unpickling anything.

    :param path: the file.
    :param names: the only arrays to read, if they exist; None for all.
    :return: the arrays by name.
    :raises ValueError: if it is not an .npz file, is damaged, holds Python objects, or is larger
        when decompressed than a limit.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(archive, names)
            size = sum(member.file_size for member in members.values())
            require_plausible_growth(path, size, "save them with np.savez")
            return {name: _read_array(archive, info) for name, info in members.items()}
    except TooLargeError:
        raise
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path}: the .npz file is damaged: {error}; copy it again") from error
    except Exception as error:  # zipfile and NumPy raise many kinds for a damaged file
        # the further lines of NumPy advise to allow pickles
        reason = str(error).split("\n")[0] or type(error).__name__
        raise ValueError(f"{path}: not a readable .npz file of numbers: {reason}") from error


def _members(archive: zipfile.ZipFile, names: Sequence[str] | None) -> dict[str, zipfile.ZipInfo]:
    found: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if names is not None and name not in names:
            continue
        if name in found:
            raise ValueError(f"it has two arrays of the name {name!r}")
        if info.flag_bits & _ENCRYPTED_OR_PATCHED:
            raise ValueError(f"its array {name!r} is encrypted or patched")
        if info.compress_type not in _METHODS:
            raise ValueError(
                f"its array {name!r} has compression method {info.compress_type}, expected "
                f"{' or '.join(map(str, _METHODS))}; save it with np.savez_compressed"
            )
        found[name] = info
    return found


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    """One array, whose header is compared with the size of its member before it is read."""
    name = info.filename.removesuffix(".npy")
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    with archive.open(info) as file:
        version = npy.read_magic(file)
        if version not in readers:
            raise ValueError(f"its array {name!r} has format version {version}")
        shape, _, dtype = readers[version](file)
        if dtype.hasobject or not dtype.itemsize or min(shape, default=0) < 0:
            raise ValueError(f"its array {name!r} has shape {shape} of {dtype}, not numbers")
        size, present = math.prod(shape) * dtype.itemsize, info.file_size - file.tell()
        if size != present:
            raise ValueError(f"its array {name!r} needs {size} bytes, and there are {present}")
    with archive.open(info) as file:
        return np.asarray(npy.read_array(file, allow_pickle=False))
