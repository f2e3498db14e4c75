"""The log evidence of a batch and its hand-written gradient, against dense n x n algebra."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.models.softki.batch_evidence import log_density
from tests.oracles import softki as oracle

N, M, P, NOISE = 9, 5, 2, 0.3


def problem(rows=N, size=M, outputs=P, seed=0):
    """Weights ``W [N, m]``, a covariance ``K [m, m]`` and errors ``[N, P]``."""
    rng = np.random.default_rng(seed)
    W, root = rng.normal(size=(rows, size)), rng.normal(size=(size, size + 2))
    return W, root @ root.T / size, rng.normal(size=(rows, outputs))


def sigma(W, K, noise=NOISE):
    return W @ K @ W.T + noise * np.eye(len(W))


def value_and_gradients(W, K, errors, noise=NOISE, probes=None, dtype=tf.float64):
    sources = [tf.constant(part, dtype) for part in (W, K, errors, noise)]
    probes = None if probes is None else tf.constant(probes, dtype)
    with tf.GradientTape() as tape:
        tape.watch(sources)
        value = log_density(*sources, probes)
    return value, tape.gradient(value, sources)


def dense_in_tensorflow(W, K, errors, noise=NOISE):
    """Value and TensorFlow's own gradients of the n x n form."""
    sources = [tf.constant(part, tf.float64) for part in (W, K, errors, noise)]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        W, K, errors, noise = sources
        cov = tf.linalg.matmul(W @ K, W, transpose_b=True)
        L = tf.linalg.cholesky(cov + noise * tf.eye(len(errors), dtype=tf.float64))
        root = tf.linalg.triangular_solve(L, errors)
        constant = len(errors) * np.log(2.0 * np.pi)
        constant += 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(L)))
        value = -0.5 * (errors.shape[1] * constant + tf.reduce_sum(root**2))
    return value, tape.gradient(value, sources)


def signs(size):
    return np.array(list(itertools.product([-1.0, 1.0], repeat=size)))


@pytest.mark.parametrize(
    ("shape", "outputs", "noise"),
    [((9, 5), 3, 0.3), ((4, 7), 1, 50.0), ((1, 1), 3, 0.3), ((6, 6), 1, 1e-2), ((30, 200), 3, 0.3)],
)
def test_value_and_gradients_are_those_of_the_dense_form(shape, outputs, noise):
    parts = problem(*shape, outputs)
    value, gradients = value_and_gradients(*parts, noise)
    expected, slopes = dense_in_tensorflow(*parts, noise)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    W, K, errors = parts
    B = oracle.whitened(W, K)
    for form in (oracle.log_density_woodbury, oracle.log_density_qr):
        np.testing.assert_allclose(form(B, errors, noise), expected, rtol=1e-8)
    for gradient, slope in zip(gradients, slopes, strict=True):
        scale = np.abs(slope).max()
        np.testing.assert_allclose(gradient, slope, rtol=1e-8, atol=1e-10 * scale)


