"""Which files a command wrote: only these are replaced or removed. No TensorFlow."""

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gpflow_sparse.persistence import files
from gpflow_sparse.runs.config import (
    CHECKPOINTS,
    CONFIG,
    MODEL,
    PICTURES,
    RECORD,
    read_record,
)

# Who wrote a file: in the header of a model, in the text block of a PNG, in the head of a page.
FIT = "gpflow-sparse fit"
REPORT = "gpflow-sparse evaluate --report"
_START = 4096  # bytes of a file in which its writer is named


def require_own(folder: Path, names: Iterable[str], writer: str) -> None:
    """
    Refuse to replace what another program or a person wrote.

    :param names: of files that ``writer`` is about to write.
    :raises ValueError: naming the first file that is there and is not by ``writer``.
    """
    for name in names:
        if os.path.lexists(folder / name) and not is_by(folder / name, writer):
            raise foreign(folder / name, writer)


def foreign(path: Path, writer: str) -> ValueError:
    """The refusal of a file that ``writer`` did not write."""
    return ValueError(
        f"{path} was not written by {writer}, which would replace or remove it: move it away, or "
        "choose another folder."
    )


def is_by(path: Path, writer: str) -> bool:
    """Whether a file says that ``writer`` wrote it."""
    if not path.is_file():
        return False
    if path.name == MODEL:
        return files.read_kind(path) == writer
    with open(path, "rb") as file:
        return writer.encode() in file.read(_START)


def is_unfinished(folder: Path) -> bool:
    """
    Whether a run was begun in a folder and not completed.

    :raises ValueError: naming a file in the place of checkpoints, if there was no such run.
    """
    checkpoints = folder / CHECKPOINTS
    if is_by(checkpoints / CONFIG, FIT):
        return True
    left = set(checkpoints.glob(files.TEMPORARY))  # of a run killed before it had begun
    for path in sorted(checkpoints.rglob("*")):
        if not path.is_dir() and path not in left:
            raise foreign(path, FIT)
    return False


def recorded(folder: Path) -> dict[str, Any] | None:
    """
    The configuration in the record of a run, None if there is no record.

    :raises ValueError: if there is something else in its place.
    """
    if not os.path.lexists(folder / RECORD):
        return None
    try:
        return dict(read_record(folder)[1]["config"])
    except (FileNotFoundError, ValueError) as error:
        raise ValueError(f"{foreign(folder / RECORD, FIT)} ({error})") from error


def require_table(output: Path, model: Path, data: Path) -> None:
    """
    Refuse a file of predictions that cannot be written, or that would replace what it is made from.

    :param model: the run folder or the model file that predicts.
    :param data: the file of inputs.
    :raises ValueError: if ``output`` is, by whatever name or link, one of these, or a file of this
        or another run.
    :raises OSError: if it is a folder, or cannot be in one.
    """
    if output.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(output))
    require_folder(output.parent)
    if not output.exists():
        return
    inputs = {"data": data, "the model": model / MODEL if model.is_dir() else model}
    for what, path in inputs.items():
        if path.exists() and output.samefile(path):
            raise ValueError(f"output must be another file than {what}, got {output}.")
    for folder in (model, model.parent, *Path(os.path.realpath(output)).parents):
        if any(output.samefile(path) for path in _files_of_run(folder)):
            raise ValueError(f"output must be another file than those of a run, got {output}.")


def require_folder(folder: Path) -> None:
    """:raises NotADirectoryError: if it is a file, or would have to be made in one."""
    # realpath, since Path.resolve raises RuntimeError for a circle of links before Python 3.13
    existing = next(
        path for path in (folder, *Path(os.path.realpath(folder)).parents) if path.exists()
    )
    if not existing.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(existing))


def _files_of_run(folder: Path) -> Iterator[Path]:
    """Files that ``fit`` wrote into a folder; none if the folder is not one of a run."""
    if not any((folder / name).is_file() for name in (RECORD, f"{CHECKPOINTS}/{CONFIG}")):
        return
    paths = (*(folder / n for n in (RECORD, MODEL, *PICTURES)), *folder.glob(f"{CHECKPOINTS}/**/*"))
    yield from (path for path in paths if path.is_file())
