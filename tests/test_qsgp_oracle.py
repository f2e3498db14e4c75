"""The oracle of QSGP against itself: every average is over all index sets, not over some."""

import itertools

import numpy as np
import pytest

from tests.oracles import qsgp, qsgp_sites

M, MT = 5, 2
NOISE = 0.3


@pytest.fixture
def problem(rng):
    """A batch of 4 from 12 rows with 3 support rows; a full lower C."""
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


def differences(function, x, step=1e-6):
    return np.array([(function(x + e) - function(x - e)) / (2 * step) for e in step * np.eye(M)])


def test_objective_is_expectation_minus_kl_and_tight_at_the_posterior(problem, rng):
    Phi, y, mu, s, C = problem
    dense = np.cov(rng.normal(size=(M, 50)))
    for S in (s, dense):
        same(
            qsgp.elbo_gaussian(Phi, y, mu, C, S, NOISE),
            qsgp.expectation_minus_kl(Phi, y, mu, C, S, NOISE),
        )
        mean, cov = qsgp.weight_posterior(Phi, y, S, NOISE)
        best = qsgp.elbo_gaussian(Phi, y, mean, np.linalg.cholesky(cov), S, NOISE)
        same(best, qsgp.log_evidence(Phi, y, S, NOISE))
    whitened = qsgp.whiten_diagonal(Phi, s, mu, C)
    same(
        qsgp.elbo_gaussian(whitened[0], y, *whitened[1:], np.ones(M), NOISE),
        qsgp.elbo_gaussian(Phi, y, mu, C, s, NOISE),
    )


@pytest.mark.parametrize("h", [0, 2])
def test_collapsed_bounds_and_optimal_factors(problem, h):
    Phi, y, _, s, _ = problem
    A = qsgp.precision(Phi, s, NOISE)
    mean, cov = qsgp.weight_posterior(Phi, y, s, NOISE)
    block = qsgp.optimal_block(A, h)
    same(
        qsgp.elbo_gaussian(Phi, y, mean, block, s, NOISE),
        qsgp.elbo_collapsed_hybrid(Phi, y, s, NOISE, h),
    )
    value = qsgp.l_sigma(Phi, qsgp.optimal_chevron(A, h), s, NOISE)
    assert value <= qsgp.l_sigma(Phi, block, s, NOISE) + 1e-12
    full = qsgp.optimal_chevron(A, M)
    same(full @ full.T, cov)


def test_optimal_chevron_is_a_minimum(problem, rng):
    Phi, _, _, s, _ = problem
    A = qsgp.precision(Phi, s, NOISE)
    for k in range(M + 1):
        best = qsgp.optimal_chevron(A, k)
        value = qsgp.l_sigma(Phi, best, s, NOISE)
        free = chevron(np.tril(np.ones((M, M))), k)
        for _ in range(10):
            moved = best + 1e-3 * free * rng.normal(size=(M, M))
            assert qsgp.l_sigma(Phi, moved, s, NOISE) > value


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
def test_weights_average_to_one(h):
    for size in range(1, M - h + 1):
        same(average(qsgp.weights(M, it, h) for it in qsgp.all_sets(M, size, h)), np.ones(M))


@pytest.mark.parametrize("h", [0, 2])
def test_theorem_1_and_its_relatives_are_unbiased(problem, h):
    Phi, y, mu, s, C = problem
    S = C @ C.T + np.eye(M)
    pairs = qsgp.all_pairs(M, MT, h)
    same(
        average(qsgp.l_mu_estimate(Phi, y, mu, S, NOISE, *pair, h) for pair in pairs),
        qsgp.l_mu(Phi, y, mu, S, NOISE),
    )
    same(
        average(qsgp.l_mu_estimate_gradient(Phi, y, mu, S, NOISE, *pair, h) for pair in pairs),
        qsgp.gradient_mu(Phi, y, mu, S, NOISE),
    )
    same(
        average(qsgp.l_mu_estimate_diagonal(Phi, y, mu, s, NOISE, *pair, h) for pair in pairs),
        qsgp.l_mu(Phi, y, mu, s, NOISE),
    )
    same(
        average(
            qsgp.l_mu_estimate_diagonal_gradient(Phi, y, mu, s, NOISE, *pair, h) for pair in pairs
        ),
        qsgp.gradient_mu(Phi, y, mu, s, NOISE),
    )


