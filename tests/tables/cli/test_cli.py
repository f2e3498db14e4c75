"""The command line, as a user meets it."""

import io
import itertools
import json
import re
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
from gpflow_sparse.tables.cli import training
from gpflow_sparse.tables.fitting import calibration, choice
from gpflow_sparse.tables.fitting.task import Task
from gpflow_sparse.training import TrainingInterrupted
from tests.tables.cli.command_line import (
    ALONE,
    FIT,
    SMALL,
    last_json,
    numbers,
    read_by,
    read_csv,
    save_poisson,
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


def test_benchmarks_are_found_in_a_checkout(run):
    code, _, err = run("bench", "paper", "solvegp", "--size", "full")
    assert code == 1
    assert "python docs/benchmarks/run.py paper solvegp --size full" in err


@pytest.mark.nightly
def test_the_default_data_set_trains_and_is_judged_beside_svgp(run, tmp_path):
    code, out, _ = run("fit", *SMALL, "--output", "run")
    assert code == 0
    record = last_json(out)
    ours, svgp = record["results"]
    assert ours["title"] == "SOLVE-GP(12+8)"
    assert svgp["title"] == "SVGP(12)"
    for result in (ours, svgp):
        assert 0.0 < result["rmse_standardized"] < 1.0  # better than the mean
        assert 0.5 < result["coverage"] <= 1.0
    assert record["seed"] == 0
    assert set(record["versions"]) >= {"gpflow", "tensorflow", "numpy", "python"}
    assert record["config"]["num_orthogonal"] == 8
    assert "95 % coverage" in out
    assert (tmp_path / "run" / "report.html").is_file()
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == record
    scored = last_json(run("evaluate", "--model", "run")[1])
    for name in ("rmse", "nlpd", "crps", "coverage"):
        np.testing.assert_allclose(scored[name], ours[name], rtol=1e-9)


def test_a_users_csv_trains_and_new_rows_are_scored(run, here, rng, tmp_path):
    write_csv(tmp_path / "new.csv", numbers(rng, 20))
    result = json.loads((here / "run" / "result.json").read_text())["results"][0]
    assert result["rmse"] < 40.0  # the standard deviation of price is about 36
    code, out, _ = run("evaluate", "--model", "run", "--data", "new.csv")
    assert code == 0
    first = last_json(out)["rmse"]
    assert 1.0 < first < 60.0
    rows = [line.split(",") for line in (tmp_path / "new.csv").read_text().splitlines()]
    turned = [",".join(reversed(row)) for row in rows]
    write_csv(tmp_path / "turned.csv", turned[1:], turned[0])
    assert last_json(run("evaluate", "--model", "run", "--data", "turned.csv")[1])["rmse"] == first


def test_tables_of_pandas_and_spreadsheets_are_predicted_alike_and_this_is_said(
    run, here, rng, tmp_path
):
    write_csv(tmp_path / "new.csv", numbers(rng, 20))
    _, plain, err = run("predict", "--model", "run", "--data", "new.csv")
    assert "first column" not in err
    frame = pd.read_csv(tmp_path / "new.csv").assign(größe=1.0)
    (tmp_path / "new.csv").write_bytes(frame.to_csv(sep="|").encode("cp1252"))
    _, out, err = run("predict", "--model", "run", "--data", "new.csv")
    assert out == plain
    assert "the first column has no name: it is taken as a saved row index and not used." in err
    assert "the text is read as cp1252, as it is not UTF-8" in err
    _, _, err = run("evaluate", "--model", "run", "--data", "new.csv")
    assert "a saved row index" in err
    assert "scores on 20 rows mean little" in err


@pytest.mark.nightly
def test_a_run_holds_out_rows_and_calibrates_on_them(run, rng, tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "MIN_ROWS", 2000)
    write_csv(tmp_path / "my.csv", numbers(rng, 2400))
    options = ("--data", "my.csv", "--method", "solvegp", "--num-steps", "20")
    sizes = ("--num-inducing", "16", "--num-orthogonal", "8", "--no-baseline")
    code, out, err = run("fit", *options, *sizes, "--conformal", "--output", "run")
    assert code == 0
    factors = last_json(out)["results"][0]["calibration"]
    line = (
        f"Calibrated on 108 held-out rows: the variance of the function is multiplied by "
        f"{factors['function']:.3g}, the variance of the noise by {factors['noise']:.3g}, "
        "and intervals are conformal."
    )
    assert line in err
    assert line in (tmp_path / "run" / "report.html").read_text()
    found = gs.load(tmp_path / "run" / "model.safetensors")
    assert (found.num_data, found.calibration.noise) == (2052, factors["noise"])
    table = read_csv(run("predict", "--model", "run", "--data", "my.csv")[1])
    widths = (table["upper_95"] - table["lower_95"]) / table["standard_deviation"]
    np.testing.assert_allclose(widths, 2.0 * found.calibration.radius(0.95)[0], rtol=1e-9)
    code, out, err = run("fit", *options, *sizes, "--no-calibrate", "--no-plot", "--output", "two")
    assert "alibrated" not in out.replace('"calibrate"', "") + err
    assert gs.load(tmp_path / "two" / "model.safetensors").num_data == 2160


@pytest.mark.nightly
def test_many_levels_are_predicted_from_their_averages(run, rng, tmp_path):
    """The rows of training are found again, with averages of other rows."""
    city, effect = rng.integers(40, size=400), rng.normal(size=40)
    rows = [f"c{i},{rng.normal():.4f},{effect[i] + 0.1 * rng.normal():.4f}" for i in city]
    write_csv(tmp_path / "my.csv", rows, "city,width,price")
    code, _, err = run(*FIT, *ALONE, "--output", "run")
    assert code == 0, err
    assert "'city' is a category of 40 levels" in err
    assert "every level the average target of its rows" in err
    code, out, err = run("evaluate", "--model", "run")
    assert code == 0, err
    write_csv(tmp_path / "new.csv", [*(f"c{i},0" for i in range(40)), "new,0"], "city,width")
    code, out, err = run("predict", "--model", "run", "--data", "new.csv")
    assert "1 of 41 cells of 'city' are other levels than in training" in err
    mean = np.array(read_csv(out)["mean"])
    assert np.corrcoef(mean[:40], effect)[0, 1] > 0.9


def test_a_messy_table_trains_and_predicts_another_one(run, rng, tmp_path):
    rows = [f"{row},{rng.choice(['red', 'blue'])},r{i}" for i, row in enumerate(numbers(rng))]
    rows[6] = ",".join(["", *rows[6].split(",")[1:]])
    rows[7] = ",".join([*rows[7].split(",")[:2], "", *rows[7].split(",")[3:]])
    write_csv(tmp_path / "my.csv", rows, "width,height,price,color,code")
    options = ["--data", "my.csv", "--target", "price", *SMALL, *ALONE, "--output", "run"]
    code, out, err = run("fit", *options)
    assert code == 0, err
    for note in (
        "1 rows without 'price' are not used.",
        "'color' is a category of 2 levels.",
        "texts in 72 rows, which name rows rather than groups, and is not used.",
    ):
        assert note in err
    names = last_json(out)["dataset"]["feature_names"]
    assert [name for name in names if name != "width missing"] == [
        *("width", "height", "color=blue", "color=red")
    ]
    assert last_json(out)["results"][0]["rmse_standardized"] < 1.0
    scored = last_json(run("evaluate", "--model", "run")[1])
    assert scored["rmse"] == last_json(out)["results"][0]["rmse"]
    new = ["red,0.5,1", "green,,1", "blue,-0.5,x"]
    write_csv(tmp_path / "new.csv", new, "color,width,height")
    for model in ("run", "run/model.safetensors"):
        code, out, err = run("predict", "--model", model, "--data", "new.csv")
        assert code == 0, err
        assert "1 of 3 cells of 'color' are other levels than in training" in err
        assert "1 of 3 cells of 'height' are missing or unreadable" in err
        assert np.isfinite(list(read_csv(out).values())).all()
    write_csv(tmp_path / "less.csv", ["red,1"], "color,height")
    code, _, err = run("predict", "--model", "run", "--data", "less.csv")
    assert code == 1
    assert "less.csv: X lacks columns of the training data: width; it has color, height." in err


@pytest.mark.nightly
@pytest.mark.parametrize("while_choosing", [pytest.param(True, marks=pytest.mark.nightly), False])
def test_ctrl_c_keeps_the_best_model_and_resume_goes_on(
    run, rng, tmp_path, monkeypatch, while_choosing
):
    write_csv(tmp_path / "my.csv", numbers(rng))
    monkeypatch.setattr(Task, "few_rows", 50)
    monkeypatch.setattr("gpflow_sparse.tables.fitting.choice._ROUNDS", ((3, 0.2), (5, 0.2)))
    options = ["--data", "my.csv", "--num-steps", "20", "--output", "run", *ALONE]
    options += ["--num-inducing", "8", "--num-orthogonal", "4", "--num-basis", "20"]
    calls = []

    def interrupted(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 3 or not while_choosing:
            raise TrainingInterrupted("fit was interrupted after step 1; more")
        return real(*arguments, **options)

    owner, name = (choice.Candidate, "train") if while_choosing else (training, "_options")
    real = getattr(owner, name)
    monkeypatch.setattr(owner, name, interrupted)
    code, _, err = run("fit", *options)
    assert code == 130
    assert ("stopped during the choice" if while_choosing else "fit was interrupted") in err
    before = json.loads((tmp_path / "run" / "result.json").read_text())
    assert before["results"][0]["rmse"] > 0
    assert run("predict", "--model", "run", "--data", "my.csv")[0] == 0
    monkeypatch.setattr(owner, name, real)
    if not while_choosing:
        monkeypatch.setattr("gpflow_sparse.tables.cli.training.choose", None)  # is not called again
    code, out, err = run("fit", *options, "--resume")
    assert code == 0, err
    assert not (tmp_path / "run" / "checkpoints").exists()
    if not while_choosing:
        assert last_json(out)["choice"] | {"seconds": 0} == before["choice"] | {"seconds": 0}


def test_a_method_with_a_time_keeps_its_steps_when_it_resumes(run, rng, tmp_path, monkeypatch):
    write_csv(tmp_path / "my.csv", numbers(rng))
    sizes = ["--num-inducing", "12", "--num-orthogonal", "8", "--num-subset", "60"]
    options = ["--data", "my.csv", "--method", "solvegp", *sizes, "--minutes", "5"]
    options += ["--output", "run", "--no-plot"]
    real = training._options

    def interrupted(*arguments):
        raise TrainingInterrupted("fit was interrupted after step 1; more")

    monkeypatch.setattr(training, "_options", interrupted)
    monkeypatch.setattr(choice.Candidate, "num_steps_within", lambda candidate, seconds: 12)
    code, _, err = run("fit", *options)
    assert (code, "12 steps fit into 5 min." in err) == (130, True)
    monkeypatch.setattr(training, "_options", real)
    monkeypatch.setattr(training, "within", None)  # is not called again
    code, out, err = run("fit", *options, "--resume")
    assert code == 0, err
    record = last_json(out)
    assert record["choice"]["num_steps"] == 12
    assert record["config"]["minutes"] == 5.0
    assert "SVGP(12): training, 12 steps" in err  # the baseline has as many


def test_labels_of_any_kind_keep_their_names(run, rng, tmp_path):
    X = rng.normal(size=(90, 2))
    labels = np.where(X[:, 0] > 0.0, "up, or so", "down")
    rows = [f'{a:.5f},{b:.5f},"{c}"' for (a, b), c in zip(X, labels, strict=True)]
    write_csv(tmp_path / "my.csv", rows, "a,b,way")
    code, out, err = run("fit", "--data", "my.csv", *SMALL, *ALONE, "--output", "run")
    assert code == 0, err
    assert "the last column, 'way', is predicted" in err
    assert last_json(out)["results"][0]["error_rate"] < 0.4
    code, out, err = run("predict", "--model", "run", "--data", "my.csv")
    frame = pd.read_csv(io.StringIO(out))
    assert list(frame.columns) == ["probability_down", "probability_up, or so", "class"]
    np.testing.assert_allclose(frame.iloc[:, 0] + frame.iloc[:, 1], 1.0, rtol=1e-9)
    assert np.mean(frame["class"] == labels) > 0.7
    assert last_json(run("evaluate", "--model", "run", "--data", "my.csv")[1])["error_rate"] < 0.3
    write_csv(tmp_path / "other.csv", ["1,2,sideways"], "a,b,way")
    code, _, err = run("evaluate", "--model", "run", "--data", "other.csv")
    assert code == 1
    assert "target 'way' must be one of down, up, or so in every row" in err


def test_few_rows_go_to_a_mixture_of_exact_gps(run, rng, tmp_path):
    """More rows to the best candidate, and tests/tables/estimators runs a choice."""
    write_csv(tmp_path / "my.csv", numbers(rng))
    code, out, err = run("fit", "--data", "my.csv", "--num-draws", "4", *ALONE)
    assert code == 0, err
    assert last_json(out)["results"][0]["title"] == "GP mixture"
    assert "mixture is the method for at most 1000 rows." in err


@pytest.mark.nightly
def test_the_best_of_the_candidates_is_chosen_and_recorded(run, rng, tmp_path, monkeypatch):
    write_csv(tmp_path / "my.csv", numbers(rng))
    monkeypatch.setattr(Task, "few_rows", 50)
    monkeypatch.setattr("gpflow_sparse.tables.fitting.choice._ROUNDS", ((3, 0.2), (5, 0.2)))
    small = ["--num-inducing", "8", "--num-orthogonal", "4", "--num-basis", "20"]
    options = [*small, "--data", "my.csv", "--num-steps", "20", "--output", "run", *ALONE]
    code, out, err = run("fit", *options)
    assert code == 0, err
    choice = last_json(out)["choice"]
    scores = {attempt["method"]: attempt["nlpd"] for attempt in choice["attempts"]}
    assert set(scores) == {
        *("constant", "linear", "exact", "gpnn", "solvegp", "softki", "swsgp", "grief")
    }
    tried = {m: nlpd for m, nlpd in scores.items() if m not in ("constant", "linear")}
    assert choice["method"] == min(tried, key=tried.get)
    assert f"{choice['method']} has the lowest NLPD" in err
    assert last_json(run("evaluate", "--model", "run")[1])["rmse"] > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "my.csv", "--target", "prize"], ["prize", "price"]),
        (["--data", "none.csv", "--target", "price"], ["none.csv"]),
        (["--data", "kin4k"], ["kin4k", "kin40k"]),
        (["--num-steps", "0"], ["num_steps"]),
        (["--device", "gpu:7"], ["gpu:7", "CPU:0"]),
        (["--num-inducing", "9000"], ["num_inducing", "training rows"]),
        (["--method", "grief", "--data", "digits"], ["grief", "regression", "basis_svgp"]),
        (
            ["--data", "my.csv", "--method", "softki", "--likelihood", "laplace"],
            ["likelihood must be gaussian"],
        ),
        (["--minutes", "3"], ["minutes is a time in place of num_steps"]),
        (["--method", "exact", "--workers", "2"], ["trained by minibatches, which exact is not"]),
        (["--method", "exact", "--minutes", "3"], ["trained by steps, which exact is not"]),
        (["--patch-size", "3"], ["patch_size is not for solvegp, but for conv-solvegp and"]),
        (["--method", "conv-solvegp"], ["image_shape is missing", "8 columns"]),
        (["--method", "conv-solvegp", "--image-shape", "3,3"], ["image_shape 3,3,1", "8 input"]),
        (
            ["--method", "conv-solvegp", "--data", "digits", "--patch-size", "9"],
            ["patch_shape must fit", "8 x 8"],
        ),
    ],
)
def test_a_mistake_becomes_one_clear_line(run, rng, tmp_path, arguments, words):
    write_csv(tmp_path / "my.csv", numbers(rng))
    method = (["solvegp"] + [m for f, m in itertools.pairwise(arguments) if f == "--method"])[-1]
    code, _, err = run("fit", "--method", method, *read_by(method, SMALL), *arguments)
    assert code == 1
    assert all(word in err for word in words)
    assert "Traceback" not in err


