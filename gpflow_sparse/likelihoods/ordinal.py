"""Ordered levels, with thresholds that are given or learned."""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow import likelihoods
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods.utils import inv_probit
from scipy import stats

from gpflow_sparse.likelihoods.quadrature import TrapezoidQuadrature
from gpflow_sparse.validation import checks

# In place of infinity, where the normal distribution and its derivative are exactly 0 or 1.
_BEYOND = 1e6


class Ordinal(likelihoods.Ordinal):
    """
    GPflow's ordinal likelihood without evaluating ``erf`` at infinity, which in float64 is NaN in
    some releases of TensorFlow. In others the probabilities are equal.
    Expectations are by :class:`TrapezoidQuadrature`.

    :param bin_edges: increasing values of ``f`` at which the level changes, one less than levels.
    :raises ValueError: for edges that do not increase.
    """

    def __init__(self, bin_edges: Any, **kwargs: Any) -> None:
        edges = require_edges(bin_edges)
        super().__init__(edges, **{"quadrature": TrapezoidQuadrature(), **kwargs})

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        levels = tf.broadcast_to(tf.cast(Y, tf.int32), tf.shape(F))
        chosen = tf.gather(self._make_phi(F), tf.reshape(levels, [-1]), batch_dims=1)
        return tf.math.log(tf.reshape(chosen, tf.shape(F)) + 1e-6)  # 1e-6 as in GPflow

    def _make_phi(self, F: TensorType) -> tf.Tensor:
        """Probability of each level, ``[number of entries of F, num_bins]``."""
        below = inv_probit((self.bin_edges - tf.reshape(F, [-1, 1])) / self.sigma)
        limit = tf.fill([tf.shape(below)[0], 1], tf.constant(1e-3, below.dtype))  # inv_probit(-inf)
        below = tf.concat([limit, below, 1.0 - limit], axis=1)
        return below[:, 1:] - below[:, :-1]


class OrderedProbit(likelihoods.Ordinal):
    """
    Levels 0, 1, ..., C - 1 with learned thresholds: ``P(y = c | f) = Phi(b_c - f) - Phi(b_(c-1) -
    f)`` for increasing ``b_0`` to ``b_(C-2)``, and infinities beyond. The noise has the scale 1,
    since a common factor of thresholds, noise and f changes nothing.

    Logarithms are of differences in the tail that is smaller, without a floor. Given a Gaussian f
    probabilities are in closed form; expected logarithms are by :class:`TrapezoidQuadrature`.

    :param num_levels: C, at least 2.
    :param bin_edges: starts of the thresholds, ``model.likelihood.bin_edges``, increasing; None for
        levels of equal probability under ``f ~ N(0, 1)``.
    :raises ValueError: for other numbers.
    """

    def __init__(self, num_levels: int, bin_edges: Any = None) -> None:
        if checks.require_count(num_levels, "num_levels") < 2:
            raise ValueError(f"num_levels must be at least 2, got {num_levels}.")
        if bin_edges is None:
            bin_edges = np.sqrt(2.0) * stats.norm.ppf(np.arange(1, num_levels) / num_levels)
        edges = require_edges(bin_edges)
        if len(edges) != num_levels - 1:
            raise ValueError(f"bin_edges must be {num_levels - 1} numbers, got {len(edges)}.")
        super().__init__(edges, quadrature=TrapezoidQuadrature())
        self.bin_edges = gpflow.Parameter(edges, transform=tfp.bijectors.Ascending())
        gpflow.set_trainable(self.sigma, False)

    def log_probabilities(self, Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
        """Logarithms of the probabilities of all levels, ``[..., P, C]``, given moments of f."""
        t = (self._limits() - tf.convert_to_tensor(Fmu)[..., None]) / tf.sqrt(1.0 + Fvar)[..., None]
        return _log_difference(t[..., :-1], t[..., 1:])

    def _limits(self) -> tf.Tensor:
        """The thresholds, and those beyond them ``[C + 1]``."""
        edges = tf.convert_to_tensor(self.bin_edges)
        beyond = tf.constant([_BEYOND], edges.dtype)
        return tf.concat([-beyond, edges, beyond], axis=0)

    def _chosen(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        limits, level, spread = self._limits(), tf.cast(Y, tf.int32), tf.sqrt(1.0 + Fvar)
        low, high = ((tf.gather(limits, level + k) - Fmu) / spread for k in (0, 1))
        return _log_difference(low, high)

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._chosen(F, tf.zeros_like(F), Y)

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        P = tf.exp(self.log_probabilities(Fmu, Fvar))
        levels = tf.range(self.num_bins, dtype=P.dtype)
        mean = tf.reduce_sum(P * levels, axis=-1)
        return mean, tf.reduce_sum(P * tf.square(levels - mean[..., None]), axis=-1)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return tf.reduce_sum(self._chosen(Fmu, Fvar, Y), axis=-1)

    def _make_phi(self, F: TensorType) -> tf.Tensor:
        """Probability of each level, ``[number of entries of F, num_bins]``."""
        return tf.exp(self.log_probabilities(tf.reshape(F, [-1]), tf.zeros([], F.dtype)))


def _log_difference(low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    """``log(Phi(high) - Phi(low))``."""
    # Phi(high) - Phi(low) = Phi(-low) - Phi(-high)
    low, high = tf.where(low + high > 0.0, -high, low), tf.where(low + high > 0.0, -low, high)
    normal = tfp.distributions.Normal(tf.zeros([], low.dtype), tf.ones([], low.dtype))
    log_high = normal.log_cdf(high)
    return log_high + tf.math.log(-tf.math.expm1(normal.log_cdf(low) - log_high))


def require_edges(bin_edges: Any) -> np.ndarray:
    """:raises ValueError: unless these are increasing numbers."""
    edges = checks.as_array(bin_edges, "bin_edges", tf.as_dtype(gpflow.default_float()))
    if edges.ndim != 1 or edges.size == 0 or not np.all(np.diff(edges, prepend=-np.inf) > 0.0):
        raise ValueError(f"bin_edges must be a list of increasing numbers, got {bin_edges!r}.")
    return edges
