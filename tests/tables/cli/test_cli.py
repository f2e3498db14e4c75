"""The command line, as a user meets it."""

import io
import itertools
import json
import shlex
import signal
import subprocess
import sys
import time

import gpflow
import numpy as np
import pandas as pd
import pytest

import gpflow_sparse as gs
from gpflow_sparse.tables.cli.rows import Source, split_rows
from tests.tables.cli.command_line import (
    ALONE,
    FIT,
    SMALL,
    last_json,
    numbers,
    read_by,
    read_csv,
    write_csv,
    write_images,
)
from tests.tables.cli.command_line import finished as finished
from tests.tables.cli.command_line import here as here
from tests.tables.cli.command_line import run as run


def test_help_does_not_import_tensorflow():
    code = (
        "import sys\nfrom click.testing import CliRunner\n"
        "from gpflow_sparse.tables.cli.main import main\n"
        "result = CliRunner().invoke(main, ['fit', 'solvegp', '--help'])\n"
        "assert result.exit_code == 0 and '--num-orthogonal' in result.output\n"
        "heavy = {'tensorflow', 'gpflow', 'sklearn', 'matplotlib', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_run_is_the_estimator_fitted_to_its_training_rows(run, here):
    """It predicts as one that is fitted in Python, and its record says what it was scored on."""
    record = json.loads((here / "run" / "run.json").read_text())
    frame = pd.read_csv(here / "my.csv")
    order = np.random.default_rng(0).permutation(80)
    train, test = np.sort(order[:-8]), np.sort(order[-8:])
    options = {"num_inducing": 12, "num_orthogonal": 8, "num_steps": 15, "num_subset": 60}
    model = gs.estimators.SparseGPRegressor("solvegp", method_options=options | {"seed": 0})
    model.fit(frame[["width", "height"]].iloc[train], frame["price"].iloc[train])
    mean = model.predict(frame[["width", "height"]])
    expected = np.sqrt(np.mean((mean - frame["price"])[test] ** 2))
    np.testing.assert_allclose(record["scores"]["rmse"], expected, rtol=1e-9)
    assert (record["num_train"], record["num_test"]) == (72, 8)
    assert record["kind_of_rows"] == "random rows of my.csv, a tenth of it"
    assert record["title"] == "SOLVE-GP(12+8)"
    assert set(record["versions"]) >= {"gpflow", "tensorflow", "numpy"}
    columns = read_csv(run("predict", "--model", "run", "--data", "my.csv")[1])
    assert list(columns) == ["row", "mean", "standard_deviation", "lower_95", "upper_95"]
    np.testing.assert_array_equal(columns["row"], np.arange(1, 81))
    np.testing.assert_array_equal(columns["mean"], np.round(mean, 6))  # the prices have 4 decimals
    np.testing.assert_allclose(
        columns["upper_95"] - columns["mean"], 1.959964 * columns["standard_deviation"], atol=3e-6
    )
    loaded = gs.load(here / "run" / "model.safetensors")
    assert loaded.checkpoint_dir is None  # of the run
    again = loaded.predict(frame[["width", "height"]])
    np.testing.assert_array_equal(np.round(again, 6), columns["mean"])
    assert (record["kernel"], record["transform"]) == ("matern52", "none")
    errors = (mean - frame["price"])[test] ** 2
    found = record["standard_errors"]["rmse"]
    np.testing.assert_allclose(found, errors.std(ddof=1) / np.sqrt(8) / (2 * expected))


def test_rows_of_another_file_are_scored_whatever_the_order_of_its_columns(run, here, rng):
    write_csv(here / "new.csv", numbers(rng, 20))
    code, out, err = run("evaluate", "--model", "run", "--data", "new.csv")
    assert code == 0, err
    first = last_json(out)["scores"]["rmse"]
    assert 1.0 < first < 60.0
    assert "measured on 20 rows: rows of new.csv" in err
    assert "scores on 20 rows are unreliable" in err
    rows = [line.split(",") for line in (here / "new.csv").read_text().splitlines()]
    turned = [",".join(reversed(row)) for row in rows]
    write_csv(here / "turned.csv", turned[1:], turned[0])
    again = run("evaluate", "--model", "run", "--data", "turned.csv")[1]
    assert last_json(again)["scores"]["rmse"] == first
    code, out, err = run("evaluate", "--model", "run")
    record = json.loads((here / "run" / "run.json").read_text())
    assert last_json(out)["scores"] == pytest.approx(record["scores"], rel=1e-9)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here / "run")
        assert run("evaluate", "--model", ".")[1] == out
    write_csv(here / "my.csv", numbers(rng))
    code, _, err = run("evaluate", "--model", "run")
    assert code == 1
    assert "my.csv is not as it was in training" in err


