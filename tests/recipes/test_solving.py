"""Runs of exact GPs by dual blocks: steps, passes, checkpoints and their resumption."""

import dataclasses
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

import gpflow_sparse as gs
from gpflow_sparse.models.dual import steps as dual_steps
from gpflow_sparse.models.dual.solver import ConvergenceError
from gpflow_sparse.recipes.methods import dual_solving as solving
from gpflow_sparse.recipes.registry import baseline_of, recipe_of
from tests.command_line import here as here
from tests.command_line import last_json, numbers, write_csv
from tests.command_line import run as run

FIT = ["fit", "--data", "my.csv", "--target", "price", "--method", "dual", "--num-steps", "2"]
FIT += ["--no-baseline", "--no-plot"]


@pytest.fixture
def table(rng, tmp_path, monkeypatch):
    """Rows, and a tolerance that takes some passes."""
    write_csv(tmp_path / "my.csv", numbers(rng))
    make = solving.DualOptions
    monkeypatch.setattr(
        solving,
        "DualOptions",
        lambda seed: dataclasses.replace(make(seed=seed), block_size=10, tolerance=1e-5),
    )


def interrupted_after(number):
    say = solving._say

    def stop(line, progress):
        say(line, progress)
        if line.startswith(f"pass {number}:"):
            raise KeyboardInterrupt

    return stop


@pytest.mark.nightly
def test_an_interrupted_run_goes_on_from_its_last_pass_to_the_same_bits(
    run, table, tmp_path, monkeypatch
):
    code, out, err = run(*FIT, "--output", "whole")
    assert code == 0, err
    assert "2 steps on hyperparameters, " in err
    whole = last_json(out)["results"][0]
    assert err.count("pass ") > 3
    monkeypatch.setattr(sys, "argv", ["gpflow-sparse", *FIT, "--output", "parts"])
    with monkeypatch.context() as patch:
        patch.setattr(solving, "_say", interrupted_after(2))
        code, _, err = run(*FIT, "--output", "parts")
    assert code == 130
    assert "stopped after 2 passes; continue with\n\n    gpflow-sparse fit " in err
    assert "--output parts --resume" in err
    assert last_json(run("evaluate", "--model", "parts")[1])["rmse"] > 0  # the model so far
    code, _, err = run(*FIT, "--output", "parts")
    assert code == 1
    assert "an unfinished run is in parts: add --resume" in err
    code, out, err = run(*FIT, "--output", "parts", "--resume")
    assert code == 0, err
    assert "steps on hyperparameters" not in err
    assert "pass 2:" not in err
    assert "pass 3:" in err
    found = last_json(out)["results"][0]
    assert (found["rmse"], found["nlpd"]) == (whole["rmse"], whole["nlpd"])
    models = [gs.load(tmp_path / name / "model.safetensors") for name in ("whole", "parts")]
    np.testing.assert_array_equal(*(m.weights.values for m in models))
    np.testing.assert_array_equal(*(m.likelihood.variance for m in models))
    assert not (tmp_path / "parts" / "checkpoints").exists()


@pytest.mark.nightly
def test_an_interruption_of_the_steps_leaves_nothing_to_resume(run, table, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(solving, "_fit_hyperparameters", stop)
        assert run(*FIT, "--output", "parts")[0] != 0
    assert not list((tmp_path / "parts").glob("checkpoints/*/checkpoint-*"))
    code, _, err = run(*FIT, "--output", "parts")
    assert code == 0, err


@pytest.mark.nightly
def test_steps_that_fail_leave_a_run_with_the_parameters_before_them(run, table, monkeypatch):
    def fail(model, options, **_):
        raise ConvergenceError("the solver stands still.")

    monkeypatch.setattr(dual_steps, "_solve", fail)
    code, _, err = run(*FIT, "--output", "run")
    assert code == 0, err
    assert "step 1 of the hyperparameters: the solver stands still." in err
    assert "0 steps on hyperparameters" in err
    assert "pass 1:" in err


def test_the_baseline_has_steps_and_a_rate_of_its_own():
    recipe = recipe_of("dual")
    assert (recipe.num_steps, recipe.learning_rate) == (10, 0.1)
    assert baseline_of(recipe) == recipe_of("svgp")


def test_the_memory_of_dual_blocks_is_linear_in_the_rows():
    needs = [recipe_of("dual").num_elements(rows, 8, 1) for rows in (10_000, 110_000, 210_000)]
    assert needs[2] - needs[1] == needs[1] - needs[0]


@pytest.mark.nightly
@pytest.mark.parametrize("delay", [0.0, 0.1, 0.4])
def test_a_run_killed_in_a_pass_goes_on_to_the_same_bits(rng, tmp_path, delay):
    write_csv(tmp_path / "my.csv", numbers(rng, 4000))
    start = [sys.executable, "-c", "from gpflow_sparse.cli import main; main()", *FIT]
    subprocess.run([*start, "--output", "whole"], cwd=tmp_path, check=True, capture_output=True)
    start += ["--output", "parts"]
    process = subprocess.Popen(start, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if line.startswith("pass 2:"):
            break
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    subprocess.run([*start, "--resume"], cwd=tmp_path, check=True, capture_output=True)
    whole, parts = (load_file(tmp_path / n / "model.safetensors") for n in ("whole", "parts"))
    assert {k: v.tobytes() for k, v in parts.items()} == {k: v.tobytes() for k, v in whole.items()}
