"""The file of what has been run of a paper's table."""

import json
from collections.abc import Sequence
from pathlib import Path

from gpflow_sparse.bench.papers.spec import PaperRun, Record
from gpflow_sparse.persistence import files
from gpflow_sparse.persistence.schema import parse_json

# Fields that every paper's records have.
_SCHEMA = {"row": str, "dataset": str, "split": int, "status": str}


def read_records(run: PaperRun) -> list[Record]:
    """
    What has been run already; nothing if there is no file.

    :raises ValueError: if the file is damaged, or holds records of another run.
    """
    path = _path(run)
    if not path.is_file():
        return []
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        source, remedy = f"line {number} of {path}", "delete it to run its row again"
        record = parse_json(line, _SCHEMA, source, remedy)
        try:
            mismatch = run.paper.mismatch(run, record)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{source} is damaged ({error!r}): {remedy}.") from error
        if mismatch:
            raise ValueError(f"{path} {mismatch}, or choose another --output.")
        records.append(record)
    return records


def write_records(run: PaperRun, records: Sequence[Record]) -> Path:
    """One JSON object per line; the file is replaced as a whole, or stays as it was."""
    files.write_text(_path(run), "".join(f"{json.dumps(record)}\n" for record in records))
    return _path(run)


def key_of(record: Record) -> tuple[str, str, int]:
    """Of the task whose record it is."""
    return record["row"], record["dataset"], record["split"]


def _path(run: PaperRun) -> Path:
    return run.folder / f"{run.stem}.jsonl"