def test_labels_keep_their_names(run, rng, tmp_path):
    X = rng.normal(size=(90, 2))
    labels = np.where(X[:, 0] > 0.0, "up, or so", "down")
    rows = [f'{a:.5f},{b:.5f},"{c}"' for (a, b), c in zip(X, labels, strict=True)]
    write_csv(tmp_path / "my.csv", rows, "a,b,way")
    code, out, err = run("fit", "--data", "my.csv", *SMALL, *ALONE, "--output", "run")
    assert code == 0, err
    assert "the last column, 'way', is predicted" in err
    assert last_json(out)["scores"]["error_rate"] < 0.4
    code, out, err = run("predict", "--model", "run", "--data", "my.csv")
    frame = pd.read_csv(io.StringIO(out))
    assert list(frame.columns) == ["row", "probability_down", "probability_up, or so", "class"]
    np.testing.assert_allclose(frame.iloc[:, 1] + frame.iloc[:, 2], 1.0, rtol=1e-9)
    assert np.mean(frame["class"] == labels) > 0.7
    write_csv(tmp_path / "other.csv", ["1,2,sideways"], "a,b,way")
    code, _, err = run("evaluate", "--model", "run", "--data", "other.csv")
    assert code == 1
    assert "target 'way' must be one of down, up, or so in every row" in err


def test_a_messy_table_trains_and_predicts_another_one(run, rng, tmp_path):
    rows = [f"{row},{rng.choice(['red', 'blue'])},r{i}" for i, row in enumerate(numbers(rng))]
    rows[6] = ",".join(["", *rows[6].split(",")[1:]])
    rows[7] = ",".join([*rows[7].split(",")[:2], "", *rows[7].split(",")[3:]])
    write_csv(tmp_path / "my.csv", rows, "width,height,price,color,code")
    code, out, err = run(*FIT, *ALONE, "--output", "run")
    assert code == 0, err
    for note in ("1 rows without 'price' are not used.", "'color' is a category of 2 levels."):
        assert note in err
    assert last_json(out)["scores"]["rmse_standardized"] < 1.0
    new = ["red,0.5,1", "green,,1", "blue,-0.5,x"]
    write_csv(tmp_path / "new.csv", new, "color,width,height")
    for model in ("run", "run/model.safetensors"):
        code, out, err = run("predict", "--model", model, "--data", "new.csv")
        assert code == 0, err
        assert "1 of 3 cells of 'color' are other levels than in training" in err
        assert np.isfinite(list(read_csv(out).values())).all()
    write_csv(tmp_path / "less.csv", ["red,1"], "color,height")
    code, _, err = run("predict", "--model", "run", "--data", "less.csv")
    assert code == 1
    assert "less.csv lacks columns of the training data: width; it has color, height." in err


