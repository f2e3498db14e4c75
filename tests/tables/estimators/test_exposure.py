"""Counts with exposures: their logarithm is the prior mean of the logarithm of the rate."""

import numpy as np
import pandas as pd
import pytest

import gpflow_sparse as gs
from gpflow_sparse import likelihoods
from gpflow_sparse.estimators import SparseGPClassifier, SparseGPRegressor
from gpflow_sparse.tables.fitting.observations import sample_outputs

OPTIONS = {"exposure": "E", "num_inducing": 30, "num_orthogonal": 0, "num_steps": 150}


def counts(num_rows=300, seed=0):
    rng = np.random.default_rng(seed)
    a, E = rng.normal(size=num_rows), np.exp(rng.uniform(0.0, 6.0, num_rows))
    mean = E * np.exp(np.sin(2.0 * a) - 1.0)
    y = rng.poisson(rng.gamma(5.0, mean / 5.0)).astype(float)
    return pd.DataFrame({"E": E, "a": a}), y, mean


@pytest.fixture(scope="module")
def model():
    frame, y, _ = counts()
    options = {"method_options": OPTIONS, "random_state": 0}
    return SparseGPRegressor("solvegp", likelihood="negative_binomial", **options).fit(frame, y)


def test_rates_are_relative_to_the_exposure(model, tmp_path):
    frame, _, mean = counts(seed=1)
    found, inner = model.predict(frame), model.model_
    assert np.sqrt(np.mean(np.log(found / mean) ** 2)) < 0.25
    rows = inner.standardizer.transform_inputs(frame.assign(E=np.log(frame["E"])).to_numpy())
    prior = inner.mean_function(rows).numpy()[:, 0] - np.log(frame["E"])
    np.testing.assert_allclose(prior, prior[0], rtol=1e-9)  # the constant
    assert not inner.mean_function.A.trainable
    gs.save(model, tmp_path / "model")
    np.testing.assert_allclose(gs.load(tmp_path / "model").predict(frame), found, rtol=1e-9)


def test_what_has_no_exposure_is_refused(model):
    frame, y, _ = counts(40)

    def fit(kind=SparseGPRegressor, frame=frame, y=y, exposure="E", **options):
        kind("solvegp", method_options=OPTIONS | {"exposure": exposure}, **options).fit(frame, y)

    poisson = {"likelihood": "poisson"}
    with pytest.raises(ValueError, match="exposure is for counts, with likelihood poisson"):
        fit()
    with pytest.raises(ValueError, match="exposure is for counts"):
        fit(SparseGPClassifier, y=y > y.mean())
    with pytest.raises(ValueError, match="exposure must be a column of X, got 'F'"):
        fit(exposure="F", **poisson)
    with pytest.raises(ValueError, match="a positive number in every row, got 2 others"):
        fit(frame=frame.assign(E=np.r_[0.0, np.nan, frame["E"][2:]]), **poisson)
    with pytest.raises(ValueError, match="'E' must be a column of numbers that vary"):
        fit(frame=frame.assign(E=2.0), **poisson)
    with pytest.raises(ValueError, match="exposure is for the estimators and the command line"):
        gs.recipes.svgp(frame.to_numpy(), y[:, None], exposure="x0", likelihood="poisson")
    with pytest.raises(ValueError, match="in every row, got 40 others"):
        model.predict(frame.assign(E=-1.0))


def test_draws_have_the_moments_of_their_likelihoods():
    F, rng = np.full([200_000, 1], 1.0), np.random.RandomState(0)
    for likelihood in (likelihoods.NegativeBinomial(0.5), likelihoods.ZeroInflatedPoisson(0.3)):
        drawn = sample_outputs(likelihood, F, rng)
        X = np.zeros([1, 1])
        np.testing.assert_allclose(
            drawn.mean(), likelihood.conditional_mean(X, F[:1])[0], rtol=0.02
        )
        variance = likelihood.conditional_variance(X, F[:1])[0]
        np.testing.assert_allclose(drawn.var(), variance, rtol=0.03)
