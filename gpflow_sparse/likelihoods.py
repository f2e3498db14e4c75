"""Likelihoods that GPflow lacks or computes less accurately, and a test of log-concavity.

A site is one factor ``p(y_n | f_n)`` of a likelihood. If its logarithm is concave in ``f``, the
expectation over unbiased estimates of ``f`` is at most its value at ``f`` (Jensen's inequality), on
which bounds by sub-sampling are based.
"""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow import likelihoods
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods.utils import inv_probit
from gpflow.quadrature import GaussianQuadrature
from scipy import stats

from gpflow_sparse._names import restrict_dir
from gpflow_sparse.inference.gaussian_averages import (
    deviation,
    expected_student_t,
    folded_mean,
    log_normal_laplace,
    log_normal_student_t,
)
from gpflow_sparse.validation import checks

__all__ = [
    "BernoulliLogit",
    "HeteroskedasticGaussian",
    "Laplace",
    "OneVersusRest",
    "Ordinal",
    "Softmax",
    "StudentT",
    "TrapezoidQuadrature",
]

restrict_dir(__name__, __all__)

_NUM_POINTS = 128  # of the Sobol sequence for softmax, a power of two


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
        self.half_width = _require_positive(half_width, "half_width")

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


class Laplace(likelihoods.ScalarLikelihood):
    """
    Noise with the density ``exp(-|y - f| / b) / (2 b)``: its logarithm falls off linearly, so that
    outliers have less influence than with Gaussian noise, and is concave in ``f``.

    All expectations are in closed form. The noise variance is ``2 b^2``.

    :param scale: starting value of ``b``, ``model.likelihood.scale``; positive. Its lower bound is
        ``gpflow.config.default_likelihood_positive_minimum()``, as for GPflow's Student's t.
    :raises ValueError: unless ``scale`` is one number above that bound.
    """

    def __init__(self, scale: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        lowest = gpflow.config.default_likelihood_positive_minimum()
        if not _require_positive(scale, "scale") > lowest:
            raise ValueError(
                f"scale must be above {lowest:g}, "
                "gpflow.config.default_likelihood_positive_minimum(), "
                f"got {scale!r}. Standardize Y, or lower that bound."
            )
        transform = gpflow.utilities.positive(lower=lowest)
        self.scale = gpflow.Parameter(scale, transform=transform)

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return -tf.math.log(2.0 * self.scale) - tf.abs(Y - F) / self.scale

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.identity(F)

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.fill(tf.shape(F), 2.0 * tf.square(self.scale))

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return tf.identity(Fmu), Fvar + 2.0 * tf.square(self.scale)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        expected = -tf.math.log(2.0 * self.scale) - folded_mean(Y - Fmu, Fvar) / self.scale
        return tf.reduce_sum(expected, axis=-1)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return tf.reduce_sum(log_normal_laplace(Y - Fmu, Fvar, self.scale), axis=-1)


class BernoulliLogit(likelihoods.Bernoulli):
    """
    Labels 0 and 1 with ``P(y = 1) = 1 / (1 + exp(-f))``.

    GPflow's ``Bernoulli(invlink=tf.sigmoid)`` takes the logarithm of a probability, which is -inf
    at f = 40 and y = 0; this computes ``-softplus(-(2 y - 1) f)``, exact everywhere and concave in
    ``f``. Expectations are by :class:`TrapezoidQuadrature`.

    :param quadrature: another rule for one dimension.
    """

    def __init__(self, *, quadrature: GaussianQuadrature | None = None) -> None:
        rule = TrapezoidQuadrature() if quadrature is None else quadrature
        super().__init__(invlink=tf.sigmoid, quadrature=rule)

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return -tf.nn.softplus((1.0 - 2.0 * Y) * F)

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.sigmoid(F) * tf.sigmoid(-F)

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        # both probabilities, since 1 - p is inaccurate for p close to 1
        one, zero = self.quadrature([tf.sigmoid, lambda F: tf.sigmoid(-F)], Fmu, Fvar)
        return one, one * zero

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        log_density = self.quadrature.logspace(self._quadrature_log_prob, Fmu, Fvar, X=X, Y=Y)
        return self._quadrature_reduction(log_density)


class Softmax(likelihoods.Softmax):
    """
    GPflow's softmax of one latent function per class, with expectations equal in every call.

    GPflow draws anew in every call, and refuses labels in floats when it predicts densities. Here
    expectations are averages over a fixed scrambled Sobol sequence of 128 points in C dimensions,
    transformed to the Gaussian of f: deterministic, and differentiable in its mean and variance. In
    expectations of the log density only the expectation of the normalizer is approximate. They take
    128 C operations for each row.

    :param num_classes: C, at least 2.
    """

    def __init__(self, num_classes: int, **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        points = stats.qmc.Sobol(num_classes, seed=0).random(_NUM_POINTS)
        # the outermost cell may hold 0, whose quantile is infinite
        self.nodes = stats.norm.ppf(np.clip(points, 0.5 / _NUM_POINTS, 1.0 - 0.5 / _NUM_POINTS))

    def _draws(self, Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
        """Points of the Gaussian of f, ``[S, N, C]``."""
        nodes = tf.cast(self.nodes, Fmu.dtype)[:, None, :]
        return Fmu + tf.sqrt(Fvar) * nodes

    def _chosen(self, values: tf.Tensor, Y: TensorType) -> tf.Tensor:
        """Entries ``[..., N]`` of values ``[..., N, C]`` at the labels ``[N, 1]``."""
        labels = tf.one_hot(tf.cast(Y[:, 0], tf.int32), self.num_classes, dtype=values.dtype)
        return tf.reduce_sum(values * labels, axis=-1)

    @inherit_check_shapes
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._chosen(tf.nn.log_softmax(F), Y)

    @inherit_check_shapes
    def _variational_expectations(
        self,
        X: TensorType,
        Fmu: TensorType,
        Fvar: TensorType,
        Y: TensorType,
        epsilon: TensorType | None = None,  # GPflow's draws
    ) -> tf.Tensor:
        normalizer = tf.reduce_logsumexp(self._draws(Fmu, Fvar), axis=-1)  # [S, N]
        return self._chosen(Fmu, Y) - tf.reduce_mean(normalizer, axis=0)

    @inherit_check_shapes
    def _predict_mean_and_var(
        self,
        X: TensorType,
        Fmu: TensorType,
        Fvar: TensorType,
        epsilon: TensorType | None = None,
    ) -> MeanAndVariance:
        P = tf.reduce_mean(tf.nn.softmax(self._draws(Fmu, Fvar)), axis=0)
        return P, P * (1.0 - P)

    @inherit_check_shapes
    def _predict_log_density(
        self,
        X: TensorType,
        Fmu: TensorType,
        Fvar: TensorType,
        Y: TensorType,
        epsilon: TensorType | None = None,  # GPflow's draws
    ) -> tf.Tensor:
        log_density = self._chosen(tf.nn.log_softmax(self._draws(Fmu, Fvar)), Y)  # [S, N]
        return tf.reduce_logsumexp(log_density, axis=0) - np.log(_NUM_POINTS)


class OneVersusRest(likelihoods.Likelihood):
    """
    C classes by C latent functions, each of which tells one class from the rest.

    The log density of a label y given f is ``sum_c log sigmoid(s_c f_c)`` with ``s_c = 1`` for
    ``c = y`` and -1 for others: C binary observations, so that it is concave in f, and its
    expectations are C one-dimensional ones, by :class:`TrapezoidQuadrature`. Predicted
    probabilities are the expected sigmoids, normalized: ``P(y = c) = E sigmoid(f_c) / sum_k E
    sigmoid(f_k)``.

    :param num_classes: C, at least 2; labels are 0, 1, ..., C - 1.
    """

    def __init__(self, num_classes: int) -> None:
        self.num_classes = checks.require_count(num_classes, "num_classes")
        if self.num_classes < 2:
            raise ValueError(f"num_classes must be at least 2, got {num_classes}.")
        super().__init__(input_dim=None, latent_dim=self.num_classes, observation_dim=1)
        self.binary = BernoulliLogit()

    def _is_class(self, Y: TensorType, dtype: tf.DType) -> tf.Tensor:
        """Ones at the labels ``Y [..., 1]``, ``[..., C]``."""
        return tf.one_hot(tf.cast(Y[..., 0], tf.int32), self.num_classes, dtype=dtype)

    @inherit_check_shapes
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        each = self.binary._scalar_log_prob(X, F, self._is_class(Y, F.dtype))
        return tf.reduce_sum(each, axis=-1)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        sigmoids = tf.sigmoid(F)
        return sigmoids / tf.reduce_sum(sigmoids, axis=-1, keepdims=True)

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        P = self._conditional_mean(X, F)
        return P * (1.0 - P)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self.binary.variational_expectations(X, Fmu, Fvar, self._is_class(Y, Fmu.dtype))

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        sigmoids, _ = self.binary.predict_mean_and_var(X, Fmu, Fvar)
        P = sigmoids / tf.reduce_sum(sigmoids, axis=-1, keepdims=True)
        return P, P * (1.0 - P)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        each = self.binary.quadrature.logspace(tf.math.log_sigmoid, Fmu, Fvar)  # log E sigmoid(f)
        log_P = each - tf.reduce_logsumexp(each, axis=-1, keepdims=True)
        return tf.reduce_sum(log_P * self._is_class(Y, Fmu.dtype), axis=-1)


class HeteroskedasticGaussian(likelihoods.Likelihood):
    """
    Gaussian noise whose variance depends on the inputs: ``y ~ N(f, s^2 exp(2 g))`` with two latent
    functions f and g, of which g is the logarithm of the standard deviation relative to ``s``.

    It is GPflow's ``HeteroskedasticTFPConditional()`` for ``s = 1``, with expectations in closed
    form in place of 400 nodes of quadrature for each row: for ``f ~ N(m, v)`` and ``g ~ N(m_g,
    v_g)``

        E[log p(y | f, g)] = -(log 2 pi s^2) / 2 - m_g
                             - ((y - m)^2 + v) exp(2 v_g - 2 m_g) / (2 s^2).

    Log densities are averages over g alone, by :class:`TrapezoidQuadrature`.

    :param scale: starting value of ``s``, ``model.likelihood.scale``; positive.
    :raises ValueError: unless ``scale`` is one positive number.
    """

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__(input_dim=None, latent_dim=2, observation_dim=1)
        start = _require_positive(scale, "scale")
        self.scale = gpflow.Parameter(start, transform=gpflow.utilities.positive())
        self.quadrature = TrapezoidQuadrature()

    def _log_density(self, error: tf.Tensor, var: tf.Tensor) -> tf.Tensor:
        """Log densities of Gaussian errors with these variances."""
        return -0.5 * (tf.math.log(2.0 * np.pi * var) + tf.square(error) / var)

    def noise_variance(self, g: tf.Tensor) -> tf.Tensor:
        """``s^2 exp(2 g)``."""
        return tf.square(tf.cast(self.scale, g.dtype)) * tf.exp(2.0 * g)

    @inherit_check_shapes
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        each = self._log_density(Y - F[..., :1], self.noise_variance(F[..., 1:]))
        return tf.reduce_sum(each, axis=-1)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return F[..., :1]

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.noise_variance(F[..., 1:])

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return Fmu[..., :1], Fvar[..., :1] + self.noise_variance(Fmu[..., 1:] + Fvar[..., 1:])

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        squares = tf.square(Y - Fmu[..., :1]) + Fvar[..., :1]
        squares /= self.noise_variance(Fmu[..., 1:] - Fvar[..., 1:])
        logs = tf.math.log(2.0 * np.pi * self.noise_variance(tf.zeros_like(squares)))
        return tf.reduce_sum(-Fmu[..., 1:] - 0.5 * (logs + squares), axis=-1)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        error, var = Y - Fmu[..., :1], Fvar[..., :1]

        def given(g: tf.Tensor) -> tf.Tensor:
            return self._log_density(error, var + self.noise_variance(g))

        log_density = self.quadrature.logspace(given, Fmu[..., 1:], Fvar[..., 1:])
        return tf.reduce_sum(log_density, axis=-1)


class StudentT(likelihoods.StudentT):
    """
    GPflow's Student's t noise, with expectations that are accurate for any variance of ``f``.

    GPflow integrates by 20 Gauss-Hermite nodes, too few for noise that is narrow compared with the
    standard deviation of ``f``. Here expectations are mixtures over scales
    (``gpflow_sparse.inference.gaussian_averages``), with errors below 1e-8 and finite gradients,
    also at variance 0. They take 121 nodes for each entry of ``Y``.

    :param scale: as in GPflow: a positive number, or a function of X.
    :param df: degrees of freedom, a positive number; the variance of the noise is infinite up to 2.
    :raises ValueError: for other ``df``.
    """

    def __init__(self, scale: Any = 1.0, df: float = 3.0, **kwargs: Any) -> None:
        super().__init__(scale, _require_positive(df, "df"), **kwargs)

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        if self.df <= 2.0:
            return tf.fill(tf.shape(F), tf.constant(np.inf, F.dtype))
        return super()._conditional_variance(X, F)

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return tf.identity(Fmu), Fvar + self._conditional_variance(X, Fmu)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        expected = expected_student_t(Y - Fmu, Fvar, self._scale(X), self.df)
        return tf.reduce_sum(expected, axis=-1)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        log_density = log_normal_student_t(Y - Fmu, Fvar, self._scale(X), self.df)
        return tf.reduce_sum(log_density, axis=-1)


class Ordinal(likelihoods.Ordinal):
    """
    GPflow's ordinal likelihood without evaluating ``erf`` at infinity, which in float64 is NaN in
    some releases of TensorFlow. In others the probabilities are equal.
    Expectations are by :class:`TrapezoidQuadrature`.

    :param bin_edges: increasing values of ``f`` at which the level changes, one less than levels.
    :raises ValueError: for edges that do not increase.
    """

    def __init__(self, bin_edges: Any, **kwargs: Any) -> None:
        edges = checks.as_array(bin_edges, "bin_edges", tf.as_dtype(gpflow.default_float()))
        if edges.ndim != 1 or edges.size == 0 or not np.all(np.diff(edges, prepend=-np.inf) > 0.0):
            raise ValueError(f"bin_edges must be a list of increasing numbers, got {bin_edges!r}.")
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


def _require_positive(value: Any, name: str) -> float:
    return checks.require_positive(value, name, dtype=tf.float64).item()