def test_batches_of_rows_are_unbiased(problem):
    Phi, y, mu, s, C = problem
    rows = [np.array(c) for c in itertools.combinations(range(12), 3)]
    it, jt, q = np.array([0, 3]), np.array([1, 3]), np.array([2, 4])
    C2 = chevron(C, 2)
    parts = {
        "theorem 1": lambda P, y, n: qsgp.l_mu_estimate(P, y, mu, s, NOISE, it, jt, 0, n),
        "shared": lambda P, y, n: qsgp.l_mu_estimate_diagonal(P, y, mu, s, NOISE, it, jt, 0, n),
        "covariance": lambda P, y, n: qsgp.l_sigma_estimate_chevron(
            P, C2, s, NOISE, it, jt, q, 2, h=0, n=n
        ),
        "constant": lambda P, y, n: qsgp.l_const_estimate(y, s, NOISE, it, 0, n),
    }
    for name, estimate in parts.items():
        found = average(estimate(Phi[r], y[r], 12) for r in rows)
        same(found, estimate(Phi, y, 12), err_msg=name)


def test_gradients_of_the_oracle_are_those_of_its_values(problem):
    Phi, y, mu, s, C = problem
    S, it, jt = C @ C.T, np.array([2, 3]), np.array([3, 4])
    for h in (0, 2):
        args = (NOISE, it, jt, h, 20)
        np.testing.assert_allclose(
            qsgp.l_mu_estimate_gradient(Phi, y, mu, S, *args),
            differences(lambda v, a=args: qsgp.l_mu_estimate(Phi, y, v, S, *a), mu),
            rtol=1e-6,
            atol=1e-6,
        )
        np.testing.assert_allclose(
            qsgp.l_mu_estimate_diagonal_gradient(Phi, y, mu, s, *args),
            differences(lambda v, a=args: qsgp.l_mu_estimate_diagonal(Phi, y, v, s, *a), mu),
            rtol=1e-6,
            atol=1e-6,
        )


@pytest.mark.parametrize("replace", [False, True])
def test_one_set_for_both_is_biased_as_the_formula_says(problem, replace):
    Phi, _, mu, s, _ = problem
    A = Phi.T @ Phi / NOISE
    sets = itertools.product(range(M), repeat=MT) if replace else qsgp.all_sets(M, MT)
    zero = np.zeros(12)
    expected = average(
        qsgp.l_mu_estimate(Phi, zero, mu, 0.0 * s, NOISE, list(it), list(it)) for it in sets
    )
    same(expected, qsgp.l_mu_shared_set_expectation(A, mu, MT, replace))
    assert abs(expected - mu @ A @ mu) > 0.1


def test_theorem_2_and_the_chevron_form_are_unbiased(problem):
    Phi, _, _, s, C = problem
    S = C @ C.T + np.eye(M)
    sets = qsgp.all_sets(M, MT)
    same(
        average(
            qsgp.l_sigma_estimate(Phi, C, S, NOISE, it, jt, rt)
            for it, jt, rt in itertools.product(sets, repeat=3)
        ),
        qsgp.l_sigma(Phi, C, S, NOISE),
    )
    for k, h in [(0, 0), (2, 2), (2, 0), (2, 1)]:
        cut = chevron(C, k)
        same(
            average(
                qsgp.l_sigma_estimate_chevron(Phi, cut, s, NOISE, it, jt, q, k, h=h)
                for it, jt in qsgp.all_pairs(M, MT, h)
                for q in qsgp.all_sets(M, MT, k)
            ),
            qsgp.l_sigma(Phi, cut, s, NOISE),
        )
    same(
        average(
            qsgp.l_const_estimate(np.ones(3), s, NOISE, it, 1) for it in qsgp.all_sets(M, 2, 1)
        ),
        qsgp.l_const(np.ones((3, M)), np.ones(3), s, NOISE),
    )


