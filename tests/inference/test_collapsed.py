"""Collapsed bounds from sums over rows, against dense NumPy with N x N matrices."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inference import collapsed

N, SIZES, P, NOISE = 20, (4, 3, 2), 2, 0.3
M = sum(SIZES)
INNER = 4


def problem(seed=0):
    """Features ``A [M, N]`` that leave a residual with covariance ``R``, and errors ``[N, P]``."""
    rng = np.random.default_rng(seed)
    A, root = rng.normal(size=(M, N)) / 2.0, rng.normal(size=(N, N)) / 5.0
    R = root @ root.T
    return A, R, rng.normal(size=(N, P))


def sums_of(A, R, e):
    parts = (A, e, np.diag(A.T @ A + R))
    return collapsed.row_sums(*(tf.constant(part) for part in parts))


def noise(value=NOISE):
    return tf.constant(value, tf.float64)


def log_normal(e, cov):
    """Summed over outputs."""
    log_det = np.linalg.slogdet(2.0 * np.pi * cov)[1]
    return -0.5 * sum(y @ np.linalg.solve(cov, y) + log_det for y in e.T)


def elbo(A, R, e, means, covs):
    """Of any Gaussian q with independent sets, term by term."""
    parts = np.split(A, np.cumsum(SIZES)[:-1])
    mean = sum(a.T @ m for a, m in zip(parts, means, strict=True))
    var = np.diag(R) + sum(
        np.einsum("in,ij,jn->n", a, S, a) for a, S in zip(parts, covs, strict=True)
    )
    expected = -0.5 * np.log(2 * np.pi * NOISE) - ((e - mean) ** 2 + var[:, None]) / (2 * NOISE)
    kl = sum(
        0.5 * (np.sum(m**2) + P * (np.trace(S) - len(S) - np.linalg.slogdet(S)[1]))
        for m, S in zip(means, covs, strict=True)
    )
    return expected.sum() - kl


def optimum(A, R, e):
    means, factors = collapsed.optimal_q(sums_of(A, R, e), noise(), SIZES)
    return [m.numpy() for m in means], [R.numpy() for R in factors]


def test_the_sums_are_those_of_the_rows_and_add_up():
    A, R, e = problem()
    whole = sums_of(A, R, e)
    expected = (A @ A.T, A @ e, (e**2).sum(), np.trace(R), N)
    for got, value in zip(whole, expected, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-12)
    cut = [sums_of(A[:, s], R[s, s], e[s]) for s in (slice(0, 7), slice(7, None))]
    for got, first, second in zip(whole, *cut, strict=True):
        np.testing.assert_allclose(got, first + second, rtol=1e-12)


def test_a_residual_that_rounding_made_negative_counts_as_zero():
    A, R, e = problem()
    assert float(sums_of(A, R - 5.0 * np.eye(N), e).residual) == 0.0


def test_the_collapsed_bound_is_titsias_bound():
    A, R, e = problem()
    Q = A.T @ A + NOISE * np.eye(N)
    expected = log_normal(e, Q) - P * np.trace(R) / (2 * NOISE)
    np.testing.assert_allclose(
        collapsed.collapsed_bound(sums_of(A, R, e), noise()), expected, rtol=1e-12
    )
    np.testing.assert_allclose(
        collapsed.log_density(sums_of(A, R, e), noise()), log_normal(e, Q), rtol=1e-12
    )


def test_another_variance_in_the_quadratic_term():
    A, R, e = problem()
    Q, wide = (A.T @ A + s * np.eye(N) for s in (NOISE, 1.1))
    squares = sum(y @ np.linalg.solve(wide, y) for y in e.T)
    expected = -0.5 * (P * np.linalg.slogdet(2 * np.pi * Q)[1] + squares)
    got = collapsed.log_density(sums_of(A, R, e), noise(), noise(1.1))
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_the_structured_bound_is_the_elbo_of_the_optimal_q_and_no_other_is_better(rng):
    A, R, e = problem()
    means, factors = optimum(A, R, e)
    covs = [L @ L.T for L in factors]
    best = float(collapsed.collapsed_bound(sums_of(A, R, e), noise(), SIZES))
    np.testing.assert_allclose(elbo(A, R, e, means, covs), best, rtol=1e-12)
    for _ in range(20):
        moved = [m + 1e-3 * rng.normal(size=m.shape) for m in means]
        turned = [L + 1e-3 * np.tril(rng.normal(size=L.shape)) for L in factors]
        assert elbo(A, R, e, moved, covs) < best
        assert elbo(A, R, e, means, [L @ L.T for L in turned]) < best


def test_the_optimal_q_in_closed_form():
    A, R, e = problem()
    means, factors = optimum(A, R, e)
    expected = np.linalg.inv(np.eye(M) + A @ A.T / NOISE) @ A @ e / NOISE
    np.testing.assert_allclose(np.concatenate(means), expected, rtol=1e-10)
    for L, a in zip(factors, np.split(A, np.cumsum(SIZES)[:-1]), strict=True):
        np.testing.assert_array_equal(L, np.tril(L))
        assert (np.diag(L) > 0).all()
        np.testing.assert_allclose(
            L @ L.T, np.linalg.inv(np.eye(len(a)) + a @ a.T / NOISE), rtol=1e-10, atol=1e-13
        )


def test_the_gap_is_the_difference_of_two_log_determinants():
    A, R, e = problem()

    def half_log_det(a):
        return 0.5 * np.linalg.slogdet(np.eye(len(a)) + a @ a.T / NOISE)[1]

    parts = sum(half_log_det(a) for a in np.split(A, np.cumsum(SIZES)[:-1]))
    gap = collapsed.factorization_gap(sums_of(A, R, e), noise(), SIZES)
    np.testing.assert_allclose(gap, P * (parts - half_log_det(A)), rtol=1e-10)
    assert float(gap) > 0.1
    assert float(collapsed.factorization_gap(sums_of(A, R, e), noise(), (M,))) == 0.0


@pytest.mark.parametrize("inner", [INNER, M, 0])
def test_the_tighter_bound_by_its_definition(inner):
    """``log N(e | 0, Q + noise I) - tr(S^-1 R) / 2``; without inner features, Titsias' bound."""
    A, R, e = problem()
    S = A[:inner].T @ A[:inner] + NOISE * np.eye(N)
    expected = log_normal(e, A.T @ A + NOISE * np.eye(N))
    expected -= 0.5 * P * np.trace(np.linalg.solve(S, R))
    sums = sums_of(A, R, e)
    L = collapsed.inner_factor(sums, noise(), inner).numpy()
    projection = np.linalg.solve(L, A[:inner]) / np.sqrt(NOISE)
    trace = np.trace(projection @ (A.T @ A + R) @ projection.T)
    got = collapsed.tighter_bound(sums, noise(), inner, tf.constant(trace))
    np.testing.assert_allclose(got, expected, rtol=1e-11)


