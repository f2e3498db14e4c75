"""What commands write: only their own files are replaced, and no result is lost."""

import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import gpflow
import numpy as np
import pytest

import gpflow_sparse as gs
from gpflow_sparse import training
from gpflow_sparse.persistence import files, saving
from gpflow_sparse.tables.cli import outputs, stored
from gpflow_sparse.tables.cli import training as runs
from gpflow_sparse.tables.cli.config import RunConfig
from gpflow_sparse.tables.methods.registry import recipe_of
from tests.tables.cli.command_line import (
    ALONE,
    FIT,
    SMALL,
    last_json,
    numbers,
    read_csv,
    save_poisson,
    write_csv,
)
from tests.tables.cli.command_line import finished as finished
from tests.tables.cli.command_line import here as here
from tests.tables.cli.command_line import run as run


@pytest.fixture
def no_training(monkeypatch):
    def train(*_, **__):
        raise AssertionError("training began")

    monkeypatch.setattr(runs, "build_model", train)


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        *("checkpoints/mine", "checkpoints/config.json", "checkpoints/solvegp/notes.txt"),
        *("checkpoints/checkpoint-000000100.safetensors", "model.safetensors", "result.json"),
        "checkpoints/solvegp/checkpoint-000000100.safetensors",
    ],
)
def test_files_of_a_person_are_refused_by_name_before_training(run, here, no_training, name, begun):
    """In a folder without a run, and in one that holds a finished run."""
    folder = here / ("run" if begun else "new")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"model": "mine"}')
    before = contents(folder)
    code, _, err = run(*FIT, "--output", folder.name)
    assert code == 1
    assert f"{folder.name}/{name} was not written by gpflow-sparse fit" in err
    assert contents(folder) == before


def test_a_report_in_the_place_of_a_file_is_refused_before_rows_are_scored(run, here, monkeypatch):
    monkeypatch.setattr("gpflow_sparse.tables.fitting.evaluation.evaluate", None)
    for page in ("my.csv", "my.csv/page"):
        code, _, err = run("evaluate", "--model", "run", "--report", page)
        assert code == 1
        assert "Not a directory" in err


def test_a_saved_model_is_not_replaced_even_if_it_was_loaded_from_the_run(run, here, no_training):
    path = here / "run" / "model.safetensors"
    gs.save(gs.load(path), path)
    before = path.read_bytes()
    for option in ([], ["--resume"]):
        code, _, err = run(*FIT, "--output", "run", *option)
        assert code == 1
        assert "run/model.safetensors was not written by gpflow-sparse fit" in err
    assert path.read_bytes() == before


def test_checkpoints_of_training_fit_are_refused(run, here, no_training):
    X = np.random.default_rng(0).normal(size=(20, 2))
    model = gpflow.models.SVGP(gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(), X[:5])
    for place in ("checkpoints", "checkpoints/solvegp"):
        folder = here / place.replace("/", "-") / place
        training.fit(model, (X, X[:, :1]), num_steps=1, checkpoint_dir=folder)
        before = contents(folder)
        code, _, err = run(*FIT, "--output", str(here / place.replace("/", "-")))
        assert code == 1
        assert "was not written by gpflow-sparse fit" in err
        assert contents(folder) == before


@pytest.mark.nightly
def test_other_files_stay_and_the_same_run_again_replaces_its_own(run, here):
    (here / "run" / "notes.txt").write_text("mine")
    (here / "run" / "model.safetensors").chmod(0o600)
    before = contents(here / "run")
    code, _, err = run(*FIT, "--output", "run")
    assert code == 0, err
    after = contents(here / "run")
    assert set(after) == set(before)
    assert after["notes.txt"] == b"mine"
    again, first = (json.loads(files["result.json"])["results"] for files in (after, before))
    for name in ("rmse", "nlpd", "crps", "coverage", "elbo"):  # equal seeds, equal bits
        assert [r[name] for r in again] == [r[name] for r in first]
    assert (here / "run" / "model.safetensors").stat().st_mode & 0o777 == 0o600


@pytest.mark.nightly
def test_files_that_are_put_among_the_checkpoints_meanwhile_stay(run, here, monkeypatch):
    real = runs.evaluate

    def evaluate(*arguments, **keywords):
        (here / "new" / "checkpoints" / "solvegp" / "notes.txt").write_text("mine")
        (here / "new" / "checkpoints" / "checkpoint-000000001.safetensors").write_text("mine")
        return real(*arguments, **keywords)

    monkeypatch.setattr(runs, "evaluate", evaluate)
    assert run(*FIT, *ALONE, "--output", "new")[0] == 0
    assert sorted(contents(here / "new")) == [
        *("checkpoints/checkpoint-000000001.safetensors", "checkpoints/solvegp/notes.txt"),
        *("model.safetensors", "result.json"),
    ]


