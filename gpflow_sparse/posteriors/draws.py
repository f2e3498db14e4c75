"""Functions drawn from a posterior, to be evaluated anywhere, and those that are finite sums."""

from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.functions import MeanFunction

from gpflow_sparse.bases import FiniteBasis
from gpflow_sparse.bases.fourier import require_num_features
from gpflow_sparse.inference.chevron import tail_projections
from gpflow_sparse.validation import checks, component_checks

# Numbers in the largest tensor of one block of rows: 16 MiB in float64, and a few such at a time.
_BLOCK = 2**21


class FunctionDraws(tf.Module):
    r"""
    Functions drawn from a posterior, to be evaluated anywhere: ``draws(X)`` is ``[S, N, P]``, and
    the value at a point is the same in every call. Made by ``posterior.sample_functions``.

    With u the values at the inducing inputs U, and jitter eps as in the posterior,

        f(x) = mean(x) + f_prior(x) + k(x, U) c,
        c = (Kuu + eps I)^-1 (u - f_prior(U) - sqrt(eps) zeta),     u ~ q(u),  zeta ~ N(0, I).

    This is linear in ``f_prior``, so the mean and the covariance of the draws depend on those of
    ``f_prior`` only. Every draw has frequencies of its own, so the latter are zero and ``k``
    exactly, for any number of features: the mean and the covariance of the draws are *exactly*
    those of ``predict_f(X, full_cov=True)``. What few features cost is the shape: given its
    frequencies a draw is Gaussian, over them it is a mixture with heavier tails. Largest excess
    kurtosis of 4,000 draws at 6 points among 50 inducing points, Matern 5/2, q much narrower than
    the prior: 8.6 with 4 features, 2.8 with 16, 0.8 with 64, 0.3 with 256, 0.1 (the noise of the
    estimate) with 1024. Frequencies that all draws share would give them a common error instead.

    It keeps hyperparameters, inducing inputs, ``q`` and the mean function as they were when it was
    made; changes of the model after that do not reach it. It can be differentiated with respect to
    X, and called inside ``tf.function``.
    """

    def __init__(
        self,
        paths: Sequence[Any],
        mean_function: MeanFunction | None,
        input_dim: int | None,
        mixing: tf.Tensor | None = None,
    ) -> None:
        """
        :param paths: latent functions, their outputs side by side; each with a ``dtype``, and
            callable from ``[N, D]`` to ``[S, N, P]``.
        :param mean_function: copied; None for zero.
        :param input_dim: D; None where any number is right.
        :param mixing: ``W [P, L]`` that makes P outputs of L latent functions; None for ``I``.
        """
        super().__init__()
        self.paths = tuple(paths)
        self.mean_function = None
        if mean_function is not None:
            self.mean_function = gpflow.utilities.freeze(mean_function)
        self.input_dim = input_dim
        self._mixing = None if mixing is None else tf.convert_to_tensor(mixing)

    def __call__(self, X: Any) -> tf.Tensor:
        """
        Time O(N (S P num_features D + M S P + M D)) with M inducing points in all. Rows go through
        in blocks that keep the memory of intermediate results bounded; a gradient needs those of
        all blocks, O(N (S P num_features + M)).

        :param X: ``[N, D]``.
        :return: ``[S, N, P]``, mean function included, observation noise not.
        :raises ValueError: for inputs of another rank or D, or that are not finite.
        """
        dtype = self.paths[0].dtype
        X = checks.require_inputs(checks.require_matrix(X, "X", dtype), self.input_dim, dtype, "X")
        checks.require_range(X, "X")
        if not tf.executing_eagerly():
            X = checks.require_finite_in_graph(X, "X")
        values = tf.concat([path(X) for path in self.paths], axis=-1)  # [S, N, L]
        if self._mixing is not None:
            values = tf.linalg.matmul(values, self._mixing, transpose_b=True)  # [S, N, P]
        if self.mean_function is None:
            return values
        mean = self.mean_function(X)
        return values + component_checks.require_mean(mean, values[0], self.mean_function)


