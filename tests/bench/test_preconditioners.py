"""The benchmark of preconditioners."""

import json

import pytest
from click.testing import CliRunner

from bench import commands, preconditioners


@pytest.mark.nightly
def test_both_preconditioners_save_iterations(monkeypatch):
    monkeypatch.setattr(preconditioners, "_DATASETS", ("robot_arm",))
    result = CliRunner().invoke(
        commands.bench, ["solve", "--num-basis", "200", "--num-rows", "500"]
    )
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout.splitlines()[-1])["rows"]
    assert [row["preconditioner"] for row in rows] == ["none", "Nystrom", "GP-GRIEF"]
    none, *others = (row["iterations"] for row in rows)
    assert max(others) < 0.5 * none
