"""Soft interpolation as a kernel of GPflow, alone and with the variance that it lacks."""

import gpflow
import numpy as np
import pytest

from gpflow_sparse.bases import SoftInterpolation
from gpflow_sparse.kernels import SoftKI, WithMissingVariance
from tests.oracles import softki as oracle

RNG = np.random.default_rng(4)
X, Z, NEW = RNG.normal(size=(15, 2)), RNG.normal(size=(6, 2)), RNG.normal(size=(5, 2))
Y = np.sin(2.0 * X[:, :1]) + 0.1 * RNG.normal(size=(15, 1))
VARIANCE, LENGTHSCALES, TEMPERATURE, NOISE = 1.7, np.array([0.7, 1.4]), 0.4, 0.1
OPTIONS = {"temperature": TEMPERATURE, "tied": True}


def kernel():
    return gpflow.kernels.Matern32(variance=VARIANCE, lengthscales=LENGTHSCALES)


def weights(places):
    return oracle.weights(places, Z, TEMPERATURE * LENGTHSCALES)


def covariance(first, second):
    K = oracle.with_jitter(oracle.matern32(Z, Z, VARIANCE, LENGTHSCALES), 1e-6)
    return weights(first) @ K @ weights(second).T


def filled(places):
    """With noise that restores the variance of the kernel."""
    Q = covariance(places, places)
    return Q + np.diag(np.maximum(VARIANCE - np.diag(Q), 0.0))


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (SoftKI, lambda places: covariance(places, places)),
        (
            lambda *parts, **options: WithMissingVariance(SoftInterpolation(*parts, **options)),
            filled,
        ),
    ],
    ids=["plain", "filled"],
)
def test_matrices(build, expected):
    k = build(kernel(), Z, **OPTIONS)
    np.testing.assert_allclose(k(X), expected(X), atol=1e-12)
    np.testing.assert_allclose(k(X, NEW), covariance(X, NEW), atol=1e-12)
    np.testing.assert_allclose(k(X, X), covariance(X, X), atol=1e-12)
    np.testing.assert_allclose(k(X, full_cov=False), np.diag(expected(X)), atol=1e-12)
    assert np.linalg.eigvalsh(k(X)).min() > -1e-12
