"""Folders of runs: whose files are replaced, and what a record must hold."""

import dataclasses
import json

import pytest

from gpflow_sparse.tables.cli.folders import RunFolder
from gpflow_sparse.tables.cli.rows import Source

RUN = {
    "source": json.loads(json.dumps(dataclasses.asdict(Source("my.csv")))),
    "method": "solvegp",
    "options": {"num_steps": 5},
    "minutes": None,
    "checksum": "0a",
}


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run")


def test_a_run_is_replaced_by_the_same_run_only(folder):
    folder.begin({**RUN, "options": {}}, resume=False)  # which failed before it had a model
    folder.begin(RUN, resume=False)
    folder.model.touch()
    folder.write(RUN, finished=True)
    folder.begin(RUN, resume=False)
    assert folder.read()["finished"] is False
    assert folder.source() == Source("my.csv")
    with pytest.raises(ValueError, match=r"holds another run, solvegp on my\.csv"):
        folder.begin({**RUN, "options": {}}, resume=False)


def test_files_of_others_are_refused_and_stay(folder):
    folder.path.mkdir()
    (folder.path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds files of others and no run"):
        folder.begin(RUN, resume=False)
    assert [path.name for path in folder.path.iterdir()] == ["notes.txt"]


def test_checkpoints_are_resumed_or_refused_and_removed_at_the_end(folder):
    with pytest.raises(ValueError, match=r"no unfinished run in .* to resume"):
        folder.begin(RUN, resume=True)
    folder.begin(RUN, resume=False)
    folder.checkpoints.mkdir()
    with pytest.raises(ValueError, match="add --resume to continue it"):
        folder.begin(RUN, resume=False)
    folder.begin(RUN, resume=True)
    folder.write(RUN, finished=True)
    assert not folder.checkpoints.exists()
    with pytest.raises(ValueError, match=r"no unfinished run in .* to resume"):
        folder.begin(RUN, resume=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": {"path": "x"}}, "is damaged"),
        ({"finished": "yes"}, "finished"),
        ({"checksum": 3}, "checksum"),
        (None, "is damaged"),
    ],
)
def test_a_damaged_record_is_named(folder, change, message):
    folder.begin(RUN, resume=False)
    path = folder.path / "run.json"
    record = json.loads(path.read_text())
    path.write_text("{" if change is None else json.dumps(record | change))
    with pytest.raises(ValueError, match=message):
        folder.source()


def test_a_folder_without_a_run_is_named(folder):
    with pytest.raises(FileNotFoundError, match=r"holds no run: run\.json is missing"):
        folder.read()
