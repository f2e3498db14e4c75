"""The advice of `gs.diagnostics`: sentences exactly where they are due."""

import gpflow
import numpy as np
import pytest
from gpflow.kernels import SquaredExponential

import gpflow_sparse as gs
from tests.test_diagnosis import (
    NOISE,
    SCALE,
    advice,
    k,
    labeled,
    optimal,
    points,
    rows,
    solvegp,
    svgp,
)


def draws_of_the_prior(N=600, seed=3):
    """Rows that the model below, with every 1-D place well covered, predicts perfectly."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(-3.0, 3.0, size=(N, 1)), axis=0)
    K = k(X, X) + NOISE * np.eye(N)
    return X, np.linalg.cholesky(K) @ rng.normal(size=(N, 1))


def test_inducing_points_are_advised_exactly_where_they_are_too_few():
    X, Y = draws_of_the_prior(200)
    few, many = (np.linspace(-3, 3, M)[:, None] for M in (4, 60))
    (sentence,) = advice(svgp(few), (X, Y), "Add inducing points")
    gap = gs.diagnostics(svgp(few), (X, Y))["bound"]["inducing_gap_per_row"]
    assert f"at most {gap:.2g} nats per row." in sentence
    assert advice(svgp(few), (X, Y), "More inducing points") == []
    assert advice(svgp(many), (X, Y), "Add inducing points") == []
    (sentence,) = advice(svgp(many), (X, Y), "More inducing points would not help")
    assert "at most" in sentence


def test_inducing_points_on_top_of_each_other_are_named():
    Z, O = points(7, 5)
    assert advice(solvegp(Z, O), rows(), "Two inducing inputs") == []
    O[2] = Z[4] + 1e-5
    (sentence,) = advice(solvegp(Z, O), rows(), "Two inducing inputs")
    assert f"{np.sqrt(2) * 1e-5 / SCALE:.2g} lengthscales apart" in sentence
    Z[0] = Z[1]
    assert len(advice(solvegp(Z), rows(), "Two inducing inputs")) == 1


def test_an_input_that_hardly_matters_is_named_and_one_that_matters_is_not():
    data = rows()
    Z = points(9)[0]
    (sentence,) = advice(
        svgp(Z, kernel=SquaredExponential(lengthscales=[0.7, 60.0])), data, "Input column"
    )
    assert sentence.startswith("Input columns that hardly matter: 1. Their lengthscales are")
    both = SquaredExponential(lengthscales=[80.0, 60.0])
    (sentence,) = advice(svgp(Z, kernel=both), data, "Input column")
    assert sentence.startswith("Input columns that hardly matter: 0, 1. Their lengthscales are")
    usual = SquaredExponential(lengthscales=[0.7, 5.0])
    # as long, but with a variance that makes f a steep line along that column
    steep = SquaredExponential(lengthscales=[0.7, 60.0], variance=1e4)
    for kernel in (usual, steep):
        assert advice(svgp(Z, kernel=kernel), data, "Input column") == []


@pytest.mark.parametrize(("factor", "word"), [(0.2, "narrow"), (1.0, None), (5.0, "wide")])
def test_intervals_of_a_wrong_width_are_named(factor, word):
    X, Y = draws_of_the_prior()
    model = optimal(svgp(np.linspace(-3.1, 3.1, 40)[:, None]), (X, Y))
    model.likelihood.variance.assign(factor * NOISE)
    found = advice(model, (X, Y), "Intervals")
    assert [word in sentence for sentence in found] == ([] if word is None else [True])
    assert ["training rows" in sentence for sentence in found] == [word == "wide"] * len(found)


def test_probabilities_that_are_too_bold_or_too_timid_are_named():
    X, Y = labeled()
    Z = points(9)[0]
    model = solvegp(Z, likelihood=gpflow.likelihoods.Bernoulli())
    gs.training.fit(model, (X, Y), num_steps=600, natural_gradients=True, progress=False)
    assert advice(model, (X, Y), "The class probabilities") == []
    rng = np.random.default_rng(1)
    (sentence,) = advice(model, (X, rng.permutation(Y)), "The class probabilities")
    assert "overconfident" in sentence
    assert "training rows" not in sentence
    fresh = solvegp(Z, likelihood=gpflow.likelihoods.Bernoulli())  # says one half of everything
    fresh.q_mu[0].assign(0.2 * model.q_mu[0])
    (sentence,) = advice(fresh, (X, Y), "The class probabilities")
    assert "underconfident" in sentence
    assert "training rows" in sentence
