"""One component of a mixture: an exact Gaussian process integrated over its hyperparameters."""

import contextlib
import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.kernels import Kernel

from gpflow_sparse.inference import laplace
from gpflow_sparse.inference.log_parameters import LogParameters
from gpflow_sparse.inference.marginal_likelihood import log_density
from gpflow_sparse.initialization.repeated_rows import Rows, merge_rows
from gpflow_sparse.kernels.function import KernelFunction
from gpflow_sparse.models.mixture.likelihood import (
    ClosedFormLikelihood,
    groups_of,
    in_float64,
    likelihood_of,
)
from gpflow_sparse.models.mixture.reduction import LeftOut, compared_rows
from gpflow_sparse.models.mixture.transform import YeoJohnson
from gpflow_sparse.numerics import linalg
from gpflow_sparse.numerics.threads import threads_for

# Draws whose weights together are below this are left out.
_NEGLIGIBLE = 1e-3
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
    """Number of draws before draws of negligible weight were left out."""
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

    def rows(
        self,
        X: tf.Tensor,
        Y: tf.Tensor,
        row_weights: tf.Tensor | None,
        known_variance: tf.Tensor | None = None,
    ) -> Rows:
        """Distinct rows with the means of their transformed outputs."""
        transformed = Y if self.transform is None else self.transform.forward(Y)
        return merge_rows(X, transformed, row_weights, known_variance)

    def log_slope(self, Y: tf.Tensor, row_weights: tf.Tensor | None) -> tf.Tensor:
        """The sum over rows of the logarithms of the derivatives of the transform, times p."""
        if self.transform is None:
            return tf.zeros([], Y.dtype)
        power = 1.0 if row_weights is None else tf.reduce_mean(row_weights)
        return power * tf.reduce_sum(self.transform.log_derivative(Y))

    def log_likelihood(self, rows: Rows) -> tf.Tensor:
        """
        Log density of the transformed outputs at the present values of the parameters, in nats.

        :param rows: distinct rows, outputs less the prior mean.
        """
        K, dtype = tf.cast(self.kernel(rows.X), tf.float64), rows.X.dtype
        rows, noise = in_float64(rows), tf.cast(self.noise_variance, tf.float64)
        value = log_density(linalg.add_jitter(K, rows.noises(noise)), rows.Y)
        return tf.cast(value + tf.reduce_sum(rows.within(noise)), dtype)

    def integrate(self, rows: Rows, log_slope: float, num_draws: int, seed: int) -> LeftOut:
        """
        Find the mode of the hyperparameters, and draw and weigh them around it.

        :param rows: distinct rows, outputs less the prior mean.
        :param log_slope: sum of the logarithms of the derivatives of the transform.
        :return: some outputs less the prior mean as each draw predicts them from all other rows.
        """
        vector = LogParameters(self.parameters)
        likelihood = likelihood_of(self.kernel, self.noise_variance, vector, rows)

        def density(at: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = likelihood.with_gradient(at)
            prior, prior_slope = vector.log_prior(at)
            return value + prior, slope + prior_slope

        mode = laplace.find_mode(density, vector.get(), num_rows=len(rows.X))
        vector.assign(mode)
        around = laplace.laplace(density, vector.log_prior, mode)
        Z = laplace.standard_draws(vector.size, num_draws, seed)
        draws = mode + Z @ around.factor.T
        compared = compared_rows(len(rows.X))
        drawn = likelihood.of_draws([vector.values(draw) for draw in draws], compared)
        logs = drawn.values + [vector.log_prior(draw)[0] for draw in draws]
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
        mean = rows.Y.numpy()[compared] - drawn.errors[kept]
        noise = np.full(len(kept), self.noise_variance.numpy(), np.float64)
        if self.noise_variance.trainable:
            noise = np.array([vector.values(draw)[-1] for draw in self.draws], np.float64)
        shares = np.ones(len(compared)) if rows.counts is None else rows.counts.numpy()[compared]
        variance = drawn.variances[kept] + noise[:, None] * (1.0 - 1.0 / shares)
        return LeftOut(mean, variance, self.transform)

    def keep(self, weights: np.ndarray) -> None:
        """Keep the draws whose new weights ``[S]`` are positive."""
        kept = np.flatnonzero(weights)
        assert self.draws is not None  # integrate has drawn them
        self.draws = self.draws[kept]
        self.log_weights = np.log(weights[kept] / weights.sum())

    def states(self, rows: Rows, kernel: KernelFunction) -> States:
        """
        The draws with their factorizations.

        :param rows: distinct rows, outputs less the prior mean.
        """
        dtype = rows.Y.dtype
        values, noise, log_weights = self._current_draws(dtype)
        L = self._factors(rows, kernel, values, noise)
        error = tf.cast(rows.Y, L.dtype) + tf.zeros_like(L[:, :1, :1])
        weights = linalg.solve_triangular(L, linalg.solve_triangular(L, error), adjoint=True)
        L, weights = tf.cast(L, dtype), tf.cast(weights, dtype)
        return States(log_weights, noise, L, weights, tuple(values))

    def _factors(
        self, rows: Rows, kernel: KernelFunction, values: Sequence[tf.Tensor], noise: tf.Tensor
    ) -> tf.Tensor:
        """
        Lower factors of the covariances of the training outputs ``[S, n, n]``, in float64.

        :param values: of the kernel's parameters ``[S, ...]``.
        :param noise: ``[S]``
        """
        groups = groups_of(int(noise.shape[0]), int(rows.X.shape[0]))
        if self.draws is not None and ClosedFormLikelihood.takes(self.kernel, rows):
            vector = LogParameters(self.parameters)
            closed = ClosedFormLikelihood(self.kernel, self.noise_variance, vector, rows)
            each = [vector.values(draw) for draw in self.draws]
            failures = contextlib.suppress(np.linalg.LinAlgError)  # reported below
            with failures, threads_for(len(rows.X)):
                return tf.concat([tf.constant(closed.factors(each[g])) for g in groups], axis=0)
        at, found = kernel.between(rows.X), []
        noise, rows = tf.cast(noise, tf.float64), in_float64(rows)
        for group in groups:
            noises = rows.noises(noise[group, None]) + tf.zeros_like(rows.X[:, 0])  # [S, n]
            K = tf.cast(at([value[group] for value in values]), tf.float64)
            found.append(linalg.cholesky(linalg.add_jitter(K, noises), _NAME))
        return tf.concat(found, axis=0)

    def _current_draws(self, dtype: tf.DType) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        """Values of the kernel's parameters ``[S, ...]``, noise variances ``[S]``, log weights."""
        parameters = self.parameters
        num_kernel = len(parameters) - self.noise_variance.trainable
        if self.draws is None:
            present = [tf.convert_to_tensor(p)[None] for p in parameters]
            log_weights = tf.zeros([1], dtype)
        else:
            vector = LogParameters(parameters)
            each = [vector.values(draw) for draw in self.draws]
            # a list of numbers of NumPy would be of float32 in a graph
            present = [
                tf.stack(parts) if tf.is_tensor(parts[0]) else tf.constant(np.stack(parts))
                for parts in zip(*each, strict=True)
            ]
            log_weights = tf.constant(self.log_weights, dtype)
        if len(present) == num_kernel:  # the noise variance is fixed
            noise = tf.convert_to_tensor(self.noise_variance) * tf.ones_like(log_weights)
        else:
            noise = present[-1]
        return present[:num_kernel], tf.cast(noise, dtype), log_weights


def copy_with_parameters(module: Any, memo: dict[int, Any]) -> Any:
    """
    ``__deepcopy__`` of a module with components. In ``gpflow.utilities.freeze``, which puts tensors
    in place of parameters by ``memo``, the copy has parameters of its own: draws are values of
    them.
    """
    for parameter in module.parameters:
        memo.pop(id(parameter), None)
    copied = object.__new__(type(module))
    memo[id(module)] = copied  # before the attributes, which may refer to the module
    vars(copied).update(copy.deepcopy(vars(module), memo))
    return copied
