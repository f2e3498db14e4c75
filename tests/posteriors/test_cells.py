"""Predictions of cells: what is cached, and what it means."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.models import SWSGP
from gpflow_sparse.posteriors import CellPosterior, NeighborPosterior

M, D, P = 40, 2, 2


def make(H, kind, rng, mean_function=None):
    """A posterior, and the mean and the covariances ``[P, M, M]`` of its q."""
    kernel = gpflow.kernels.Matern52(variance=1.3, lengthscales=[0.4, 0.4 * np.exp(0.5)])
    q_sqrt = {
        "diag": np.exp(rng.normal(size=(M, P))),
        "dense": np.tril(rng.normal(size=(P, M, M))),
    }[kind]
    points = NeighborInducingPoints(rng.normal(size=(M, D)), H)
    q_mu = rng.normal(size=(M, P))
    posterior = NeighborPosterior(kernel, points, q_mu, q_sqrt, mean_function=mean_function)
    S = [np.diag(s**2) for s in q_sqrt.T] if kind == "diag" else q_sqrt @ np.swapaxes(q_sqrt, 1, 2)
    return posterior, q_mu, S


def naive(posterior, q_mu, S, X):
    """Row by row in NumPy."""
    Z, H = posterior.X_data.Z.numpy(), posterior.X_data.num_neighbors
    scales = posterior.kernel.lengthscales.numpy()
    mean, var = np.empty((len(X), P)), np.empty((len(X), P))
    for i, x in enumerate(X):
        cell = Z[np.argmin((((Z - x) / scales) ** 2).sum(1))]
        near = np.argsort((((Z - cell) / scales) ** 2).sum(1))[:H]
        K = posterior.kernel(Z[near]).numpy() + 1e-6 * 1.3 * np.eye(H)
        k = posterior.kernel(Z[near], x[None]).numpy()[:, 0]
        a = np.linalg.solve(K, k)
        mean[i] = a @ q_mu[near]
        for p in range(P):
            var[i, p] = 1.3 - k @ a + a @ S[p][np.ix_(near, near)] @ a
    return mean, var


@pytest.mark.parametrize("kind", ["diag", "dense"])
@pytest.mark.parametrize("num_cached", [1, 6, 1000])
def test_cells_are_what_they_say(rng, kind, num_cached):
    (posterior, *q), X = make(5, kind, rng), rng.normal(size=(30, D))
    cells = CellPosterior(posterior, num_cached=num_cached)
    expected = naive(posterior, *q, X)
    compiled = tf.function(cells.predict_f, autograph=False)
    for predict in (cells.predict_f, cells.predict_f, cells.fused_predict_f, compiled):
        for found, value in zip(predict(X), expected, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kind", ["diag", "dense"])
def test_with_all_points_near_cells_change_nothing(rng, kind):
    posterior, *_ = make(M, kind, rng, gpflow.functions.Linear(np.ones((D, P)), np.ones(P)))
    X = rng.normal(size=(3, 4, D))
    for found, value in zip(
        CellPosterior(posterior).predict_f(X), posterior.fused_predict_f(X), strict=True
    ):
        np.testing.assert_allclose(found, value, rtol=1e-7, atol=1e-7)


def test_after_update_cache_the_parameters_of_now_count(rng):
    X, Y = rng.normal(size=(30, D)), rng.normal(size=(30, 1))
    model = SWSGP(
        gpflow.kernels.Matern32(lengthscales=0.7),
        gpflow.likelihoods.Gaussian(0.1),
        NeighborInducingPoints(X[:12], 4),
        num_data=30,
    )
    cells = CellPosterior(model.posterior())
    before = cells.predict_f(X)
    model.start_from_sites((X, Y))
    for old, new in zip(before, cells.predict_f(X), strict=True):
        np.testing.assert_array_equal(old, new)
    cells.update_cache()
    for found, value in zip(cells.predict_f(X), cells.fused_predict_f(X), strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-9, atol=1e-12)


def test_what_cells_cannot_do_is_said(rng):
    posterior, *_ = make(4, "diag", rng)
    cells = CellPosterior(posterior)
    with pytest.raises(ValueError, match="full_cov must be False for a CellPosterior"):
        cells.predict_f(np.zeros((2, D)), full_cov=True)
    with pytest.raises(ValueError, match="posterior must be a NeighborPosterior"):
        CellPosterior(cells)
    with pytest.raises(ValueError, match="num_cached"):
        CellPosterior(posterior, num_cached=0)
    with pytest.raises(ValueError, match="prior_kl needs X"):
        cells.prior_kl()
    np.testing.assert_allclose(cells.prior_kl(np.ones((2, D))), posterior.prior_kl(np.ones((2, D))))