def test_a_second_run_into_the_folder_of_one_that_is_running_is_refused(run, here, monkeypatch):
    """Of a method without checkpoints too, and while the first writes its report."""
    write_csv(here / "other.csv", numbers(np.random.default_rng(1)))
    real, refused = runs.evaluate, []

    def evaluate(*arguments, **keywords):
        monkeypatch.setattr(runs, "evaluate", real)
        options = ["--method", "exact", "--output", "new", "--no-plot"]
        refused.append(run("fit", "--data", "other.csv", "--target", "price", *options))
        return real(*arguments, **keywords)

    monkeypatch.setattr(runs, "evaluate", evaluate)
    options = ["--method", "exact", "--num-subset", "40", "--output", "new", *ALONE]
    code, out, err = run("fit", "--data", "my.csv", "--target", "price", *options)
    assert code == 0, err
    assert [code for code, _, _ in refused] == [1]
    assert "another run is writing into new: wait until it has ended, or choose" in refused[0][2]
    scored = last_json(run("evaluate", "--model", "new")[1])
    np.testing.assert_allclose(scored["rmse"], last_json(out)["results"][0]["rmse"])
    assert sorted(contents(here / "new")) == ["model.safetensors", "result.json"]


def test_the_lock_of_a_killed_run_does_not_keep_out_the_next(tmp_path):
    (tmp_path / ".gpflow-sparse.lock").write_text("")
    with (
        outputs.locked(tmp_path),
        pytest.raises(ValueError, match="another run is writing"),
        outputs.locked(tmp_path),
    ):
        pass
    with outputs.locked(tmp_path):
        assert contents(tmp_path) == {".gpflow-sparse.lock": b""}
    assert contents(tmp_path) == {}


def test_a_lock_whose_file_was_removed_meanwhile_is_not_taken(tmp_path, monkeypatch):
    """Between opening and locking it, by the run that had it: a third would lock a new file."""
    real, path, calls = outputs.locks.take, tmp_path / ".gpflow-sparse.lock", []

    def take(file, *arguments, **options):
        calls.append(file)
        if len(calls) == 1:
            path.unlink()
        return real(file, *arguments, **options)

    monkeypatch.setattr(outputs.locks, "take", take)
    with outputs.locked(tmp_path):
        assert len(calls) == 2
        assert os.path.samestat(path.stat(), os.fstat(calls[1].fileno()))


@pytest.mark.parametrize("kept", ["model.safetensors", "checkpoints/choice.json"])
def test_what_a_killed_run_has_kept_is_not_replaced_by_another(tmp_path, kept):
    """A run without checkpoints: its model without a record, and its choice of a method."""
    first, second = (RunConfig.of_method("auto", data=name) for name in ("a.csv", "b.csv"))
    outputs.prepare_folder(tmp_path, first, resume=False)
    files.write(tmp_path / kept, {}, {"kind": outputs.FIT})
    for config, resume, words in (
        (first, False, "an unfinished run is in .*: add --resume"),
        (second, False, "an unfinished run is in .*: add --resume"),
        (second, True, "has data='a.csv', this one 'b.csv'"),
    ):
        with pytest.raises(ValueError, match=words):
            outputs.prepare_folder(tmp_path, config, resume=resume)
    outputs.prepare_folder(tmp_path, first, resume=True)


@pytest.mark.parametrize(
    ("attempts", "message"),
    [
        ([["exact", 1.0]], "attempts[0].error must be present"),
        ([["exact", "1", 1.0, 0, 1.0]], "attempts[0].nlpd must be a number, got '1'"),
        ([{"method": "exact"}], "attempts[0] must be a list"),
    ],
)
def test_a_damaged_choice_of_an_unfinished_run_is_one_sentence(tmp_path, attempts, message):
    path = tmp_path / "checkpoints" / "choice.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"config": {}, "reason": "", "attempts": attempts}))
    with pytest.raises(ValueError, match=re.escape(message)):
        runs._choose(recipe_of("auto"), None, tmp_path, resume=True)


