"""Expectations under Gaussians by the trapezoid rule."""

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import TensorType
from gpflow.quadrature import GaussianQuadrature

from gpflow_sparse.inference.gaussian_averages import deviation
from gpflow_sparse.validation import checks


class TrapezoidQuadrature(GaussianQuadrature):
    """
    Expectations under independent Gaussians, each by the trapezoid rule.

    Evenly spaced nodes from ``-half_width`` to ``half_width`` standard deviations about the mean,
    weighted by the normal density; the weights sum to 1, so that constants are exact and mixtures
    of probabilities are probabilities. It replaces GPflow's Gauss-Hermite rule in any
    ``ScalarLikelihood``, as ``likelihood.quadrature`` or the constructor's ``quadrature``; not in
    likelihoods of several latent functions, whose rules are over all of them jointly.

    Largest errors for ``log sigmoid`` with means in [-30, 30]: with 101 nodes 2e-14 up to a
    standard deviation of 3, 4e-12 at 5, 6e-7 at 10 and 3e-4 at 20; with GPflow's 20 Gauss-Hermite
    nodes 3e-11 at 1, 2e-6 at 2, 3e-3 at 5, .04 at 10 and .16 at 20.

    At variance 0 the result is the function at the mean, and its derivative in the variance is
    taken as 0, where the square root would make it NaN.

    :param num_nodes: nodes per expectation, 2 at least.
    :param half_width: half width in standard deviations.
    :raises ValueError: for arguments out of range.
    """

    def __init__(self, num_nodes: int = 101, half_width: float = 8.0) -> None:
        self.num_nodes = checks.require_count(num_nodes, "num_nodes")
        if self.num_nodes < 2:
            raise ValueError(f"num_nodes must be at least 2, got {num_nodes}.")
        self.half_width = checks.require_positive_number(half_width, "half_width")

    @inherit_check_shapes
    def _build_X_W(self, mean: TensorType, var: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        mean = tf.convert_to_tensor(mean)
        # computed at every call, in the float type of the model
        z = np.linspace(-self.half_width, self.half_width, self.num_nodes)
        density = np.exp(-0.5 * z**2)
        density[[0, -1]] *= 0.5
        shape = tf.concat([[self.num_nodes], tf.ones(tf.rank(mean), tf.int32)], axis=0)
        Z = tf.reshape(tf.constant(z, mean.dtype), shape)  # [num_nodes, 1, ..., 1]
        W = tf.reshape(tf.constant(density / density.sum(), mean.dtype), shape)
        spread, _ = deviation(tf.convert_to_tensor(var))
        return mean + spread * Z, W
