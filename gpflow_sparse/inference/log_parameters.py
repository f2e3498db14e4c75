"""Hyperparameters as one vector of logarithms, with the prior density of that vector."""

from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_sparse.inference.priors import ExchangeableNormal

Array = np.ndarray


class LogParameters:
    """
    Parameters as one vector ``[p]``: logarithms of positive ones, unconstrained values of others.

    A density of a positive parameter and one of its logarithm have different modes. A log-normal
    prior around ``s`` has its mode at ``s / e`` in the value, and at ``s`` in the logarithm.
    """

    def __init__(self, parameters: Sequence[gpflow.Parameter]) -> None:
        self.parameters = tuple(parameters)
        self._shapes = [tuple(parameter.shape) for parameter in parameters]
        self._ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])
        self._positive = [is_positive(parameter) for parameter in parameters]
        with tf.init_scope():  # their values are constants, also inside of tf.function
            self._gaussian = [
                _gaussian_prior(*pair) for pair in zip(parameters, self._positive, strict=True)
            ]

    @property
    def size(self) -> int:
        """p, the number of entries."""
        return int(self._ends[-1])

    def _by_unconstrained(self) -> list[Array]:
        """
        Derivatives of the unconstrained values of each parameter by its entries in the vector, at
        the present values; for transforms that act on each value by itself.
        """
        found = []
        for parameter, positive in zip(self.parameters, self._positive, strict=True):
            if not positive:
                found.append(np.ones(tuple(parameter.shape)))
                continue
            assert parameter.transform is not None  # it is what makes it positive
            with tf.GradientTape() as tape:
                transform: Any = parameter.transform
                value = transform.forward(parameter.unconstrained_variable)
            slope = tape.gradient(value, parameter.unconstrained_variable)
            found.append(np.asarray(value / slope, np.float64))
        return found

    def get(self) -> Array:
        """The present values of the parameters, as a vector of float64."""
        parts = [
            np.log(p.numpy()) if positive else p.unconstrained_variable.numpy()
            for p, positive in zip(self.parameters, self._positive, strict=True)
        ]
        return np.concatenate([np.ravel(part).astype(np.float64) for part in parts])

    def assign(self, vector: Array) -> None:
        """Assign the values of a vector to the parameters."""
        for parameter, value in zip(self.parameters, self.values(vector), strict=True):
            parameter.assign(value)

    def values(self, vector: Array | tf.Tensor) -> list[Any]:
        """
        The constrained values of the parameters, of the parameters' float types: arrays for a
        vector of NumPy, which take no operations of TensorFlow where parameters are positive.
        """
        found: list[Any] = []
        for number, part in enumerate(self._split(vector)):
            parameter = self.parameters[number]
            if tf.is_tensor(part):
                part, exp = tf.cast(part, parameter.dtype), tf.exp
            else:
                part, exp = np.asarray(part, parameter.dtype.as_numpy_dtype), np.exp
            if self._positive[number]:
                part = exp(part)
            elif parameter.transform is not None:
                part = parameter.transform.forward(part)
            found.append(part)
        return found

    def gradient_of_values(self, vector: Array, slopes: Sequence[tf.Tensor]) -> Array:
        """The gradient ``[p]`` by the vector, from gradients by the constrained values at it."""
        found = []
        for number, part in enumerate(self._split(vector)):
            parameter, slope = self.parameters[number], np.reshape(slopes[number], part.shape)
            if self._positive[number]:
                slope = slope * np.exp(part)
            elif parameter.transform is not None:
                at = tf.constant(part, parameter.dtype)
                with tf.GradientTape() as tape:
                    tape.watch(at)
                    value = parameter.transform.forward(at)
                slope = tape.gradient(value, at, output_gradients=tf.constant(slope, at.dtype))
            found.append(np.ravel(slope))
        return np.concatenate(found).astype(np.float64)

    def gradient(self, gradients: Sequence[tf.Tensor]) -> Array:
        """
        The gradient ``[p]`` by the vector at the present values, from gradients by the
        unconstrained variables.
        """
        pairs = zip(gradients, self._by_unconstrained(), strict=True)
        parts = [np.ravel(tf.convert_to_tensor(g) * slope) for g, slope in pairs]
        return np.concatenate(parts).astype(np.float64)

    def differentiate(
        self, function: Callable[[], tf.Tensor], vector: Array
    ) -> tuple[float, Array]:
        """
        The value of a function of the parameters at a vector, which is assigned, and its gradient
        by the vector.
        """
        self.assign(vector)
        with tf.GradientTape() as tape:
            value = function()
        variables = [parameter.unconstrained_variable for parameter in self.parameters]
        return float(value), self.gradient(tape.gradient(value, variables))

    def log_prior(self, vector: Array) -> tuple[float, Array]:
        """
        The log prior density of the vector, and its gradient ``[p]``; parameters without a prior
        add nothing.
        """
        total, slopes = 0.0, []
        for number, part in enumerate(self._split(vector)):
            gaussian = self._gaussian[number]
            if gaussian is None:
                density, slope = self._by_tape(number, part)
            else:
                mean, precision, constant = gaussian
                error = np.ravel(part) - mean
                slope = -precision @ error
                density = 0.5 * float(error @ slope) + constant
            total += density
            slopes.append(np.ravel(slope))
        return total, np.concatenate(slopes)

    def _split(self, vector: Array | tf.Tensor) -> list[Array | tf.Tensor]:
        """The entries of each parameter in its shape."""
        starts = [0, *self._ends][:-1]
        reshape = tf.reshape if tf.is_tensor(vector) else np.reshape
        return [
            reshape(vector[start:end], shape)
            for start, end, shape in zip(starts, self._ends, self._shapes, strict=True)
        ]

    def _by_tape(self, number: int, part: Array) -> tuple[float, Array]:
        """Log prior density of one parameter's entries, and its gradient, by differentiation."""
        parameter = self.parameters[number]
        if parameter.prior is None:
            return 0.0, np.zeros(part.shape)
        entries = tf.constant(part, parameter.dtype)
        with tf.GradientTape() as tape:
            tape.watch(entries)
            density = _log_density(parameter, entries, self._positive[number])
        return float(density), tape.gradient(density, entries).numpy().astype(np.float64)