@pytest.mark.parametrize("h", [0, 2])
def test_variance_of_a_subsampled_mean(problem, h):
    Phi, _, mu, _, _ = problem
    values = [Phi @ (qsgp.weights(M, it, h) * mu) for it in qsgp.all_sets(M, MT, h)]
    expected = [qsgp.subsampled_mean_variance(phi, mu, MT, h=h) for phi in Phi]
    same(np.var(values, axis=0), expected)
    same(
        average(qsgp_sites.variance_of_sum(Phi, mu, it, h) for it in qsgp.all_sets(M, MT, h)),
        expected,
    )
    if h == 0:
        drawn = [Phi @ (qsgp.weights(M, it) * mu) for it in itertools.product(range(M), repeat=MT)]
        expected = [qsgp.subsampled_mean_variance(phi, mu, MT, replace=True) for phi in Phi]
        same(np.var(drawn, axis=0), expected)


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


def test_the_values_derivative_with_a_constant_anchor_is_biased(problem, rng):
    """Why the surrogate: a gradient through ``F - W (G - a)`` loses what flows through a."""
    Phi, y, mu, s, _ = problem
    Phi_p, W = rng.normal(size=(3, M)), 0.3 * rng.normal(size=(12, 3))
    parts = (Phi, Phi_p, Phi_p @ mu, W, y)
    found = average(
        differences(lambda v, p=pair: qsgp.l_mu_estimate_anchored(*parts, v, s, NOISE, *p), mu)
        for pair in qsgp.all_pairs(M, MT)
    )
    assert np.max(np.abs(found - qsgp.gradient_mu(Phi, y, mu, s, NOISE))) > 1.0


def test_anchors_take_the_variance_down_to_the_nystrom_residual(rng):
    """With a projection of the kernel itself, by ``(k - q) / k`` on average over prior draws."""
    X = rng.normal(size=(4, 1))
    P = rng.normal(size=(3, 1))
    Phi, s = qsgp.fourier_features_paired(np.vstack([X, P]), rng.normal(size=(6, 1)))
    Phi = Phi / np.sqrt(s)
    K = Phi @ Phi.T
    W = qsgp.projection_weights(K[:4, 4:], K[4:, 4:])
    left = Phi[:4] - W @ Phi[4:]  # [4, m] of the corrected projection
    np.testing.assert_allclose(
        np.sum(left**2, axis=1), np.diag(K)[:4] - np.sum(W * K[:4, 4:], axis=1), rtol=1e-8
    )


def test_proposition_3(problem, rng):
    Phi, _, mu, _, _ = problem
    a = Phi[:3] @ mu
    for it, jt in qsgp.all_pairs(M, MT):
        after = mu.copy()
        touched = np.union1d(it, jt)
        after[touched] += rng.normal(size=len(touched))
        a = qsgp.proposition_3(a, Phi[:3], mu, after, np.concatenate([it, jt]))
        mu = after
    np.testing.assert_allclose(a, Phi[:3] @ mu, rtol=1e-12, atol=1e-12)


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


def test_gap_of_the_strict_bound_for_gaussian_sites(problem):
    Phi, y, mu, _, C = problem
    C = chevron(C, 0)
    truth = qsgp_sites.expect_gaussian(*qsgp_sites.site_moments(Phi, mu, C), y).sum()
    for mt in (1, 2, 4):
        gap = truth - strict(qsgp_sites.expect_gaussian, Phi, mu, C, y, mt, 0)
        same(gap, qsgp_sites.jensen_gap_gaussian(Phi, mu, C, mt, NOISE))


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


