"""The files that commands write, which replace and remove only their own; no TensorFlow here."""

import dataclasses
import errno
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gpflow_sparse.persistence import files
from gpflow_sparse.persistence.schema import read_json
from gpflow_sparse.runs.config import (
    CHECKPOINTS,
    CONFIG,
    MODEL,
    PICTURES,
    RECORD,
    RunConfig,
    read_record,
)

# Names of writers: in the header of a model, in the text block of a PNG, in the head of a page.
FIT = "gpflow-sparse fit"
REPORT = "gpflow-sparse evaluate --report"
_START = 4096  # bytes at the start of a file that name its writer


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


def prepare_folder(folder: Path, config: RunConfig, *, resume: bool, plot: bool = True) -> None:
    """
    Make sure that a run replaces and removes only files of a run, does not start on top of an
    unfinished one, and does not go on with another; then note its configuration.

    :param plot: whether pictures will be drawn.
    :raises ValueError: naming the file that no run wrote, or saying which option to add or change.
    """
    note = folder / CHECKPOINTS / CONFIG
    mine = dataclasses.asdict(config)
    unfinished, finished = _unfinished(folder), _finished(folder)
    require_own(folder, (MODEL, *(config.pictures if plot else ())), FIT)
    if unfinished is not None:  # a baseline may be left out, or added, on the way
        unfinished["baseline"] = config.baseline
    if any(note.parent.glob("*/checkpoint-*")):
        if not resume:
            raise ValueError(
                f"an unfinished run is in {folder}: add --resume to go on with it, choose another "
                f"--output, or delete {folder / CHECKPOINTS}."
            )
        _require_same(unfinished or {}, mine, f"the unfinished run in {folder}")
    elif finished is not None:
        if unfinished is not None:
            finished["baseline"] = config.baseline
        elif resume:
            raise ValueError(f"the run in {folder} is complete: nothing to resume.")
        _require_same(finished, mine, f"the finished run in {folder}")
    files.write_text(note, json.dumps({"written_by": FIT, "config": mine}))


def _unfinished(folder: Path) -> dict[str, Any] | None:
    """The configuration of a run that was begun in a folder and not completed, or None."""
    checkpoints = folder / CHECKPOINTS
    if is_by(checkpoints / CONFIG, FIT):
        schema = {"written_by": str, "config": RunConfig}
        return dict(read_json(checkpoints / CONFIG, schema, "choose another --output")["config"])
    left = set(checkpoints.glob(files.TEMPORARY))  # of a run killed before it had begun
    for path in sorted(checkpoints.rglob("*")):
        if not path.is_dir() and path not in left:
            raise foreign(path, FIT)
    return None


def _finished(folder: Path) -> dict[str, Any] | None:
    """The configuration in the record of a run, or None if there is no record."""
    if not os.path.lexists(folder / RECORD):
        return None
    try:
        return dict(read_record(folder)[1]["config"])
    except (FileNotFoundError, ValueError) as error:
        raise ValueError(f"{foreign(folder / RECORD, FIT)} ({error})") from error


def _require_same(theirs: dict[str, Any], mine: dict[str, Any], what: str) -> None:
    for name in mine:
        if theirs.get(name) != mine[name]:
            raise ValueError(
                f"{what} has {name}={theirs.get(name)!r}, this one {mine[name]!r}: take the same "
                "options, or choose another --output."
            )


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Replace the record of a run by another."""
    files.write_text(folder / RECORD, json.dumps(record) + "\n")


def require_table(output: Path, model: Path, data: Path) -> None:
    """
    Refuse a file of predictions that cannot be written, or that would replace its own sources.

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
