"""The bound as a function of the hyperparameters alone, at the best sites for each value."""

from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_sparse.inference.gaussian_sites import (
    Limits,
    Pass,
    Sites,
    converge,
    covariance_slope,
    prior_sites,
    site_pass,
    weighted_sum,
)
from gpflow_sparse.inference.log_parameters import LogParameters
from gpflow_sparse.kernels.function import KernelFunction
from gpflow_sparse.numerics.tracing import compiled

Array = np.ndarray
# Decrease of the bound, in nats, from one evaluation to the next at the same sites, above which
# sites may start from the prior instead: from a mean that is too large steps have to be short.
_FAR = 5.0


class SiteBound:
    """
    The bound of a model at the best sites for its hyperparameters, with its gradient.

    At the best sites the bound is stationary in q, so that its gradient is the one at fixed mean
    and covariance of q: neither the sites nor the factorizations are differentiated. Sites start
    where the last evaluation ended. Everything is in float64, in a few compiled functions that
    last as long as this object.
    """

    def __init__(self, model: Any, limits: Limits) -> None:
        """
        :param model: a :class:`~gpflow_sparse.models.SiteVGP`.
        :param limits: of the search for the best sites in each evaluation.
        """
        self._model, self.limits = model, limits
        kernel = model.kernel.trainable_parameters
        others = [*model.likelihood.trainable_parameters, *model.mean_function.trainable_parameters]
        self.parameters = LogParameters([*kernel, *others])
        self._others = LogParameters(others) if others else None
        self.sites, self.converged, self._last = model.first_sites(), True, np.inf
        X, Y = model.data
        self._evaluate = site_pass(model.likelihood, X, Y, model.row_weights)
        self._compile(KernelFunction(model.kernel), len(kernel))

    def __call__(self, vector: Array) -> tuple[float, Array]:
        """The bound plus the log prior density of the vector of logarithms, and the gradient."""
        found = self.best_sites(vector)
        by_K = covariance_slope(found.alpha, found.scaled)
        of_kernel, of_others = self._slopes(tf.constant(vector), by_K, found)
        gradient = of_kernel.numpy()
        if self._others is not None:
            rest = self._others.gradient(of_others)
            gradient[-len(rest) :] += rest
        log_prior, slope = self.parameters.log_prior(vector)
        return float(found.bound) + log_prior, gradient + slope

    def best_sites(self, vector: Array) -> Pass:
        """Assign the hyperparameters, and find and keep their best sites."""
        self.parameters.assign(vector)
        K, prior_mean = self._prior(tf.constant(vector))

        def evaluate(sites: Sites) -> Pass:
            return self._evaluate(K, prior_mean, sites)

        sites, found = self.sites, evaluate(self.sites)
        if not float(found.bound) > self._last - _FAR:
            fresh = prior_sites(tf.linalg.diag_part(K), sites.linear.shape[1])
            other = evaluate(fresh)
            if not found.bound > other.bound:
                sites, found = fresh, other
        self.sites, found, self.converged = converge(evaluate, sites, found, self.limits)
        self._last = float(found.bound)
        return found

    def _compile(self, kernel: KernelFunction, num_kernel: int) -> None:
        """The prior at the rows, and the gradient at fixed mean and covariance of q."""
        model, parameters, (X, Y) = self._model, self.parameters, self._model.data
        covariances = kernel.between(X)
        others = [p.unconstrained_variable for p in parameters.parameters[num_kernel:]]

        def covariance(vector: tf.Tensor) -> tf.Tensor:
            values = [value[None] for value in parameters.values(vector)[:num_kernel]]
            return tf.cast(covariances(values)[0], tf.float64)

        @compiled
        def prior(vector: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return covariance(vector), tf.cast(model.prior_mean(), tf.float64)

        @compiled
        def slopes(vector: tf.Tensor, by_K: tf.Tensor, found: Pass) -> tuple[Any, list[tf.Tensor]]:
            with tf.GradientTape() as tape:
                tape.watch(vector)
                K = covariance(vector)
            # zero where the kernel has no trainable parameter
            of_kernel = tape.gradient(K, vector, by_K, unconnected_gradients="zero")
            if not others:
                return of_kernel, []
            with tf.GradientTape() as tape:
                mean, var, alpha = (
                    tf.cast(part, X.dtype) for part in (found.mean, found.var, found.alpha)
                )
                each = model.likelihood.variational_expectations(X, mean, var, Y)
                value = weighted_sum(each, model.row_weights)
                value += tf.reduce_sum(alpha * model.prior_mean())
            return of_kernel, tape.gradient(value, others, unconnected_gradients="zero")

        self._prior, self._slopes = prior, slopes