def test_a_model_file_whose_table_is_no_text_is_damaged(run, here):
    path = here / "run" / "model.safetensors"
    header, arrays = files.read(path)
    tree = json.loads(header["tree"])
    (model,) = (
        part["attributes"] for part in tree["objects"] if "table" in part.get("attributes", ())
    )
    model["table"] = 5
    files.write(path, arrays, header | {"tree": json.dumps(tree)})
    code, _, err = run("predict", "--model", "run", "--data", "my.csv")
    assert code == 1
    assert "model.safetensors is damaged: its table must be text, got int" in err


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("place", "words", "resumes"),
    [
        (
            "tables.cli.training.calibration.calibrate",
            "the training steps so far are kept in new",
            True,
        ),
        ("tables.cli.training.evaluate", "the trained model is kept in new, without scores", True),
        (
            "tables.report.report.diagnostics",
            "the run in new is complete, but for its report",
            False,
        ),
    ],
)
def test_ctrl_c_after_the_last_step_says_what_is_kept(
    run, here, monkeypatch, place, words, resumes
):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    command = [*FIT, "--no-baseline", "--output", "new"]
    monkeypatch.setattr(sys, "argv", ["gpflow-sparse", *command])
    with monkeypatch.context() as patch:
        patch.setattr(f"gpflow_sparse.{place}", interrupt)
        code, _, err = run(*command)
    assert code == 130
    assert "Aborted" not in err
    assert f"stopped; {words}; continue with" in err
    (line,) = [line.strip() for line in err.splitlines() if line.startswith("    ")]
    again = shlex.split(line)[1:]
    assert again == (
        [*command, "--resume"]
        if resumes
        else ["evaluate", "--model", "new", "--report", "new/report"]
    )
    code, _, err = run(*again)
    assert code == 0, err
    assert "complete" not in err


