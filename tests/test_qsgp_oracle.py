"""The oracle of QSGP against itself: every average is over all index sets, not over some."""

import itertools

import numpy as np
import pytest

from tests.oracles import qsgp, qsgp_sites

M, MT = 5, 2
NOISE = 0.3


@pytest.fixture
def problem(rng):
    """A batch of 4 from 12 rows with 3 control rows; a full lower C."""
    Phi, y = rng.normal(size=(12, M)), rng.normal(size=12)
    mu, s = rng.normal(size=M), rng.uniform(0.5, 2.0, size=M)
    C = np.tril(rng.normal(size=(M, M)))
    np.fill_diagonal(C, rng.uniform(0.3, 1.0, size=M))
    return Phi, y, mu, s, C


def chevron(C, k):
    """C with its columns from the k-th on cut to their diagonal."""
    cut = np.diag(np.diag(C))
    cut[:, :k] = C[:, :k]
    return cut


def average(values):
    return np.mean(list(values), axis=0)


def same(actual, expected, **kwargs):
    np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-10, **kwargs)


def test_mean_field_tends_to_its_limit(rng):
    X, y = rng.normal(size=(6, 1)), rng.normal(size=6)
    K = np.exp(-0.5 * (X - X.T) ** 2)
    frequencies = rng.normal(size=(200000, 1))
    Phi, s = qsgp.fourier_features_paired(X, frequencies)
    np.testing.assert_allclose((Phi / s) @ Phi.T, K, atol=0.01)
    np.testing.assert_allclose(np.sum(Phi**2 / s, axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(
        qsgp.elbo_collapsed_mean_field(Phi, y, s, NOISE),
        qsgp.elbo_mean_field_limit(K, y, NOISE),
        atol=0.02,
    )


@pytest.mark.parametrize("h", [0, 2])
def test_control_variates_have_mean_zero(problem, h):
    Phi, _, mu, _, _ = problem
    Phi_p = Phi[:3]
    pairs = qsgp.all_pairs(M, MT, h)
    args = [(mu, NOISE, *pair, 12, h) for pair in pairs]
    same(average(qsgp.eq3(Phi_p, *a) for a in args), 0.0)
    same(average(qsgp.eq3_gradient(Phi_p, *a) for a in args), np.zeros(M))
    if h == 0:
        same(average(qsgp.eq3_gradient_union(Phi_p, mu, NOISE, *p, 12) for p in pairs), np.zeros(M))


@pytest.mark.parametrize("h", [0, 2])
def test_anchored_projections_are_unbiased_for_any_weights(problem, rng, h):
    Phi, y, mu, s, _ = problem
    batch, y_batch, Phi_p = Phi[3:7], y[3:7], rng.normal(size=(3, M))
    W, a = rng.normal(size=(4, 3)), Phi_p @ mu
    parts = (batch, Phi_p, a, W)
    pairs = qsgp.all_pairs(M, MT, h)
    args = [(y_batch, mu, s, NOISE, *pair, h, 12) for pair in pairs]
    scaled = (np.sqrt(3.0) * batch, np.sqrt(3.0) * y_batch)
    same(
        average(qsgp.l_mu_estimate_anchored(*parts, *a) for a in args),
        qsgp.l_mu(*scaled, mu, s, NOISE),
    )
    same(
        average(qsgp.l_mu_estimate_anchored_gradient(*parts, *a) for a in args),
        qsgp.gradient_mu(*scaled, mu, s, NOISE),
    )


# Sites

SITES = {
    "gaussian": qsgp_sites.expect_gaussian,
    "laplace": qsgp_sites.expect_laplace,
    "logit": qsgp_sites.expect_logit,
}


def printed_problem():
    """Four functions, two data, mu = 0 and diagonal C: site variances .0185 and .0870."""
    Phi = np.array([[0.9, -0.4, 0.8, 0.5], [1.6, 1.5, -1.4, 2.3]])
    c2 = np.array([0.01, 0.01, 0.01, 0.01])
    var = (Phi**2) @ c2
    Phi = Phi * np.sqrt(np.array([0.0185, 0.0870]) / var)[:, None]
    return Phi, np.zeros(4), np.diag(np.sqrt(c2)), np.ones(2)


def test_theorem_3_as_printed_is_above_the_truth():
    Phi, mu, C, y = printed_problem()
    truth = qsgp_sites.expect_logit(*qsgp_sites.site_moments(Phi, mu, C), y).sum()
    every = np.arange(4)
    moments = qsgp_sites.site_moments_printed(Phi, mu, C, every, every, every)
    full = qsgp_sites.expect_logit(*moments, y).sum()
    np.testing.assert_allclose([truth, full], [-1.39936, -1.38728], atol=6e-5)
    sets = qsgp.all_sets(4, 3)
    found = average(
        qsgp_sites.expect_logit(*qsgp_sites.site_moments_printed(Phi, mu, C, *triple), y).sum()
        for triple in itertools.product(sets, repeat=3)
    )
    assert found > truth + 0.01
    np.testing.assert_allclose(found, -1.38777, atol=1e-3)  # of other functions than ours
    large = 10.0 * C
    truth = qsgp_sites.expect_logit(*qsgp_sites.site_moments(Phi, mu, large), y).sum()
    moments = qsgp_sites.site_moments_printed(Phi, mu, large, every, every, every)
    full = qsgp_sites.expect_logit(*moments, y).sum()
    np.testing.assert_allclose([truth, full], [-2.266, -4.568], atol=2e-3)


def strict(site, Phi, mu, C, y, mt, h):
    return average(
        site(*qsgp_sites.site_moments_jensen(Phi, mu, C, it, h), y).sum()
        for it in qsgp.all_sets(len(mu), mt, h)
    )


@pytest.mark.parametrize("name", SITES)
@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("h", [0, 2])
def test_the_strict_bound_is_one_and_grows_with_the_sets(problem, name, k, h):
    Phi, y, mu, _, C = problem
    y = np.sign(y) if name == "logit" else y
    C = chevron(C, k)
    truth = SITES[name](*qsgp_sites.site_moments(Phi, mu, C), y).sum()
    bounds = [strict(SITES[name], Phi, mu, C, y, mt, h) for mt in range(1, M - h + 1)]
    assert np.all(np.diff(bounds) > 0)
    assert bounds[-2] < truth - 1e-3
    np.testing.assert_allclose(bounds[-1], truth, rtol=1e-10)


def test_the_strict_bound_with_replacement_stays_below(problem):
    Phi, y, mu, _, C = problem
    y = np.sign(y)
    truth = qsgp_sites.expect_logit(*qsgp_sites.site_moments(Phi, mu, C), y).sum()
    found = average(
        qsgp_sites.expect_logit(*qsgp_sites.site_moments_jensen(Phi, mu, C, it), y).sum()
        for it in itertools.product(range(M), repeat=3)
    )
    assert found < truth - 1e-3


@pytest.mark.parametrize("k", [0, 2])
def test_absorbed_gaussian_sites_are_unbiased_without_the_clamp(problem, k):
    Phi, y, mu, _, C = problem
    C = chevron(C, k)
    truth = qsgp_sites.expect_gaussian(*qsgp_sites.site_moments(Phi, mu, C), y).sum()
    found = average(
        qsgp_sites.expect_gaussian(
            *qsgp_sites.site_moments_absorbed(Phi, mu, C, it, q, k, clamp=False), y
        ).sum()
        for it in qsgp.all_sets(M, MT, k)
        for q in qsgp.all_sets(M, MT, k)
    )
    same(found, truth)


# Prediction


def rbf(X, X2):
    return np.exp(-0.5 * np.sum((X[:, None] - X2[None]) ** 2, axis=-1))


def test_augmentation_is_the_model_with_one_function_more(rng):
    X, Z, x = rng.normal(size=(9, 2)), rng.normal(size=(5, 2)), rng.normal(size=(1, 2))
    C = np.tril(rng.normal(size=(5, 5)))
    found = qsgp.augmented_variance(rbf(x, Z)[0], C @ C.T, 1.0, rbf(x, X)[0], NOISE)
    np.testing.assert_allclose(
        found, qsgp.augmented_variance_brute_force(rbf, x, X, Z, C, NOISE), rtol=1e-10
    )