def test_the_automatic_choice_is_recorded(run, rng, tmp_path):
    write_csv(tmp_path / "my.csv", numbers(rng))
    code, out, err = run("fit", "--data", "my.csv", "--num-draws", "4", *ALONE)
    assert code == 0, err
    record = last_json(out)
    assert (record["title"], record["chosen"]) == ("GP mixture", "mixture")
    assert "mixture is the method for tables of this kind with 72 rows." in record["reason"]
    assert record["minutes"] == 5.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "my.csv", "--target", "prize"], ["prize", "price"]),
        (["--data", "none.csv", "--target", "price"], ["none.csv"]),
        (["--data", "kin4k"], ["kin4k", "kin40k"]),
        (["--num-steps", "0"], ["num_steps"]),
        (["--device", "gpu:7"], ["gpu:7", "CPU:0"]),
        (["--num-inducing", "9000"], ["num_inducing", "training rows"]),
        (["--method", "grief", "--data", "digits"], ["grief", "Gaussian noise"]),
        (
            ["--data", "my.csv", "--method", "softki", "--likelihood", "laplace"],
            ["softki is for Gaussian noise"],
        ),
        (["--minutes", "3"], ["minutes is a time in place of num_steps"]),
        (["--minutes", "nan"], ["minutes must be a finite number, got nan"]),
        (["--minutes", "3", "--resume", "--method", "gpnn"], ["no unfinished run"]),
        (["--patch-size", "3"], ["patch_size is not for solvegp, but for conv-solvegp and"]),
        (["--method", "conv-solvegp"], ["image_shape is missing", "8 columns"]),
        (["--method", "conv-solvegp", "--image-shape", "3,3"], ["image_shape 3,3,1", "8 input"]),
    ],
)
def test_a_mistake_becomes_one_clear_line(run, rng, tmp_path, arguments, words):
    write_csv(tmp_path / "my.csv", numbers(rng))
    method = (["solvegp"] + [m for f, m in itertools.pairwise(arguments) if f == "--method"])[-1]
    sizes = read_by(method, SMALL)
    code, _, err = run("fit", "--method", method, *sizes, *ALONE, *arguments)
    assert code == 1
    assert all(word in err for word in words), err
    assert "Traceback" not in err


SIZES = [
    *("--num-inducing", "12", "--num-orthogonal", "8", "--num-basis", "40", "--num-steps", "15"),
    *("--num-subset", "60", "--basis-batch-size", "20", "--num-support", "30"),
]
# Ways to train a table with small sizes: a method, and options of its own.
WAYS = {
    **{m: [] for m in ("odvgp", "solvegpr", "softki", "swsgp", "deep", "gpnn", "rvm")},
    "grief": ["--weights", "integrate", "--kernel", "matern32"],
    "grief float32": ["--float32"],
    "basis_gpr": ["--basis", "fourier", "--kernel", "matern52"],
    "basis_svgp": ["--num-steps", "60"],
    "qsgp": ["--basis", "fourier", "--covariance", "chevron", "--num-dense-columns", "3"],
    "qsgp dictionary": ["--basis", "dictionary", "--likelihood", "laplace"],
}


@pytest.mark.parametrize("way", WAYS)
def test_every_method_trains_and_its_run_is_scored_again(run, rng, tmp_path, way):
    write_csv(tmp_path / "my.csv", numbers(rng))
    method, own = way.split()[0], WAYS[way]
    nodes = [] if "--basis" in own else ["--points-per-dimension", "5"]  # of a grid
    sizes = read_by(method, [*SIZES, *nodes])
    options = ["--data", "my.csv", "--target", "price", "--method", method, *sizes, *own]
    code, out, err = run("fit", *options, *ALONE, "--output", "run")
    assert code == 0, err
    assert gpflow.default_float() is np.float64
    scores = last_json(out)["scores"]
    assert scores["rmse"] < 40.0  # the standard deviation of price is about 36
    again = last_json(run("evaluate", "--model", "run")[1])["scores"]
    np.testing.assert_allclose(again["nlpd"], scores["nlpd"], rtol=1e-9)
    assert run("predict", "--model", "run", "--data", "my.csv", "--output", "p.csv")[0] == 0
    columns = read_csv((tmp_path / "p.csv").read_text())
    assert (columns["upper_95"] > columns["lower_95"]).all()