@pytest.mark.parametrize("outputs", [1, 3])
def test_probes_along_all_axes_give_the_exact_gradient(outputs):
    """``sqrt(n) e_k``, whose mean outer product is the identity itself."""
    parts = problem(outputs=outputs)
    value, exact = value_and_gradients(*parts)
    got, gradients = value_and_gradients(*parts, NOISE, np.sqrt(N) * np.eye(N))
    np.testing.assert_allclose(got, value, rtol=1e-13)
    for gradient, slope in zip(gradients, exact, strict=True):
        np.testing.assert_allclose(gradient, slope, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("count", [1, 4])
def test_with_few_probes_it_is_the_gradient_of_the_pseudo_loss(outputs, count):
    W, K, errors = problem(outputs=outputs)
    probes = np.random.default_rng(5).normal(size=(N, count))
    inverse = np.linalg.inv(sigma(W, K))
    b0, b = inverse @ errors, inverse @ probes  # constants
    value, gradients = value_and_gradients(W, K, errors, NOISE, probes)
    np.testing.assert_allclose(
        value, oracle.log_density_dense(W @ K @ W.T, errors, NOISE), rtol=1e-10
    )

    def surrogate(W, K, noise):
        return oracle.surrogate(W @ K @ W.T, float(noise), b0, probes, b)

    numeric = [
        oracle.central_difference(lambda w: surrogate(w, K, NOISE), W),
        oracle.central_difference(lambda k: surrogate(W, k, NOISE), K),
        -b0,
        oracle.central_difference(lambda s: surrogate(W, K, s), NOISE),
    ]
    # an entry of K and its mirror are one number: half of both slopes each
    numeric[1] = 0.5 * (numeric[1] + numeric[1].T)
    for gradient, slope in zip(gradients, numeric, strict=True):
        np.testing.assert_allclose(gradient, slope, rtol=1e-6, atol=1e-8 * np.abs(slope).max())
    _, exact = value_and_gradients(W, K, errors)
    for k in (0, 1):
        assert np.abs(gradients[k] - exact[k]).max() > 0.05 * np.abs(exact[k]).max()


def test_the_paper_prints_the_negative_of_the_gradient():
    """Eqs. (19) and (21): half the trace minus half the quadratic; ascent goes the other way."""
    W, K, errors = problem(outputs=1)
    probes = np.sqrt(N) * np.eye(N)
    inverse = np.linalg.inv(sigma(W, K))

    def printed(noise):
        cov = sigma(W, K, float(noise))
        trace = np.mean(np.sum(probes * (cov @ inverse @ probes), axis=0))
        b0 = inverse @ errors
        return 0.5 * trace - 0.5 * np.sum(b0 * (cov @ b0))

    _, gradients = value_and_gradients(W, K, errors)
    got = oracle.central_difference(printed, NOISE)
    np.testing.assert_allclose(got, -gradients[3], rtol=1e-8)


def moments_by_enumeration(points, chances):
    """Of all gradients, for one probe, over a finite distribution of it."""
    parts = problem(rows=points.shape[1], size=3, outputs=1)
    drawn = [value_and_gradients(*parts, NOISE, probe[:, None])[1] for probe in points]
    each = [np.array([part[k] for part in drawn]) for k in range(4)]
    means = [np.tensordot(chances, part, 1) for part in each]
    spread = chances @ (each[3] - means[3]) ** 2  # of the slope by the noise, a trace
    _, exact = value_and_gradients(*parts)
    return means, spread, exact, np.linalg.inv(sigma(*parts[:2]))


def test_over_all_signs_the_gradient_is_exact_and_its_variance_as_derived():
    points = signs(5)
    means, spread, exact, inverse = moments_by_enumeration(points, np.full(32, 1.0 / 32.0))
    for mean, slope in zip(means, exact, strict=True):
        np.testing.assert_allclose(mean, slope, rtol=1e-9, atol=1e-11)
    expected = oracle.hutchinson_trace_variance(inverse, "rademacher") / 4.0
    np.testing.assert_allclose(spread, expected, rtol=1e-9)
    assert expected < oracle.hutchinson_trace_variance(inverse, "gaussian") / 4.0


def test_probes_of_unit_length_lose_the_trace():
    """As the paper prints it the trace is an n-th of itself."""
    W, K, errors = problem(outputs=1)
    full, unit = (
        value_and_gradients(W, K, errors, NOISE, scale * np.eye(N))[1][3]
        for scale in (np.sqrt(N), 1.0)
    )
    quadratic = 0.5 * np.sum(np.linalg.solve(sigma(W, K), errors) ** 2)
    np.testing.assert_allclose(unit - quadratic, (full - quadratic) / N, rtol=1e-9)


def interpolation(lengthscale, temperature):
    """256 rows between 64 points of three columns, as float32 has them."""
    rng = np.random.default_rng(3)
    X, Z = rng.normal(size=(256, 3)), rng.normal(size=(64, 3))
    K = oracle.with_jitter(oracle.matern32(Z, Z, 1.0, lengthscale), 1e-4)
    errors = np.sin(2.0 * X[:, :1]) + 0.1 * rng.normal(size=(256, 1))
    parts = oracle.weights(X, Z, temperature), K, errors
    return [part.astype(np.float32).astype(float) for part in parts]
