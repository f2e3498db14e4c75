"""The folder of a run: the model, the record, the page, and checkpoints of unfinished training."""

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

from gpflow_sparse.persistence import files
from gpflow_sparse.persistence.schema import read_json
from gpflow_sparse.tables.cli.rows import Source
from gpflow_sparse.tables.reading.cells import ReadingOptions

MODEL, RECORD, PAGE, CHECKPOINTS = "model.safetensors", "run.json", "report.html", "checkpoints"
_WRITER = "gpflow-sparse fit"
_SCHEMA = {
    "written_by": str,
    "finished": bool,
    "source": dict,
    "method": str,
    "options": dict,
    "checksum": str,
}
_REMEDY = "restore the file, or train again into another folder"


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """
    The folder of a run.

    :param path: of the folder.
    """

    path: Path

    @property
    def model(self) -> Path:
        """The file of the trained estimator."""
        return self.path / MODEL

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints of a training that has not ended."""
        return self.path / CHECKPOINTS

    def begin(self, run: dict[str, Any], *, resume: bool) -> None:
        """
        Write the record of a run that begins.

        :param run: its source, method and options.
        :param resume: whether to continue from checkpoints in the folder; else they are an error.
        :raises ValueError: for a folder with files of others or another run, or nothing to resume.
        :raises NotADirectoryError: if the path is a file.
        """
        known = self._known()
        if known is not None and {name: known[name] for name in run} != run:
            data = Path(known["source"]["data"]).name
            raise ValueError(
                f"{self.path} holds another run, {known['method']} on {data}: "
                "take the same options, or choose another --output."
            )
        if resume and (known is None or known["finished"]):
            raise ValueError(f"there is no unfinished run in {self.path} to resume.")
        if not resume and self.checkpoints.is_dir():
            raise ValueError(
                f"an unfinished run is in {self.path}: add --resume to continue it, choose another "
                f"--output, or delete {self.checkpoints}."
            )
        self.write(run, finished=False)

    def _known(self) -> dict[str, Any] | None:
        """The record in the folder; None for a new or empty one, or one of a run that failed."""
        if (self.path / RECORD).is_file():
            known = self.read()
            has_results = self.model.is_file() or self.checkpoints.is_dir()
            return known if known["finished"] or has_results else None
        if os.path.lexists(self.path) and any(self.path.iterdir()):
            raise ValueError(
                f"{self.path} holds files of others and no run: choose another --output."
            )
        return None

    def write(self, record: dict[str, Any], *, finished: bool) -> None:
        """Write the record, in place of an earlier one."""
        text = json.dumps({"written_by": _WRITER, "finished": finished, **record}, indent=1)
        files.write_text(self.path / RECORD, text + "\n")
        if finished:
            shutil.rmtree(self.checkpoints, ignore_errors=True)

    def read(self) -> dict[str, Any]:
        """
        The record of the run.

        :raises FileNotFoundError: if there is none.
        :raises ValueError: naming the field, if it is damaged or of another program.
        """
        path = self.path / RECORD
        if not path.is_file():
            raise FileNotFoundError(f"{self.path} holds no run: {RECORD} is missing.")
        record: dict[str, Any] = read_json(path, _SCHEMA, _REMEDY)
        return record

    def source(self) -> Source:
        """
        Where the rows of the run came from.

        :raises ValueError: if the record is damaged.
        """
        try:
            found = self.read()["source"]
            plain: dict[str, Any] = {"reading": ReadingOptions(**found["reading"])}
            plain |= {"exclude": tuple(found["exclude"])}  # a list in JSON
            return Source(**found | plain)
        except (TypeError, KeyError) as error:
            raise ValueError(f"{self.path / RECORD} is damaged: {error}; {_REMEDY}.") from error


def require_table(output: Path, *sources: Path) -> None:
    """
    Refuse a file of predictions that would replace what it is made from.

    :raises ValueError: if it is one of these files, or in a folder of a run the model or record.
    :raises IsADirectoryError: if it is a folder.
    """
    if output.is_dir():
        raise IsADirectoryError(f"output must be a file, got the folder {output}")
    own = [folder / name for folder in (output.parent,) for name in (MODEL, RECORD, PAGE)]
    known = [*sources, *(own if (output.parent / RECORD).is_file() else [])]
    if any(path.exists() and output.exists() and output.samefile(path) for path in known):
        raise ValueError(f"output must be another file than {output}, which is read or a run's.")