@pytest.mark.nightly
@pytest.mark.parametrize("images", [True, False])
def test_deep_models_are_kept_and_predict_again(run, rng, tmp_path, images):
    if images:
        write_images(tmp_path / "my.npz", rng)
        options = ["--data", "my.npz", "--task", "classification", "--method", "conv-solvegp"]
        options += ["--num-layers", "2", "--num-orthogonal", "4", "--no-tick"]
    else:
        rows = [f"{a:.4f},{b:.4f},{'h' if a * b > 0 else 'l'}" for a, b in rng.normal(size=(90, 2))]
        write_csv(tmp_path / "my.csv", rows)
        options = ["--data", "my.csv", "--method", "deep", "--num-neighbors", "4"]
    options += ["--num-steps", "8", "--num-inducing", "5", *ALONE, "--output", "run"]
    code, out, err = run("fit", *options)
    assert code == 0, err
    assert last_json(out)["title"].endswith("2 layers")
    again = last_json(run("evaluate", "--model", "run")[1])["scores"]
    for name in ("error_rate", "nlpd"):
        np.testing.assert_allclose(again[name], last_json(out)["scores"][name], rtol=1e-9)


def test_a_file_of_images_has_its_own_test_part(run, rng, tmp_path):
    """As Keras has them; the sizes of layers are texts with commas."""
    parts = {}
    for part, count in (("train", 40), ("test", 11)):
        parts[f"y_{part}"] = write_images(tmp_path / "x.npz", rng, count)
        pixels = np.load(tmp_path / "x.npz")["x"].reshape(-1, 6, 6)
        parts[f"x_{part}"] = np.clip(40.0 * (pixels + 2.0), 0, 255).astype(np.uint8)
    np.savez(tmp_path / "my.npz", **parts)
    data = ["--data", "my.npz", *ALONE]
    code, out, err = run("fit", "simple", *data, "--output", "run")
    assert code == 0, err
    record = last_json(out)
    assert record["kind_of_rows"] == "the test part of my"
    assert "40 training and 11 test rows" in err
    again = last_json(run("evaluate", "--model", "run")[1])["scores"]
    np.testing.assert_allclose(again["nlpd"], record["scores"]["nlpd"], rtol=1e-9)
    assert split_rows(Source(str(tmp_path / "my.npz"))).image_shape == (6, 6, 1)
    layers = ["--num-layers", "2", "--num-inducing", "5,4,3"]
    sizes = run("fit", "conv-solvegp", *data, *layers)[2]
    assert "num_inducing must be a number of at least 1, or 2 such numbers" in sizes
    np.savez(tmp_path / "my.npz", **{k: v for k, v in parts.items() if k != "x_test"})
    assert "['x_test'] missing" in run("fit", "simple", *data)[2]


def test_data_sets_and_methods_are_listed(run):
    assert "kin40k" in run("datasets")[1]
    assert {"solvegp", "odvgp", "solvegpr", "qsgp", "rvm"} <= set(run("methods")[1].split())


