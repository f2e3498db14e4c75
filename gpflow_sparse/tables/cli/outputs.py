"""Output files of commands, which replace and remove only their own; without TensorFlow."""

import contextlib
import errno
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gpflow_sparse.persistence import files, locks
from gpflow_sparse.tables.cli.config import (
    CHECKPOINTS,
    CHOICE,
    CONFIG,
    MODEL,
    PAGE,
    RECORD,
    RunConfig,
    read_record,
    read_with_config,
)

# Name of the writer, stored in the header of a model and in configurations.
FIT = "gpflow-sparse fit"
_START = 4096  # bytes at the start of a file in which its writer is named
_LOCK = ".gpflow-sparse.lock"


def require_own(folder: Path, names: Iterable[str], writer: str) -> None:
    """
    Refuse to replace files of another program or a person.

    :param names: names of the files that ``writer`` will write.
    :raises ValueError: naming the first existing file that ``writer`` did not write.
    """
    for name in names:
        if os.path.lexists(folder / name) and not was_written_by(folder / name, writer):
            raise foreign(folder / name, writer)


def foreign(path: Path, writer: str) -> ValueError:
    """The error about a file that ``writer`` did not write."""
    return ValueError(
        f"{path} was not written by {writer}, which would replace or remove it: move it away, or "
        "choose another folder."
    )


def was_written_by(path: Path, writer: str) -> bool:
    """Whether a file names ``writer`` as the program that wrote it."""
    if not path.is_file():
        return False
    if path.name == MODEL:
        return files.read_kind(path) == writer
    with open(path, "rb") as file:
        return writer.encode() in file.read(_START)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """
    Keep other runs, whatever their methods, out of a folder until this one has ended.

    A run that is killed leaves an empty file, which the next run locks again. A file system without
    locks is warned of.

    :raises ValueError: if another run is writing into the folder.
    :raises OSError: if the folder cannot be written to.
    """
    require_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _LOCK
    while True:
        with open(path, "a") as file:
            if not locks.take(file, str(folder), stacklevel=3):
                raise ValueError(
                    f"another run is writing into {folder}: wait until it has ended, or choose "
                    "another --output."
                )
            if not _is_at(path, file.fileno()):
                continue  # removed by the run that had it
            try:
                yield
            finally:
                with contextlib.suppress(OSError):  # Windows keeps files that are open
                    path.unlink()
            return


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether a path still leads to an open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def prepare_folder(folder: Path, config: RunConfig, *, resume: bool) -> None:
    """
    Make sure that a run replaces and removes only files of a run, does not replace an
    unfinished run, and does not continue a different one; then write its configuration.

    :raises ValueError: naming the file that no run wrote, or the option to add or change.
    """
    note = folder / CHECKPOINTS / CONFIG
    mine = config.to_record()
    unfinished, finished = _unfinished(folder), _finished(folder)
    require_own(folder, (MODEL,), FIT)
    if unfinished is not None:  # a baseline may be dropped or added when a run is resumed
        unfinished["baseline"] = config.baseline
    if unfinished is not None and _has_results(folder):
        if not resume:
            raise ValueError(
                f"an unfinished run is in {folder}: add --resume to continue it, choose another "
                f"--output, or delete {folder / CHECKPOINTS}."
            )
        _require_same(unfinished, mine, f"the unfinished run in {folder}")
    elif finished is not None:
        if unfinished is not None:
            finished["baseline"] = config.baseline
        elif resume:
            raise ValueError(f"the run in {folder} is complete: nothing to resume.")
        _require_same(finished, mine, f"the finished run in {folder}")
    files.write_text(note, json.dumps({"written_by": FIT, "config": mine}))


def _has_results(folder: Path) -> bool:
    """Whether an unfinished run has kept a choice of a method, checkpoints, or a first model."""
    checkpoints = folder / CHECKPOINTS
    only_model = (folder / MODEL).is_file() and not os.path.lexists(folder / RECORD)
    chosen = only_model or (checkpoints / CHOICE).is_file()
    return chosen or any(checkpoints.glob("*/checkpoint-*"))


def _unfinished(folder: Path) -> dict[str, Any] | None:
    """The configuration of a run that was begun in a folder and not completed, or None."""
    checkpoints = folder / CHECKPOINTS
    if was_written_by(checkpoints / CONFIG, FIT):
        schema, remedy = {"written_by": str}, "choose another --output"
        return read_with_config(checkpoints / CONFIG, schema, remedy)[0].to_record()
    left = set(checkpoints.glob(files.TEMPORARY))  # left by a run killed before its first step
    for path in sorted(checkpoints.rglob("*")):
        if not path.is_dir() and path not in left:
            raise foreign(path, FIT)
    return None


def _finished(folder: Path) -> dict[str, Any] | None:
    """The configuration in the record of a run, or None if there is no record."""
    if not os.path.lexists(folder / RECORD):
        return None
    try:
        config, record = read_record(folder)
        return config.to_record() | {"data": record["config"].get("data", config.data)}
    except (FileNotFoundError, ValueError) as error:
        raise ValueError(f"{foreign(folder / RECORD, FIT)} ({error})") from error


def _require_same(theirs: dict[str, Any], mine: dict[str, Any], what: str) -> None:
    for name in mine:
        if theirs.get(name) != mine[name]:
            raise ValueError(
                f"{what} has {name}={theirs.get(name)!r}, this one {mine[name]!r}: take the same "
                "options, or choose another --output."
            )


def left_in(folder: Path) -> tuple[str, bool]:
    """Files that a stopped run has left, in words, and whether all but its report is there."""
    if (folder / RECORD).is_file():
        if not (folder / CHECKPOINTS / CONFIG).is_file():
            return f"stopped; the run in {folder} is complete, but for its report", True
        return f"stopped; the model and its scores are kept in {folder}", False
    if (folder / MODEL).is_file():
        return f"stopped; the trained model is kept in {folder}, without scores", False
    if any((folder / CHECKPOINTS).glob("*/checkpoint-*")):
        return f"stopped; the training steps so far are kept in {folder}", False
    return "stopped before anything was kept", False


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Write the record of a run, in place of an earlier one."""
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
            raise ValueError(f"output must be another file than the files of a run, got {output}.")


def require_folder(folder: Path) -> None:
    """:raises NotADirectoryError: if ``folder`` or a parent of it is a file."""
    # realpath, since Path.resolve raises RuntimeError for circular links before Python 3.13
    existing = next(
        path for path in (folder, *Path(os.path.realpath(folder)).parents) if path.exists()
    )
    if not existing.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(existing))


def _files_of_run(folder: Path) -> Iterator[Path]:
    """Files that ``fit`` wrote into a folder; empty for other folders."""
    if not any((folder / name).is_file() for name in (RECORD, f"{CHECKPOINTS}/{CONFIG}")):
        return
    names = (RECORD, MODEL, PAGE)
    paths = (*(folder / name for name in names), *folder.glob(f"{CHECKPOINTS}/**/*"))
    yield from (path for path in paths if path.is_file())
