"""Counts of the rate ``exp(f)``: with overdispersion, and with additional zeros.

An exposure E, such as a time or an area, enters as ``f + log E``: put ``log E`` in a column of X,
take :class:`gpflow_sparse.mean_functions.Offset` of it as the mean function, and leave the column
out of the ``active_dims`` of the kernel.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow import likelihoods
from gpflow.base import MeanAndVariance, TensorType

from gpflow_sparse.inference.gaussian_averages import deviation
from gpflow_sparse.likelihoods.quadrature import TrapezoidQuadrature
from gpflow_sparse.validation import checks

# Nodes of every expectation, and half its width: in standard deviations of f for expected
# logarithms; of the integrand near its mode for expected densities, whose tails may be wider.
_NODES, _WIDTH = 201, 8.0
_NODES_ABOUT_MODE, _WIDTH_ABOUT_MODE = 201, 12.0
# Newton's steps to the mode, and the largest of them in f: a rate that is too high falls by a
# factor e in each.
_STEPS, _LONGEST = 30, 3.0


class _Counts(likelihoods.ScalarLikelihood):
    """
    Counts of the mean ``s mu`` and the variance ``s (mu + c mu^2)`` for the rate ``mu = exp(f)``.
    """

    support = (True, 0, np.inf, "counts 0, 1, 2, ...")

    def __init__(self) -> None:
        super().__init__(quadrature=TrapezoidQuadrature(_NODES, _WIDTH))

    @property
    @abstractmethod
    def _moments(self) -> tuple[tf.Tensor, tf.Tensor]:
        """s and c, scalars."""

    @abstractmethod
    def _distribution(self, F: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        """``P(y <= counts | f)`` for counts of at least 0."""

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._moments[0] * tf.exp(F)

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        s, c = self._moments
        return s * (tf.exp(F) + c * tf.exp(2.0 * F))

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        (s, c), rate = self._moments, tf.exp(Fmu + 0.5 * Fvar)
        excess = c * tf.exp(Fvar) + s * tf.math.expm1(Fvar)
        return s * rate, s * (rate + tf.square(rate) * excess)

    def predict_quantiles(
        self, Fmu: TensorType, Fvar: TensorType, levels: Sequence[float]
    ) -> tf.Tensor:
        """
        The least counts whose distribution function under ``f ~ N(Fmu, Fvar)`` reaches levels.

        By bisection, in ``O(201 L N P log(count))`` time. Where the width of ``p(y | f)`` in f is
        far below the standard deviation of f, probabilities are off by at most .004 for levels .025
        and .975, and .016 for the median.

        :param Fmu: ``[N, P]``, mean function included, as Fvar.
        :param levels: L probabilities, between 0 and 1.
        :return: ``[L, N, P]``.
        :raises ValueError: for other levels.
        """
        p = np.asarray(levels, np.float64)
        if p.ndim != 1 or not np.all((p > 0.0) & (p < 1.0)):
            raise ValueError(f"levels must be a list of numbers between 0 and 1, got {levels!r}.")
        mean, var = self._predict_mean_and_var(None, Fmu, Fvar)
        level = tf.constant(p, mean.dtype)[:, None, None]
        Fmu, Fvar = (part + tf.zeros_like(level) for part in (Fmu, Fvar))  # [L, N, P]
        # Cantelli's inequality bounds the quantile; larger floats are not all integers
        high = tf.math.ceil(mean + tf.sqrt(var * level / (1.0 - level)))
        high = tf.minimum(high, 1.0 / np.finfo(mean.dtype.as_numpy_dtype).eps)

        def halved(low: tf.Tensor, high: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            middle, is_open = tf.math.floor(0.5 * (low + high)), high - low > 1.0
            counts = tf.maximum(middle, 0.0)  # -1 where the interval is closed
            reached = self.quadrature(lambda F: self._distribution(F, counts), Fmu, Fvar) >= level
            low = tf.where(is_open & ~reached, middle, low)
            return low, tf.where(is_open & reached, middle, high)

        _, found = tf.while_loop(
            lambda low, high: tf.reduce_any(high - low > 1.0), halved, (-tf.ones_like(high), high)
        )
        return found


class NegativeBinomial(_Counts):
    """
    Counts of the mean ``mu = exp(f)`` and the variance ``mu + a mu^2``: Poisson counts whose rate
    has a gamma distribution about mu, of the variance ``a mu^2``. For ``a -> 0`` it is
    ``gpflow.likelihoods.Poisson``. Its logarithm

        log p(y | f) = lgamma(y + 1/a) - lgamma(1/a) - lgamma(y + 1)
                       + y (f + log a) - (y + 1/a) log(1 + a exp(f))

    is concave in f. In its expectation only ``E log(1 + a exp(f))`` is by quadrature; mean and
    variance of y are in closed form; expected densities are by the trapezoid rule about the
    mode of the integrand, since large counts determine f far better than q may.

    :param dispersion: start of ``a``, ``model.likelihood.dispersion``; positive.
    :raises ValueError: unless it is one positive number.
    """

    def __init__(self, dispersion: float = 1.0) -> None:
        super().__init__()
        start = checks.require_positive_number(dispersion, "dispersion")
        self.dispersion = gpflow.Parameter(start, transform=gpflow.utilities.positive())

    @property
    def _moments(self) -> tuple[tf.Tensor, tf.Tensor]:
        a = tf.convert_to_tensor(self.dispersion)
        return tf.ones_like(a), a

    def _log_density(self, F: TensorType, log_total: tf.Tensor, Y: TensorType) -> tf.Tensor:
        """:param log_total: ``log(1 + a exp(f))``, or its expectation where F is that of f."""
        a = tf.convert_to_tensor(self.dispersion)
        # differences of lgamma lose all digits for small a
        base = -tfp.math.log_gamma_difference(Y, 1.0 / a + tf.zeros_like(Y))
        base -= tf.math.lgamma(Y + 1.0)
        return base + Y * (F + tf.math.log(a)) - (Y + 1.0 / a) * log_total

    def _log_total(self, F: TensorType) -> tf.Tensor:
        return tf.math.softplus(F + tf.math.log(self.dispersion))

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._log_density(F, self._log_total(F), Y)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        log_total = self.quadrature(self._log_total, Fmu, Fvar)
        return tf.reduce_sum(self._log_density(Fmu, log_total, Y), axis=-1)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        a = tf.convert_to_tensor(self.dispersion)
        each = _log_expected(lambda F: self._scalar_log_prob(X, F, Y), Y, Fmu, Fvar, a)
        return tf.reduce_sum(each, axis=-1)

    def _distribution(self, F: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        a = tf.convert_to_tensor(self.dispersion)
        below = tf.exp(-self._log_total(F))  # 1 / (1 + a mu)
        shape = tf.zeros_like(F)
        return tf.math.betainc(1.0 / a + shape, counts + 1.0 + shape, below)


class ZeroInflatedPoisson(_Counts):
    """
    Counts that are 0 with a probability w, whatever f is, and else Poisson of the rate ``mu =
    exp(f)``: ``p(0 | f) = w + (1 - w) exp(-mu)``.

    Expected logarithms and densities of positive counts are as for Poisson counts, the logarithms
    in closed form; at 0 both are by quadrature. Mean and variance are in closed form. The
    logarithm of ``p(0 | f)`` is not concave in f.

    :param zero_probability: start of w, ``model.likelihood.zero_probability``; between 0 and 1.
    :raises ValueError: for another number.
    """

    def __init__(self, zero_probability: float = 0.1) -> None:
        super().__init__()
        start = checks.require_positive_number(zero_probability, "zero_probability")
        if not start < 1.0:
            raise ValueError(f"zero_probability must be below 1, got {zero_probability!r}.")
        self.zero_probability = gpflow.Parameter(start, transform=tfp.bijectors.Sigmoid())

    @property
    def _moments(self) -> tuple[tf.Tensor, tf.Tensor]:
        w = tf.convert_to_tensor(self.zero_probability)
        return 1.0 - w, w

    def _or_zero(self, others: tf.Tensor) -> tf.Tensor:
        """The log probability of 0 from that of 0 as a Poisson count, its weight included."""
        log_w = tf.math.log(self.zero_probability) + tf.zeros_like(others)
        return tf.reduce_logsumexp(tf.stack([others, log_w]), axis=0)

    def _of_zero(self, F: TensorType) -> tf.Tensor:
        """``log p(0 | f)``."""
        return self._or_zero(tf.math.log(self._moments[0]) - _rate(F))

    def _of_others(self, F: TensorType, rate: tf.Tensor, Y: TensorType) -> tf.Tensor:
        """``log p(y | f)`` for positive y."""
        return tf.math.log(self._moments[0]) + Y * F - rate - tf.math.lgamma(Y + 1.0)

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return tf.where(Y < 0.5, self._of_zero(F), self._of_others(F, _rate(F), Y))

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        of_zero = self.quadrature(self._of_zero, Fmu, Fvar)
        of_others = self._of_others(Fmu, _rate(Fmu + 0.5 * Fvar), Y)
        return tf.reduce_sum(tf.where(Y < 0.5, of_zero, of_others), axis=-1)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        def poisson(F: tf.Tensor) -> tf.Tensor:
            return self._of_others(F, _rate(F), Y)

        each = _log_expected(poisson, Y, Fmu, Fvar, 0.0)
        return tf.reduce_sum(tf.where(Y < 0.5, self._or_zero(each), each), axis=-1)

    def _distribution(self, F: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        w = tf.convert_to_tensor(self.zero_probability)
        return w + (1.0 - w) * tf.math.igammac(counts + 1.0 + tf.zeros_like(F), _rate(F))


def _rate(F: TensorType) -> tf.Tensor:
    """``exp(f)`` without overflow, whose product with a density of 0 would be NaN."""
    F = tf.convert_to_tensor(F)
    return tf.exp(tf.minimum(F, 0.5 * float(np.log(F.dtype.as_numpy_dtype(F.dtype.max)))))


def _log_expected(
    log_prob: Callable[[tf.Tensor], tf.Tensor],
    Y: TensorType,
    Fmu: TensorType,
    Fvar: TensorType,
    dispersion: Any,
) -> tf.Tensor:
    """
    ``log E p(y | f)`` under ``f ~ N(Fmu, Fvar)``, entry by entry, for a density of counts.

    The trapezoid rule in the standardized f about the mode of the integrand, in units of its width
    there: the integral does not depend on the nodes, so that their gradients are left out.

    :param dispersion: a of the density; 0 for Poisson.
    """
    spread, _ = deviation(tf.convert_to_tensor(Fvar))
    mode, width = map(tf.stop_gradient, _mode(Y, Fmu, spread, dispersion))
    t = np.linspace(-_WIDTH_ABOUT_MODE, _WIDTH_ABOUT_MODE, _NODES_ABOUT_MODE)
    shape = tf.concat([[-1], tf.ones(tf.rank(mode), tf.int32)], axis=0)
    Z = mode + width * tf.reshape(tf.constant(t, mode.dtype), shape)  # [nodes, ..., P]
    each = log_prob(Fmu + spread * Z) - 0.5 * tf.square(Z)
    step = tf.math.log(width) + float(np.log((t[1] - t[0]) / np.sqrt(2.0 * np.pi)))
    return tf.reduce_logsumexp(each, axis=0) + step


def _mode(
    Y: TensorType, mean: TensorType, spread: tf.Tensor, a: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Mode and width of ``p(y | mean + spread z) N(z | 0, 1)`` in z, by Newton's method: its logarithm
    is concave. It starts from the product with a Gaussian about ``log(y + 1/2)``.
    """
    known = 1.0 / (a + 1.0 / (Y + 0.5))
    z = spread * known * (tf.math.log(Y + 0.5) - mean) / (1.0 + tf.square(spread) * known)
    for _ in range(_STEPS):
        rate = _rate(mean + spread * z)
        part = (1.0 + a * Y) * rate / (1.0 + a * rate)
        precision = 1.0 + tf.square(spread) * part / (1.0 + a * rate)
        step = (spread * (Y - part) - z) / precision
        longest = _LONGEST / tf.maximum(spread, 1e-6)
        z += tf.clip_by_value(step, -longest, longest)
    return z, 1.0 / tf.sqrt(precision)
