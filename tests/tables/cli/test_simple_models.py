"""Scores of simple models beside those of a small table, and of counts with exposures."""

import numpy as np
import pandas as pd
import pytest

import gpflow_sparse as gs
from gpflow_sparse.tables.cli import runs
from tests.tables.cli.command_line import last_json, numbers, write_csv
from tests.tables.cli.command_line import run as run


def test_simple_models_are_scored_on_the_test_rows_of_a_small_table(run, tmp_path):
    rng = np.random.default_rng(0)
    a = rng.random(80)
    frame = pd.DataFrame({"a": a, "y": np.sin(6.0 * a) + 0.1 * rng.normal(size=80)})
    frame.to_csv(tmp_path / "my.csv", index=False)
    options = "--kernel", "matern52", "--num-subset", "0", "--no-plot", "--output", "run"
    code, out, _ = run("fit", "--data", "my.csv", *options)
    assert code == 0
    record = last_json(out)
    found = record["simple_models"]
    assert list(found) == ["constant", "linear", "trees"]
    assert "beside it, on the same test rows" in out
    assert found["trees"]["nlpd"] > record["scores"]["nlpd"]
    # of the rows that are scored: the mean square of f about a constant, and R2 of it
    rmse, r2 = found["constant"]["rmse"], found["constant"]["r2"]
    own = record["scores"]
    np.testing.assert_allclose(rmse**2 / (1.0 - r2), own["rmse"] ** 2 / (1.0 - own["r2"]))


def test_the_scores_of_counts_have_their_exposures(run, tmp_path):
    rng = np.random.default_rng(0)
    E = np.exp(3.0 * rng.random(60))
    frame = pd.DataFrame({"a": rng.random(60), "E": E, "y": rng.poisson(E)})
    frame.to_csv(tmp_path / "my.csv", index=False)
    counts = "--likelihood", "poisson", "--exposure", "E", "--num-steps", "20"
    options = "--data", "my.csv", "--output", "run", "--method", "svgp", "--no-plot"
    assert run("fit", *options, *counts)[0] == 0
    code, out, _ = run("evaluate", "--model", "run", "--data", "my.csv")
    assert code == 0
    model = gs.load(tmp_path / "run" / "model.safetensors")
    error = model.predict(frame[["a", "E"]]) - frame["y"]
    assert last_json(out)["scores"]["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-6)


def test_percentages_and_exposures_do_not_keep_a_page_from_being_written(run, tmp_path):
    """They have no curve: numbers are no percentages, and rates are proportional to exposures."""
    rng = np.random.default_rng(0)
    rate, time = rng.uniform(1.0, 50.0, 100), rng.uniform(0.1, 10.0, 100)
    y = rng.poisson(time * rate / 10.0)
    table = pd.DataFrame({"rate": [f"{value:.1f}%" for value in rate], "time": time, "y": y})
    table.to_csv(tmp_path / "my.csv", index=False)
    options = "--exposure", "time", "--likelihood", "poisson", "--output", "run"
    code, _, err = run("fit", "simple", "--mean", "linear", "--data", "my.csv", *options)
    assert code == 0, err
    assert "no report" not in err
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Permutation importance" in page
    assert "Partial dependence on" not in page


def test_a_page_that_fails_keeps_the_model_and_its_scores(run, rng, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "write_report", refuse)
    write_csv(tmp_path / "my.csv", numbers(rng))
    options = "--data", "my.csv", "--output", "run"
    code, out, err = run("fit", "simple", "--mean", "linear", *options)
    assert code == 0, err
    assert "no report: a cell is wrong" in err
    assert last_json(out)["scores"]["rmse"] > 0.0


def refuse(*_, **__):
    raise ValueError("a cell is wrong")