def test_ctrl_c_in_predict_says_that_nothing_was_written(run, here, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    command = ["predict", "--model", "run", "--data", "my.csv", "--output", "p.csv"]
    monkeypatch.setattr(sys, "argv", ["gpflow-sparse", *command])
    monkeypatch.setattr(stored, "_predict_part", interrupt)
    code, _, err = run(*command)
    assert code == 130
    assert (
        f"stopped, and nothing was written; continue with\n\n    gpflow-sparse {' '.join(command)}"
        in err
    )
    assert not list(here.glob("*.tmp")) + list(here.glob(".saving*")) + list(here.glob("p.csv"))


def test_a_run_keeps_its_model_although_a_part_of_it_would_come_back_changed(
    run, here, monkeypatch
):
    real = saving._model_from_tree

    def changed(*arguments):
        model = real(*arguments)
        model.kernel.lengthscales.assign(2.0 * model.kernel.lengthscales)
        return model

    with monkeypatch.context() as patch:
        patch.setattr(saving, "_model_from_tree", changed)
        code, out, err = run(*FIT, *ALONE, "--output", "new")
    assert code == 0, err
    assert last_json(out)["results"][0]["rmse"] > 0.0
    words = "model.kernel.lengthscales would come back changed; if a class of yours"
    assert re.search(rf"^warning: new.model\.safetensors is written, but .*{words}", err, re.M)
    assert type(gs.load("new/model.safetensors")) is gs.models.SOLVEGP


def failing_baseline(monkeypatch, error):
    real = runs.build_model

    def build_model(recipe, dataset, **options):
        if recipe.name == "svgp":
            raise error
        return real(recipe, dataset, **options)

    monkeypatch.setattr(runs, "build_model", build_model)


@pytest.mark.parametrize(
    "kind",
    [
        training.TrainingError,
        *(pytest.param(kind, marks=pytest.mark.nightly) for kind in (ValueError, MemoryError)),
    ],
)
def test_a_baseline_that_fails_is_reported_and_costs_nothing(run, here, monkeypatch, kind):
    failing_baseline(monkeypatch, kind("Kuu is not positive definite"))
    code, out, err = run(*FIT, "--output", "new")
    assert code == 0, err
    assert "SVGP(12) failed, and the run continues without it: Kuu is not positive definite" in err
    assert [line.split()[1] for line in out.splitlines() if line.startswith("SVGP")] == ["failed"]
    record = last_json(out)
    ours, svgp = record["results"]
    assert svgp == {"title": "SVGP(12)", "error": "Kuu is not positive definite"}
    assert json.loads((here / "new" / "result.json").read_text()) == record
    scored = last_json(run("evaluate", "--model", "new")[1])
    np.testing.assert_allclose(scored["rmse"], ours["rmse"])
    assert (here / "new" / "report.html").is_file()
    assert not (here / "new" / "checkpoints").exists()
    for option in ([], ["--no-baseline"]):
        code, _, err = run(*FIT, "--output", "new", "--resume", *option)
        assert code == 1
        assert "the run in new is complete: nothing to resume" in err


@pytest.mark.nightly
def test_a_run_that_ends_during_its_baseline_is_usable_and_goes_on(run, here, monkeypatch):
    with monkeypatch.context() as patch:
        failing_baseline(patch, KeyboardInterrupt())
        assert run(*FIT, "--output", "new")[0] != 0
    shutil.copytree(here / "new", here / "alone")
    (result,) = json.loads((here / "new" / "result.json").read_text())["results"]
    scored = last_json(run("evaluate", "--model", "new")[1])
    np.testing.assert_allclose(scored["rmse"], result["rmse"])
    code, _, err = run(*FIT, "--output", "new")
    assert code == 1
    assert "an unfinished run is in new: add --resume" in err
    code, _, err = run(*FIT, "--output", "new", "--resume", "--kernel", "matern12")
    assert code == 1
    assert "kernel='matern52', this one 'matern12'" in err
    titles = {"new": ["SOLVE-GP(12+8)", "SVGP(12)"], "alone": ["SOLVE-GP(12+8)"]}
    for folder, option in (("new", []), ("alone", ["--no-baseline"])):
        code, out, err = run(*FIT, "--output", folder, "--resume", *option)
        assert code == 0, err
        record = last_json(out)
        assert [r["title"] for r in record["results"]] == titles[folder]
        assert record["config"]["baseline"] == (folder == "new")
        assert not (here / folder / "checkpoints").exists()


@pytest.fixture
def no_matplotlib(monkeypatch):
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.nightly
def test_without_matplotlib_a_run_says_so_first_and_is_complete(run, here, no_matplotlib):
    code, out, err = run(*FIT, "--no-baseline", "--output", "new")
    assert code == 0
    said = err.index("no report: a report needs matplotlib")
    assert said < err.index("training and 8 test rows")
    assert len(last_json(out)["results"]) == 1
    assert sorted(contents(here / "new")) == ["model.safetensors", "result.json"]


@pytest.mark.nightly
def test_a_report_that_cannot_be_made_costs_nothing_else(run, here, monkeypatch):
    def fail(*_, **__):
        raise ValueError("no diagnostics")

    monkeypatch.setattr("gpflow_sparse.tables.report.report.diagnostics", fail)
    code, out, err = run(*FIT, "--no-baseline", "--output", "new")
    assert code == 0
    assert "no report is written: no diagnostics" in err
    assert len(last_json(out)["results"]) == 1
    assert sorted(contents(here / "new")) == ["model.safetensors", "result.json"]


def test_without_matplotlib_a_report_is_refused_before_rows_are_scored(
    run, here, no_matplotlib, monkeypatch
):
    monkeypatch.setattr("gpflow_sparse.tables.fitting.evaluation.evaluate", None)
    code, _, err = run("evaluate", "--model", "run", "--report", "page")
    assert code == 1
    assert "a report needs matplotlib" in err


OUTPUTS = {
    "run/model.safetensors": "the model",
    "run/result.json": "the files of a run",
    "run/report.html": "the files of a run",
    "other/result.json": "the files of a run",
    "other/model.safetensors": "the files of a run",
    "begun/checkpoints/config.json": "the files of a run",
    "begun/checkpoints/solvegp/checkpoint-000000003.safetensors": "the files of a run",
    "my.csv": "data",
    "hard.csv": "data",
    "soft.csv": "data",
    "hard.json": "the files of a run",
    "./run/../run/result.json": "the files of a run",
}


@pytest.mark.parametrize("model", ["run", "run/model.safetensors"])
@pytest.mark.parametrize("output", OUTPUTS)
def test_predictions_do_not_replace_what_they_are_made_from(run, here, monkeypatch, output, model):
    shutil.copytree(here / "run", here / "other")
    note = here / "begun" / "checkpoints" / "config.json"
    checkpoint = here / "begun/checkpoints/solvegp/checkpoint-000000003.safetensors"
    checkpoint.parent.mkdir(parents=True)
    note.write_text("{}")
    checkpoint.write_text("")
    os.link(here / "my.csv", here / "hard.csv")
    os.link(here / "run" / "result.json", here / "hard.json")
    (here / "soft.csv").symlink_to(here / "my.csv")
    monkeypatch.setattr(stored, "open_model", None)  # refused before that
    before = contents(here)
    code, _, err = run("predict", "--model", model, "--data", "my.csv", "--output", output)
    assert code == 1
    assert f"output must be another file than {OUTPUTS[output]}" in err
    assert contents(here) == before


def test_predictions_are_replaced_also_in_the_folder_of_the_run(run, here):
    (here / "run" / "p.csv").write_text("old")
    (here / "run" / "p.csv").chmod(0o640)
    code, _, err = run("predict", "--model", "run", "--data", "my.csv", "--output", "run/p.csv")
    assert code == 0, err
    assert len(read_csv((here / "run" / "p.csv").read_text())["mean"]) == 80
    assert (here / "run" / "p.csv").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("command", [["evaluate", "--report", "page"], ["fit"]])
def test_a_report_replaces_only_a_report(run, here, monkeypatch, no_training, command):
    path = here / ("page/index.html" if len(command) > 1 else "run/report.html")
    path.parent.mkdir(exist_ok=True)
    path.write_text("<p>mine</p>")
    before = contents(path.parent)
    with monkeypatch.context() as patch:
        patch.setattr("gpflow_sparse.tables.fitting.evaluation.evaluate", None)
        options = ["--model", "run"] if len(command) > 1 else [*FIT[1:], "--output", "run"]
        code, _, err = run(*command, *options)
    assert code == 1
    assert f"{path.parent.name}/{path.name} is no report, and would be replaced by one" in err
    assert contents(path.parent) == before


@pytest.mark.nightly
def test_a_report_is_replaced_by_the_next_and_leaves_other_files(run, here):
    (here / "page").mkdir()
    (here / "page" / "notes.txt").write_text("mine")
    for _ in range(2):
        code, _, err = run("evaluate", "--model", "run", "--report", "page")
        assert code == 0, err
    assert (here / "page" / "notes.txt").read_text() == "mine"


ROWS = 60


def spoiled(column, value, row):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(ROWS, 3))
    values[row, "abc".index(column)] = value
    return [",".join(map(repr, line.tolist())) for line in values]