def _log_density(parameter: gpflow.Parameter, entries: tf.Tensor, positive: bool) -> tf.Tensor:
    """Log prior density of the logarithms, or the unconstrained values, of one parameter."""
    transform: Any = parameter.transform
    prior: Any = parameter.prior
    on = parameter.prior_on
    if not positive and (transform is None or on == gpflow.base.PriorOn.UNCONSTRAINED):
        return tf.reduce_sum(prior.log_prob(entries))
    value = tf.exp(entries) if positive else transform.forward(entries)
    # the derivative of the value by the entries
    jacobian = entries if positive else transform.forward_log_det_jacobian(entries, 0)
    if on == gpflow.base.PriorOn.CONSTRAINED:
        given = value
    else:
        given = transform.inverse(value)
        jacobian += transform.inverse_log_det_jacobian(value, 0)
    return tf.reduce_sum(prior.log_prob(given)) + tf.reduce_sum(jacobian)


def is_positive(parameter: gpflow.Parameter) -> bool:
    """Whether a parameter takes all values above a bound near zero, and no others."""
    transform = parameter.transform
    if transform is None or transform.forward_min_event_ndims > 0:  # of several values together
        return False
    if type(transform) is tfp.bijectors.Exp:
        return True
    with tf.init_scope():  # values decide, also inside of tf.function
        low, high = (
            transform.forward(tf.constant(end, parameter.dtype)).numpy() for end in (-50.0, 50.0)
        )
    return bool(np.all(low >= 0.0) and np.all(low < 1e-3) and np.all(high > 40.0))


def _gaussian_prior(
    parameter: gpflow.Parameter, positive: bool
) -> tuple[Array, Array, float] | None:
    """
    Mean ``[k]``, precision ``[k, k]`` and log density at the mean of a prior that is Gaussian in
    the logarithms; None for another prior. It takes no differentiation.
    """
    prior: Any = parameter.prior
    constrained = parameter.prior_on == gpflow.base.PriorOn.CONSTRAINED
    if positive and constrained and type(prior) is tfp.distributions.LogNormal:
        return _independent(*(_entries(part, parameter) for part in (prior.loc, prior.scale)))
    in_logs = positive and isinstance(parameter.transform, tfp.bijectors.Exp)
    unconstrained = parameter.prior_on == gpflow.base.PriorOn.UNCONSTRAINED
    normal = type(prior) in (tfp.distributions.Normal, ExchangeableNormal)
    if not (in_logs and unconstrained and normal):
        return None
    mean = _entries(prior.mean(), parameter)
    if type(prior) is not ExchangeableNormal:
        return _independent(mean, _entries(prior.stddev(), parameter))
    return _gaussian(mean, np.linalg.cholesky(prior.covariance().numpy().astype(np.float64)))


def _entries(values: Any, parameter: gpflow.Parameter) -> Array:
    """Values for all entries of a parameter ``[k]``."""
    return np.broadcast_to(np.asarray(values, np.float64), parameter.shape).ravel()


def _independent(mean: Array, scale: Array) -> tuple[Array, Array, float]:
    return _gaussian(mean, np.diag(scale))


def _gaussian(mean: Array, factor: Array) -> tuple[Array, Array, float]:
    """A mean, the precision of a lower factor of the covariance, and the log density at it."""
    size, inverse = len(mean), np.linalg.inv(factor)
    constant = -0.5 * size * np.log(2.0 * np.pi) - float(np.sum(np.log(np.diag(factor))))
    return mean, inverse.T @ inverse, constant
