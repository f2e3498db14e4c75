"""What is known of SWSGP's objectives, in NumPy alone: the oracle of the other tests."""

import numpy as np
import pytest

from tests.oracles import swsgp as oracle
from tests.oracles.solvegp import gaussian_elbo as orthogonal_elbo
from tests.oracles.solvegp import matern52

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