@pytest.mark.parametrize(
    ("part", "column", "value", "options"),
    [
        ("test", "a", 1e300, []),
        ("test", "b", -1e160, []),
        ("test", "c", 1e300, []),
        ("test", "a", 1e30, ["--float32"]),  # in a training row, standardization makes it small
        ("train", "a", 1e300, []),
        ("train", "c", -1e160, []),
    ],
)
def test_rows_whose_squares_overflow_are_named_before_training(
    run, tmp_path, no_training, part, column, value, options
):
    order = np.random.default_rng(0).permutation(ROWS)  # the last tenth is for testing
    row = int(order[-1] if part == "test" else order[0])
    write_csv(tmp_path / "my.csv", spoiled(column, value, row), "a,b,c")
    code, _, err = run("fit", "--data", "my.csv", "--target", "c", *SMALL, *options)
    assert code == 1
    assert f"row {row + 1} of my.csv" in err
    assert f"in column '{column}'" in err
    assert not (tmp_path / "gpflow-sparse-runs").exists()


def test_test_rows_of_a_named_data_set_are_looked_at(run, tmp_path, no_training, monkeypatch):
    values = np.random.default_rng(0).normal(size=(ROWS, 3))
    values[7, 1] = 1e200
    mask = np.arange(ROWS)[:, None] >= 5
    np.savez(tmp_path / "mine.npz", x=values[:, :2], y=values[:, 2:], test_mask=mask)
    monkeypatch.setenv("GPFLOW_SPARSE_DATA", str(tmp_path))
    code, _, err = run("fit", "--data", "mine", *SMALL)
    assert code == 1
    assert "row 3 of the test part of mine" in err
    assert "in column 'x1'" in err


@pytest.mark.parametrize(
    "command",
    [
        ["fit", "--data=~nosuchuser/x.csv"],
        ["fit", "--output=~nosuchuser/x"],
        ["predict", "--model=~nosuchuser/x", "--data=my.csv"],
        ["predict", "--model=run", "--data=~nosuchuser/x.csv"],
        ["predict", "--model=run", "--data=my.csv", "--output=~nosuchuser/x"],
        ["evaluate", "--model=run", "--data=~nosuchuser/x.csv"],
        ["evaluate", "--model=run", "--report=~nosuchuser/x"],
    ],
)
def test_the_home_folder_of_an_unknown_user_is_one_sentence(run, here, command):
    code, _, err = run(*command)
    assert code == 2
    assert "names the home folder of an unknown user" in err
    assert "Traceback" not in err


def test_a_poisson_model_predicts_into_a_device(run, tmp_path):
    save_poisson(tmp_path / "model")
    write_csv(tmp_path / "r.csv", ["1,2", "0,1"], "width,height")
    arguments = ["--model", "model", "--data", "r.csv", "--output", os.devnull]
    assert run("predict", *arguments)[0] == 0
    assert not Path(os.devnull).is_file()
