"""Estimators from few functions, at given draws against the oracle and on average over all."""

import itertools
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inference import subsampling
from gpflow_sparse.inference.subsampling import Batch, KnownProjections
from gpflow_sparse.likelihoods import BernoulliLogit, Laplace
from tests.oracles import qsgp, qsgp_sites

M, MT, N, P = 6, 2, 4, 3
PAIRS = qsgp.all_pairs(M, MT)
SCALE = M / MT


class Problem:
    """Functions at n rows and at p others, weights, targets and a regression W of any kind."""

    def __init__(self, rng):
        self.Phi, self.Phi_p = rng.normal(size=(N, M)), rng.normal(size=(P, M))
        self.mu, self.y = rng.normal(size=M), rng.normal(size=N)
        self.W = 0.4 * rng.normal(size=(N, P))

    def estimate(self, Phi, mu, indices):
        """``[n, 1]``."""
        part = tf.constant(Phi[:, indices])
        return SCALE * tf.linalg.matmul(part, tf.gather(mu, indices)[:, None])

    def pair(self, Phi, mu, draws):
        return self.estimate(Phi, mu, draws[0]), self.estimate(Phi, mu, draws[1])

    def anchor(self, mu, draws, W):
        exact = tf.constant(self.Phi_p @ self.mu)[:, None]
        return KnownProjections(
            partial(tf.linalg.matmul, tf.constant(W)),
            self.pair(self.Phi_p, mu, draws),
            exact,
        )


@pytest.fixture
def problem(rng):
    return Problem(rng)


def value_and_gradient(loss, mu):
    mu = tf.constant(mu)
    with tf.GradientTape() as tape:
        tape.watch(mu)
        value = loss(mu)
    return value.numpy(), tf.convert_to_tensor(tape.gradient(value, mu)).numpy()


def averages(loss, mu):
    """Value and gradient of ``loss(mu, draws)``, over all pairs of draws."""
    found = [value_and_gradient(lambda mu, d=draws: loss(mu, d), mu) for draws in PAIRS]
    return [np.mean(part, axis=0) for part in zip(*found, strict=True)]


def differences(function, x, step=1e-5):
    eye = step * np.eye(len(x))
    return np.array([(function(x + e) - function(x - e)) / (2 * step) for e in eye])


def close(actual, expected, **kwargs):
    np.testing.assert_allclose(actual, expected, **({"rtol": 1e-10, "atol": 1e-10} | kwargs))


# Draws


@pytest.mark.parametrize(("size", "num_drawn"), [(1, 1), (5, 5), (7, 3), (10_000_000, 1000)])
def test_drawn_indices_are_different_ones_in_range(size, num_drawn):
    drawn = subsampling.draw_indices(size, num_drawn).numpy()
    assert drawn.shape == (num_drawn,)
    assert len(set(drawn.tolist())) == num_drawn
    assert 0 <= drawn.min() <= drawn.max() < size


@pytest.mark.parametrize(("size", "num_drawn"), [(6, 3), (9, 2), (33, 1)])
def test_every_subset_is_as_likely_as_another(size, num_drawn):
    """Chi-square below its mean plus 4 standard deviations, here and for pairs of draws."""
    tf.random.set_seed(1)

    @tf.function(autograph=False)
    def many():
        return tf.map_fn(lambda _: subsampling.draw_indices(size, num_drawn), tf.range(8_000))

    drawn = np.sort(many().numpy(), axis=1)
    keys = {tuple(c): i for i, c in enumerate(itertools.combinations(range(size), num_drawn))}
    codes = np.array([keys[tuple(row)] for row in drawn])

    def chi_square(codes, cells):
        expected = len(codes) / cells
        return np.sum((np.bincount(codes, minlength=cells) - expected) ** 2) / expected

    for found, cells in [
        (codes, len(keys)),
        (codes[::2] * len(keys) + codes[1::2], len(keys) ** 2),
    ]:
        if len(found) > 5 * cells:
            assert chi_square(found, cells) < cells - 1 + 4.0 * np.sqrt(2.0 * (cells - 1))


