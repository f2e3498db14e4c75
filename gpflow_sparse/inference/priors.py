"""Prior distributions that TensorFlow Probability lacks, or that cannot be copied there."""

import math
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp


class ExchangeableNormal(tfp.distributions.Distribution):
    """
    Normal vectors ``x_d = loc_d + m + t_d`` with ``m ~ N(0, common^2)`` and ``t_d ~ N(0, own^2)``.

    The covariance ``own^2 I + common^2 1 1^T`` is inverted in closed form. A
    ``MultivariateNormalTriL`` has the same density, but Python cannot copy it, nor a kernel that
    has it as a prior.
    """

    def __init__(
        self, loc: Any, common: float, own: float, name: str = "ExchangeableNormal"
    ) -> None:
        """
        :param loc: means ``[D]``.
        :param common: standard deviation of what all entries share.
        :param own: standard deviation of what each has alone.
        """
        parameters = dict(locals())
        self.loc = np.asarray(loc)
        self.common, self.own = float(common), float(own)
        super().__init__(
            dtype=tf.as_dtype(self.loc.dtype),
            reparameterization_type=tfp.distributions.FULLY_REPARAMETERIZED,
            validate_args=False,
            allow_nan_stats=True,
            parameters=parameters,
            name=name,
        )

    def _event_shape(self) -> tf.TensorShape:
        return tf.TensorShape(self.loc.shape)

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.constant(self.loc.shape, tf.int32)

    def _batch_shape(self) -> tf.TensorShape:
        return tf.TensorShape([])

    def _batch_shape_tensor(self) -> tf.Tensor:
        return tf.constant([], tf.int32)

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        size, own, common = self.loc.size, self.own**2, self.common**2
        error = value - self.loc
        total = tf.reduce_sum(error, axis=-1)
        largest = own + size * common  # the eigenvalue of the vector of ones
        quadratic = (tf.reduce_sum(error**2, axis=-1) - common / largest * total**2) / own
        log_det = (size - 1) * math.log(own) + math.log(largest)
        return -0.5 * (quadratic + log_det + size * math.log(2.0 * math.pi))

    def _mean(self) -> tf.Tensor:
        return tf.constant(self.loc)

    def _covariance(self) -> tf.Tensor:
        size = self.loc.size
        return tf.constant((self.own**2 * np.eye(size) + self.common**2).astype(self.loc.dtype))

    def _sample_n(self, n: Any, seed: Any = None) -> tf.Tensor:
        seeds = tfp.random.split_seed(seed, n=2)
        shape = [n, self.loc.size]
        m = tf.random.stateless_normal([n, 1], seeds[0], dtype=self.dtype)
        t = tf.random.stateless_normal(shape, seeds[1], dtype=self.dtype)
        return self.loc + self.common * m + self.own * t
