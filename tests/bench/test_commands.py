"""The command line of the benchmarks."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import gpflow_sparse as gs
from bench import speed_page, step_variants
from bench.commands import bench
from bench.papers import data_splits
from tests.tables.cli.command_line import last_json

RUN = Path(__file__).parents[2] / "docs" / "benchmarks" / "run.py"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Call the benchmarks in an empty folder; returns exit code, standard output and error."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        result = CliRunner().invoke(bench, list(arguments), catch_exceptions=False)
        return result.exit_code, result.stdout, result.stderr

    return call


def test_the_script_lists_its_commands_without_tensorflow():
    code = (
        f"import runpy, sys\nsys.argv = [{str(RUN)!r}, 'paper', '--help']\n"
        f"sys.path.insert(0, {str(RUN.parent)!r})\n"
        f"try:\n    runpy.run_path({str(RUN)!r}, run_name='__main__')\n"
        "except SystemExit as ended:\n    assert not ended.code\n"
        "heavy = {'tensorflow', 'gpflow', 'sklearn', 'matplotlib', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "--minutes" in found.stdout


@pytest.fixture
def small_elevators(monkeypatch):
    """So few rows that only a small model fits."""

    def load(name):
        X = np.random.default_rng(0).normal(size=(500, 2))
        return gs.data.Dataset(name, (X[:90], X[:90, :1]), (X[90:], X[90:, :1]), "ab", "y", None)

    monkeypatch.setattr(data_splits, "load", load)


def test_a_papers_table_is_written_row_by_row(run, tmp_path, small_elevators):
    arguments = ["paper", "solvegp", "--steps", "3", "--datasets", "elevators"]
    code, out, _ = run(*arguments, "--rows", "svgp-256")
    assert code == 0
    assert last_json(out) == {"done": 1, "failed": 0}
    assert "GPflow SVGP 256, whitened" in out
    folder = tmp_path / "benchmarks-solvegp"
    (line,) = (folder / "solvegp.jsonl").read_text().splitlines()
    assert json.loads(line)["num_train"] == 320
    table = (folder / "solvegp.md").read_text()
    assert f"| GPflow SVGP 256, whitened | – | – | – | {json.loads(line)['rmse']:.3f} |" in table
    code, out, _ = run(*arguments, "--rows", "svgp-256", "--output", "other", "--minutes", "1e-9")
    assert code == 0
    assert last_json(out) == {"done": 0, "failed": 0}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--datasets", "kin4k"], ["kin4k", "kin40k, protein"]),
        (["--rows", "svgp-256,gpr"], ["gpr", "svgp-512"]),
        (["--minutes", "0"], ["minutes"]),
        (["--datasets", "elevators"], ["GPFLOW_SPARSE_DATA", "nowhere"]),
    ],
)
def test_a_mistake_about_a_papers_table_is_one_clear_line(run, monkeypatch, arguments, words):
    monkeypatch.setenv("GPFLOW_SPARSE_DATA", "nowhere")
    code, _, err = run("paper", "solvegp", *arguments)
    assert code == 1
    assert all(word in err for word in words)
    assert "Traceback" not in err


def test_a_recorded_measurement_is_on_the_page_once(run, tmp_path, monkeypatch):
    layout = {"title": "Searches", "columns": {"title": "work", "milliseconds": "ms"}}
    monkeypatch.setattr(speed_page, "SECTIONS", [layout | {"commands": ["grief --num-rows 50"]}])
    seconds = iter([1.0, 2.3456])
    monkeypatch.setattr(
        step_variants,
        "grief",
        lambda **_: {"rows": [{"title": "search", "milliseconds": next(seconds)}]},
    )
    for _ in range(2):
        code, _, _ = run("grief", "--num-rows", "50", "--record", "kept")
        assert code == 0
    (record,) = speed_page.read(tmp_path / "kept" / "speed.jsonl")
    assert record["command"] == "grief --num-rows 50"
    page = (tmp_path / "kept" / "speed.md").read_text()
    assert "| work | ms |\n| --- | --- |\n| search | 2.35 |\n" in page
    assert f"`grief --num-rows 50`: {record['threads']} core" in page