def test_a_saved_estimator_is_predicted_with_and_a_plain_model_is_not(run, rng, tmp_path):
    X = rng.normal(size=(40, 2))
    model = gs.estimators.SparseGPRegressor("exact", method_options={"num_subset": 0})
    gs.save(model.fit(X, np.sin(X[:, 0])), tmp_path / "estimator")
    gs.save(model.model_, tmp_path / "model")
    pd.DataFrame(X, columns=["p", "q"]).to_csv(tmp_path / "x.csv", index=False)
    code, out, err = run("predict", "--model", "estimator", "--data", "x.csv")
    assert code == 0, err
    np.testing.assert_allclose(read_csv(out)["mean"], model.predict(X), rtol=1e-9)
    table = pd.DataFrame(X, columns=["p", "q"]).assign(y=np.sin(X[:, 0]))
    table.to_csv(tmp_path / "y.csv", index=False)
    code, out, err = run("evaluate", "--model", "estimator", "--data", "y.csv", "--target", "y")
    assert code == 0, err
    expected = np.mean((table["y"] - model.predict(X)) ** 2) ** 0.5
    np.testing.assert_allclose(last_json(out)["scores"]["rmse"], expected, rtol=1e-6)
    for labels in (X[:, 0] > 0.0, np.where(X[:, 0] > 0.0, 1.0, 0.0)):
        linear = gs.estimators.SparseGPClassifier("simple", method_options={"mean": "linear"})
        gs.save(linear.fit(X, labels), tmp_path / "classes")
        table.assign(y=labels).to_csv(tmp_path / "y.csv", index=False)
        code, out, err = run("evaluate", "--model", "classes", "--data", "y.csv", "--target", "y")
        assert code == 0, err
        assert last_json(out)["scores"]["error_rate"] == np.mean(linear.predict(X) != labels)
    code, _, err = run("predict", "--model", "model", "--data", "x.csv")
    assert code == 1
    assert "holds a GPR without the columns of a table" in err
    code, _, err = run("evaluate", "--model", "estimator")
    assert code == 1
    assert "data is missing: estimator is not a run folder" in err


def start(tmp_path, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "gpflow_sparse.tables.cli.main", "fit", *arguments],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.nightly
def test_ctrl_c_keeps_the_model_and_prints_the_command_that_resumes(run, tmp_path):
    options = [*SMALL, "--num-steps", "2000", *ALONE, "--output", "run"]
    process = start(tmp_path, *options)
    while not list((tmp_path / "run").glob("checkpoints/checkpoint-*")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in err
    (command,) = [line.strip() for line in err.splitlines() if line.startswith("    ")]
    assert command == shlex.join(["gpflow-sparse", "fit", *options, "--resume"])
    assert last_json(run("evaluate", "--model", "run")[1])["scores"]["rmse"] > 0
    code, _, err = run("fit", *options)
    assert code == 1
    assert "an unfinished run is in run: add --resume" in err
    code, _, err = run("fit", *options, "--seed", "5", "--resume")
    assert code == 1
    assert "run holds another run" in err
    code, out, err = run(*shlex.split(command)[1:])
    assert code == 0, err
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert 0.0 < last_json(out)["scores"]["rmse_standardized"] < 0.5


@pytest.mark.parametrize("phase", ["training", "scoring"])
def test_ctrl_c_in_any_phase_keeps_the_model_and_says_so(run, rng, tmp_path, monkeypatch, phase):
    write_csv(tmp_path / "my.csv", numbers(rng))

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    place = "training.fit" if phase == "training" else "tables.cli.runs.score_rows"
    with monkeypatch.context() as patch:
        patch.setattr(f"gpflow_sparse.{place}", interrupt)
        code, _, err = run(*FIT, *ALONE, "--output", "run")
    assert code == 130
    assert ("--resume" if phase == "training" else "evaluate --model run") in err
    assert "nothing was written" not in err
    assert run("evaluate", "--model", "run")[0] == 0
    assert run("predict", "--model", "run", "--data", "my.csv")[0] == 0


PREDICT_MISTAKES = [
    (["--model", "nothing", "--data", "r.csv"], "no saved model"),
    (["--model", "run", "--data", "my.csv", "--output", "my.csv"], "another file"),
    (["--model", "run", "--data", "my.csv", "--output", "."], "is a folder|the folder"),
    (["--model", "run", "--data", "my.csv", "--output", "run/run.json"], "another file"),
    (["--model", "my.csv", "--data", "my.csv"], "is not a saved model"),
]


def test_mistakes_in_predict_become_one_clear_line(run, here):
    before = (here / "my.csv").read_text()
    for arguments, words in PREDICT_MISTAKES:
        code, _, err = run("predict", *arguments)
        assert code == 1
        assert any(word in err for word in words.split("|")), err
        assert "Traceback" not in err
        assert (here / "my.csv").read_text() == before
