"""One Gaussian site for each inducing variable: dense algebra, exact cases, and starts of q."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.models import SWSGP
from gpflow_sparse.posteriors import SitePosterior
from tests.models import test_swsgp as base
from tests.models.test_swsgp import LENGTHSCALES, NOISE, H, L, M, build, points, rows
from tests.oracles import swsgp as oracle

Z = base.points().Z.numpy()
k = oracle.with_lengthscales(base.matern52, 1.0, 1.0)  # of inputs in lengthscales
NEW = rows(seed=5, N=9)[0]


def some_sites(seed=8):
    """Targets and precisions ``[M, L]``, of which some are zero."""
    rng = np.random.default_rng(seed)
    tau = np.exp(2.0 * rng.normal(size=(M, L)))
    tau[::5] = 0.0
    return rng.normal(size=(M, L)), tau


def posterior(sites, count=H, **options):
    kernel = gpflow.kernels.Matern52(lengthscales=LENGTHSCALES)
    return SitePosterior(kernel, points(count), *sites, **options)


def dense(sites, X, count=H):
    """Mean and variance ``[n, L]``."""
    sets = base.neighbor_sets(X, count)
    found = [
        [
            oracle.site_local(k, x / LENGTHSCALES, Z / LENGTHSCALES, I, t, tau, 0.0)
            for x, I in zip(X, sets, strict=True)
        ]
        for t, tau in zip(*(part.T for part in sites), strict=True)
    ]
    mean, var = np.moveaxis(np.array(found), (0, 1, 2), (2, 1, 0))
    return mean, var


@pytest.mark.parametrize("count", [1, H, M])
def test_moments_equal_dense_algebra(count):
    sites = some_sites()
    found = posterior(sites, count).fused_predict_f(NEW)
    for ours, expected in zip(found, dense(sites, NEW, count), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-8, atol=1e-9)


def test_sites_have_no_kl_divergence():
    with pytest.raises(ValueError, match="a SitePosterior has no KL divergence to the prior"):
        posterior(some_sites()).prior_kl(tf.constant(NEW))


def test_joint_predictions_are_those_of_the_union():
    sites = some_sites()
    X = NEW[:3] / LENGTHSCALES
    mean, cov = posterior(sites).fused_predict_f(NEW[:3], full_cov=True)
    active = np.unique(base.neighbor_sets(NEW[:3]))
    for p in range(L):
        t, tau = sites[0][:, p], sites[1][:, p]
        m, S = oracle.site_posterior(k, Z / LENGTHSCALES, active, t, tau, 0.0)
        K = k(Z[active] / LENGTHSCALES, Z[active] / LENGTHSCALES)
        W = np.linalg.inv(K) @ k(Z[active] / LENGTHSCALES, X)
        np.testing.assert_allclose(mean[:, p], W.T @ m, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(cov[p], k(X, X) + W.T @ (S - K) @ W, rtol=1e-7, atol=1e-9)
        assert np.linalg.eigvalsh(cov[p]).min() > -1e-9


def gaussian_sites(X, Y):
    """Targets and precisions ``[M, L]`` of a Gaussian likelihood."""
    known = np.full(len(X), 1.0 / NOISE)
    found = [oracle.lumped_sites(k, X / LENGTHSCALES, y, known, Z / LENGTHSCALES) for y in Y.T]
    return [np.stack(part, axis=1) for part in zip(*found, strict=True)]


@pytest.mark.parametrize("covariance", ["diag", "dense"])
@pytest.mark.parametrize("batches", [False, True])
def test_q_starts_at_the_sites(covariance, batches):
    X, Y = rows(N=60)
    model = build(covariance, num_data=60, mean_function=gpflow.functions.Constant([0.3]))
    factor = None if model.q_factor is None else model.q_factor.numpy()
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(7)
    model.start_from_sites(dataset if batches else (X, Y))
    require_start(model, gaussian_sites(X, Y - 0.3))
    if factor is not None:
        np.testing.assert_array_equal(model.q_factor, factor)


def test_sites_of_any_likelihood():
    """From slopes of the expected log likelihood under the prior, by differences here."""
    X, Y = rows(N=20)
    Y = (Y > 0).astype(float)
    likelihood = gpflow.likelihoods.Bernoulli()
    model = build(likelihood=likelihood)
    model.start_from_sites((X, Y))

    def expected(mean, var, p):
        ones = np.ones((20, 1))
        return likelihood.variational_expectations(X, mean * ones, var * ones, Y[:, p : p + 1])

    sites = []
    for p in range(L):
        by_mean = (expected(1e-4, 1.0, p) - expected(-1e-4, 1.0, p)).numpy() / 2e-4
        by_var = (expected(0.0, 1.0 + 1e-4, p) - expected(0.0, 1.0 - 1e-4, p)).numpy() / 2e-4
        known = -2.0 * by_var
        sites.append(
            oracle.lumped_sites(k, X / LENGTHSCALES, by_mean / known, known, Z / LENGTHSCALES)
        )
    require_start(model, [np.stack(part, axis=1) for part in zip(*sites, strict=True)], 1e-5)


def require_start(model, sites, rtol=1e-7):
    """q has the means of the sites' posterior and, for "diag", precisions with those of sites."""
    np.testing.assert_allclose(model.q_mu, dense(sites, Z)[0], rtol=rtol, atol=1e-7)
    if model.q_log_scale is not None:
        start = SWSGP(model.kernel, model.likelihood, points(), num_latent_gps=L)
        precisions = start.q_sqrt**-2 + sites[1]
        np.testing.assert_allclose(np.exp(-2.0 * model.q_log_scale), precisions, rtol=rtol)