def test_draws_repeat_with_the_global_seed_and_differ_otherwise():
    def draws():
        tf.random.set_seed(5)
        return [subsampling.draw_indices(1000, 20).numpy() for _ in range(2)]

    first, second = draws()
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(draws(), [first, second])


# Squares


def test_products_are_theorem_1_with_y_in_both_factors(problem):
    def loss(mu, draws):
        F = problem.pair(problem.Phi, mu, draws)
        residual = tuple(part - problem.y[:, None] for part in F)
        return tf.reduce_sum(subsampling.product(residual, residual))

    zero = np.zeros(M)
    for draws in PAIRS[::5]:
        value, gradient = value_and_gradient(lambda mu, d=draws: loss(mu, d), problem.mu)
        args = (problem.Phi, problem.y, problem.mu, zero, 1.0, *draws)
        close(value, qsgp.l_mu_estimate_diagonal(*args) + problem.y @ problem.y)
        close(gradient, qsgp.l_mu_estimate_diagonal_gradient(*args))
    value, gradient = averages(loss, problem.mu)
    residual = problem.Phi @ problem.mu - problem.y
    close(value, residual @ residual)
    close(gradient, 2.0 * problem.Phi.T @ residual)


def test_anchored_products_are_the_oracles_and_unbiased(problem):
    def loss(mu, draws):
        F = problem.pair(problem.Phi, mu, draws)
        better = subsampling.corrected(F, problem.anchor(mu, draws, problem.W))
        raw, value = (tuple(part - problem.y[:, None] for part in pair) for pair in (F, better))
        return tf.reduce_sum(subsampling.product(raw, value))

    zero = np.zeros(M)
    parts = (problem.Phi, problem.Phi_p, problem.Phi_p @ problem.mu, problem.W, problem.y)
    for draws in PAIRS[::5]:
        value, gradient = value_and_gradient(lambda mu, d=draws: loss(mu, d), problem.mu)
        args = (*parts, problem.mu, zero, 1.0, *draws)
        close(value, qsgp.l_mu_estimate_anchored(*args) + problem.y @ problem.y)
        close(gradient, qsgp.l_mu_estimate_anchored_gradient(*args))
    value, gradient = averages(loss, problem.mu)
    residual = problem.Phi @ problem.mu - problem.y
    close(value, residual @ residual)
    close(gradient, 2.0 * problem.Phi.T @ residual)


@pytest.mark.nightly
def test_estimates_move_with_the_functions_as_they_should(problem, rng):
    """The gradient with respect to Phi, as hyperparameters feel it, on average over all draws."""
    direction = rng.normal(size=(N, M))

    def slope(t, draws, anchor):
        Phi = tf.constant(problem.Phi) + t * tf.constant(direction)
        F = tuple(
            SCALE * tf.linalg.matmul(tf.gather(Phi, d, axis=1), problem.mu[d, None]) for d in draws
        )
        better = subsampling.corrected(F, anchor)
        raw, value = (tuple(part - problem.y[:, None] for part in pair) for pair in (F, better))
        return tf.reduce_sum(subsampling.product(raw, value))

    for W in (None, problem.W):
        found = []
        for draws in PAIRS:
            anchor = None if W is None else problem.anchor(tf.constant(problem.mu), draws, W)
            found.append(
                value_and_gradient(lambda t, d=draws, a=anchor: slope(t, d, a), np.array(0.0))[1]
            )
        residual = problem.Phi @ problem.mu - problem.y
        close(np.mean(found), 2.0 * residual @ (direction @ problem.mu))


