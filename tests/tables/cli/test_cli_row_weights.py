"""`fit --row-weights`: weights of rows from a column of the table."""

import numpy as np
import pandas as pd
import pytest

from tests.tables.cli.command_line import last_json
from tests.tables.cli.command_line import run as run

FIT = ["fit", "--data", "my.csv", "--method", "gpnn", "--no-plot"]


@pytest.fixture
def table(rng, tmp_path):
    """Rows of weight 0 and 1."""
    X = rng.uniform(-2.0, 2.0, size=(80, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=80)
    frame = pd.DataFrame({"times": np.arange(80) % 4 > 0, "a": X[:, 0], "b": X[:, 1], "y": y})
    frame[["a", "b"]].to_csv(tmp_path / "new.csv", index=False)
    return frame.astype(float)


@pytest.fixture
def predict(run, tmp_path):
    """Means at all rows of a model that is trained with these options."""

    def call(frame, *options):
        frame.to_csv(tmp_path / "my.csv", index=False)
        folder = f"run{len(list(tmp_path.iterdir()))}"
        code, _, err = run(*FIT, *options, "--output", folder)
        assert code == 0, err
        code, _, err = run("predict", "--model", folder, "--data", "new.csv", "--output", "p.csv")
        assert code == 0, err
        return pd.read_csv(tmp_path / "p.csv")["mean"].to_numpy()

    return call


@pytest.mark.nightly
def test_rows_of_weight_zero_are_left_out_and_others_count_by_their_weight(table, predict):
    left = table[table["times"] > 0].drop(columns="times")
    expected = predict(left)
    weighted = ["--row-weights", "times"]
    np.testing.assert_allclose(predict(table, *weighted), expected, rtol=1e-6, atol=1e-8)
    is_heavy = (table["a"] > 0.0) & (table["times"] > 0)
    weights = table["times"] * np.where(is_heavy, 8.0, 0.5)
    found = predict(table.assign(times=weights), *weighted)
    errors = [np.mean((mean - table["y"])[is_heavy] ** 2) for mean in (found, expected)]
    assert errors[0] < 0.8 * errors[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--row-weights", "time"], "time"),
        (["--row-weights", "y"], "must be a finite number of at least 0 in every row"),
        (["--row-weights", "times", "--method", "softki"], "softki"),
    ],
)
def test_wrong_weights_are_named(run, table, tmp_path, options, message):
    table.assign(times=1.0 + np.arange(80) % 3).to_csv(tmp_path / "my.csv", index=False)
    code, _, err = run(*FIT, *options)
    assert code != 0
    assert message in err


def test_scores_count_rows_by_their_weights(run, table, tmp_path):
    """Of the test rows, in the record and again; and of a file, which has rows of weight 0."""
    table = table.assign(times=table["times"] * np.where(table["a"] > 0.0, 4.0, 1.0))
    table.to_csv(tmp_path / "my.csv", index=False)
    code, out, err = run(*FIT, "--row-weights", "times", "--output", "run")
    assert code == 0, err
    used = table[table["times"] > 0.0].reset_index(drop=True)
    test = used.iloc[np.sort(np.random.default_rng(0).permutation(len(used))[-6:])]
    for options, rows in (([], test), (["--data", "my.csv"], table)):
        rows[["a", "b"]].to_csv(tmp_path / "new.csv", index=False)
        run("predict", "--model", "run", "--data", "new.csv", "--output", "p.csv")
        errors = pd.read_csv(tmp_path / "p.csv")["mean"].to_numpy() - rows["y"].to_numpy()
        expected = np.average(errors**2, weights=rows["times"]) ** 0.5
        assert abs(expected / np.mean(errors**2) ** 0.5 - 1.0) > 0.02
        _, scored, _ = run("evaluate", "--model", "run", *options)
        np.testing.assert_allclose(last_json(scored)["scores"]["rmse"], expected, rtol=1e-6)
        if rows is test:
            np.testing.assert_allclose(last_json(out)["scores"]["rmse"], expected, rtol=1e-6)
    table.drop(columns="times").to_csv(tmp_path / "my.csv", index=False)
    code, scored, err = run("evaluate", "--model", "run", "--data", "my.csv")
    assert (code, last_json(scored)["kind_of_rows"]) == (0, "rows of my.csv")
    assert "rows count equally: row_weights must be a column of my.csv, got 'times'" in err
    table.assign(times=0.0).to_csv(tmp_path / "my.csv", index=False)
    code, _, err = run("evaluate", "--model", "run", "--data", "my.csv")
    assert code == 1
    assert "row_weights 'times' must be above 0 in a row to score or more." in err


@pytest.mark.nightly
def test_weights_of_a_mean_far_from_one_get_advice(run, table, tmp_path):
    table.assign(times=10.0 * table["times"]).to_csv(tmp_path / "my.csv", index=False)
    code, _, err = run(*FIT, "--row-weights", "times", "--output", "run")
    assert code == 0
    assert "row_weights 'times' has the sum" in err
    assert "and was divided by the mean" in err
