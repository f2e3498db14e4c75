"""What a command prints of its test rows is what new rows show: later days, and other subjects."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.tables.cli.command_line import ALONE, last_json
from tests.tables.cli.command_line import run as run

# An exact GP whose kernel is not compared with others.
QUICK = ["--method", "exact", "--kernel", "matern12", "--num-subset", "200", *ALONE]


def scored(run, *arguments):
    code, out, err = run(*arguments)
    assert code == 0, err
    return last_json(out), err


def test_scores_of_a_random_walk_are_those_of_the_days_that_follow(run, tmp_path):
    """
    Pooled over walks, since the error of 60 days of one walk is itself a matter of chance. Random
    days between days of training have a fourth of that error.
    """
    squares = {"time": [], "next": [], "random": []}
    for seed in range(6):
        walk = 100.0 + np.cumsum(np.random.default_rng(seed).normal(size=660))
        days = pd.date_range("2022-01-01", periods=660).astype(str)
        frame = pd.DataFrame({"day": days, "y": walk.round(3)})
        frame[:600].to_csv(tmp_path / "a.csv", index=False)
        frame[600:].to_csv(tmp_path / "next.csv", index=False)
        folder = f"run{seed}"
        record, err = scored(run, "fit", "--data", "a.csv", *QUICK, "--output", folder)
        assert record["source"]["split"] == "time"
        assert record["kind_of_rows"] == "the last rows in time, by 'day', of a.csv, a tenth of it"
        assert "the last rows by 'day' are held out (split 'time')" in err
        squares["time"].append(record["scores"]["rmse"] ** 2)
        later, _ = scored(run, "evaluate", "--model", folder, "--data", "next.csv")
        squares["next"].append(later["scores"]["rmse"] ** 2)
        if seed < 2:
            options = ["--split", "random", "--output", f"random{seed}"]
            record, _ = scored(run, "fit", "--data", "a.csv", *QUICK, *options)
            squares["random"].append(record["scores"]["rmse"] ** 2)
    error = {name: np.mean(found) ** 0.5 for name, found in squares.items()}
    assert 1 / 1.3 < error["time"] / error["next"] < 1.3
    assert error["random"] < 0.4 * error["next"]
    code, _, err = run("evaluate", "--model", "run0")
    assert code == 1
    assert "run0 was trained on all rows after its scores" in err


def subjects(seed, names):
    """Twenty rows of each subject, with an effect of the subject that no input tells."""
    rng = np.random.default_rng(seed)
    effect = np.repeat(rng.normal(size=len(names)), 20)
    x = rng.normal(size=20 * len(names))
    y = np.sin(x) + effect + 0.2 * rng.normal(size=len(x))
    return pd.DataFrame({"subject": np.repeat(names, 20), "x": x.round(4), "y": y.round(4)})


def test_scores_by_subject_are_those_of_new_subjects(run, tmp_path):
    """Those of random rows, whose subjects are in the training, are a third of them."""
    subjects(0, [f"s{i}" for i in range(40)]).to_csv(tmp_path / "a.csv", index=False)
    subjects(1, [f"n{i}" for i in range(40)]).to_csv(tmp_path / "new.csv", index=False)
    by_subject = ["--split-by", "subject", "--output", "run"]
    record, err = scored(run, "fit", "--data", "a.csv", *QUICK, *by_subject)
    assert "rows of equal 'subject' are held out together; it is not an input." in err
    assert record["kind_of_rows"] == "rows of 4 groups by 'subject' of a.csv, left out as a whole"
    assert (record["num_train"], record["num_test"]) == (720, 80)
    later, _ = scored(run, "evaluate", "--model", "run", "--data", "new.csv")
    difference = record["scores"]["rmse"] - later["scores"]["rmse"]
    error = np.hypot(record["standard_errors"]["rmse"], later["standard_errors"]["rmse"])
    assert abs(difference) < 2.0 * error < 0.6
    random, _ = scored(run, "fit", "--data", "a.csv", *QUICK, "--output", "random")
    assert random["scores"]["rmse"] < 0.4 * later["scores"]["rmse"]
    again, _ = scored(run, "evaluate", "--model", "run")
    assert again["scores"] == pytest.approx(record["scores"], rel=1e-9)


def test_excluded_columns_are_no_inputs_and_an_id_names_predictions(run, tmp_path):
    frame = subjects(2, ["a", "b", "c"]).assign(code=[f"k{i}" for i in range(60)], leak=0.0)
    frame["leak"] = frame["y"]
    frame.to_csv(tmp_path / "a.csv", index=False)
    options = ["--target", "y", "--exclude", "leak", "--exclude", "subject", "--output", "run"]
    record, err = scored(run, "fit", "--data", "a.csv", *QUICK, *options)
    assert record["scores"]["rmse"] > 0.3
    assert record["source"]["exclude"] == ["leak", "subject"]
    assert "the model has: transform none, kernel matern12, metric columns" in err
    frame.drop(columns=["y", "leak", "subject"]).to_csv(tmp_path / "new.csv", index=False)
    given = ["predict", "--model", "run", "--data", "new.csv", "--output", "p.csv"]
    for identifier, name, labels in (
        ([], "row", range(1, 61)),
        (["--id", "code"], "code", frame["code"]),
    ):
        assert run(*given, *identifier)[0] == 0
        found = pd.read_csv(tmp_path / "p.csv")
        assert list(found[name]) == list(labels)
        assert list(found) == [name, "mean", "standard_deviation", "lower_95", "upper_95"]
        np.testing.assert_array_equal(found["mean"], found["mean"].round(6))
    code, _, err = run(*given, "--id", "kode")
    assert code == 1
    assert "id must be a column of new.csv, got 'kode'; did you mean 'code'?" in err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--exclude", "y"], "exclude and split_by must name inputs, got the target 'y'"),
        (["--split-by", "who"], "split_by must be a column of the table, got 'who'"),
        (["--split", "-3"], "'-3' is neither auto, random, time nor a whole number"),
        (["--split", "time", "--split-by", "subject"], "split must be 'auto' or 'random' for gr"),
        (["--data", "digits", "--target", "label", "--split", "time"], "has its own test rows"),
    ],
)
def test_splits_that_cannot_be_are_named(run, tmp_path, options, words):
    subjects(0, ["a", "b", "c"]).to_csv(tmp_path / "a.csv", index=False)
    code, _, err = run("fit", "--data", "a.csv", "--target", "y", *QUICK, *options)
    assert code != 0
    assert words in " ".join(err.split())


def test_a_record_holds_the_split_that_was_chosen(run, tmp_path):
    subjects(0, ["a", "b", "c"]).to_csv(tmp_path / "a.csv", index=False)
    for given, kept in (("auto", "random"), ("random", "random"), ("3", 3)):
        options = ["--split", given, "--output", f"run{given}"]
        record, _ = scored(run, "fit", "--data", "a.csv", *QUICK, *options)
        written = json.loads((tmp_path / f"run{given}" / "run.json").read_text())
        assert {name: written[name] for name in record} == record
        assert record["source"]["split"] == kept
        assert {"mae", "r2", "nlpd", "coverage"} <= set(record["standard_errors"])
