"""Conditionals of rows with places of their own: dense algebra, and gradients written by hand."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.covariances.stationary import local_covariances
from gpflow_sparse.inference.neighborhoods import conditional_weights, local_terms
from tests.oracles.solvegp import gaussian_kl

n, H = 5, 4
every_spread = pytest.mark.parametrize("full", [False, True], ids=["variances", "covariances"])
several = pytest.mark.parametrize("P", [1, 3])


def arguments(rng, P, full, dtype=np.float64):
    """K, k, k(x, x), m and S of n rows; not of any kernel."""
    A, B = rng.normal(size=(n, H, H)), rng.normal(size=(n, P, H, H))
    K = A @ A.transpose(0, 2, 1) + np.eye(H)
    k, kdiag, m = (
        0.3 * rng.normal(size=(n, H)),
        5.0 + rng.uniform(size=n),
        rng.normal(size=(n, H, P)),
    )
    S = B @ B.transpose(0, 1, 3, 2) + 0.1 * np.eye(H) if full else rng.uniform(0.1, 2, (n, H, P))
    return [part.astype(dtype) for part in (K, k, kdiag, m, S)]


def evaluate(values):
    return local_terms(*(tf.constant(value) for value in values))


def dense(K, k, kdiag, m, S):
    """Mean, both variances and KL without ``-log |S_I| / 2``, a row and an output at a time."""
    P = m.shape[2]
    mean, var, residual, kl = np.zeros((n, P)), np.zeros((n, P)), np.zeros(n), np.zeros(n)
    for i in range(n):
        a = np.linalg.inv(K[i]) @ k[i]
        residual[i] = kdiag[i] - k[i] @ a
        for p in range(P):
            spread = S[i, p] if S.ndim == 4 else np.diag(S[i, :, p])
            mean[i, p] = a @ m[i, :, p]
            var[i, p] = kdiag[i] - k[i] @ a + a @ spread @ a
            kl[i] += gaussian_kl(m[i, :, p], spread, K[i]) + 0.5 * np.linalg.slogdet(spread)[1]
    return mean, var, residual, kl


def plain(K, k, kdiag, m, S):
    """The same in TensorFlow's own functions, for gradients."""
    inverse = tf.linalg.inv(K)
    a = tf.linalg.matvec(inverse, k)
    spread = tf.linalg.diag(tf.transpose(S, [0, 2, 1])) if S.shape.rank == 3 else S
    mean = tf.einsum("nh,nhp->np", a, m)
    residual = kdiag - tf.einsum("nh,nh->n", k, a)
    var = residual[:, None] + tf.einsum("nh,nphg,ng->np", a, spread, a)
    trace = tf.einsum("nij,npij->n", inverse, spread)
    squares = tf.einsum("nhp,nhg,ngp->n", m, inverse, m)
    P = m.shape[2]
    kl = 0.5 * (P * tf.linalg.logdet(K) + trace + squares - P * H)
    return mean, var, residual, kl


def value_and_gradients(function, values, factors):
    tensors = [tf.constant(value) for value in values]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        parts = function(*tensors)
        loss = sum(tf.reduce_sum(w * part) for w, part in zip(factors, parts, strict=True))
    return parts, tape.gradient(loss, tensors)


def symmetric(gradient):
    return 0.5 * (gradient + np.swapaxes(gradient, -1, -2))


@several
@every_spread
def test_values_are_those_of_dense_algebra(rng, full, P):
    values = arguments(rng, P, full)
    for ours, theirs in zip(evaluate(values), dense(*values), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


@every_spread
def test_values_in_single_precision(rng, full):
    values = arguments(rng, 2, full)
    single = evaluate([value.astype(np.float32) for value in values])
    for ours, theirs in zip(single, dense(*values), strict=True):
        assert ours.dtype == tf.float32
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)


@several
@every_spread
def test_gradients_are_those_of_automatic_differentiation(rng, full, P):
    """By every argument, of a loss in which the results have weights of their own."""
    values = arguments(rng, P, full)
    factors = [rng.normal(size=shape) for shape in ((n, P), (n, P), n, n)]
    _, ours = value_and_gradients(local_terms, values, factors)
    _, theirs = value_and_gradients(plain, values, factors)
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        a, b = a.numpy(), b.numpy()
        if i == 0 or (i == 4 and full):  # symmetric matrices: only these parts mean anything
            a, b = symmetric(a), symmetric(b)
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)


@every_spread
@pytest.mark.parametrize("which", [0, 1, 2, 3])
def test_a_gradient_of_one_result_alone(rng, full, which):
    """The others get zeros from the tape, of whatever shape they have."""
    values = arguments(rng, 2, full)
    factors = [np.zeros((n, 2)), np.zeros((n, 2)), np.zeros(n), np.zeros(n)]
    factors[which] = factors[which] + 1.0
    tensors = [tf.constant(value) for value in values]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        part = tf.reduce_sum(local_terms(*tensors)[which])
    ours = tape.gradient(part, tensors, unconnected_gradients="zero")
    _, theirs = value_and_gradients(plain, values, factors)
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        both = [symmetric(g.numpy()) if i == 0 or (i == 4 and full) else g for g in (a, b)]
        np.testing.assert_allclose(*both, rtol=1e-8, atol=1e-9)


