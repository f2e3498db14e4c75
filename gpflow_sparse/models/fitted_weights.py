"""A posterior of weights that was computed from data, and is kept in their place."""

from collections.abc import Sequence

import tensorflow as tf

from gpflow_sparse.models.snapshot import Snapshot

_MISSING = (
    "the model has no posterior yet: call fit_posterior(X, Y) with all training rows once the "
    "parameters are trained."
)
_STALE = (
    "parameters of the model have changed since fit_posterior: call fit_posterior(X, Y) again with "
    "all training rows."
)


class FittedWeights(tf.Module):
    """Mean and covariance factor of weights, as variables, and the parameters that they are for."""

    def __init__(self, num_basis: int, num_outputs: int, dtype: tf.DType) -> None:
        """
        :param num_basis: m.
        :param num_outputs: P, which share the covariance.
        """
        super().__init__()
        self.q_mu = tf.Variable(tf.zeros([num_basis, num_outputs], dtype), trainable=False)
        self.q_sqrt = tf.Variable(tf.eye(num_basis, dtype=dtype), trainable=False)
        self._snapshot = Snapshot(_STALE)

    def update(self, q_mu: tf.Tensor, q_sqrt: tf.Tensor, parts: Sequence[tf.Module]) -> None:
        """
        :param q_mu: ``[m, P]``.
        :param q_sqrt: lower triangular, ``[m, m]``.
        :param parts: what they were computed with.
        """
        self.q_mu.assign(tf.cast(q_mu, self.q_mu.dtype))
        self.q_sqrt.assign(tf.cast(q_sqrt, self.q_sqrt.dtype))
        self._snapshot.take(parts)

    def require_sound(self, num_basis: int, num_outputs: int, dtype: tf.DType) -> None:
        """:raises ValueError: for numbers, from a file, that no :meth:`update` has left."""
        for name, columns in (("q_mu", num_outputs), ("q_sqrt", num_basis)):
            value, shape = getattr(self, name, None), (num_basis, columns)
            found = f"{type(value).__name__} of shape {getattr(value, 'shape', None)}"
            if not isinstance(value, tf.Variable) or value.shape != shape or value.dtype != dtype:
                raise ValueError(
                    f"model.weights.{name} must be a {dtype.name} variable of shape {shape}, got "
                    f"{found}."
                )
            if not bool(tf.reduce_all(tf.math.is_finite(value))):
                raise ValueError(f"model.weights.{name} must be finite.")

    def read(self, parts: Sequence[tf.Module]) -> tuple[tf.Tensor, tf.Tensor]:
        """
        ``q_mu [m, P]`` and ``q_sqrt [m, m]``.

        :raises ValueError: before the first :meth:`update`, or if parts have changed since.
        """
        if not self._snapshot.is_taken:
            raise ValueError(_MISSING)
        self._snapshot.require_current(parts)
        q_mu, q_sqrt = self._snapshot.guarded((self.q_mu, self.q_sqrt), parts)
        return q_mu, q_sqrt
