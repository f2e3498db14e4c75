"""Rotated features against dense NumPy with N x N matrices."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inference import collapsed, rotation
from tests.oracles import grief_type_one as oracle
from tests.oracles import softki

N, NOISE = 12, 0.3


def problem(p=5, P=2, seed=0, rows=N):
    """Features ``Phi [N, p]`` of very different sizes, and observations ``[N, P]``."""
    rng = np.random.default_rng(seed)
    Phi = rng.normal(size=(rows, p)) * np.logspace(0.5, -1.0, p)
    return Phi, rng.normal(size=(rows, P)) + Phi @ rng.normal(size=(p, P))


def sums_of(Phi, Y):
    parts = (Phi.T, Y, np.sum(Phi**2, axis=1))
    return collapsed.row_sums(*(tf.constant(part) for part in parts))


def rotated(Phi, Y):
    return rotation.rotate(sums_of(Phi, Y))


def weights_of(p, seed=1):
    return np.random.default_rng(seed).lognormal(size=p)


def tensors(*values):
    return [tf.constant(value, tf.float64) for value in values]


@pytest.mark.parametrize("p", [5, 20])
def test_the_rotation_diagonalizes_the_sums(p):
    Phi, Y = problem(p)
    got = rotated(Phi, Y)
    V, squares = got.V.numpy(), got.squares.numpy()
    np.testing.assert_allclose(V.T @ V, np.eye(p), atol=1e-12)
    np.testing.assert_allclose(V.T @ Phi.T @ Phi @ V, np.diag(squares), atol=1e-11)
    assert (np.diff(squares) <= 0.0).all()
    assert np.count_nonzero(squares) == min(p, N)
    U, s, _ = np.linalg.svd(Phi, full_matrices=False)
    np.testing.assert_allclose(squares[: len(s)], s**2, rtol=1e-9)
    energies = np.sum((U.T @ Y) ** 2, axis=1)
    np.testing.assert_allclose(got.energies[: len(s)], energies, rtol=1e-8)
    np.testing.assert_allclose(got.tail, np.sum(Y**2) - energies.sum(), rtol=1e-9, atol=1e-11)
    assert float(got.tail) >= 0.0
    assert int(got.num_rows) == N


@pytest.mark.parametrize("p", [5, 20])
def test_the_likelihood_is_that_of_the_dense_covariance(p):
    Phi, Y = problem(p)
    got, w = rotated(Phi, Y), weights_of(p)
    density = rotation.rotated_log_density(got, *tensors(NOISE, w))
    np.testing.assert_allclose(
        density, oracle.dense_lml(Phi @ got.V.numpy(), Y, w, NOISE), rtol=1e-11
    )


@pytest.mark.parametrize("p", [5, 20])
def test_unit_weights_are_the_kernel_of_the_features_everywhere(p):
    """On the data and off it; with p > N a part of the features is zero on the data only."""
    Phi, Y = problem(p)
    Phi_new = np.random.default_rng(7).normal(size=(4, p))
    got, ones = rotated(Phi, Y), np.ones(p)
    density = rotation.rotated_log_density(got, *tensors(NOISE, ones))
    np.testing.assert_allclose(density, oracle.dense_lml(Phi, Y, ones, NOISE), rtol=1e-11)
    means, variances = rotation.coefficient_moments(got, *tensors(NOISE, ones))
    R = Phi_new @ got.V.numpy()
    mean, variance = oracle.dense_predict(Phi, Y, Phi_new, ones, NOISE)
    np.testing.assert_allclose(R @ means.numpy(), mean, rtol=1e-9)
    np.testing.assert_allclose(R**2 @ variances.numpy(), variance, rtol=1e-9)


def test_predictions_with_weights():
    Phi, Y = problem()
    Phi_new = np.random.default_rng(7).normal(size=(4, 5))
    got, w = rotated(Phi, Y), weights_of(5)
    V = got.V.numpy()
    means, variances = rotation.coefficient_moments(got, *tensors(NOISE, w))
    mean, variance = oracle.dense_predict(Phi @ V, Y, Phi_new @ V, w, NOISE)
    np.testing.assert_allclose(Phi_new @ V @ means.numpy(), mean, rtol=1e-9)
    np.testing.assert_allclose((Phi_new @ V) ** 2 @ variances.numpy(), variance, rtol=1e-9)


@pytest.mark.parametrize("p", [5, 20])
def test_the_gradient_is_that_of_the_dense_likelihood(p):
    Phi, Y = problem(p)
    got, w = rotated(Phi, Y), weights_of(p)
    V = got.V.numpy()
    noise, weights = tensors(NOISE, w)
    with tf.GradientTape() as tape:
        tape.watch([noise, weights])
        value = 3.0 * rotation.rotated_log_density(got, noise, weights)
    slopes = tape.gradient(value, [noise, weights])
    numeric = oracle.differences(
        lambda x: 3.0 * oracle.dense_lml(Phi @ V, Y, x[1:], x[0]), np.array([NOISE, *w])
    )
    np.testing.assert_allclose(slopes[0], numeric[0], rtol=1e-6)
    np.testing.assert_allclose(slopes[1], numeric[1:], rtol=1e-6, atol=1e-8)


def test_chains_side_by_side_are_chains_one_by_one():
    got = rotated(*problem())
    noise, weights = np.array([0.1, 0.4, 2.0]), np.stack([weights_of(5, s) for s in range(3)])
    together = tensors(noise, weights)
    with tf.GradientTape() as tape:
        tape.watch(together)
        values = rotation.rotated_log_density(got, *together)
    slopes = tape.gradient(values, together)
    moments = rotation.coefficient_moments(got, *together)
    assert moments[0].shape == (3, 5, 2)
    for c in range(3):
        alone = tensors(noise[c], weights[c])
        with tf.GradientTape() as tape:
            tape.watch(alone)
            value = rotation.rotated_log_density(got, *alone)
        np.testing.assert_allclose(values[c], value, rtol=1e-13)
        for many, one in zip(slopes, tape.gradient(value, alone), strict=True):
            np.testing.assert_allclose(many[c], one, rtol=1e-12)
        for many, one in zip(moments, rotation.coefficient_moments(got, *alone), strict=True):
            np.testing.assert_allclose(many[c], one, rtol=1e-12)


def test_the_best_weights_have_gradient_zero_and_no_others_are_better(rng):
    Phi, Y = problem(p=15, P=1)
    got = rotated(Phi, Y)
    noise = tf.constant(NOISE, tf.float64)
    best = rotation.best_weights(got, noise)
    with tf.GradientTape() as tape:
        tape.watch(best)
        top = rotation.rotated_log_density(got, noise, best)
    slope = tape.gradient(top, best).numpy()
    inside = best.numpy() > 0.0
    assert 0 < inside[:N].sum() < N
    np.testing.assert_allclose(slope[inside], 0.0, atol=1e-12)
    assert (slope[~inside] <= 0.0).all()
    np.testing.assert_array_equal(best[N:], np.ones(3))
    for _ in range(20):
        other = tf.abs(best + 0.1 * rng.normal(size=15))
        assert float(rotation.rotated_log_density(got, noise, other)) <= float(top) + 1e-12


def test_the_best_weights_of_several_outputs():
    got = rotated(*problem(P=3))
    noise = tf.constant(1e-3, tf.float64)
    best = rotation.best_weights(got, noise)
    with tf.GradientTape() as tape:
        tape.watch(best)
        top = rotation.rotated_log_density(got, noise, best)
    np.testing.assert_allclose(tape.gradient(top, best) * best, np.zeros(5), atol=1e-10)


def test_features_that_are_zero_keep_their_prior():
    Phi, Y = problem()
    Phi[:, 2] = 0.0
    got, w = rotated(Phi, Y), weights_of(5)
    assert float(got.squares[-1]) == 0.0
    np.testing.assert_array_equal(got.projections[-1], np.zeros(2))
    means, variances = rotation.coefficient_moments(got, *tensors(NOISE, w))
    np.testing.assert_array_equal(means[-1], np.zeros(2))
    np.testing.assert_allclose(variances[-1], w[-1], rtol=1e-15)
    nothing = rotated(np.zeros((N, 3)), Y)
    density = rotation.rotated_log_density(nothing, *tensors(NOISE, np.ones(3)))
    np.testing.assert_allclose(density, oracle.dense_lml(np.zeros((N, 3)), Y, np.ones(3), NOISE))


def test_it_compiles_with_parameters_of_gpflow():
    Phi, Y = problem()
    got = rotated(Phi, Y)
    noise = gpflow.Parameter(NOISE, transform=gpflow.utilities.positive())
    weights = gpflow.Parameter(weights_of(5), transform=gpflow.utilities.positive())
    variables = [noise.unconstrained_variable, weights.unconstrained_variable]

    @tf.function(autograph=False)
    def value_and_slopes():
        with tf.GradientTape() as tape:
            value = rotation.rotated_log_density(
                got, tf.convert_to_tensor(noise), tf.convert_to_tensor(weights)
            )
        return value, tape.gradient(value, variables)

    value, slopes = value_and_slopes()
    np.testing.assert_allclose(
        value, oracle.dense_lml(Phi @ got.V.numpy(), Y, weights.numpy(), NOISE), rtol=1e-11
    )

    def at(x):
        noise.unconstrained_variable.assign(x[0])
        weights.unconstrained_variable.assign(x[1:])
        return float(value_and_slopes()[0])

    x = np.concatenate([np.ravel(v.numpy()) for v in variables])
    expected = oracle.differences(at, x)
    np.testing.assert_allclose(np.concatenate([np.ravel(s) for s in slopes]), expected, rtol=1e-6)


# ---- the best noise variance


def noisy_problem(rows=40, size=6, outputs=1, noise=0.1, seed=0):
    """Features ``A [m, N]``, and errors that are a combination of them plus noise."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(size, rows)) * np.linspace(0.05, 1.0, size)[:, None]
    f = A.T @ rng.normal(size=(size, outputs))
    return A, f + np.sqrt(noise) * rng.normal(size=(rows, outputs))


