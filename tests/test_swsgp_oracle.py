"""What is known of SWSGP's objectives, in NumPy alone: the oracle of the other tests."""

import numpy as np
import pytest

from tests.oracles import swsgp as oracle
from tests.oracles.solvegp import gaussian_elbo as orthogonal_elbo
from tests.oracles.solvegp import gaussian_kl, log_evidence, matern52

N, M, NOISE, EPS = 60, 40, 0.1, 1e-6
k = oracle.with_lengthscales(matern52, 1.0, 0.3)


def w1(seed=0):
    """The data of erratum W1: inducing points near 40 of 60 rows, y drawn from the model."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (N, 1))
    Z = X[rng.permutation(N)[:M]] + 0.05 * rng.normal(size=(M, 1))
    y = np.linalg.cholesky(k(X, X) + NOISE * np.eye(N)) @ rng.normal(size=N)
    return X, y, Z


def some_q(rng):
    lower = np.tril(0.2 * rng.normal(size=(M, M))) + 0.5 * np.eye(M)
    return rng.normal(size=M), lower @ lower.T


def svgp(X, y, Z, m, S):
    """SVGP's elbo as SOLVE-GP's oracle has it, without a second set."""
    none = np.zeros((0, 1)), np.zeros(0), np.zeros((0, 0))
    return orthogonal_elbo(k, Z, none[0], EPS, (m, none[1]), (S, none[2]), X, y, NOISE)


def test_all_neighbors_are_svgp(rng):
    X, y, Z = w1()
    m, S = some_q(rng)
    sets, elbo = oracle.nearest(X, Z, M), svgp(X, y, Z, m, S)
    for kind in ("paper", "counts"):
        w = oracle.kl_weights(kind, sets, M)
        np.testing.assert_allclose(w, np.full(N, 1.0 / N))
        value = oracle.objective(k, X, y, Z, sets, w, m, S, EPS, NOISE)
        assert value == pytest.approx(elbo, rel=1e-9)
    chain = oracle.chain_objective(k, X, y, Z, sets, M, m, S, EPS, NOISE)
    assert chain == pytest.approx(elbo, rel=1e-6)  # K is near singular
    union = oracle.union_objective(k, X, y, Z, np.arange(M), m, S, EPS, NOISE)
    assert union == pytest.approx(elbo, rel=1e-9)


@pytest.mark.parametrize("H", [1, 3, 8, M])
def test_the_chain_is_below_the_evidence_of_its_own_model(rng, H):
    """At any q; with the best q of full covariance by no more than the f_i's own variances."""
    X, y, Z = w1()
    sets = oracle.nearest(X, Z, H)
    evidence = oracle.chain_evidence(k, X, y, Z, sets, H, EPS, NOISE)
    A, residual = oracle.dense_projection(k, X, Z, sets, EPS)
    best = np.linalg.inv(A.T @ A / NOISE + oracle.chain_precision(k, Z, H, EPS))
    for m, S in [some_q(rng), (best @ A.T @ y / NOISE, best)]:
        value = oracle.chain_objective(k, X, y, Z, sets, H, m, S, EPS, NOISE)
        assert value < evidence
    assert value > evidence - residual.sum() / (2.0 * NOISE)


def test_the_terms_of_the_chain_are_its_kl(rng):
    _, _, Z = w1()
    m, S = some_q(rng)
    S = np.diag(np.diag(S))
    for H in (1, 5, M):
        terms = oracle.chain_terms(k, Z, H, m, S, EPS)
        assert terms.sum() == pytest.approx(oracle.chain_kl(k, Z, H, m, S, EPS), rel=1e-9)
    K = k(Z, Z) + EPS * np.eye(M)
    assert terms.sum() == pytest.approx(gaussian_kl(m, S, K), rel=1e-6)


def test_disjoint_cells_are_svgps_of_their_own(rng):
    """Weighted by usage, the objective is then the sum of their bounds."""
    X, y, Z = w1()
    cells = [np.arange(0, 20), np.arange(20, 40)]
    sets = [cells[i % 2] for i in range(N)]
    m, S = some_q(rng)
    w = oracle.kl_weights("counts", sets, M)
    value = oracle.objective(k, X, y, Z, sets, w, m, S, EPS, NOISE)
    parts = [svgp(X[c::2], y[c::2], Z[I], m[I], S[np.ix_(I, I)]) for c, I in enumerate(cells)]
    assert value == pytest.approx(sum(parts), rel=1e-9)


@pytest.mark.parametrize("kind", ["paper", "counts", "chain"])
def test_the_best_q_is_stationary(kind):
    X, y, Z = w1()
    H = 4
    sets = oracle.nearest(X, Z, H)
    if kind == "chain":
        m, s = oracle.optimal_chain_q(k, X, y, Z, sets, H, EPS, NOISE)
    else:
        w = oracle.kl_weights(kind, sets, M)
        m, s = oracle.optimal_q(k, X, y, Z, sets, w, EPS, NOISE)

    def value(m, log_s):
        S = np.diag(np.exp(log_s))
        if kind == "chain":
            return oracle.chain_objective(k, X, y, Z, sets, H, m, S, EPS, NOISE)
        return oracle.objective(k, X, y, Z, sets, w, m, S, EPS, NOISE)

    for j in (0, 17, 39):
        step = 1e-4 * np.eye(M)[j]
        for a, b in [(step, 0.0), (0.0, step)]:
            slope = (value(m + a, np.log(s) + b) - value(m - a, np.log(s) - b)) / 2e-4
            assert abs(slope) < 1e-3
            assert value(m + 100 * a, np.log(s) + 100 * b) < value(m, np.log(s))


def test_sites_on_every_row_are_the_exact_gaussian_process():
    """Z = X, precision 1 / noise, all neighbors: its posterior, and a tight bound."""
    X, y, _ = w1()
    everything, tau = np.arange(N), np.full(N, 1.0 / NOISE)
    new = np.linspace(-2, 2, 7)[:, None]
    K = k(X, X) + 1e-9 * np.eye(N)
    solved = np.linalg.solve(K + NOISE * np.eye(N), k(X, new))
    found = [oracle.site_local(k, x, X, everything, y, tau, 1e-9) for x in new]
    np.testing.assert_allclose([part[0] for part in found], solved.T @ y, atol=1e-6)
    var = 1.0 - np.sum(k(X, new) * solved, axis=0)
    np.testing.assert_allclose([part[1] for part in found], var, atol=1e-6)
    mean, cov = oracle.site_posterior(k, X, everything, y, tau, 1e-9)
    elbo = oracle.expectations(y, mean, np.diag(cov), NOISE).sum() - found[0][2]
    assert elbo == pytest.approx(log_evidence(k, X, y, NOISE), abs=1e-4)


def test_active_sets_hold_the_lists_of_all_rows(rng):
    """The union of the H nearest for the largest H that fits, and lie in each other."""
    X, _, Z = w1()
    rows, larger = X[:5], np.arange(M)
    for size in range(M, 4, -1):
        active = oracle.active_set(rows, Z, size)
        assert set(active) <= set(larger)
        unions = [set(oracle.nearest(rows, Z, H).ravel()) for H in range(1, M + 1)]
        assert set(active) >= max((u for u in unions if len(u) <= size), key=len, default=set())
        larger = active
