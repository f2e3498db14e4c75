"""Soak runs: slopes of memory and step times, of every method."""

import json

import numpy as np
from click.testing import CliRunner

from bench import commands, soak
from gpflow_sparse.tables.methods.registry import RECIPES

OF_TABLES = [method for method, kind in RECIPES.items() if not kind.takes_images]


def test_slopes_are_those_of_the_later_half():
    seconds = np.arange(8.0)
    values = np.where(seconds < 4.0, 100.0, 5.0 * seconds)
    np.testing.assert_allclose(soak._slope(seconds, values), 3600.0 * 5.0)
    assert np.isnan(soak._slope(seconds[:3], values[:3]))


def test_every_method_is_in_the_table(monkeypatch):
    monkeypatch.setattr(soak, "run_alone", lambda _, *given: {"title": given[0]})
    result = CliRunner().invoke(commands.bench, ["soak", "--minutes", "1", "--num-rows", "50"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout.splitlines()[-1])["rows"]
    assert [row["title"] for row in rows] == OF_TABLES
