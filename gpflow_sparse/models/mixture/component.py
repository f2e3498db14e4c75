"""One component of a mixture: an exact Gaussian process integrated over its hyperparameters."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.kernels import Kernel

from gpflow_sparse.inference import laplace
from gpflow_sparse.inference.log_parameters import LogParameters
from gpflow_sparse.inference.marginal_likelihood import log_density, log_density_of_factor
from gpflow_sparse.initialization.repeated_rows import Rows, merge_rows
from gpflow_sparse.kernels.function import KernelFunction
from gpflow_sparse.models.mixture.transform import YeoJohnson
from gpflow_sparse.numerics import linalg
from gpflow_sparse.numerics.tracing import compiled

# Draws whose weights together are below this are left out.
_NEGLIGIBLE = 1e-3
# Entries of the covariances of the draws that are factorized together: 64 MiB of float64.
_GROUP_ENTRIES = 2**23
_NAME = "K + s2 I (covariance of the training rows)"


class States(NamedTuple):
    """Draws of the hyperparameters of a component, and the tensors that predictions need."""

    log_weights: tf.Tensor
    """``[S]``, sums to 1."""
    noise: tf.Tensor
    """Noise variances ``[S]``."""
    L: tf.Tensor
    """Cholesky factors of the covariances of the training outputs ``[S, n, n]``."""
    weights: tf.Tensor
    """``(K + noise)^-1 y [S, n, P]``."""
    values: tuple[tf.Tensor, ...]
    """Values of the kernel's trainable parameters ``[S, ...]``."""