def densities(found, noises):
    """Log densities with unit weights at every noise variance."""
    noises = np.atleast_1d(noises)
    ones = np.ones((len(noises), len(found.squares)))
    return rotation.rotated_log_density(found, *tensors(noises, ones)).numpy()


SHAPES = {"tall": (40, 6), "wide": (5, 9), "square": (7, 7), "one": (1, 1)}


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
@pytest.mark.parametrize("noise", [1e-6, 1e-3, 0.04, 1.0, 300.0])
def test_unit_weights_give_the_dense_log_density_at_every_noise(shape, outputs, noise):
    A, errors = noisy_problem(*shape, outputs)
    got = densities(rotated(A.T, errors), noise)
    expected = softki.log_density_dense(A.T @ A, errors, noise)
    # where rows are fewer than features, |e|^2 - projections is a difference of equals
    np.testing.assert_allclose(got, expected, rtol=1e-9 if noise > 1e-5 else 1e-6)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("noise", [1e-4, 0.03, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_best_noise_is_the_best_of_a_fine_grid(noise, outputs, seed):
    A, errors = noisy_problem(outputs=outputs, noise=noise, seed=seed)
    got = rotated(A.T, errors)
    best = rotation.best_noise(got, 1e-6)
    values = np.exp(np.linspace(np.log(1e-6), np.log(np.mean(errors**2)), 4001))
    dense = densities(got, values)
    assert abs(np.log(best / values[np.argmax(dense)])) < 1.5 * np.log(values[1] / values[0])
    assert densities(got, best)[0] >= max(dense) - 1e-9 * abs(max(dense))
    assert 0.3 * noise < best < 3.0 * noise


def test_the_best_noise_of_pure_noise_is_its_variance():
    """Features that explain nothing: the maximizer is the mean square itself."""
    A, errors = noisy_problem()
    got = rotated(1e-9 * A.T, errors)
    np.testing.assert_allclose(rotation.best_noise(got, 1e-6), np.mean(errors**2), rtol=1e-4)


def test_the_best_noise_of_exact_features_is_the_lowest_allowed():
    A, errors = noisy_problem(noise=0.0)
    assert rotation.best_noise(rotated(A.T, errors), 1e-4) == pytest.approx(1e-4, rel=0.1)
    assert rotation.best_noise(rotated(A.T, 0.0 * errors), 1e-4) == pytest.approx(1e-4, rel=0.1)


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
    got = rotated(A.T, errors)
    values = np.exp(np.linspace(np.log(1e-6), np.log(np.mean(errors**2)), 2001))
    dense = densities(got, values)
    peaks = np.flatnonzero((dense[1:-1] > dense[:-2]) & (dense[1:-1] > dense[2:])) + 1
    assert len(peaks) == 2
    best = rotation.best_noise(got, 1e-6)
    assert (best > 0.01) == (dense[peaks[1]] > dense[peaks[0]]) == (size > 1.0)
    assert densities(got, best)[0] >= dense.max() - 1e-9


def test_errors_of_zero_have_a_finite_density():
    A, _ = noisy_problem()
    assert np.isfinite(densities(rotated(A.T, np.zeros((40, 1))), 1e-6)).all()
