"""The evidence as a function of the noise alone, against dense n x n algebra at every noise."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inference import collapsed, noise_profile
from tests.oracles import softki as oracle

NOISES = [1e-6, 1e-3, 0.04, 1.0, 300.0]


def problem(rows=40, size=6, outputs=1, noise=0.1, seed=0):
    """Features ``A [m, N]`` and errors that are theirs, with noise."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(size, rows)) * np.linspace(0.05, 1.0, size)[:, None]
    f = A.T @ rng.normal(size=(size, outputs))
    return A, f + np.sqrt(noise) * rng.normal(size=(rows, outputs))


def profile(A, errors):
    zeros = tf.zeros(len(errors), tf.float64)
    return noise_profile.profile(collapsed.row_sums(tf.constant(A), tf.constant(errors), zeros))


SHAPES = {"tall": (40, 6), "wide": (5, 9), "square": (7, 7), "one": (1, 1)}


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
@pytest.mark.parametrize("noise", NOISES)
def test_it_is_the_dense_log_density_at_every_noise(shape, outputs, noise):
    A, errors = problem(*shape, outputs)
    got = profile(A, errors).log_density(noise)
    expected = oracle.log_density_dense(A.T @ A, errors, noise)
    # where rows are fewer than features, |e|^2 - projections is a difference of equals
    np.testing.assert_allclose(got, expected, rtol=1e-9 if noise > 1e-5 else 1e-6)


def test_its_parts_are_an_eigensystem_and_what_the_errors_are_in_it():
    A, errors = problem(outputs=2)
    got = profile(A, errors)
    values, vectors = np.linalg.eigh(A @ A.T)
    np.testing.assert_allclose(got.eigenvalues, values, rtol=1e-10)
    projections = np.sum((vectors.T @ A @ errors) ** 2, axis=1)
    np.testing.assert_allclose(got.squared_projections, projections, rtol=1e-9)
    np.testing.assert_allclose(got.squares, np.sum(errors**2), rtol=1e-14)
    assert (got.num_rows, got.num_outputs) == (40.0, 2)


def test_it_equals_the_evidence_from_the_same_sums():
    A, errors = problem(outputs=2)
    sums = collapsed.row_sums(tf.constant(A), tf.constant(errors), tf.zeros(40, tf.float64))
    got = noise_profile.profile(sums)
    for noise in NOISES:
        expected = collapsed.log_density(sums, tf.constant(noise, tf.float64))
        np.testing.assert_allclose(got.log_density(noise), expected, rtol=1e-8)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("noise", [1e-4, 0.03, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_best_noise_is_the_best_of_a_fine_grid(noise, outputs, seed):
    A, errors = problem(outputs=outputs, noise=noise, seed=seed)
    got = profile(A, errors)
    best = got.best_noise(1e-6)
    values = np.exp(np.linspace(np.log(1e-6), np.log(np.mean(errors**2)), 4001))
    dense = [got.log_density(value) for value in values]
    assert abs(np.log(best / values[np.argmax(dense)])) < 1.5 * np.log(values[1] / values[0])
    assert got.log_density(best) >= max(dense) - 1e-9 * abs(max(dense))
    assert 0.3 * noise < best < 3.0 * noise


def test_the_best_noise_of_pure_noise_is_its_variance():
    """Features that explain nothing: the maximizer is the mean square itself."""
    A, errors = problem()
    got = profile(1e-9 * A, errors)
    np.testing.assert_allclose(got.best_noise(1e-6), np.mean(errors**2), rtol=1e-4)


def test_the_best_noise_of_exact_features_is_the_lowest_allowed():
    A, errors = problem(noise=0.0)
    assert profile(A, errors).best_noise(1e-4) == pytest.approx(1e-4, rel=0.1)
    assert profile(A, 0.0 * errors).best_noise(1e-4) == pytest.approx(1e-4, rel=0.1)


@pytest.mark.parametrize("size", [0.8, 1.0, 1.2, 1.5])
def test_the_highest_of_two_maxima_is_found(size):
    """
    Half of the errors are tiny and have no feature, half are larger than their features are: one
    maximum fits the ones, another the others.
    """
    rng = np.random.default_rng(7)
    axes = np.linalg.qr(rng.normal(size=(20, 20)))[0]
    A = np.sqrt(0.1) * axes[:, :10].T
    errors = axes @ np.repeat([[np.sqrt(size)], [0.01]], 10, axis=0)
    got = profile(A, errors)
    values = np.exp(np.linspace(np.log(1e-6), np.log(np.mean(errors**2)), 2001))
    dense = np.array([got.log_density(value) for value in values])
    peaks = np.flatnonzero((dense[1:-1] > dense[:-2]) & (dense[1:-1] > dense[2:])) + 1
    assert len(peaks) == 2
    best = got.best_noise(1e-6)
    assert (best > 0.01) == (dense[peaks[1]] > dense[peaks[0]]) == (size > 1.0)
    assert got.log_density(best) >= dense.max() - 1e-9


def test_errors_of_zero_leave_a_finite_profile():
    A, _ = problem()
    assert np.isfinite(profile(A, np.zeros((40, 1))).log_density(1e-6))
