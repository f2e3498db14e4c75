"""The errors of QSGP's gradient estimators."""

import json

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner

from bench import commands, qsgp_variance
from gpflow_sparse.bases import RandomFourier
from gpflow_sparse.models import QSGP
from tests.oracles import qsgp as oracle

NOISE = 0.3


@pytest.fixture
def problem(rng):
    """Eight functions, 30 rows, a mean of the weights."""
    X = rng.normal(size=(30, 2))
    Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(30, 1))
    basis = RandomFourier(gpflow.kernels.SquaredExponential(lengthscales=[1.0, 2.0]), 8)
    gpflow.utilities.set_trainable(basis, False)
    return basis, (tf.constant(X), tf.constant(Y)), tf.constant(rng.normal(size=(8, 1)))


def made_model(basis, mu, **options):
    model = QSGP(basis, gpflow.likelihoods.Gaussian(NOISE), num_data=30, **options)
    model.q_mu.assign(mu)
    return model


def test_the_exact_gradient_and_where_it_vanishes(problem, monkeypatch):
    monkeypatch.setattr(qsgp_variance, "_BLOCK_ROWS", 7)
    basis, data, mu = problem
    Phi, y, m = basis(data[0]).numpy(), data[1].numpy()[:, 0], mu.numpy()[:, 0]
    gradient = qsgp_variance.exact_gradient(qsgp_variance.weight_sums(basis, data), NOISE, mu)
    expected = Phi.T @ (Phi @ m - y) / NOISE + m
    np.testing.assert_allclose(gradient[:, 0], expected, rtol=1e-10)
    best = qsgp_variance.optimal_mean(qsgp_variance.weight_sums(basis, data), NOISE)
    np.testing.assert_allclose(best[:, 0], oracle.weight_posterior(Phi, y, np.ones(8), NOISE)[0])
    zero = qsgp_variance.exact_gradient(qsgp_variance.weight_sums(basis, data), NOISE, best)
    np.testing.assert_allclose(zero, np.zeros((8, 1)), atol=1e-9)


def test_equation_3_has_the_gradient_of_the_oracle(problem):
    basis, (X, Y), mu = problem
    options = {"basis_batch_size": 3, "num_control_rows": 5}
    model = made_model(basis, mu, variance_reduction="anchored", **options)
    model.prepare_step(0, lambda: (X, Y))
    draws = [0, 3, 5], [3, 1, 7]
    with tf.GradientTape() as tape:
        value = qsgp_variance.printed_equation_3(model, 2, [tf.constant(i) for i in draws])
    gradient = tf.convert_to_tensor(tape.gradient(value, model.q_mu))[:, 0]
    known = basis(X[:5]).numpy(), mu.numpy()[:, 0], NOISE, *draws, 30
    np.testing.assert_allclose(value, oracle.eq3(*known), rtol=1e-10)
    np.testing.assert_allclose(gradient, oracle.eq3_gradient(*known), rtol=1e-10, atol=1e-10)


@pytest.mark.nightly
def test_errors_at_both_places_and_ratios_to_the_printed_theorems(monkeypatch):
    monkeypatch.delenv("GPFLOW_SPARSE_DATA", raising=False)
    sizes = (
        "--num-basis 20 --basis-batch-size 5 --batch-size 10 --num-control-rows 20 --num-rows 60"
    )
    command = ["variance", "qsgp", *sizes.split(), "--repeats", "3"]
    result = CliRunner().invoke(commands.bench, command)
    assert result.exit_code == 0, result.output
    assert "generated rows, 60 rows" in result.stderr
    rows = json.loads(result.stdout.splitlines()[-1])["rows"]
    assert [row["estimator"] for row in rows] == ["literal", "eq3", "none", "anchored"]
    assert {row["data"] for row in rows} == {"generated rows"}
    literal, *_, anchored = rows
    for place in ("at_prior_draw", "at_optimum"):
        assert anchored[place] < literal[place]
        assert literal[f"{place}_to_literal"] == 1.0
        assert anchored[f"{place}_to_literal"] == anchored[place] / literal[place]
