"""GPnn for classes: labels as observations of latent functions, on the nearest rows."""

import math
import time
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.models import InternalDataTrainingLossMixin

from gpflow_sparse.inference.dirichlet import dirichlet_observations
from gpflow_sparse.inference.laplace import find_mode
from gpflow_sparse.inference.log_parameters import LogParameters
from gpflow_sparse.inference.nearest_rows import nearest_sites_moments
from gpflow_sparse.likelihoods import Softmax
from gpflow_sparse.models.base import SparseGPModel
from gpflow_sparse.models.nearest_neighbor.leave_one_out import (
    loss_closure,
    neighbors_among,
    no_elbo,
    objective_rows,
)
from gpflow_sparse.models.swsgp import SitePosterior
from gpflow_sparse.models.training_data import with_rows, with_weights
from gpflow_sparse.numerics import tracing
from gpflow_sparse.numerics.row_groups import group_rows
from gpflow_sparse.numerics.searches import warn_without_time
from gpflow_sparse.validation import checks, component_checks
from gpflow_sparse.validation.public_methods import public_method

# Iterations of L-BFGS between two searches of neighbors, and the number of such rounds.
_ITERATIONS, _NUM_ROUNDS = 15, 3
_CONCENTRATION = 0.01  # where eps starts: the smaller, the more certain is one label