def test_the_excess_of_split_is_bounded_by_the_variance_of_its_variance(problem):
    """With all functions in the mean, the logit's excess is at most ``Var(v_hat) / 64``."""
    Phi, y, _, _, C = problem
    C, y, mu = chevron(C, 0), np.sign(y), np.zeros(M)
    every = np.arange(M)
    v_hats = []
    values = []
    for q in qsgp.all_sets(M, MT):
        mean, var = qsgp_sites.site_moments_split(Phi, mu, C, every, q, 0)
        v_hats.append(qsgp_sites.diagonal_variance(Phi, C, q, 0))
        same(var, v_hats[-1])
        values.append(qsgp_sites.expect_logit(mean, var, y))
    exact = qsgp_sites.site_moments(Phi, mu, C)
    excess = average(values) - qsgp_sites.expect_logit(*exact, y)
    assert np.all(excess <= np.var(v_hats, axis=0) / 64.0)
    assert np.all(excess > 0)
    same(average(v_hats), exact[1])


def test_laplace_expectation_against_quadrature():
    mean, var, y = np.array([0.3, -2.0]), np.array([0.5, 1e-4]), np.array([0.1, 1.0])
    nodes = np.linspace(-9.0, 9.0, 400001)
    f = mean[:, None] + np.sqrt(var)[:, None] * nodes
    values = -np.log(2.0 * 0.5) - np.abs(y[:, None] - f) / 0.5
    density = np.exp(-0.5 * nodes**2) / np.sqrt(2.0 * np.pi)
    expected = np.sum(values * density, axis=1) * (nodes[1] - nodes[0])
    np.testing.assert_allclose(qsgp_sites.expect_laplace(mean, var, y), expected, atol=1e-8)


def test_stationary_scales_of_mean_field(problem):
    """They zero the derivative of expected sites minus the penalty; proposition 1 for Gaussians."""
    Phi, y, mu, s, _ = problem
    same(
        qsgp_sites.mean_field_stationary_scale(Phi, s, np.full(12, 1.0 / NOISE)),
        np.diag(qsgp.optimal_chevron(qsgp.precision(Phi, s, NOISE), 0)),
    )
    y = np.sign(y)
    c = np.full(M, 0.5)
    for _ in range(200):
        var = Phi**2 @ c**2
        c = qsgp_sites.mean_field_stationary_scale(Phi, s, qsgp_sites.kappa_logit(Phi @ mu, var, y))

    def objective(c):
        expected = qsgp_sites.expect_logit(Phi @ mu, Phi**2 @ c**2, y).sum()
        return expected - 0.5 * np.sum(s * c**2) + np.sum(np.log(c))

    np.testing.assert_allclose(differences(objective, c), 0.0, atol=1e-7)


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


def test_kernel_dictionary_at_the_data_has_the_exact_mean(rng):
    X, y, X_new = rng.normal(size=(8, 2)), rng.normal(size=8), rng.normal(size=(3, 2))
    K = rbf(X, X)
    mu, _ = qsgp.weight_posterior(K, y, K, NOISE)
    np.testing.assert_allclose(
        rbf(X_new, X) @ mu, qsgp.gp_mean(K, y, NOISE, rbf(X_new, X)), rtol=1e-7
    )


def test_relevance_precisions_maximize(problem):
    Phi, y, mu, _, C = problem
    best = qsgp.rvm_precisions(mu, C)
    np.testing.assert_allclose(
        differences(lambda t: qsgp.elbo_gaussian(Phi, y, mu, C, np.exp(t), NOISE), np.log(best)),
        0.0,
        atol=1e-7,
    )
    value = qsgp.elbo_gaussian(Phi, y, mu, C, best, NOISE)
    for factor in (0.5, 2.0):
        assert qsgp.elbo_gaussian(Phi, y, mu, C, factor * best, NOISE) < value


def test_hybrid_basis_has_the_kernel_at_its_inducing_inputs(rng):
    X, U = rng.normal(size=(6, 1)), rng.normal(size=(3, 1))
    frequencies = rng.normal(size=(4, 1))
    both = np.vstack([X, U])
    Phi, s = qsgp.fourier_features_paired(both, frequencies)
    Phi = Phi / np.sqrt(s)
    Kuu = rbf(U, U)
    basis = qsgp.hybrid_basis(rbf(both, U), Kuu, Phi, Phi[6:])
    np.testing.assert_allclose(basis @ basis[6:].T, rbf(both, U), rtol=1e-8, atol=1e-10)
