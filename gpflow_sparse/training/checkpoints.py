"""Checkpoints of a run on disk: each is one file, written aside and renamed into place."""

import contextlib
import json
import re
import reprlib
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from gpflow_sparse.persistence import files
from gpflow_sparse.persistence.schema import Between, parse_json
from gpflow_sparse.training.state import Progress, Snapshot

_NAME = re.compile(r"checkpoint-\d{9,}\.safetensors")
# Number of checkpoints kept: the second newest, in case the newest is damaged.
_KEPT = 2

# Types of the fields of the JSON record "run" in a checkpoint's header.
_SCHEMA = {
    "step": int,
    "hooks": list,
    "scale": Between(sys.float_info.min, 1.0),
    "jitter": Between(sys.float_info.min, files.MAX_JITTER, or_null=True),
    "recoveries": list[str],
    "stopped": bool,
    "settings": dict,
}


class CheckpointFolder:
    """The checkpoints of one run."""

    def __init__(
        self, directory: Any, settings: dict[str, Any], *, resume: bool, write: bool = True
    ) -> None:
        """
        :param settings: settings that must be equal for a run to be resumed.
        :param write: false for a worker that only reads what the chief has written.
        :raises ValueError: if the path is not a writable folder, or if it holds checkpoints and
            ``resume`` is false.
        """
        try:
            self.path = files.as_path(Path(directory), "checkpoint_dir")
            self.path.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self.path).close()  # raises before the first step
        except (TypeError, OSError) as error:
            raise ValueError(
                f"checkpoint_dir must be a folder to write to, got {directory!r}: {error}."
            ) from error
        self._settings, self._writes = settings, write
        present = _newest_first(self.path)
        if present and not resume:
            raise ValueError(
                f"checkpoint_dir {self.path} holds a run (its newest is {present[0].name}): "
                "pass resume=True to continue it, or choose another folder."
            )
        # left by a run that was killed
        for piece in self.path.glob(files.TEMPORARY) if write else ():
            piece.unlink(missing_ok=True)

    def save(self, snapshot: Snapshot, progress: Progress) -> None:
        """
        Write a checkpoint, then delete the oldest.

        A full disk does not end a run: a warning is given, and the previous checkpoint is kept.

        :raises ValueError: if the state of a callback is not made of plain values.
        """
        if not self._writes:
            return
        step = snapshot.step
        arrays = snapshot.variables | {
            "elbo": np.array(progress.elbo[:step], dtype=np.float64),
            "seconds": np.array(progress.seconds[:step], dtype=np.float64),
        }
        record = {
            "step": step,
            "hooks": snapshot.hooks,
            "scale": progress.scale,
            "jitter": progress.jitter,
            "recoveries": progress.recoveries,
            "stopped": progress.stopped and progress.step == step,
            "settings": self._settings,
        }
        header = {"kind": files.CHECKPOINT, "run": _as_text(record)}
        try:
            files.write(self.path / f"checkpoint-{step:09d}.safetensors", arrays, header)
        except OSError as error:
            warnings.warn(
                f"no checkpoint of step {step}, training continues: {error}.", stacklevel=4
            )
            return
        for old in _newest_first(self.path)[_KEPT:]:
            old.unlink(missing_ok=True)

    def newest(self) -> tuple[Snapshot, Progress] | None:
        """
        The newest checkpoint that can be read, or None if there is none.

        :raises ValueError: if it belongs to a run with other settings, or all are damaged.
        """
        present = _newest_first(self.path)
        for path in present:
            try:
                header, arrays = files.read(path)
                if header.get("kind") != files.CHECKPOINT:
                    raise ValueError(f"{path} is not a checkpoint.")
                record = parse_json(header.get("run", ""), _SCHEMA, str(path), "delete it")
                found = _unpack(record, arrays, path)
            except ValueError as error:
                warnings.warn(f"{error} Looking for the previous one.", stacklevel=4)
                continue
            _require_same(record["settings"], self._settings, path)
            return found
        if present:
            raise ValueError(f"no checkpoint in {self.path} can be read; start in another folder.")
        return None


def remove_checkpoints(directory: Path) -> None:
    """
    Remove the files of a :class:`CheckpointFolder`, and the folder if nothing else is in it.

    :param directory: need not exist.
    """
    for path in (*_newest_first(directory), *directory.glob(files.TEMPORARY)):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # the folder does not exist, or is not empty
        directory.rmdir()


def _newest_first(directory: Path) -> list[Path]:
    found = [path for path in directory.glob("checkpoint-*") if _NAME.fullmatch(path.name)]
    return sorted(found, reverse=True)


def _as_text(record: dict[str, Any]) -> str:
    try:
        text = json.dumps(record)
        same = json.loads(text)["hooks"] == record["hooks"]
    except (TypeError, ValueError):
        same = False
    if not same:
        raise ValueError(
            "the get_state of a callback must return dicts with text keys, lists, text, and plain "
            f"numbers, for checkpoints; got {record['hooks']}."
        )
    return text


def _require_same(
    stored: dict[str, Any], mine: dict[str, Any], path: Path, prefix: str = ""
) -> None:
    for name in stored | mine:
        old, new = stored.get(name), mine.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            _require_same(old, new, path, f"{name}.")
        elif old != new:
            raise ValueError(
                f"{path} is of a run with {prefix}{name}={_brief(old)}, this one has "
                f"{prefix}{name}={_brief(new)}: resume with the same settings, or choose "
                "another folder."
            )


def _brief(value: Any) -> str:
    """A setting as text for an error message: escaped and shortened."""
    return repr(value)[1:-1][:100] if isinstance(value, str) else reprlib.repr(value)


def _unpack(
    record: dict[str, Any], arrays: dict[str, np.ndarray], path: Path
) -> tuple[Snapshot, Progress]:
    for name in ("elbo", "seconds"):
        shape = arrays[name].shape if name in arrays else None
        if shape != (record["step"],):
            raise ValueError(
                f"{path} is damaged: {name} must have {record['step']} entries, got {shape}."
            )
    elbo, seconds = arrays.pop("elbo").tolist(), arrays.pop("seconds").tolist()
    names = ("step", "scale", "jitter", "recoveries", "stopped")
    progress = Progress(elbo=elbo, seconds=seconds, **{name: record[name] for name in names})
    return Snapshot(record["step"], arrays, record["hooks"]), progress