class WeightPaths(tf.Module):
    """``A(x)^T w``: draws of a finite sum of basis functions, exact."""

    def __init__(self, basis: FiniteBasis, weights: tf.Tensor) -> None:
        """
        :param basis: copied.
        :param weights: ``[S, m, P]``, of the whitened features.
        """
        super().__init__()
        self.basis = gpflow.utilities.freeze(basis)
        self.shape = (weights.shape[0], weights.shape[2])
        self._weights = stack(weights)  # [m, S P]

    @property
    def dtype(self) -> tf.DType:
        """Float type of X and of the values."""
        return self._weights.dtype

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """``[S, N, P]`` at ``X [N, D]``."""
        return in_blocks(self._evaluate, X, max(self._weights.shape))

    def _evaluate(self, X: tf.Tensor) -> tf.Tensor:
        A = self.basis.features(X)
        return unstack(tf.linalg.matmul(A, self._weights, transpose_a=True), self.shape)


class ColumnPaths(tf.Module):
    """``phi(x)^T w`` for weights so many that their functions are made some at a time."""

    def __init__(self, basis: FiniteBasis, weights: tf.Tensor) -> None:
        """
        :param basis: copied.
        :param weights: ``[S, m, P]``, of the basis's own columns.
        """
        super().__init__()
        self.basis = gpflow.utilities.freeze(basis)
        self.shape = (weights.shape[0], weights.shape[2])
        self._weights = stack(weights)  # [m, S P]

    @property
    def dtype(self) -> tf.DType:
        """Float type of X and of the values."""
        return self._weights.dtype

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """``[S, N, P]`` at ``X [N, D]``."""
        values = tail_projections(
            lambda indices: self.basis(X, indices), 0, [self._weights], tf.shape(X)[0]
        )
        return unstack(values, self.shape)


def require_arguments(num_samples: Any, num_features: Any, seed: Any) -> np.random.Generator:
    """
    The generator of ``sample_functions``, whose arguments these are.

    :raises ValueError: for arguments that are none, and inside ``tf.function``.
    """
    checks.require_count(num_samples, "num_samples")
    require_num_features(num_features)
    if not tf.executing_eagerly():
        raise ValueError(
            "sample_functions must be called outside of tf.function; call what it returns inside."
        )
    return make_generator(seed)


def make_generator(seed: int | None) -> np.random.Generator:
    """
    NumPy's generator with that seed; for None one seeded by TensorFlow's global generator, so that
    ``tf.random.set_seed`` decides.

    :raises ValueError: for a seed that is none.
    """
    if seed is not None:
        return np.random.default_rng(checks.require_seed(seed))
    fresh = tf.random.uniform([4], maxval=2**31 - 1, dtype=tf.int32)
    return np.random.default_rng(fresh.numpy())


def in_blocks(
    function: Callable[[tf.Tensor], tf.Tensor], X: tf.Tensor, numbers_per_row: int
) -> tf.Tensor:
    """``function`` from ``[N, D]`` to ``[S, N, P]``, some rows at a time."""
    most = max(1, _BLOCK // numbers_per_row)
    if X.shape[0] is not None and X.shape[0] <= most:
        return function(X)
    num_rows = tf.shape(X)[0]
    count = (num_rows + most - 1) // most
    rows = (num_rows + count - 1) // count  # blocks of equal height: fewer than `count` spare rows
    padded = tf.pad(X, [[0, count * rows - num_rows], [0, 0]])
    blocks = tf.reshape(padded, [count, rows, X.shape[1]])
    # AutoGraph would rewrite GPflow's kernels at every call: 10 s in place of 0.4 s on small blocks
    plain = tf.autograph.experimental.do_not_convert(function)
    values = tf.map_fn(plain, blocks, parallel_iterations=1)  # [count, S, rows, P]
    S, P = values.shape[1], values.shape[3]
    joined = tf.reshape(tf.transpose(values, [1, 0, 2, 3]), [S, count * rows, P])
    return joined[:, :num_rows]


def stack(values: tf.Tensor) -> tf.Tensor:
    """``[S, M, P]`` as ``[M, S P]``: one right-hand side per function."""
    S, M, P = values.shape
    return tf.reshape(tf.transpose(values, [1, 0, 2]), [M, S * P])


def unstack(values: tf.Tensor, shape: tuple[int, int]) -> tf.Tensor:
    """``[M, S P]`` as ``[S, M, P]``."""
    return tf.transpose(tf.reshape(values, [-1, *shape]), [1, 0, 2])