class NearestNeighborClassifier(SparseGPModel, InternalDataTrainingLossMixin):
    """
    Classification in which every row is predicted by exact GPs on its H nearest training rows.

    Labels are turned into noisy observations of C latent functions, whose softmax are the
    probabilities: see :mod:`gpflow_sparse.inference.dirichlet`. Each function is then regression
    with a known noise variance for each row, as in
    :class:`~gpflow_sparse.models.NearestNeighborGP`. There is no q to train.

    Hyperparameters are the kernel's, the prior means of the functions, and the concentration eps.
    :meth:`fit_hyperparameters` maximizes the log probabilities of some labels given the nearest
    other rows, which is what the model is used for.

    Equal inputs are one neighbor, whose observations are averaged by their precisions.

    A prediction takes O(C H^3) time a row, and a search. The model and its file have all rows.
    """

    def __init__(
        self,
        data: tuple[Any, Any],
        kernel: Kernel,
        num_classes: int,
        *,
        num_neighbors: int = 64,
        mean_function: MeanFunction | None = None,
        num_objective_rows: int = 500,
        row_weights: Any = None,
    ) -> None:
        """
        :param data: ``(X [N, D], Y [N, 1])`` with labels 0, ..., C - 1; arrays, which are copied.
        :param kernel: one output, shared by all latent functions.
        :param num_classes: C.
        :param num_neighbors: H; of fewer distinct rows all are neighbors.
        :param mean_function: C columns; None for constants that start at the means of the
            observations.
        :param num_objective_rows: rows that the objective is computed from.
        :param row_weights: positive ``[N]``, divided by their mean where it is above 1; None for 1.
        :raises ValueError: for arguments of a wrong kind or that do not fit each other.
        """
        likelihood = Softmax(num_classes)
        dtype = gpflow.default_float()
        X, Y = checks.require_data(
            data, likelihood=likelihood, num_latent_gps=num_classes, dtype=dtype
        )
        start = tf.constant(_CONCENTRATION, dtype)
        self.row_weights = checks.require_row_weights(row_weights, X)
        labels = tf.cast(Y[:, 0], tf.int32)
        if mean_function is None:
            observed, _ = dirichlet_observations(labels, num_classes, start)
            average = np.average(observed, axis=0, weights=self.row_weights)
            mean_function = gpflow.functions.Constant(average)
        super().__init__(
            kernel, likelihood, mean_function=mean_function, num_latent_gps=num_classes
        )
        self.concentration = gpflow.Parameter(start, transform=gpflow.utilities.positive())
        self.data = X, Y
        self.num_neighbors = checks.require_count(num_neighbors, "num_neighbors")
        self._set_places(num_neighbors)
        self.num_objective_rows = num_objective_rows
        self._require_parts(self.input_dim)

    def _set_places(self, num_neighbors: int) -> None:
        """Distinct inputs and neighbors of the present data."""
        X = self.data[0]
        found = group_rows(X.numpy())
        self.of_row = tf.constant(found.of_row, tf.int32)
        places = tf.gather(X, found.first) if found.any_repeats else X
        self.neighbors = neighbors_among(places, num_neighbors)

    def _add_rows(self, data: tuple[tf.Tensor, tf.Tensor]) -> None:
        num_neighbors = int(self.neighbors.num_neighbors)
        if num_neighbors == len(self.neighbors.Z):  # fewer than asked for
            num_neighbors = self.num_neighbors
        self.data = with_rows(self.data, data)
        self.row_weights = with_weights(self.row_weights, len(data[0]))
        self._set_places(num_neighbors)

    def elbo(self) -> tf.Tensor:
        """:raises ValueError: always, as there is no lower bound on the evidence."""
        raise no_elbo(self)

    @public_method("the objective")
    @check_shapes("return: []")
    def leave_one_out_log_density(self) -> tf.Tensor:
        """
        ``N / n sum_i log P(y_i | the H nearest other rows of row i)`` over n fixed rows, at most
        ``num_objective_rows``, drawn at random once for each N: a scalar, in nats. A row itself is
        left out by its index. O(n C H^3) time, O(n C H^2) memory.

        :raises ValueError: for data of a single row.
        """
        return self.objective(self.left_out())

    @inherit_check_shapes
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """The :meth:`leave_one_out_log_density`."""
        return self.leave_one_out_log_density()

    def training_loss_closure(self, *, compile: bool = True) -> Callable[[], tf.Tensor]:
        """
        A function without arguments that returns the training loss, for GPflow's optimizers.
        Neighbors are found once, for the parameters at the time of this call.

        :param compile: wrap the loss in ``tf.function``.
        """
        return loss_closure(self, self.left_out, self.objective, compile)

    def fit_hyperparameters(self, *, seconds: float | None = None) -> float:
        """
        Maximize the objective, with the priors of parameters that have one, by L-BFGS in three
        rounds of 15 iterations, each with the neighbors under the present lengthscales.

        :param seconds: time after which no evaluation begins; None for any.
        :return: the objective.
        :raises ValueError: inside ``tf.function``, and for parameters with which the objective is
            not finite.
        """
        if not tf.executing_eagerly():
            raise ValueError("fit_hyperparameters must be called outside of tf.function.")
        component_checks.validate_components(self)
        end = math.inf if seconds is None else time.perf_counter() + seconds
        parameters = LogParameters(self.trainable_parameters)
        if not parameters.parameters:
            return float(self.leave_one_out_log_density())
        start = parameters.get()
        for _ in range(_NUM_ROUNDS):
            density = _LogDensity(self, parameters)
            mode = find_mode(density, parameters.get(), max_iterations=_ITERATIONS, until=end)
            parameters.assign(mode)
            if time.perf_counter() > end:
                warn_without_time("hyperparameters", start, mode)
                break
        return float(self.leave_one_out_log_density())

    @property
    def input_dim(self) -> int | None:
        return int(self.data[0].shape[1])

    @property
    def dtype(self) -> tf.DType:
        return self.concentration.dtype

    def _make_posterior(self, **options: Any) -> SitePosterior:
        return SitePosterior(self.kernel, self.neighbors, self._sites, **options)

    def _observed(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Observations minus the prior mean, and their precisions, for every row ``[N, C]``."""
        X, Y = self.data
        eps = tf.convert_to_tensor(self.concentration)
        t, noise = dirichlet_observations(tf.cast(Y[:, 0], tf.int32), self.num_latent_gps, eps)
        mean = component_checks.require_mean(self.mean_function(X), t, self.mean_function)
        precisions = 1.0 / noise
        if self.row_weights is not None:
            precisions *= self.row_weights[:, None]
        return t - mean, precisions

    def _sites(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Targets and precisions at Z, ``[., C]`` each."""
        linear, precisions = self._sums(*self._observed())
        return linear / precisions, precisions

    def _sums(self, t: tf.Tensor, precisions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Linear terms and precisions at Z of the observations there together, ``[., C]``."""
        size = self.neighbors.Z.shape[0]
        parts = precisions * t, precisions
        if size == self.of_row.shape[0]:
            return parts
        linear, total = (tf.math.unsorted_segment_sum(p, self.of_row, size) for p in parts)
        return linear, total

    def left_out(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The rows of the objective ``[n]``, and places near each, its own among them."""
        X, Z = self.data[0], self.neighbors.Z
        rows = objective_rows(int(X.shape[0]), self.num_objective_rows)
        count = min(int(self.neighbors.num_neighbors) + 1, int(Z.shape[0]))
        return rows, self.neighbors.closest(tf.gather(X, rows), self.kernel, count)

    def objective(self, parts: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """:meth:`leave_one_out_log_density` of rows and places near them."""
        total = self._log_densities(*parts, *self._observed())
        return total * tf.cast(self.data[0].shape[0] / parts[0].shape[0], total.dtype)

    def _log_densities(
        self, rows: tf.Tensor, around: tf.Tensor, t: tf.Tensor, precisions: tf.Tensor
    ) -> tf.Tensor:
        """
        The weighted sum of the log probabilities of the labels of some rows ``[n]``, each without
        its own observation, or without one of w copies of it, which leaves a site of precision zero
        where a row occurs once.
        """
        X, Y = self.data
        weights = tf.ones_like(t[:, 0]) if self.row_weights is None else self.row_weights
        weights = tf.gather(weights, rows)
        removed = tf.gather(precisions, rows)
        linear, total = (tf.gather(part, around) for part in self._sums(t, precisions))
        own = around == tf.gather(self.of_row, rows)[:, None]  # [n, H + 1]
        own = tf.cast(own, t.dtype)[:, :, None]
        linear -= own * (removed * tf.gather(t, rows))[:, None]
        left = total - own * removed[:, None]
        has_any = left > 1e-6 * total
        left = tf.where(has_any, left, tf.zeros_like(left))
        targets = tf.where(has_any, linear, tf.zeros_like(left)) / tf.where(has_any, left, total)
        places = tf.gather(tf.convert_to_tensor(self.neighbors.Z), around)
        inputs = tf.gather(X, rows)
        mean, var = nearest_sites_moments(self.kernel, inputs, places, targets, left)
        mean += self.mean_function(inputs)
        var = tf.maximum(var, 0.0)
        labels = tf.gather(Y, rows)
        densities = self.likelihood.predict_log_density(inputs, mean, var, labels)
        return tf.reduce_sum(weights * densities)

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        super()._require_parts(num_columns, dtype)
        component_checks.require_single(self.kernel, num_columns)
        checks.require_count(self.num_objective_rows, "num_objective_rows")
        checks.require_row_weights(self.row_weights, self.data[0])
        self.neighbors.validate_neighbors()
        if not isinstance(self.likelihood, Softmax):
            raise ValueError(
                "likelihood must stay gs.likelihoods.Softmax in NearestNeighborClassifier, got "
                f"{type(self.likelihood).__name__}."
            )

    def validate_loaded(self) -> None:
        """Refuse groups, as a file may hold, that are not the groups of equal rows of X."""
        super().validate_loaded()
        X, found = self.data[0], group_rows(self.data[0].numpy())
        sound = np.array_equal(self.of_row, found.of_row) and self.of_row.dtype == tf.int32
        if not sound or not np.array_equal(self.neighbors.Z, tf.gather(X, found.first)):
            raise ValueError("model.of_row must number the distinct rows of data, got others.")


class _LogDensity:
    """The objective with priors as a function of the logarithms, at fixed neighbors."""

    def __init__(self, model: NearestNeighborClassifier, parameters: LogParameters) -> None:
        self._parameters = parameters
        parts = model.left_out()
        scale = parts[0].shape[0] / model.data[0].shape[0]  # of the rows of the objective
        variables = [p.unconstrained_variable for p in parameters.parameters]
        self._evaluate = tracing.with_gradients(
            lambda: tf.cast(scale, model.dtype) * model.objective(parts), variables
        )

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = self._parameters.differentiate(self._evaluate, vector)
        log_prior, slope = self._parameters.log_prior(vector)
        return value + log_prior, gradient + slope