def test_gaussian_expectations_sum_over_outputs(rng):
    projections, variance = rng.normal(size=(2, N, 6)), rng.uniform(size=(2, N, 2))
    Y, mean = rng.normal(size=(2, N, 2))
    target = np.pad(Y - mean, [(0, 0), (0, 4)])
    squares = np.prod(projections - target, axis=0).sum(axis=1) + variance.mean(axis=0).sum(axis=1)
    for noise in (np.full((N, 1), 0.3), np.full((1, 1), 0.3), np.linspace(0.1, 1.0, N)[:, None]):
        expected = -0.5 * (2.0 * np.log(2.0 * np.pi * noise[:, 0]) + squares / noise[:, 0])
        likelihood = SimpleNamespace(variance_at=lambda X, noise=noise: tf.constant(noise))
        pair = tuple(tf.constant(part) for part in projections)
        found = subsampling.gaussian_expectations(
            likelihood, Batch(Y, Y, mean), pair, pair, tuple(variance)
        )
        close(found, expected)


# Sites


def logit_batch(y):
    """Rows with labels ``y [n]``, for a smooth site that is no quadratic."""
    labels = tf.constant(y)[:, None]
    return Batch(labels, labels, tf.zeros_like(labels))


@pytest.mark.nightly
def test_the_gradient_of_an_anchored_site_is_that_of_its_average_value(problem):
    """``a = Phi_p mu`` moves with the weights; its gradient is taken through the other draw."""
    y = (problem.y > 0).astype(float)
    var = tf.fill([N, 1], tf.constant(0.4, tf.float64))
    batch = logit_batch(y)

    def loss(mu, draws):
        F = problem.pair(problem.Phi, mu, draws)
        means = subsampling.corrected(F, problem.anchor(mu, draws, problem.W))
        return tf.reduce_sum(
            subsampling.site_expectations(BernoulliLogit(), batch, means, (var, var))
        )

    def average_value(mu):
        found = []
        for it in qsgp.all_sets(M, MT):
            v = qsgp.weights(M, it) * mu
            mean = qsgp.corrected_projection(
                problem.Phi @ v, problem.Phi_p @ v, problem.Phi_p @ mu, problem.W
            )
            found.append(qsgp_sites.expect_logit(mean, np.full(N, 0.4), 2.0 * y - 1.0).sum())
        return np.mean(found)

    value, gradient = averages(loss, problem.mu)
    close(value, average_value(problem.mu))
    np.testing.assert_allclose(gradient, differences(average_value, problem.mu), atol=1e-8)


@pytest.mark.parametrize("name", ["logit", "laplace"])
def test_site_expectations_are_averages_of_both_draws(problem, rng, name):
    y = problem.y
    if name == "logit":
        likelihood, given = BernoulliLogit(), (y > 0).astype(float)
        y = 2.0 * given - 1.0
        oracle = qsgp_sites.expect_logit
    else:
        likelihood, given, oracle = Laplace(0.5), y, qsgp_sites.expect_laplace
    means, variances = rng.normal(size=(2, N)), rng.uniform(0.1, 2.0, size=(2, N))
    variances[1, 0] = -0.5  # an estimate may be below zero

    found = subsampling.site_expectations(
        likelihood,
        logit_batch(given),
        tuple(tf.constant(mean)[:, None] for mean in means),
        tuple(tf.constant(var)[:, None] for var in variances),
    )
    cut = np.maximum(variances, 1e-10)
    expected = 0.5 * (oracle(means[0], cut[0], y) + oracle(means[1], cut[1], y))
    close(found, expected, atol=1e-9)


def test_site_expectations_have_gradients_at_negative_variances(problem):
    batch = logit_batch((problem.y > 0).astype(float))

    def loss(var):
        pair = (var[:, None], -var[:, None])
        means = (tf.constant(problem.Phi @ problem.mu)[:, None],) * 2
        return tf.reduce_sum(subsampling.site_expectations(BernoulliLogit(), batch, means, pair))

    for var in (np.zeros(N), np.full(N, 1e-300), np.full(N, 0.3)):
        assert np.all(np.isfinite(value_and_gradient(loss, var)[1]))
