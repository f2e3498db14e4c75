"""Cached, fused, batched and compiled predictions of the SOLVE-GP posterior agree."""

import itertools

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.posteriors import PrecomputeCacheType

from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.posteriors import OrthogonalPosterior

FLAGS = [
    (full_cov, full_output_cov) for full_cov in (False, True) for full_output_cov in (False, True)
]
P = 2


def posterior(rng, *args, **options):
    return with_q(rng, *args, **options)[0]


def with_q(rng, sizes=(6, 4), *, whiten=True, mean_function=None, q_sqrt="full", cache=None, P=P):
    """A posterior, and the means and factors of its q."""
    sets = [rng.normal(size=(M, 2)) for M in sizes]
    q_mu = [gpflow.Parameter(rng.normal(size=(M, P))) for M in sizes]
    factors = [0.3 * np.tril(rng.normal(size=(P, M, M))) + np.eye(M) for M in sizes]
    factors = {
        "full": [gpflow.Parameter(R, transform=gpflow.utilities.triangular()) for R in factors],
        "zero": [tf.constant(0.0 * R) for R in factors],
        "none": [None] * len(sizes),
    }[q_sqrt]
    made = OrthogonalPosterior(
        gpflow.kernels.Matern52(variance=1.3),
        OrthogonalInducingVariables(*sets),
        q_mu,
        factors,
        whiten=whiten,
        mean_function=mean_function,
        precompute_cache=cache,
    )
    return made, q_mu, factors


def inputs(rng, *lead):
    return rng.normal(size=(*lead, 5, 2))


