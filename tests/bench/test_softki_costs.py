"""What steps and posteriors of SoftKI cost."""

import json

import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner

from gpflow_sparse.bench import qsgp_memory, softki_memory, softki_steps
from gpflow_sparse.cli import main

SMALL = {"num_inducing": 6, "batch_size": 10, "input_dim": 3}


def test_steps_are_of_four_models_against_sgpr():
    rows = softki_steps.softki_steps(**SMALL, repeats=2)
    assert [row.title for row in rows] == [
        "SoftKI(6)",
        "SoftKI(6), pseudo-loss",
        "GPflow SGPR(6)",
        "GPflow SVGP(6)",
    ]
    sgpr = rows[2].milliseconds
    for row in rows:
        np.testing.assert_allclose(row.ratio, row.milliseconds / sgpr)


@pytest.mark.parametrize("make", [softki_steps._softki, softki_steps._svgp, softki_steps._sgpr])
def test_a_step_is_the_loss_and_the_gradient_of_every_parameter(rng, make):
    X, Z = rng.normal(size=(10, 3)), rng.normal(size=(6, 3))
    data = (tf.constant(X), tf.constant(np.sin(X[:, :1])))
    if make is softki_steps._sgpr:
        model, given = make(Z, data), ()
    else:
        model = make(Z, "exact") if make is softki_steps._softki else make(Z)
        given = (data,)
    loss, gradients = softki_steps._step(model, *given)()
    np.testing.assert_allclose(loss, model.training_loss(*given), rtol=1e-10)
    assert len(gradients) == len(model.trainable_variables)
    if make is not softki_steps._svgp:  # whose points do not matter while q is the prior
        assert all(float(tf.reduce_max(tf.abs(g))) > 0.0 for g in gradients)


def test_the_step_benchmark_on_the_command_line():
    options = ["--num-inducing", "6", "--batch-size", "10", "--input-dim", "3", "--repeats", "1"]
    result = CliRunner().invoke(main, ["bench", "step", "softki", *options, "--float32"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout.splitlines()[-1])["rows"]
    assert rows[0]["title"] == "SoftKI(6)"
    assert rows[2]["ratio"] == 1.0
    for wrong in ("--num-basis", "--num-orthogonal"):
        result = CliRunner().invoke(main, ["bench", "step", "softki", wrong, "4"])
        assert result.exit_code == 1
        assert f"{wrong} is" in result.output


@pytest.mark.nightly
def test_memory_is_that_of_a_process_of_its_own():
    command = ["bench", "posterior", "softki", "--num-rows", "3000", "--num-inducing", "20"]
    result = CliRunner().invoke(main, [*command, "--input-dim", "4", "--float32"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.splitlines()[-1])
    np.testing.assert_allclose(found["held"], 3000 * 5 * 4 / 2**20)
    assert (found["num_rows"], found["num_inducing"]) == (3000, 20)
    assert 0.0 < found["grown"] <= found["peak"] < 2000.0


def test_memory_needs_a_system_that_tells(monkeypatch, tmp_path):
    monkeypatch.setattr(qsgp_memory, "_STATUS", tmp_path / "none")
    with pytest.raises(ValueError, match="on Linux"):
        softki_memory.posterior_cost(10, num_inducing=5, input_dim=2, float32=False)