@every_spread
def test_it_compiles_with_an_unknown_number_of_rows(rng, full):
    values = arguments(rng, 2, full)
    signature = [tf.TensorSpec([None, *v.shape[1:]], tf.float64) for v in values]
    compiled = tf.function(local_terms, input_signature=signature, autograph=False)
    for ours, theirs in zip(compiled(*values), dense(*values), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_the_prior_is_found_again(rng):
    """S = K and m = 0: mean 0, variance k(x, x), and a KL of 0 with the entropy added."""
    K, k, kdiag, m, _ = arguments(rng, 1, True)
    mean, var, _, kl = evaluate([K, k, kdiag, 0.0 * m, K[:, None]])
    np.testing.assert_allclose(mean, np.zeros((n, 1)))
    np.testing.assert_allclose(var[:, 0], kdiag, rtol=1e-12)
    np.testing.assert_allclose(kl, 0.5 * np.linalg.slogdet(K)[1], atol=1e-12)


def test_what_is_left_of_the_prior_is_never_negative(rng):
    K, k, kdiag, m, S = arguments(rng, 1, False)
    _, var, residual, _ = evaluate([K, 10.0 * k, 0.0 * kdiag, m, 1e-300 * S])
    np.testing.assert_array_equal(np.asarray(var) >= 0.0, np.full((n, 1), True))
    np.testing.assert_allclose(var, np.zeros((n, 1)), atol=1e-200)
    np.testing.assert_array_equal(residual, np.zeros(n))


def test_a_matrix_that_is_no_covariance_is_named(rng):
    K, *rest = arguments(rng, 1, False)
    with pytest.raises(ValueError, match="K_I"):
        evaluate([-K, *rest])


def plain_weights(K, k, kdiag):
    a = tf.linalg.matvec(tf.linalg.inv(K), k)
    return a, kdiag - tf.einsum("nh,nh->n", k, a)


def test_weights_without_q_and_their_gradients(rng):
    values = arguments(rng, 1, False)[:3]
    factors = [rng.normal(size=(n, H)), rng.normal(size=n)]
    ours, gradients = value_and_gradients(conditional_weights, values, factors)
    theirs, expected = value_and_gradients(plain_weights, values, factors)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    for a, b in zip(gradients, expected, strict=True):
        both = [symmetric(g.numpy()) if g.shape.rank == 3 else g for g in (a, b)]
        np.testing.assert_allclose(*both, rtol=1e-9, atol=1e-10)


def test_weights_are_those_of_the_moments(rng):
    K, k, kdiag, m, S = (tf.constant(value) for value in arguments(rng, 1, False))
    a, residual = conditional_weights(K, k, kdiag)
    mean, var, _, _ = local_terms(K, k, kdiag, m, S)
    np.testing.assert_allclose(tf.einsum("nh,nhp->np", a, m), mean, rtol=1e-11)
    expected = residual + tf.einsum("nh,nhp->n", a**2, S)
    np.testing.assert_allclose(expected, var[:, 0], rtol=1e-11)
    np.testing.assert_array_equal(conditional_weights(K, 10.0 * k, 0.0 * kdiag)[1], np.zeros(n))


KERNELS = {
    "squared_exponential": gpflow.kernels.SquaredExponential(1.3, [0.5, 1.0, 2.0]),
    "matern32": gpflow.kernels.Matern32(1.3, [0.5, 1.0, 2.0]),
    "columns": gpflow.kernels.Matern52(0.7, [0.5, 2.0], active_dims=[2, 0]),
    "other": gpflow.kernels.RationalQuadratic(1.3, [0.5, 1.0, 2.0]),
    "linear": gpflow.kernels.Linear(0.4) + gpflow.kernels.Matern12(),
    "products": gpflow.kernels.Polynomial() * gpflow.kernels.Matern32(),
}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=list(KERNELS))
def test_local_covariances_are_the_kernels(rng, kernel):
    X, places = rng.normal(size=(n, 3)), rng.normal(size=(n, H, 3))
    K, k, diagonal = local_covariances(kernel, tf.constant(X), tf.constant(places))
    for i in range(n):
        np.testing.assert_allclose(K[i], kernel(places[i]), rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(k[i], kernel(places[i], X[i : i + 1])[:, 0], rtol=1e-11)
    np.testing.assert_allclose(diagonal, kernel(X, full_cov=False), rtol=1e-14)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=list(KERNELS))
def test_local_covariances_have_the_kernels_gradients(rng, kernel):
    X, places = tf.constant(rng.normal(size=(n, 3))), tf.constant(rng.normal(size=(n, H, 3)))
    factors = rng.normal(size=(n, H, H)), rng.normal(size=(n, H))
    inputs = [X, places, *kernel.trainable_variables]

    def gradients(function):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            parts = function()[:2]
            loss = sum(tf.reduce_sum(w * p) for w, p in zip(factors, parts, strict=True))
        return tape.gradient(loss, inputs)

    def one_by_one():
        rows = [(kernel(places[i]), kernel(places[i], X[i : i + 1])[:, 0]) for i in range(n)]
        return [tf.stack(part) for part in zip(*rows, strict=True)]

    ours = gradients(lambda: local_covariances(kernel, X, places))
    for a, b in zip(ours, gradients(one_by_one), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("offset", [0.0, 10.0, 1000.0])
def test_local_covariances_in_single_precision_mind_no_offset(rng, offset):
    """At 1000 lengthscales from the origin GPflow's own are wrong by 0.2."""
    X, places = rng.normal(size=(n, 2)) * 0.3, rng.normal(size=(n, H, 2)) * 0.3
    X, places = ((part + offset).astype(np.float32) for part in (X, places))
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        kernel = gpflow.kernels.Matern52()
        K, k, _ = local_covariances(kernel, tf.constant(X), tf.constant(places))
    exact = gpflow.kernels.Matern52()
    X, places = X.astype(np.float64), places.astype(np.float64)
    for i in range(n):
        np.testing.assert_allclose(K[i], exact(places[i]), atol=5e-6)
        np.testing.assert_allclose(k[i], exact(places[i], X[i : i + 1])[:, 0], atol=5e-6)