class Component(tf.Module):
    """
    A kernel, a noise variance and perhaps a transform of the outputs, with weighted draws of their
    hyperparameters. Without draws there is one: the present values of the parameters.
    """

    draws: np.ndarray | None = None
    """Logarithms of the trainable hyperparameters, noise variance last ``[S, p]``."""
    log_weights: np.ndarray | None = None
    """``[S]``"""
    effective_number: float | None = None
    """``1 / sum w^2`` of the importance weights."""
    num_drawn: int = 1
    """Draws before those of negligible weight were left out."""
    laplace_evidence: float | None = None
    """Laplace's approximation of the log evidence of the outputs, in nats."""
    log_evidence: float | None = None
    """The importance sampling estimate of it."""

    def __init__(
        self, kernel: Kernel, noise_variance: Parameter, transform: YeoJohnson | None = None
    ) -> None:
        super().__init__()
        self.kernel, self.noise_variance, self.transform = kernel, noise_variance, transform

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The trainable parameters: the kernel's, and then the noise variance."""
        noise = (self.noise_variance,) if self.noise_variance.trainable else ()
        return (*self.kernel.trainable_parameters, *noise)

    def rows(self, X: tf.Tensor, Y: tf.Tensor, row_weights: tf.Tensor | None) -> Rows:
        """Distinct rows with the means of their transformed outputs."""
        Y = Y if self.transform is None else self.transform.forward(Y)
        return merge_rows(X, Y, row_weights)

    def log_slope(self, Y: tf.Tensor, row_weights: tf.Tensor | None) -> tf.Tensor:
        """The sum over rows of the logarithms of the derivatives of the transform."""
        if self.transform is None:
            return tf.zeros([], Y.dtype)
        each = self.transform.log_derivative(Y)
        return tf.reduce_sum(each if row_weights is None else row_weights[:, None] * each)

    def log_likelihood(self, rows: Rows) -> tf.Tensor:
        """
        Log density of the transformed outputs at the present values of the parameters, in nats.

        :param rows: distinct rows, outputs less the prior mean.
        """
        noise = tf.convert_to_tensor(self.noise_variance)
        K = linalg.add_jitter(self.kernel(rows.X), rows.noises(noise))
        return log_density(K, rows.Y) + tf.reduce_sum(rows.within(noise))

    def integrate(self, rows: Rows, log_slope: float, num_draws: int, seed: int) -> None:
        """
        Find the mode of the hyperparameters, and draw and weigh them around it.

        :param rows: distinct rows, outputs less the prior mean.
        :param log_slope: sum of the logarithms of the derivatives of the transform.
        """
        vector = LogParameters(self.parameters)
        likelihood = _Likelihood(self, vector, rows)

        def density(at: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = likelihood.with_gradient(at)
            prior, prior_slope = vector.log_prior(at)
            return value + prior, slope + prior_slope

        mode = laplace.find_mode(density, vector.get())
        vector.assign(mode)
        around = laplace.laplace(density, vector.log_prior, mode)
        Z = laplace.standard_draws(vector.size, num_draws, seed)
        draws = mode + Z @ around.factor.T
        logs = likelihood.of_draws([vector.values(draw) for draw in draws])
        logs += [vector.log_prior(draw)[0] for draw in draws]
        weighed = laplace.weigh(around, Z, logs)
        self.laplace_evidence = around.log_evidence + log_slope
        self.log_evidence = weighed.log_evidence + log_slope
        self.effective_number, self.num_drawn = weighed.effective_number, num_draws
        order = np.argsort(-weighed.log_weights)
        covered = np.cumsum(np.exp(weighed.log_weights[order]))
        kept = np.sort(order[: 1 + int(np.searchsorted(covered, 1.0 - _NEGLIGIBLE))])
        self.draws = draws[kept]
        logs = weighed.log_weights[kept]
        self.log_weights = logs - np.log(np.sum(np.exp(logs)))

    def states(self, rows: Rows, kernel: KernelFunction) -> States:
        """
        The draws with their factorizations.

        :param rows: distinct rows, outputs less the prior mean.
        """
        values, noise, log_weights = self._current_draws(rows.Y.dtype)
        at, parts = kernel.between(rows.X), []
        for group in _groups(int(noise.shape[0]), int(rows.X.shape[0])):
            noises = rows.noises(noise[group, None]) + tf.zeros_like(rows.X[:, 0])  # [S, n]
            K = linalg.add_jitter(at([value[group] for value in values]), noises)
            L = linalg.cholesky(K, _NAME)  # [S, n, n]
            error = rows.Y + tf.zeros_like(L[:, :1, :1])
            weights = linalg.solve_triangular(L, linalg.solve_triangular(L, error), adjoint=True)
            parts.append((L, weights))
        L, weights = (tf.concat(side, axis=0) for side in zip(*parts, strict=True))
        return States(log_weights, noise, L, weights, tuple(values))

    def _current_draws(self, dtype: tf.DType) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        """Values of the kernel's parameters ``[S, ...]``, noise variances ``[S]``, log weights."""
        num_kernel = len(self.kernel.trainable_parameters)
        if self.draws is None:
            present = [tf.convert_to_tensor(p)[None] for p in self.parameters]
            log_weights = tf.zeros([1], dtype)
        else:
            vector = LogParameters(self.parameters)
            each = [vector.values(draw) for draw in self.draws]
            present = [tf.stack(parts) for parts in zip(*each, strict=True)]
            log_weights = tf.constant(self.log_weights, dtype)
        if len(present) == num_kernel:  # the noise variance is fixed
            noise = tf.convert_to_tensor(self.noise_variance) * tf.ones_like(log_weights)
        else:
            noise = present[-1]
        return present[:num_kernel], tf.cast(noise, dtype), log_weights


class _Likelihood:
    """The log marginal likelihood of one component as a function of its hyperparameters."""

    def __init__(self, component: Component, vector: LogParameters, rows: Rows) -> None:
        """:param vector: of the component's parameters."""
        self._component, self._vector, self._rows = component, vector, rows
        self._kernel = KernelFunction(component.kernel)
        self._constants = self._kernel.constants(rows.X)
        self._num_kernel = len(component.kernel.trainable_parameters)
        make = _value_and_gradient if self._kernel.is_shareable else _value_and_gradient.__wrapped__
        self._compiled = make(self._kernel)  # traced in the time of ten calls

    def with_gradient(self, at: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient at a vector ``[p]``."""
        given, noise = self._split([value[None] for value in self._vector.values(at)])
        value, slopes = self._compiled(given, noise, self._constants, self._rows)
        return float(value), self._vector.gradient_of_values(at, slopes)

    def of_draws(self, draws: Sequence[Sequence[tf.Tensor]]) -> np.ndarray:
        """Values ``[S]``; minus infinity where a factorization fails."""
        found = []
        stacked = [tf.stack(parts) for parts in zip(*draws, strict=True)]
        for group in _groups(len(draws), int(self._rows.X.shape[0])):
            values, noise = self._split([value[group] for value in stacked])
            K, within = _covariances(self._kernel, values, noise, self._constants, self._rows)
            L = tf.linalg.cholesky(K)  # NaN where it fails, which is a draw of weight zero
            white = linalg.solve_triangular(L, self._rows.Y + tf.zeros_like(L[:, :1, :1]))
            value = log_density_of_factor(L, white) + within
            found.append(tf.where(tf.math.is_finite(value), value, -np.inf).numpy())
        return np.concatenate(found).astype(np.float64)

    def _split(self, values: Sequence[tf.Tensor]) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Values of the kernel's parameters ``[S, ...]``, and noise variances ``[S]``."""
        if len(values) > self._num_kernel:
            return list(values[:-1]), values[-1]
        return list(values), tf.convert_to_tensor(self._component.noise_variance)[None]


@functools.lru_cache(maxsize=16)
def _value_and_gradient(kernel: KernelFunction) -> Any:
    """
    The compiled log marginal likelihood of all kernels of one structure, and its gradients by the
    values of the kernel's parameters and by the noise variance.
    """

    def evaluate(
        values: list[tf.Tensor], noise: tf.Tensor, constants: list[tf.Tensor], rows: Rows
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        given = [*values, noise]
        with tf.GradientTape() as tape:
            tape.watch(given)
            K, within = _covariances(kernel, values, noise, constants, rows)
            total = log_density(K, rows.Y) + tf.reduce_sum(within)
        return total, tape.gradient(total, given)

    return compiled(evaluate, reduce_retracing=True)


def _covariances(
    kernel: KernelFunction,
    values: Sequence[tf.Tensor],
    noise: tf.Tensor,
    constants: Sequence[tf.Tensor],
    rows: Rows,
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Covariances of the means of equal rows ``[S, n, n]``, and the log density of the outputs less
    that of the means ``[S]``.

    :param noise: ``[S]``
    """
    noise = noise[:, None]
    amounts = rows.noises(noise) + tf.zeros_like(rows.X[:, 0])  # [S, n]
    K = linalg.add_jitter(kernel.evaluate(values, constants, rows.X), amounts)
    return K, tf.reduce_sum(rows.within(noise) + tf.zeros_like(noise), axis=1)


def _groups(num_draws: int, num_rows: int) -> list[slice]:
    """Slices of draws whose covariances are in memory together."""
    size = max(1, _GROUP_ENTRIES // num_rows**2)
    return [slice(i, min(i + size, num_draws)) for i in range(0, num_draws, size)]
