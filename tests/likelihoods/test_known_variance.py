"""Noise of known variance against dense algebra, in a likelihood and in models that hold data."""

import gpflow
import numpy as np
import pytest

from gpflow_sparse.likelihoods import GaussianWithKnownVariance


def rows(rng, N=14, P=2):
    X = rng.uniform(0.0, 3.0, size=(N, 2))
    Y = np.sin(X[:, :1] + np.arange(P)) + 0.3 * rng.normal(size=(N, P))
    return X, Y, rng.uniform(0.001, 0.8, size=N)


def dense(kernel, X, Y, noise, Xnew):
    """Log density, and mean and variance of f, of exact regression."""
    K = kernel(X).numpy() + np.diag(noise)
    k, solved = kernel(X, Xnew).numpy(), np.linalg.solve(K, Y)
    value = -0.5 * np.sum(Y * solved)
    value -= 0.5 * Y.shape[1] * (np.linalg.slogdet(K)[1] + len(X) * np.log(2.0 * np.pi))
    left = kernel(Xnew, full_cov=False) - np.sum(k * np.linalg.solve(K, k), axis=0)
    return value, k.T @ solved, left


def test_expectations_are_those_of_gpflow_row_by_row(rng):
    X, Y, known = rows(rng)
    known = np.column_stack([known, known[::-1]])
    m, v = rng.normal(size=Y.shape), rng.uniform(0.1, 1.0, size=Y.shape)
    site = GaussianWithKnownVariance(0.2)
    for method in ("variational_expectations", "predict_log_density"):
        found = getattr(site, method)(X, m, v, np.hstack([Y, known]))
        for n in range(len(X)):
            each = [
                getattr(gpflow.likelihoods.Gaussian(0.2 + known[n, p]), method)(
                    X[:1], m[n : n + 1, [p]], v[n : n + 1, [p]], Y[n : n + 1, [p]]
                )
                for p in range(2)
            ]
            np.testing.assert_allclose(found[n], np.sum(each), rtol=1e-12)
    np.testing.assert_allclose(site.predict_mean_and_var(X, m, v)[1], v + 0.2, rtol=1e-14)
    assert not GaussianWithKnownVariance(0).trainable_variables
    with pytest.raises(ValueError, match=r"variance must be one positive number; got -1"):
        GaussianWithKnownVariance(-1)
