"""Classes by one latent function for each."""

from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow import likelihoods
from gpflow.base import MeanAndVariance, TensorType
from scipy import stats

from gpflow_sparse.likelihoods.bernoulli import BernoulliLogit
from gpflow_sparse.validation import checks

_NUM_POINTS = 128  # of the Sobol sequence for softmax, a power of two


class Softmax(likelihoods.Softmax):
    """
    GPflow's softmax of one latent function per class, with expectations equal in every call.

    GPflow draws again in every call, and refuses labels in floats when it predicts densities. Here
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