def test_outputs_add_up():
    A, R, e = problem()
    bounds = {
        "collapsed": lambda s: collapsed.collapsed_bound(s, noise()),
        "structured": lambda s: collapsed.collapsed_bound(s, noise(), SIZES),
        "tighter": lambda s: collapsed.tighter_bound(
            s, noise(), INNER, tf.constant(0.7, tf.float64)
        ),
    }
    for bound in bounds.values():
        parts = sum(float(bound(sums_of(A, R, e[:, [p]]))) for p in range(P))
        np.testing.assert_allclose(bound(sums_of(A, R, e)), parts, rtol=1e-12)


@pytest.mark.parametrize("which", ["structured", "tighter", "q"])
def test_gradients_equal_central_differences(which, rng):
    A, _, e = problem()
    directions = [rng.normal(size=part.shape) for part in (A, e)]
    weights = [rng.normal(size=(size, size)) for size in SIZES]

    def value(t, s):
        sums = collapsed.row_sums(A + t * directions[0], e + t * directions[1], np.full(N, 9.0))
        if which == "structured":
            return collapsed.collapsed_bound(sums, s, SIZES)
        if which == "tighter":
            return collapsed.tighter_bound(sums, s, INNER, tf.constant(0.7, tf.float64))
        means, factors = collapsed.optimal_q(sums, s, SIZES)
        parts = [tf.reduce_sum(W * L) for W, L in zip(weights, factors, strict=True)]
        return tf.add_n([*parts, *map(tf.reduce_sum, means)])

    t, s = tf.Variable(0.0, dtype=tf.float64), tf.Variable(NOISE, dtype=tf.float64)
    with tf.GradientTape() as tape:
        out = value(t, s)
    slopes = tape.gradient(out, [t, s])
    h = 1e-5
    zero = tf.constant(0.0, tf.float64)
    numeric = [
        (value(zero + h, noise()) - value(zero - h, noise())) / (2 * h),
        (value(zero, noise(NOISE + h)) - value(zero, noise(NOISE - h))) / (2 * h),
    ]
    np.testing.assert_allclose(slopes, numeric, rtol=1e-6)


def test_features_in_float32_are_summed_in_float64():
    A, R, e = problem()
    double = sums_of(A, R, e)
    single = collapsed.row_sums(
        *(tf.constant(part, tf.float32) for part in (A, e, np.diag(A.T @ A + R)))
    )
    for got, expected in zip(single, double, strict=True):
        assert got.dtype == tf.float64
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