SIZES = [
    *("--num-inducing", "12", "--num-orthogonal", "8", "--num-basis", "40", "--num-steps", "15"),
    *("--num-subset", "60", "--basis-batch-size", "20", "--num-support", "30"),
]
# Ways to train a table with small sizes: a method, and options of its own.
WAYS = {
    **{m: [] for m in ("odvgp", "solvegpr", "softki", "swsgp", "deep", "gpnn", "rvm")},
    "grief": ["--inference", "type1", "--kernel", "matern32"],
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
    assert last_json(out)["config"]["method"] == method
    (result,) = last_json(out)["results"]
    assert result["rmse"] < 40.0  # the standard deviation of price is about 36
    again = last_json(run("evaluate", "--model", "run")[1])
    np.testing.assert_allclose(again["nlpd"], result["nlpd"], rtol=1e-9)
    assert run("predict", "--model", "run", "--data", "my.csv", "--output", "p.csv")[0] == 0
    columns = read_csv((tmp_path / "p.csv").read_text())
    assert len(columns["mean"]) == 80
    assert (columns["upper_95"] > columns["lower_95"]).all()
    code, _, err = run("fit", *options, *ALONE, "--output", "run", "--resume")
    assert code == 1
    assert "the run in run is complete: nothing to resume" in err


@pytest.mark.nightly
def test_the_baseline_of_a_method_without_inducing_points_suits_a_short_table(run, rng, tmp_path):
    """It has 256 by default, and no more than a quarter of the training rows."""
    write_csv(tmp_path / "my.csv", numbers(rng))
    options = ["--data", "my.csv", "--method", "gpnn", "--num-subset", "0", "--no-plot"]
    code, out, err = run("fit", *options)
    assert code == 0, err
    assert [r["title"] for r in last_json(out)["results"]] == ["GPnn", "SVGP(18)"]
    assert last_json(out)["results"][1]["rmse"] < 40.0


@pytest.mark.nightly
def test_images_are_classified_and_drawn(run, rng, tmp_path):
    write_images(tmp_path / "my.npz", rng)
    sizes = ["--num-inducing", "8", "--num-orthogonal", "7", "--num-steps", "60"]
    options = ["--data", "my.npz", "--task", "classification", "--method", "conv-solvegp", *sizes]
    options += ["--batch-size", "54", "--learning-rate", "0.05"]
    code, out, err = run("fit", *options, "--output", "run")
    assert code == 0, err
    record = last_json(out)
    titles = [result["title"] for result in record["results"]]
    assert titles == ["Convolutional SOLVE-GP(8+7)", "Convolutional SVGP(8)"]
    assert record["config"]["natural_gradients"] == 0.0
    assert record["results"][0]["error_rate"] <= 1 / 6
    assert "the report is run/report.html" in err
    assert "The first 8 inducing patches." in (tmp_path / "run" / "report.html").read_text()
    code, out, err = run("evaluate", "--model", "run", "--report", "page")
    assert code == 0, err
    again = last_json(out)
    for name in ("error_rate", "nlpd", "brier", "ece"):
        np.testing.assert_allclose(again[name], record["results"][0][name], rtol=1e-9)
    labels = write_images(tmp_path / "new.npz", rng, 20)
    code, _, err = run("predict", "--model", "run", "--data", "new.npz", "--output", "p.csv")
    assert code == 0, err
    columns = read_csv((tmp_path / "p.csv").read_text())
    assert np.mean(columns["class"] == labels) >= 0.8


@pytest.mark.nightly
def test_deep_models_of_images_are_kept_and_predict_again(run, rng, tmp_path):
    write_images(tmp_path / "my.npz", rng)
    options = ["--data", "my.npz", "--task", "classification", "--method", "conv-solvegp"]
    options += ["--num-layers", "2", "--num-inducing", "5", "--num-orthogonal", "4"]
    options += ["--num-steps", "8", "--no-plot", "--no-baseline", "--no-tick"]
    code, out, err = run("fit", *options, "--output", "run")
    assert code == 0, err
    record = last_json(out)
    (result,) = record["results"]
    assert result["title"] == "Convolutional SOLVE-GP(5+4), 2 layers"
    (line,) = [line for line in err.splitlines() if line.startswith("hidden layer")]
    assert re.fullmatch(r"hidden layer 1: signal \S+, noise \S+, ratio \S+", line)
    again = last_json(run("evaluate", "--model", "run", "--chunk-size", "4")[1])
    for name in ("error_rate", "nlpd"):
        np.testing.assert_allclose(again[name], result[name], rtol=1e-9)
    assert run("evaluate", "--model", "run", "--report", "page")[0] == 0
    assert "inducing patches" in (tmp_path / "page" / "index.html").read_text()


@pytest.mark.nightly
def test_deep_models_of_tables_take_layers_neighbors_and_classes(run, rng, tmp_path):
    rows = [
        f"{a:.4f},{b:.4f},{'high' if a * b > 0 else 'low'}" for a, b in rng.normal(size=(90, 2))
    ]
    write_csv(tmp_path / "my.csv", rows)
    options = ["--data", "my.csv", "--method", "deep", "--num-inducing", "12", "--num-steps", "40"]
    options += ["--batch-size", "64", "--no-plot", "--no-baseline", "--num-neighbors", "5"]
    code, out, err = run("fit", *options, "--output", "run")
    assert code == 0, err
    record = last_json(out)
    (result,) = record["results"]
    assert result["title"] == "Deep GP(12), 2 layers"
    assert result["nlpd"] < 0.75  # of one half for each class 0.69
    again = last_json(run("evaluate", "--model", "run")[1])
    for name in ("error_rate", "nlpd"):
        np.testing.assert_allclose(again[name], result[name], rtol=1e-9)
    assert run("predict", "--model", "run", "--data", "my.csv", "--output", "p.csv")[0] == 0
    assert run("evaluate", "--model", "run", "--report", "page")[0] == 0
    page = (tmp_path / "page" / "index.html").read_text()
    assert "DeepGP is not one stationary kernel" in page
    assert "Partial dependence on width" in page
    code, _, err = run("fit", *options, "--num-orthogonal", "3", "--output", "other")
    assert code == 1
    assert "num_orthogonal must be 0 with num_neighbors" in err


BASIS = ["--num-basis", "12", "--points-per-dimension", "5", "--num-subset", "30"]


@pytest.mark.nightly
def test_type_one_inference_is_another_prediction_of_the_same_model(run, rng, tmp_path):
    write_csv(tmp_path / "my.csv", numbers(rng))
    options = ["--data", "my.csv", "--target", "price", "--method", "grief", *BASIS]
    options += ["--num-steps", "15", "--no-baseline", "--no-plot"]
    code, _, err = run("fit", *options, "--inference", "type1", "--output", "type1")
    assert code == 0, err
    model = gs.load(tmp_path / "type1" / "model.safetensors")
    posterior = model.sample_posterior(method="quadrature")
    rows = np.array([line.split(",") for line in numbers(rng, 9)], dtype=float)[:, :2]
    write_csv(tmp_path / "new.csv", [f"{a:.17g},{b:.17g}" for a, b in rows], "width,height")
    columns = read_csv(run("predict", "--model", "type1", "--data", "new.csv")[1])
    type_two, _ = model.standardizer.predict_y(model, rows)
    mean, variance = model.standardizer.predict_y(posterior, rows)
    assert np.abs(mean - type_two).max() > 1e-6
    np.testing.assert_allclose(columns["mean"], mean[:, 0], rtol=1e-9)
    np.testing.assert_allclose(columns["standard_deviation"] ** 2, variance[:, 0], rtol=1e-8)


@pytest.mark.nightly
@pytest.mark.parametrize("method", ["grief", pytest.param("basis_svgp", marks=pytest.mark.nightly)])
def test_an_interrupted_run_of_rounds_starts_again_and_one_of_steps_goes_on(
    run, rng, tmp_path, monkeypatch, method
):
    write_csv(tmp_path / "my.csv", numbers(rng))
    options = ["--data", "my.csv", "--target", "price", *read_by(method, BASIS), "--num-steps"]
    options += ["15", *ALONE, "--method", method]
    whole = last_json(run("fit", *options, "--output", "whole")[1])

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(gs.training, "fit_with_basis_refresh", interrupt)
        patch.setattr("gpflow_sparse.tables.cli.training.evaluate", interrupt)
        assert run("fit", *options, "--output", "parts")[0] != 0
    if method == "grief":
        assert not list((tmp_path / "parts").glob("checkpoints/*/checkpoint-*"))
    code, out, err = run("fit", *options, "--output", "parts", "--resume")
    assert code == 0, err
    for metric in ("rmse", "nlpd", "elbo"):
        np.testing.assert_allclose(
            last_json(out)["results"][0][metric], whole["results"][0][metric], rtol=1e-9
        )


def test_float32_runs_and_leaves_the_session_in_float64(run, rng, tmp_path):
    write_csv(tmp_path / "my.csv", numbers(rng))
    code, out, _ = run("fit", "--data", "my.csv", *SMALL, *ALONE, "--float32")
    assert code == 0
    assert last_json(out)["results"][0]["rmse_standardized"] < 1.0
    assert gpflow.default_float() is np.float64


def test_data_sets_and_methods_are_listed(run):
    assert "kin40k" in run("datasets")[1]
    assert {"solvegp", "odvgp", "solvegpr", "qsgp", "rvm"} <= set(run("methods")[1].split())


def test_predictions_of_new_rows_do_not_depend_on_the_chunks(run, here, rng, tmp_path):
    X = rng.normal(size=(7, 2))
    rows = [f"left,{b:.17g},{a:.17g}," for a, b in X]  # columns the model does not need may be text
    write_csv(tmp_path / "new.csv", rows, "door,height,width,note")
    code, out, err = run("predict", "--model", "run", "--data", "new.csv")
    assert code == 0, err
    columns = read_csv(out)
    assert list(columns) == ["mean", "standard_deviation", "lower_95", "upper_95"]
    assert len(columns["mean"]) == 7
    np.testing.assert_allclose(
        columns["upper_95"] - columns["mean"], 1.959964 * columns["standard_deviation"], rtol=1e-6
    )
    model = gs.load(tmp_path / "run" / "model.safetensors")
    mean, variance = model.standardizer.predict_y(model, X)
    np.testing.assert_allclose(columns["mean"], mean[:, 0], rtol=1e-9)
    np.testing.assert_allclose(columns["standard_deviation"] ** 2, variance[:, 0], rtol=1e-8)
    arguments = ["--model", "run/model.safetensors", "--data", "new.csv"]
    assert run("predict", *arguments)[1] == out  # the model file has the columns too
    for size in ("1", "3", "100000"):
        arguments = ["--data", "new.csv", "--chunk-size", size, "--output", "out/p.csv"]
        assert run("predict", "--model", "run", *arguments)[0] == 0
        again = read_csv((tmp_path / "out" / "p.csv").read_text())
        for name, values in columns.items():
            np.testing.assert_allclose(again[name], values, rtol=1e-9)


def test_npz_rows_and_a_model_saved_in_python_are_predicted(run, rng, tmp_path):
    X = rng.normal(size=(30, 2))
    scaler = gs.Standardizer.fit(X)
    model = gs.models.SOLVEGP(
        gpflow.kernels.Matern32(),
        gpflow.likelihoods.MultiClass(3),
        gs.inducing_variables.OrthogonalInducingVariables(X[:5], X[5:8]),
        num_latent_gps=3,
    )
    gs.save(model, tmp_path / "model")
    np.savez(tmp_path / "rows.npz", x=X)
    code, _, err = run("predict", "--model", "model", "--data", "rows.npz")
    assert code == 1
    assert "no standardizer" in err
    model.standardizer = scaler
    gs.save(model, tmp_path / "model")
    code, out, err = run("predict", "--model", "model", "--data", "rows.npz")
    assert code == 0, err
    columns = read_csv(out)
    assert list(columns) == ["probability_0", "probability_1", "probability_2", "class"]
    total = sum(columns[f"probability_{c}"] for c in range(3))
    np.testing.assert_allclose(total, np.ones(30), atol=1e-9)
    code, _, err = run("evaluate", "--model", "model", "--data", "rows.npz")
    assert code == 1
    assert "no array y" in err
    code, _, err = run("evaluate", "--model", "model")
    assert code == 1
    assert "give --data" in err


def test_evaluate_writes_a_report(run, here, tmp_path):
    code, out, err = run("evaluate", "--model", "run", "--report", "page")
    assert code == 0, err
    assert "page/index.html" in err
    assert [path.name for path in (tmp_path / "page").iterdir()] == ["index.html"]
    page = (tmp_path / "page" / "index.html").read_text()
    assert f"{last_json(out)['rmse']:.4g}" in page
    names = json.loads((tmp_path / "run" / "result.json").read_text())["dataset"]["feature_names"]
    assert all(f"<td>{name}</td>" in page for name in names)
    assert (
        tmp_path / "run" / "report.html"
    ).read_text() == page  # which fit wrote, of the same rows


@pytest.mark.nightly
def test_rows_of_a_report_have_their_numbers_in_the_file(run, rng, tmp_path):
    """Row 5 has no target, and is counted as well."""
    rows = numbers(rng, 90)
    rows[4] = "0,0,"
    kept = [i for i in range(90) if i != 4]
    test = np.sort(np.random.default_rng(0).permutation(89)[-8:])
    far = kept[test[5]]
    rows[far] = "0.1,0.2,900"
    write_csv(tmp_path / "my.csv", rows)
    code, _, err = run("fit", "--data", "my.csv", *SMALL, "--no-baseline", "--output", "run")
    assert code == 0, err
    assert "the report is run/report.html" in err
    page = (tmp_path / "run" / "report.html").read_text()
    surprising = page.split("<h2>Most surprising rows</h2>")[1]
    assert re.findall(r"<td>([^<]*)</td>", surprising)[:2] == [str(far + 1), "900"]


def test_a_target_whose_squares_vanish_is_refused_with_a_reason(run, rng, tmp_path):
    rows = [f"{a},{b},{1e-200 * a}" for a, b in rng.normal(size=(60, 2))]
    write_csv(tmp_path / "my.csv", rows)
    code, _, err = run("fit", "--data", "my.csv", "--target", "price", *SMALL)
    assert code == 1
    assert "Y must have standard deviations above 1e-148" in err


def start(tmp_path, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "gpflow_sparse.tables.cli.main", "fit", *arguments],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_for_checkpoint(folder, process):
    while not list(folder.glob("checkpoints/*/checkpoint-*")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


@pytest.mark.nightly
def test_ctrl_c_prints_the_command_that_resumes_and_it_does(run, tmp_path):
    options = [*SMALL, "--num-steps", "2000", *ALONE, "--output", "run"]
    process = start(tmp_path, *options)
    wait_for_checkpoint(tmp_path / "run", process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "fit was interrupted after step" in err
    (command,) = [line.strip() for line in err.splitlines() if line.startswith("    ")]
    assert command == shlex.join(["gpflow-sparse", "fit", *options, "--resume"])
    assert last_json(run("evaluate", "--model", "run")[1])["rmse"] > 0  # the model so far
    code, _, err = run("fit", *options)
    assert code == 1
    assert "an unfinished run is in run: add --resume" in err
    code, _, err = run("fit", *options, "--seed", "5", "--resume")
    assert code == 1
    assert "has seed=0, this one 5" in err
    code, out, err = run(*shlex.split(command)[1:])
    assert code == 0, err
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert 0.0 < last_json(out)["results"][0]["rmse_standardized"] < 0.5
    code, _, err = run(*shlex.split(command)[1:])
    assert code == 1
    assert "complete: nothing to resume" in err


@pytest.mark.nightly
def test_large_numbers_keep_their_digits(run, rng, tmp_path):
    """Seconds since 1970, say: the signal is in the eighth digit and below."""
    rows = [f"{a:.6f},{b:.6f},{1.7e9 + np.sin(a):.9f}" for a, b in rng.normal(size=(80, 2))]
    write_csv(tmp_path / "my.csv", rows)
    run("fit", "--data", "my.csv", "--target", "price", *SMALL, *ALONE, "--output", "run")
    write_csv(tmp_path / "new.csv", ["0.5,1", "-0.5,1"], "width,height")
    columns = read_csv(run("predict", "--model", "run", "--data", "new.csv")[1])
    assert 0.2 < columns["mean"][0] - columns["mean"][1] < 1.5
    assert (columns["upper_95"] > columns["lower_95"]).all()


def test_a_finished_run_is_not_replaced_by_another(run, here):
    code, _, err = run(*FIT, "--output", "run", "--kernel", "matern12")
    assert code == 1
    assert "the finished run in run has kernel='matern52', this one 'matern12'" in err


@pytest.mark.nightly
def test_test_rows_are_taken_only_from_the_file_as_it_was(run, here, rng, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run("evaluate", "--model", "../run")[0] == 0
    write_csv(tmp_path / "new.csv", numbers(rng, 20))
    write_csv(tmp_path / "my.csv", numbers(rng))
    code, _, err = run("evaluate", "--model", "../run")
    assert code == 1
    assert "has changed since the run" in err
    arguments = ["--data", "../new.csv", "--report", "page"]
    code, _, err = run("evaluate", "--model", "../run", *arguments)
    assert code == 0, err
    page = (tmp_path / "elsewhere" / "page" / "index.html").read_text()
    assert "Measured on 20 rows of new.csv: too few" in page
    (tmp_path / "my.csv").unlink()
    code, _, err = run("evaluate", "--model", "../run")
    assert code == 1
    assert "is missing: give rows with --data" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "nothing", "--data", "r.csv"], "no saved model"),
        (["--model", "model", "--data", "r.csv", "--chunk-size", "0"], "chunk-size"),
        (["--model", "model", "--data", "r.csv", "--output", "r.csv"], "another file than data"),
        (["--model", "model", "--data", "r.csv", "--output", "."], "Is a directory"),
        (["--model", "model", "--data", "r.csv", "--output", "r.csv/x"], "exists|Not a directory"),
        (["--model", "r.csv", "--data", "r.csv"], "is not a saved model"),
    ],
)
def test_mistakes_in_predict_become_one_clear_line(run, tmp_path, arguments, words):
    save_poisson(tmp_path / "model")
    write_csv(tmp_path / "r.csv", ["1,2", "0,1"], "width,height")
    code, _, err = run("predict", *arguments)
    assert code in (1, 2)
    assert re.search(words, err)
    assert "Traceback" not in err
    assert (tmp_path / "r.csv").read_text().startswith("width")
