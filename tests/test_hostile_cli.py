"""Hostile files at the doors of the command line; see ``hostile.command_line``."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpflow_sparse.tables.cli.main import main
from tests.hostile.command_line import DOORS, FILES, RECORDS, csv, matrix, records, table

pytestmark = pytest.mark.nightly  # a minute for the models that are trained on hostile tables


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The results for hostile tables, in a folder that keeps the trained model."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("hostile"))
    yield list(matrix())
    os.chdir(before)


def error_of(*arguments):
    """What a refused command prints after "Error: "."""
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit)
    return result.stderr.split("Error: ")[-1]


def test_files_are_refused_in_one_line_or_give_finite_results(found):
    assert len(FILES) > 25
    assert [entry for entry in found if entry[2] not in ("e", "ok")] == []
    assert sum(verdict == "ok" for *_, verdict, _ in found) > 15


def test_damaged_records_are_refused_in_one_line_that_names_file_and_field(found):
    refusals = list(records())
    assert len(refusals) == len(RECORDS)
    assert [entry for entry in refusals if entry[2] != "e"] == []
    wrong = [m for kind, _, _, m in refusals if RECORDS[kind][1] not in m or "\n" in m]
    assert wrong == []
    assert all("run.json" in message for *_, message in refusals)


def test_names_of_columns_reach_no_terminal_as_commands(found):
    hostile = csv(table(), "\x1b[2Ja,\u202eb,z".encode().decode())
    Path("escapes.csv").write_bytes(hostile)
    lacking = error_of(*DOORS["predict"], "--data", "escapes.csv")
    unknown = error_of(*DOORS["fit"][:-1], "escapes", "--data", "escapes.csv")
    for error in (lacking, unknown):
        assert "\\x1b[2Ja" in error
        assert "\\u202eb" in error
        assert "\x1b" not in error
        assert "\u202e" not in error


@pytest.mark.parametrize("output", ["circle", "circle/a", "x" * 300])
def test_results_in_a_circle_of_links_or_under_a_long_name_are_refused_in_one_line(found, output):
    if not os.path.islink("circle"):
        os.symlink("circle", "circle")
    assert "\n" not in error_of(*DOORS["fit"][:-1], output, "--data", "good.csv").strip()
    if output != "circle":
        arguments = [*DOORS["predict"], "--data", "good.csv", "--output", f"{output}.csv"]
        assert "\n" not in error_of(*arguments).strip()
