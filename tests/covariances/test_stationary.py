"""Fast covariance matrices against GPflow's own, values and gradients."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.covariances.stationary import covariance, local_covariances

KERNELS = {
    "squared_exponential": gpflow.kernels.SquaredExponential,
    "matern32": gpflow.kernels.Matern32,
    "matern52": gpflow.kernels.Matern52,
}
every_kernel = pytest.mark.parametrize("kind", KERNELS.values(), ids=list(KERNELS))
OPTIONS = {
    "plain": {"variance": 1.7},
    "ard": {"variance": 0.3, "lengthscales": [0.5, 1.0, 3.0]},
    "columns": {"active_dims": [2, 0], "lengthscales": [0.5, 1.5]},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
@every_kernel
def test_values_and_gradients_are_gpflows(rng, kind, options):
    kernel = kind(**options)
    X, Z, W = rng.normal(size=(6, 3)), rng.normal(size=(4, 3)), rng.normal(size=(6, 4))
    inputs = [tf.Variable(X), tf.Variable(Z), *kernel.trainable_variables]

    def value_and_gradients(function):
        with tf.GradientTape() as tape:
            K = function(inputs[0], inputs[1])
            loss = tf.reduce_sum(W * K)
        return [K, *tape.gradient(loss, inputs)]

    ours = value_and_gradients(lambda a, b: covariance(kernel, a, b))
    theirs = value_and_gradients(kernel)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)


@every_kernel
def test_coinciding_inputs_have_the_variance_and_finite_gradients(rng, float_type, kind):
    kernel = kind(variance=1.7)
    Z = tf.Variable(rng.normal(size=(5, 3)).astype(float_type))
    with tf.GradientTape(persistent=True) as tape:
        whole, pair = covariance(kernel, Z), covariance(kernel, Z, Z)
    np.testing.assert_array_equal(np.diag(whole), np.full(5, kernel.variance))
    tolerance = {np.float64: 1e-13, np.float32: 1e-5}[float_type]
    np.testing.assert_allclose(pair, whole, rtol=tolerance)
    for K in (whole, pair):
        gradients = tape.gradient(K, [Z, *kernel.trainable_variables])
        assert all(np.isfinite(g).all() for g in gradients)


@every_kernel
def test_an_offset_of_the_inputs_does_no_harm(rng, kind):
    """Such as seconds since 1970: without centering, squares of 1e12 would swallow distances."""
    kernel, X, Z = kind(), rng.normal(size=(6, 2)), rng.normal(size=(4, 2))
    moved = covariance(kernel, X + 1e6, Z + 1e6)
    np.testing.assert_allclose(moved, kernel(X, Z), rtol=1e-8)


def sums_and_products():
    """Kernels that GPflow evaluates, of which all or some parts are stationary."""
    k = gpflow.kernels
    rough, linear = k.Matern12(1.3, [0.5, 2.0]), k.Linear(0.1, active_dims=[1])
    return {
        "matern12": rough,
        "exponential": k.Exponential(active_dims=[1]),
        "rational_quadratic": k.RationalQuadratic(0.7, 0.5, 1.5),
        "cosine": k.Cosine(1.0, [1.0, 2.0]),
        "sum": k.SquaredExponential(active_dims=[0]) + k.Matern32(0.5, 2.0) + k.Constant(0.2),
        "product": k.Matern52() * k.RationalQuadratic(active_dims=[0]),
        "nested": k.Matern32() * (rough + k.White(0.1)) + k.SquaredExponential(),
        "partly": linear + k.Matern32() * linear,
    }


NAMES = list(sums_and_products())


@pytest.mark.parametrize("name", NAMES)
def test_other_kernels_have_gpflows_values_and_gradients(rng, name):
    kernel = sums_and_products()[name]
    inputs = [tf.Variable(rng.normal(size=shape) + 3.0) for shape in ((3, 6, 2), (4, 2))]
    variables = [*inputs, *kernel.trainable_variables]

    def computed(k):
        with tf.GradientTape() as tape:
            X, Z = (tf.convert_to_tensor(part) for part in inputs)
            found = [k(X), k(X, Z), k(Z[:2], Z[2:])]
            total = tf.add_n([tf.reduce_sum(tf.sin(3.0 * part) * part) for part in found])
        return [*found, *tape.gradient(total, variables)]

    ours, theirs = computed(lambda *X: covariance(kernel, *X)), computed(kernel)
    for a, b in zip(ours, theirs, strict=True):
        # a root magnifies the rounding of distances of zero, which the diagonal has
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shift", [0.0, 10.0, 1000.0])
@pytest.mark.parametrize("name", NAMES[:-1])
def test_float32_is_as_accurate_far_from_zero(name, shift):
    """Shifts in lengthscales, of inputs that have no rounding; a root magnifies that of zeros."""
    rng = np.random.default_rng(3)
    X, Z = (np.round(64.0 * rng.normal(size=(n, 2))) / 64.0 for n in (40, 5))
    kernel = sums_and_products()[name]
    expected, across = kernel(X).numpy(), kernel(X, Z).numpy()
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        kernel = sums_and_products()[name]
        X, Z = (tf.constant(part + shift, tf.float32) for part in (X, Z))
        K = covariance(kernel, X)
        np.testing.assert_allclose(K, expected, atol=4e-3)
        np.testing.assert_allclose(covariance(kernel, X, Z), across, atol=4e-3)
        assert np.isfinite(tf.linalg.cholesky(K + 1e-4 * K[0, 0] * tf.eye(40))).all()
        of_places, of_rows, _ = local_covariances(kernel, Z, tf.reshape(X, [5, 8, 2]))
        for i, own in enumerate(np.split(np.arange(40), 5)):
            np.testing.assert_allclose(of_places[i], expected[np.ix_(own, own)], atol=4e-3)
            np.testing.assert_allclose(of_rows[i], across[own, i], atol=4e-3)


def test_a_class_with_a_covariance_of_its_own_is_not_centered(rng):
    class Scaled(gpflow.kernels.SquaredExponential):
        def K(self, X, X2=None):
            X2 = X if X2 is None else X2
            return tf.reduce_sum(X, 1)[:, None] * tf.reduce_sum(X2, 1) * super().K(X, X2)

    X, Z = rng.normal(size=(6, 2)), rng.normal(size=(4, 2))
    np.testing.assert_array_equal(covariance(Scaled(), X, Z), Scaled()(X, Z))


class ForMatrices(gpflow.kernels.Kernel):
    """Takes ``[N, D]`` only."""

    def K(self, X, X2=None):
        X2 = X if X2 is None else X2
        return tf.exp(-tf.reduce_sum((X[:, None] - X2[None]) ** 2, axis=2))

    def K_diag(self, X):
        return tf.ones(tf.shape(X)[:-1], X.dtype)


class OfFixedShape(ForMatrices):
    def K(self, X, X2=None):
        return tf.eye(5, dtype=X.dtype)


@pytest.mark.parametrize("build", [lambda k: k, lambda k: gpflow.kernels.Matern32() + k])
def test_a_kernel_of_matrices_alone_is_refused_in_one_line(rng, build):
    X, Z = rng.normal(size=(7, 2)), rng.normal(size=(7, 4, 2))
    kernel, fixed = build(ForMatrices()), build(OfFixedShape())
    assert covariance(kernel, X).shape == (7, 7)
    for compute, came in (
        (lambda: local_covariances(kernel, X, Z), r"\(7, 5, 2\)"),
        (lambda: covariance(kernel, Z), r"\(7, 4, 2\)"),
        (tf.function(lambda: covariance(kernel, Z), autograph=False), r"\(7, 4, 2\)"),
        (lambda: covariance(fixed, X), r"\(7, 2\): its K returned shape \(5, 5\)"),
        (lambda: covariance(fixed, X, X), r"\(7, 2\) and \(7, 2\): its K returned .*"),
    ):
        with pytest.raises(
            ValueError, match=rf"^kernel must take \[\.\.\., N, D\].* got shape {came}"
        ):
            compute()