@pytest.mark.parametrize("whiten", [True, False])
def test_cached_predictions_equal_fused_ones(rng, whiten):
    """Among the rows an inducing input; of one output, whose cache is rotated, and of two."""
    for outputs, flags in itertools.product((1, 2), FLAGS):
        slope = gpflow.functions.Linear(
            np.array([[1.5, 0.5], [-0.5, 0.1]])[:, :outputs], np.full(outputs, 0.3)
        )
        made = posterior(rng, whiten=whiten, mean_function=slope, P=outputs)
        X = np.concatenate([inputs(rng), made.X_data.sets[0].Z.numpy()[:1]])
        expected = made.fused_predict_f(X, *flags)
        for cache in (PrecomputeCacheType.TENSOR, PrecomputeCacheType.VARIABLE):
            made.update_cache(cache)
            for a, b in zip(made.predict_f(X, *flags), expected, strict=True):
                assert a.shape == b.shape
                np.testing.assert_allclose(a, b, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(("full_cov", "full_output_cov"), FLAGS)
def test_the_four_covariances_are_views_of_one_joint_covariance(rng, full_cov, full_output_cov):
    made, X = posterior(rng, (5, 3, 2)), inputs(rng)
    joint = made.fused_predict_f(X, full_cov=True)[1].numpy()  # [P, N, N]
    everything = np.zeros((5, P, 5, P))
    for p in range(P):
        everything[:, p, :, p] = joint[p]
    expected = {
        (False, False): np.einsum("npnp->np", everything),
        (True, False): joint,
        (False, True): np.einsum("npnq->npq", everything),
        (True, True): everything,
    }[full_cov, full_output_cov]
    got = made.fused_predict_f(X, full_cov, full_output_cov)[1]
    np.testing.assert_allclose(got, expected, atol=1e-12)


@pytest.mark.parametrize("kind", ["tensor", "variable"])
def test_a_cache_keeps_its_parameters_until_it_is_updated_without_retracing(rng, kind):
    (made, q_mu, q_sqrt), X, traces = with_q(rng), tf.constant(inputs(rng)), []
    made.update_cache(PrecomputeCacheType(kind))
    variables = made.cache

    @tf.function
    def predict(X):
        traces.append(1)
        return made.predict_f(X)

    before = predict(X)[0].numpy()
    q_mu[1].assign(q_mu[1] + 1.0)
    q_sqrt[1].assign(0.5 * q_sqrt[1])
    np.testing.assert_allclose(made.predict_f(X)[0], before, rtol=1e-12)
    made.kernel.lengthscales.assign(0.5)
    made.update_cache()
    compiled = predict if kind == "variable" else made.predict_f
    for a, b in zip(compiled(X), made.fused_predict_f(X), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)
    assert np.abs(compiled(X)[0] - before).max() > 0.01
    if kind == "variable":
        assert all(a is b for a, b in zip(made.cache, variables, strict=True))
    assert len(traces) == 1


@pytest.mark.parametrize("whiten", [True, False])
def test_a_fixed_mean_is_the_limit_of_no_covariance(rng, whiten):
    """q_sqrt = None and q_sqrt = 0 predict the same; the KL is defined only for the former."""
    fixed = posterior(np.random.default_rng(1), whiten=whiten, q_sqrt="none")
    zero = posterior(np.random.default_rng(1), whiten=whiten, q_sqrt="zero")
    X = inputs(rng)
    for full_cov in (False, True):
        expected = zero.fused_predict_f(X, full_cov)
        for made in (fixed, zero):
            made.update_cache(PrecomputeCacheType.TENSOR)
            for got in (made.fused_predict_f(X, full_cov), made.predict_f(X, full_cov)):
                for a, b in zip(got, expected, strict=True):
                    np.testing.assert_allclose(a, b, atol=1e-10)


def test_the_kl_is_that_of_gaussians_in_numpy(rng):
    made, means, factors = with_q(rng, (4, 3), whiten=False)
    expected = 0.0
    for L, q_mu, q_sqrt in zip(made.prior_factors(), means, factors, strict=True):
        K = L.numpy() @ L.numpy().T
        for m, R in zip(q_mu.numpy().T, q_sqrt.numpy(), strict=True):
            S = R @ R.T
            trace, square = np.trace(np.linalg.solve(K, S)), m @ np.linalg.solve(K, m)
            log_dets = np.linalg.slogdet(K)[1] - np.linalg.slogdet(S)[1]
            expected += 0.5 * (trace + square - len(m) + log_dets)
    np.testing.assert_allclose(made.prior_kl(), expected, rtol=1e-9)


def test_prior_factors_are_those_of_the_residual_processes(rng):
    made = posterior(rng, (5, 4))
    Z, V = (s.Z.numpy() for s in made.X_data.sets)
    k = made.kernel
    # jitter is 1e-6 of the mean prior variance, on Kuu and on Cvv alike
    Kuu, Kuv, Kvv = (k(Z).numpy() + 1.3e-6 * np.eye(5), k(Z, V).numpy(), k(V).numpy())
    Cvv = Kvv + 1.3e-6 * np.eye(4) - Kuv.T @ np.linalg.solve(Kuu, Kuv)
    for L, K in zip(made.prior_factors(), (Kuu, Cvv), strict=True):
        np.testing.assert_allclose(L.numpy() @ L.numpy().T, K, atol=1e-12)


def test_stacked_arguments_are_split_by_set(rng):
    """As stock SVGP holds them: off-diagonal blocks of a dense q_sqrt do not count."""
    (made, q_mu, q_sqrt), X = with_q(rng), inputs(rng)
    dense = np.tril(rng.normal(size=(P, 10, 10)))
    for p in range(P):
        dense[p, :6, :6], dense[p, 6:, 6:] = (R.numpy()[p] for R in q_sqrt)
    stacked = OrthogonalPosterior(
        made.kernel, made.X_data, tf.concat(q_mu, axis=0), tf.constant(dense)
    )
    for a, b in zip(stacked.fused_predict_f(X), made.fused_predict_f(X), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    fixed = OrthogonalPosterior(made.kernel, made.X_data, tf.concat(q_mu, axis=0), None)
    np.testing.assert_allclose(fixed.fused_predict_f(X)[0], made.fused_predict_f(X)[0], atol=1e-12)
