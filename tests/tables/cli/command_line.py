"""Commands in an empty folder, tables and models for them, and one finished run for all tests."""

import json
import shutil

import numpy as np
import pytest
from click.testing import CliRunner

from gpflow_sparse.tables.cli.main import main
from gpflow_sparse.tables.methods.registry import takers

SMALL = [
    *("--method", "solvegp", "--num-inducing", "12", "--num-orthogonal", "8"),
    *("--num-steps", "15", "--num-subset", "60"),
]
FIT = ["fit", "--data", "my.csv", "--target", "price", *SMALL]
ALONE = ["--no-plot"]


def read_by(method, options):
    """Those of some options, with their values, that a method reads; without ``--method``."""
    kept, is_read = [], False
    for word in options:
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            is_read = method in takers(name) and name != "method"
        kept += [word] if is_read else []
    return kept


@pytest.fixture
def run(tmp_path):
    """
    Call the command line in an empty folder, with ``--json`` where a command has it; returns exit
    code, standard output and error.
    """

    def call(*arguments):
        if arguments[:1] in (("fit",), ("evaluate",)):
            arguments = (*arguments, "--json")
        result = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
        return result.exit_code, result.stdout, result.stderr

    with pytest.MonkeyPatch.context() as patch:  # no `monkeypatch`, which forgets traces
        patch.chdir(tmp_path)
        yield call


def write_csv(path, rows, header="width,height,price"):
    path.write_text("\n".join([header, *rows]) + "\n")


def numbers(rng, count=80):
    X = rng.normal(size=(count, 2))
    y = 300.0 + 50.0 * np.sin(X[:, 0]) + 5.0 * rng.normal(size=count)
    return [f"{a:.6f},{b:.6f},{c:.4f}" for (a, b), c in zip(X, y, strict=True)]


def last_json(text):
    return json.loads(text.strip().splitlines()[-1])


def write_images(path, rng, count=60):
    """Images of 6 x 6 pixels, of three classes: which third of the rows is bright."""
    labels = rng.integers(3, size=count)
    images = rng.normal(size=(count, 6, 6))
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 2] += 3.0
    np.savez(path, x=images.reshape(count, -1), y=labels[:, None])
    return labels


def read_csv(text):
    header, *rows = text.strip().splitlines()
    values = np.array([[float(v) for v in row.split(",")] for row in rows])
    return dict(zip(header.split(","), values.T, strict=True))


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A folder with a table and a run on it, its page included; not to be changed."""
    folder = tmp_path_factory.mktemp("finished")
    write_csv(folder / "my.csv", numbers(np.random.default_rng(20)))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = CliRunner().invoke(main, [*FIT, "--output", "run"], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return folder


@pytest.fixture
def here(finished, tmp_path):
    """A copy of ``finished`` in the working folder of ``run``, with its own table."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    record = tmp_path / "run" / "run.json"
    record.write_text(record.read_text().replace(str(finished), str(tmp_path)))
    return tmp_path
