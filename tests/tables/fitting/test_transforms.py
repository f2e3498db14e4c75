"""The transform of the outputs of a regression, chosen by the density of held-out rows."""

import numpy as np
import pytest

from gpflow_sparse.estimators import SparseGPRegressor
from gpflow_sparse.tables.fitting import choice, transforms


def table(noise, num_rows=1200, seed=0):
    """Skewed outputs with multiplicative noise, or with additive noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(num_rows, 2))
    if noise == "multiplicative":
        f = 1.2 * np.sin(X[:, :1]) + X[:, 1:]
        return X, np.exp(f + 0.3 * rng.normal(size=f.shape))
    X = rng.exponential(size=(num_rows, 2))
    return X, 20.0 + 2.0 * X[:, :1] + 0.3 * rng.normal(size=(num_rows, 1))


@pytest.mark.parametrize(("noise", "expected"), [("multiplicative", "log"), ("additive", "none")])
def test_the_transform_of_the_noise_is_found(noise, expected):
    X, Y = table(noise)
    said = []
    assert transforms.resolve("auto", X, Y, report=said.append) == expected
    assert len(said) == (expected != "none")
    assert transforms.resolve("yeo-johnson", X, Y) == "yeo-johnson"
    assert transforms.resolve("auto", X[:500], Y[:500]) == "none"
    assert transforms.resolve("auto", X, np.log(Y)) == "none"  # without a trial


def test_densities_are_of_the_original_outputs():
    """In other units they differ by the logarithm of the unit alone."""
    X, Y = table("multiplicative", 300)
    given, held_out = np.arange(200), np.arange(200, 300)
    for transform in ("none", "log", "yeo-johnson"):
        one, other = (
            transforms._densities(transform, X, unit * Y, given, held_out, 0)
            for unit in (1.0, 50.0)
        )
        np.testing.assert_allclose(one - other, np.log(50.0), rtol=1e-6)


@pytest.mark.nightly
def test_the_estimator_takes_it_for_the_automatic_choice_alone(monkeypatch):
    monkeypatch.setattr(choice, "candidates", lambda task: ["svgp"])
    X, Y = table("multiplicative")
    options = {"num_inducing": 8, "num_steps": 2, "num_subset": 100}
    options |= {"kernel": "matern32"}
    auto = SparseGPRegressor(method_options=options).fit(X, Y[:, 0])
    assert auto.model_.standardizer.y_transform == "log"
    other = SparseGPRegressor(method="svgp", method_options=options).fit(X, Y[:, 0])
    assert other.model_.standardizer.y_transform == "none"


def test_outputs_between_0_and_1_try_a_logit():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1))
    Y = 1.0 / (1.0 + np.exp(-3.0 * np.sin(X) - 2.0 - rng.normal(size=X.shape)))
    assert transforms.resolve("auto", X, Y) == "logit"
    assert transforms.resolve("auto", X, 2.0 * Y) == "none"
    assert transforms.resolve("auto", X[:50], Y[:50]) == "none"
