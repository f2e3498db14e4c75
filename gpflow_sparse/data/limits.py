"""Limits on the memory that reading a file takes, and on the text from it in error messages."""

import gzip
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

# A compressed file may grow to this many bytes, or by this factor, whichever is more. Tables of
# measurements shrink to a third or a tenth; the deflate method can reach a factor of 1,032.
_SMALL = 2**24
_MOST_GROWTH = 100
_MOST_CHARACTERS = 2**24  # of a line: more than a million columns
_MOST_NAMES = 20


class TooLargeError(ValueError):
    """A file that would take far more memory or time than expected from its size."""


def require_plausible_growth(path: Path, size: int, remedy: str) -> None:
    """
    Refuse a compressed file that is much larger in memory than on disk.

    :param size: bytes when decompressed.
    :param remedy: advice on how to store the data without compression.
    :raises TooLargeError: naming the file and the limit.
    """
    packed = os.path.getsize(path)
    limit = max(_SMALL, _MOST_GROWTH * packed)
    if size > limit:
        raise TooLargeError(
            f"{path}: its {packed} compressed bytes hold {size} or more, and at most {limit} are "
            f"read; if they are sound, {remedy}"
        )


def require_plausible_text(path: Path) -> None:
    """
    Refuse a .gz text file that is much larger in memory than on disk, before it is parsed.

    :raises TooLargeError: naming the file and the limit.
    """
    size = 0
    with gzip.open(path, "rb") as file:
        while piece := file.read(2**20):
            size += len(piece)
            require_plausible_growth(path, size, "decompress it first")


def bounded_line(path: Path, file: TextIO) -> str:
    """
    The next line of a text file, empty at its end.

    :raises TooLargeError: for a line too long for a table.
    """
    line = file.readline(_MOST_CHARACTERS)
    if len(line) == _MOST_CHARACTERS:
        raise TooLargeError(
            f"{path}: a line has {_MOST_CHARACTERS} characters or more, which is no table"
        )
    return line


def quoted(text: str) -> str:
    """Text from a file in quotes, shortened, with control characters escaped."""
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def listed(values: Sequence[Any]) -> str:
    """The first 20 values and the number of others, names quoted where they are not plain."""
    texts = [v if str(v).isprintable() and len(str(v)) <= 40 else quoted(v) for v in values]
    shown = ", ".join(map(str, texts[:_MOST_NAMES]))
    return shown if len(texts) <= _MOST_NAMES else f"{shown}, and {len(texts) - _MOST_NAMES} more"
