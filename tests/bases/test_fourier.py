"""Random Fourier features against the kernels, and their frequencies against scipy.stats."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from gpflow_sparse.bases import RandomFourier
from gpflow_sparse.bases.fourier import hashed_frequencies
from tests.oracles import bases as oracle

DEGREES = {
    gpflow.kernels.SquaredExponential: np.inf,
    gpflow.kernels.Matern12: 1.0,
    gpflow.kernels.Matern32: 3.0,
    gpflow.kernels.Matern52: 5.0,
}
every_kernel = pytest.mark.parametrize("kind", DEGREES, ids=lambda kind: kind.__name__)
both_ways = pytest.mark.parametrize("orthogonal", [False, True], ids=["plain", "orthogonal"])
LENGTHSCALES = [0.7, 1.4, 1.0]


def kernel(kind=gpflow.kernels.Matern52):
    return kind(variance=1.7, lengthscales=LENGTHSCALES)


def inputs(rows=6, columns=3):
    return np.random.default_rng(1).normal(size=(rows, columns))


def frequencies(degrees, count, D, seed, orthogonal=False):
    """The first ``count`` of a seed, as an array."""
    indices = tf.range(count, dtype=tf.int64)
    return hashed_frequencies(degrees, seed, indices, D, tf.float64, orthogonal=orthogonal).numpy()


@both_ways
def test_all_columns_and_features_are_those_of_the_oracle(orthogonal):
    """Ten features of blocks of three frequencies: the last block is not a whole one."""
    basis, X = RandomFourier(kernel(), 10, orthogonal=orthogonal, seed=8), inputs()
    expected = oracle.fourier_columns(
        X, range(10), 10, 5.0, 8, 1.7, np.array(LENGTHSCALES), orthogonal
    )
    np.testing.assert_allclose(basis(X), expected, rtol=1e-11, atol=1e-13)
    np.testing.assert_array_equal(basis.features(X), tf.transpose(basis(X)))


@every_kernel
@both_ways
def test_frequencies_follow_the_spectral_density(kind, orthogonal):
    """Each coordinate a Student's t; the squared radius over D an F distribution."""
    D, degrees = 3, DEGREES[kind]
    require_spectral_density(frequencies(degrees, 3000, D, 2, orthogonal), degrees)


def require_spectral_density(W, degrees):
    D = W.shape[1]
    coordinate = stats.norm() if np.isinf(degrees) else stats.t(degrees)
    radius = stats.chi2(D, scale=1 / D) if np.isinf(degrees) else stats.f(D, degrees)
    # every D-th draw, since those of one orthogonal block are not independent
    for column in W[::D].T:
        assert stats.kstest(column, coordinate.cdf).pvalue > 1e-3
    assert stats.kstest((W**2).mean(axis=1), radius.cdf).pvalue > 1e-3


@both_ways
def test_under_xla_the_columns_are_the_same(orthogonal):
    basis, X = RandomFourier(kernel(), 20, orthogonal=orthogonal, seed=6), inputs()
    compiled = tf.function(lambda X, i: (basis(X), basis(X, i)), autograph=False, jit_compile=True)
    whole, chosen = compiled(X, tf.constant([3, 19, 3, 0]))
    np.testing.assert_allclose(whole, basis(X), atol=1e-12)
    np.testing.assert_allclose(chosen, whole.numpy()[:, [3, 19, 3, 0]], atol=1e-12)


def test_what_changed_since_the_first_inputs_is_refused():
    basis = RandomFourier(gpflow.kernels.Matern52(), 8)
    basis(inputs())
    with pytest.raises(
        ValueError, match=r"X must have 3 column\(s\), as the inputs that the basis"
    ):
        basis(inputs(columns=2))
    basis.kernel = gpflow.kernels.Matern32()
    with pytest.raises(ValueError, match="kernel has become a Matern32"):
        basis(inputs())


def test_an_unknown_number_of_columns_and_a_kernel_of_another_type_are_refused():
    basis = RandomFourier(gpflow.kernels.Matern52(), 8)
    call = tf.function(
        basis, autograph=False, input_signature=[tf.TensorSpec([None, None], tf.float64)]
    )
    with pytest.raises(ValueError, match="known number of columns while tracing"):
        call(inputs())
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        single = kernel()
    with pytest.raises(ValueError, match=r"kernel\..* must be float64"):
        RandomFourier(single, 8)
