"""Outputs with entries that are not observed."""

import contextlib

import tensorflow as tf
from check_shapes import inherit_check_shapes
from check_shapes.exceptions import ShapeMismatchError
from gpflow import likelihoods
from gpflow.base import MeanAndVariance, TensorType

from gpflow_sparse.validation import checks

# In place of an entry that is not observed: inside the support of every likelihood, and a level or
# a count where fractions are rounded down.
_ALLOWED = 0.5


class MissingOutputs(likelihoods.Likelihood):
    """
    A likelihood of outputs ``Y [N, P]`` in which NaN means that an entry is not observed: its terms
    are left out, and the log density of a row is that of its observed entries.

    A row with some outputs informs f of all outputs where these are correlated, as by
    ``gpflow.kernels.LinearCoregionalization``. ``num_data`` and batches count rows, not entries.
    Entries are replaced before the likelihood reads them, so that gradients are finite.

    :param base: a likelihood of one output for each latent function, whose parameters are the same
        for all outputs.
    :raises ValueError: for a likelihood that mixes latent functions.
    """

    takes_missing = True

    def __init__(self, base: likelihoods.ScalarLikelihood) -> None:
        is_scalar = isinstance(base, likelihoods.ScalarLikelihood)
        if not is_scalar or isinstance(base, likelihoods.SwitchedLikelihood):
            raise ValueError(
                "base must be a likelihood with one latent function for each output, such as "
                f"gpflow.likelihoods.Gaussian(), got {type(base).__name__}."
            )
        super().__init__(base.input_dim, base.latent_dim, base.observation_dim)
        self.base = base

    @property
    def columns_per_output(self) -> int:
        """Columns of Y for each output."""
        return int(getattr(self.base, "columns_per_output", 1))

    @property
    def support(self) -> checks.Support | None:
        """Values of Y that the likelihood takes."""
        return checks.support(self.base)

    def _observed(self, method: str, X: TensorType, parts: list, Y: TensorType) -> tf.Tensor:
        """The sum over observed entries of a method of the likelihood, ``[...]``."""
        Y = tf.convert_to_tensor(Y)
        columns = self.columns_per_output
        shape = tf.concat([tf.shape(Y)[:-1], [columns, tf.shape(Y)[-1] // columns]], axis=0)
        Y = tf.linalg.matrix_transpose(tf.reshape(Y, shape))  # [..., P, columns]
        missing = tf.math.is_nan(Y)
        Y = tf.where(missing, tf.constant(_ALLOWED, Y.dtype), Y)
        # every output is a row of one output
        X = None if X is None else tf.convert_to_tensor(X)[..., None, :]
        parts = [tf.convert_to_tensor(part)[..., None] for part in parts]
        self._require_common(X, parts[0], Y)
        each = getattr(self.base, method)(X, *parts, Y)  # [..., P]
        known = ~tf.reduce_any(missing, axis=-1)
        return tf.reduce_sum(tf.where(known, each, tf.zeros_like(each)), axis=-1)

    def _require_common(self, X: TensorType, F: tf.Tensor, Y: tf.Tensor) -> None:
        """:raises ValueError: for parameters that would be read as another output's."""
        with contextlib.suppress(ShapeMismatchError):
            if self.base._scalar_log_prob(X, F, Y).shape[-1] == 1:
                return
        raise ValueError(
            f"base must have parameters that are the same for all outputs, got one of "
            f"{type(self.base).__name__} with a value for each; take one number or one column."
        )

    @inherit_check_shapes
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._observed("log_prob", X, [F], Y)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.base.conditional_mean(X, F)

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.base.conditional_variance(X, F)

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return self.base.predict_mean_and_var(X, Fmu, Fvar)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self._observed("variational_expectations", X, [Fmu, Fvar], Y)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self._observed("predict_log_density", X, [Fmu, Fvar], Y)
