"""GPnn: an exact Gaussian process on the nearest training rows of each predicted row."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel

from gpflow_sparse.inference.nearest_rows import nearest_rows_moments
from gpflow_sparse.initialization.repeated_rows import copies_of
from gpflow_sparse.models.nearest_neighbor.leave_one_out import (
    loss_closure,
    neighbors_among,
    no_elbo,
    objective_rows,
)
from gpflow_sparse.models.nearest_neighbor.local_variance import (
    LocallyScaledPosterior,
    LocalVariance,
    best_local_variance,
)
from gpflow_sparse.models.regression import RegressionModel
from gpflow_sparse.models.swsgp import SitePosterior
from gpflow_sparse.models.training_data import columns, with_weights
from gpflow_sparse.numerics import devices
from gpflow_sparse.numerics.row_groups import group_rows
from gpflow_sparse.numerics.streaming import streamed_sum
from gpflow_sparse.validation import checks, component_checks
from gpflow_sparse.validation.public_methods import public_method

# The precision in place of zero, whose noise variance would be infinite.
_NONE = 1e-12
# Part of the weight of equal rows below which what is left without one of them is rounding.
_ROUNDING = 1e-6
# Entries of the covariances [n, H, H] in one block of rows of the objective: 32 MiB of float64.
_BLOCK_ENTRIES = 2**22


class NearestNeighborGP(RegressionModel):
    """
    Gaussian process regression in which every row is predicted by an exact GP on its H nearest
    training rows: GPnn of Allison, Stephenson, Samuel F and Pyzer-Knapp, "Leveraging Locality and
    Robustness to Achieve Massively Scalable Gaussian Process Regression" (NeurIPS 2023).

    There is no q and nothing is trained but the hyperparameters, for which
    :func:`gpflow_sparse.initialization.local_hyperparameters` is the start. With H = N it is
    the exact GP. Neighbors are nearest in the kernel's own metric, see
    :class:`~gpflow_sparse.inducing_variables.NeighborInducingPoints`; the authors' program takes
    them among inputs of unit scale.

    The objective is not a bound on the evidence but the leave-one-out log density of Jankowiak and
    Pleiss, "Scalable Cross Validation Losses for Gaussian Process Models" (arXiv:2105.11535),
    without their auxiliary variables: see :meth:`leave_one_out_log_density`.

    Rows that are predicted together (``full_cov``) share the union of their neighbors, in O((n
    H)^3) time, so that their joint covariance is the covariance of one GP; means and variances then
    depend on the other rows. Functions drawn use the neighbors of each row.

    Where inputs repeat, neighbors are distinct rows, each with all of its c outputs: their mean,
    with the noise variance divided by c, has the same information on f. Else the neighbors of a row
    might be copies of one. Rows of weights w are the same, with the sum of the weights for c; and
    with known variances of their noise the mean is weighted by precisions, which are added.

    A prediction takes O(P H^3) time a row, and a search: at H = 128 far more than in a model with
    inducing points. Memory is a block of rows. The model and its file have all training rows.
    """

    has_bound = False

    groups: tuple[tf.Tensor, tf.Tensor] | None = None
    """X, and for each of its rows the neighbor that it is equal to; None where no row repeats."""
    row_weights: tf.Tensor | None = None
    """As how many equal rows each row counts ``[N]``; None for 1."""
    local_variance: LocalVariance | None = None
    """Factors of variances by the input, see :meth:`fit_local_variance`; None for the model's."""

    def __init__(
        self,
        data: tuple[Any, Any],
        kernel: Kernel,
        *,
        num_neighbors: int = 128,
        noise_variance: Any = 1.0,
        mean_function: MeanFunction | None = None,
        num_objective_rows: int = 1000,
        row_weights: Any = None,
        known_variance: Any = None,
    ) -> None:
        """
        :param data: ``(X [N, D], Y [N, P])``, arrays, which are copied. Rows that are equal in
            X and Y, and in their known variances, are kept as one with the sum of their weights,
            which the objective leaves out together.
        :param kernel: one output, shared by all columns of Y.
        :param num_neighbors: H; of fewer distinct rows all are neighbors.
        :param noise_variance: start of ``model.likelihood.variance``.
        :param mean_function: added to the prior mean; zero by default.
        :param num_objective_rows: rows that the objective is computed from.
        :param row_weights: positive ``[N]``, divided by their mean where it is above 1; None for 1.
        :param known_variance: of the noise of each row, at least 0 ``[N]``, to which
            ``model.likelihood.variance`` is added; None for 0.
        :raises ValueError: for arguments of a wrong kind or that do not fit each other.
        """
        super().__init__(data, kernel, mean_function=mean_function, noise_variance=noise_variance)
        if not all(isinstance(part, tf.Tensor) for part in self.data):
            raise ValueError(
                "data must be arrays (X [N, D], Y [N, P]) for NearestNeighborGP, got variables; "
                "make a new model where rows change."
            )
        self.known_variance = checks.require_known_variance(known_variance, self.data[0])
        self.num_neighbors = checks.require_count(num_neighbors, "num_neighbors")
        self._set_rows(checks.require_row_weights(row_weights, self.data[0]), num_neighbors)
        self.num_objective_rows = num_objective_rows
        self._require_parts(self.input_dim)

    def _set_rows(self, row_weights: tf.Tensor | None, num_neighbors: int) -> None:
        """Observations, distinct inputs and neighbors of the present data."""
        self._set_observations(row_weights)
        places, self.groups = self.data[0], None
        found = group_rows(places.numpy())
        unequal = self.row_weights is not None or self.known_variance is not None
        if found.any_repeats or unequal:
            self.groups = places, tf.constant(found.of_row, tf.int32)
            places = tf.gather(places, found.first)
        self.neighbors = neighbors_among(places, num_neighbors)

    def _add_rows(self, data: tuple[tf.Tensor, tf.Tensor]) -> None:
        """``local_variance`` keeps the left-out residuals of the old rows alone."""
        count, num_neighbors = len(self.neighbors.Z), int(self.neighbors.num_neighbors)
        if num_neighbors == count:  # fewer than asked for
            num_neighbors = self.num_neighbors
        super()._add_rows(data)
        self._set_rows(with_weights(self.row_weights, len(data[0])), num_neighbors)
        if self.local_variance is not None:
            self.local_variance.add_places(len(self.neighbors.Z) - count)

    def _set_observations(self, row_weights: tf.Tensor | None) -> None:
        """
        Keep one of rows that are copies: a row that is left out would be known from the others.
        """
        X, outputs = (part.numpy() for part in self.data)
        if self.known_variance is not None:
            outputs = np.column_stack([outputs, self.known_variance])
        copies = copies_of(X, outputs)
        if copies is not None:
            self.data = tuple(tf.gather(part, copies.first) for part in self.data)
            if self.known_variance is not None:
                self.known_variance = tf.gather(self.known_variance, copies.first)
            row_weights = tf.constant(np.bincount(copies.of_row, row_weights), X.dtype)
        self.row_weights = row_weights

    def elbo(self) -> tf.Tensor:
        """:raises ValueError: always, as there is no lower bound on the evidence."""
        raise no_elbo(self)

    @public_method("the objective")
    @check_shapes("return: []")
    def leave_one_out_log_density(self) -> tf.Tensor:
        """
        ``N / n sum_i log p(y_i | the H nearest other rows of row i)`` over n fixed rows, at most
        ``num_objective_rows``, drawn at random once for each N: a scalar, in nats. The
        term of a row of weight w has the factor w, and the whole row is left out.

        No lower bound on the log evidence, and no estimate of it. It is deterministic, so that
        L-BFGS can maximize it, and jumps where parameters change the neighbors of a row. Row i
        itself is left out by its index: rows equal to it are one of the neighbors. O(n H^3) time
        for all P outputs, which share the neighbors.

        :raises ValueError: for data of a single row.
        """
        return self._objective(self._left_out())

    @inherit_check_shapes
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """The :meth:`leave_one_out_log_density`."""
        return self.leave_one_out_log_density()

    def training_loss_closure(self, *, compile: bool = True) -> Callable[[], tf.Tensor]:
        """
        A function without arguments that returns the training loss, for GPflow's optimizers.

        Neighbors are found once, for the parameters at the time of this call, so that the loss is
        smooth, as the line search of L-BFGS needs it. Make another closure after a large change of
        the lengthscales.

        :param compile: wrap the loss in ``tf.function``.
        """
        return loss_closure(self, self._left_out, self._objective, compile)

    @public_method()
    def fit_local_variance(self, *, num_rows: int = 8000) -> LocalVariance | None:
        """
        Multiply the predictive variances of f and of observations by factors that depend on the
        input, from the residuals of left-out rows near it, where held-out rows gain clearly from
        it: more than 0.01 nats and twice the standard error of the mean. For noise that depends on
        the inputs, and functions that are rougher in some places. Else by one factor, the mean
        square of these residuals, if held-out rows gain as clearly from it. See
        :mod:`gpflow_sparse.models.nearest_neighbor.local_variance`.

        Kept as ``local_variance`` and saved with the model. Predictions of f and of observations
        have the factors; functions drawn and the objective do not. Call it after training and
        before :func:`gpflow_sparse.calibrate`; the model refuses to predict by factors that were
        fitted with other parameters. Time O(n H^3) once; a prediction takes the time that
        it took.

        :param num_rows: n, most rows to leave out, drawn at random; a quarter of them are held out.
        :return: ``local_variance``; None where held-out rows gain from neither, and for fewer than
            8 rows.
        :raises ValueError: for a model with a known variance of rows.
        """
        if self.known_variance is not None:
            raise ValueError(
                "known_variance must be None for local factors of the noise of all rows; leave out "
                "fit_local_variance."
            )
        most = checks.require_count(num_rows, "num_rows")
        self.local_variance = best_local_variance(self, most)
        return self.local_variance

    def of_rows(self, rows: Any) -> "NearestNeighborGP":
        """A model of some of the rows, with the same components and the variances of the GP."""
        X, Y = (tf.gather(part, rows) for part in self.data)
        weights = None if self.row_weights is None else tf.gather(self.row_weights, rows)
        made = NearestNeighborGP(
            (X, Y),
            self.kernel,
            num_neighbors=self.neighbors.num_neighbors,
            mean_function=self.mean_function,
        )
        if weights is not None:  # not divided by their mean
            made._set_rows(weights, self.neighbors.num_neighbors)
        made.likelihood, made.jitter = self.likelihood, self.jitter
        return made

    def _make_posterior(self, **options: Any) -> SitePosterior:
        parts = self.kernel, self.neighbors, self._sites
        if self.local_variance is None:
            return SitePosterior(*parts, **options)
        self.local_variance.require_current(self.variance_parts)
        return LocallyScaledPosterior(*parts, local_variance=self.local_variance, **options)

    @property
    def variance_parts(self) -> tuple[tf.Module, ...]:
        """Modules whose parameters the residuals of rows depend on."""
        return self.kernel, self.likelihood, self.mean_function

    @property
    def input_dim(self) -> int | None:
        return columns(self.data)[0]

    def _left_out(self) -> list[tf.Tensor]:
        """The rows of the objective ``[n]`` and rows of Z ``[n, .]`` near them, int32."""
        rows = objective_rows(int(self.data[0].shape[0]), self.num_objective_rows)
        return [rows, self.others(rows)]

    def _objective(self, parts: list[tf.Tensor]) -> tf.Tensor:
        """:meth:`leave_one_out_log_density` of rows and their neighbors."""
        size = max(1, devices.block_entries(_BLOCK_ENTRIES) // self.neighbors.num_neighbors**2)
        errors = self.prior_errors()  # once, as the mean function may take long
        (total,) = streamed_sum(
            lambda blocks, shared: [self._log_densities(*blocks, *shared)],
            parts,
            [errors],
            block_rows=size,
        )
        return total * tf.cast(len(self.data[0]) / parts[0].shape[0], total.dtype)

    def _sites(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Errors of the prior mean and precisions of their noise at Z, ``[., P]`` each."""
        errors, precisions = self._means(self.prior_errors())
        return errors, precisions * tf.ones_like(errors)

    def _means(self, errors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Mean errors of the prior mean at Z ``[., P]`` and the precision of their noise ``[., 1]``,
        from the errors at all rows ``[N, P]``.
        """
        if self.groups is None:
            return errors, tf.cast(1.0 / self._noise(), errors.dtype)[None, None]
        (_, of_row), size = self.groups, self.neighbors.Z.shape[0]
        weights = self._precisions(errors)[:, None]
        counts = tf.math.unsorted_segment_sum(weights, of_row, size)
        return tf.math.unsorted_segment_sum(weights * errors, of_row, size) / counts, counts

    def _weights(self, errors: tf.Tensor) -> tf.Tensor:
        """The weights of all rows ``[N]``."""
        return tf.ones_like(errors[:, 0]) if self.row_weights is None else self.row_weights

    def _known(self, X: tf.Tensor) -> tf.Tensor:
        """Known noise variances of all rows ``[N]``."""
        return tf.zeros_like(X[:, 0]) if self.known_variance is None else self.known_variance

    def _precisions(self, errors: tf.Tensor) -> tf.Tensor:
        """Weights of all rows divided by the variances of their noise ``[N]``."""
        noise = tf.cast(self._noise(), errors.dtype) + self._known(errors)
        return self._weights(errors) / noise

    def prior_errors(self) -> tf.Tensor:
        """Errors of the prior mean at all rows ``[N, P]``."""
        X, Y = self.data
        mean = component_checks.require_mean(self.mean_function(X), Y, self.mean_function)
        return Y - mean

    def _log_densities(self, rows: tf.Tensor, around: tf.Tensor, errors: tf.Tensor) -> tf.Tensor:
        """
        The sum of the log densities of some rows ``[n]``, each given others ``[n, H]``.

        :param errors: of the prior mean at all rows ``[N, P]``.
        """
        own, error = tf.gather(self.data[0], rows), tf.gather(errors, rows)
        mean, var = self.left_out_moments(rows, around, errors)
        var += tf.gather(self._known(errors), rows)
        var = tf.tile(var[:, None], [1, errors.shape[1]])
        densities = self.likelihood.predict_log_density(own, mean, var, error)
        return tf.reduce_sum(tf.gather(self._weights(errors), rows) * densities)

    def left_out_moments(
        self, rows: tf.Tensor, around: tf.Tensor, errors: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Mean ``[n, P]``, without the prior mean, and variance ``[n]`` of f at some rows, each given
        others ``[n, H]``.

        :param errors: of the prior mean at all rows ``[N, P]``.
        """
        X = self.data[0]
        own, noise = tf.gather(X, rows), tf.cast(self._noise(), X.dtype)
        if self.groups is None:
            values = tf.gather(errors, around)  # [n, H, P]
        else:
            own_place = tf.gather(self.groups[1], rows)
            error, weights = tf.gather(errors, rows), tf.gather(self._precisions(errors), rows)
            means = self._means(errors)
            values, precisions = self._without(own_place, around, error, weights, means)
            noise = 1.0 / precisions
        places = tf.gather(tf.convert_to_tensor(self.neighbors.Z), around)
        return nearest_rows_moments(self.kernel, noise, own, places, values, jitter=self.jitter)

    def _without(
        self,
        places: tf.Tensor,
        around: tf.Tensor,
        error: tf.Tensor,
        weights: tf.Tensor,
        at_places: tuple[tf.Tensor, tf.Tensor],
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Mean errors ``[n, ., P]`` at distinct rows, and the precisions of their noise ``[n, .]``,
        without one output at each of some places ``[n]``, which has this error ``[n, P]`` and
        precision ``[n]``.

        :param at_places: see :meth:`_means`.
        """
        means, counts = (tf.gather(part, around) for part in at_places)
        before = counts[..., 0]
        own = tf.cast(around == places[:, None], means.dtype)
        own *= weights[:, None]
        sums = before[:, :, None] * means - own[:, :, None] * error[:, None]
        counts = before - own
        is_left = counts > _ROUNDING * before
        means = sums / tf.where(is_left, counts, 1.0)[:, :, None]
        # one more than H are given: the last takes the place of a row that occurs once
        repeated = tf.reduce_any((own > 0.0) & is_left, axis=1, keepdims=True)
        last = tf.range(tf.shape(around)[1]) == self.neighbors.num_neighbors
        counts = tf.where(~is_left | (repeated & last), tf.cast(_NONE, counts.dtype), counts)
        return means, counts

    def others(self, rows: tf.Tensor) -> tf.Tensor:
        """
        The H nearest other rows of each, int32 ``[n, H]``; N - 1 where H = N. One more where
        rows are distinct, see :meth:`_without`.
        """
        X, Z = self.data[0], self.neighbors.Z
        count = min(int(self.neighbors.num_neighbors), int(Z.shape[0]) - 1)
        found = self.neighbors.closest(tf.gather(X, rows), self.kernel, count + 1)
        if self.groups is not None:
            return found
        # the row itself goes last; among equal rows it may not have been found
        order = tf.argsort(tf.cast(found == rows[:, None], tf.int32), axis=1, stable=True)
        return tf.gather(found, order, batch_dims=1)[:, :count]

    def validate_loaded(self) -> None:
        """Refuse groups, as a file may hold, that are not the groups of equal rows of X."""
        super().validate_loaded()
        if self.groups is None:
            return
        X, of_row, found = self.groups[0], self.groups[1], group_rows(self.data[0].numpy())
        sound = np.array_equal(of_row, found.of_row) and of_row.dtype == tf.int32
        if not sound or not np.array_equal(self.neighbors.Z, tf.gather(X, found.first)):
            raise ValueError("model.groups must number the distinct rows of data, got others.")

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        super()._require_parts(num_columns, dtype)
        component_checks.require_single(self.kernel, num_columns)
        checks.require_count(self.num_objective_rows, "num_objective_rows")
        self.neighbors.validate_neighbors()
        checks.require_row_weights(self.row_weights, self.data[0])
        checks.require_known_variance(self.known_variance, self.data[0])
        if self.local_variance is not None:
            count = int(self.neighbors.Z.shape[0])
            self.local_variance.validate_values(count, self.data[0].dtype)
        if (self.neighbors.Z if self.groups is None else self.groups[0]) is not self.data[0]:
            raise ValueError("data must stay as they are in NearestNeighborGP; make a new model.")
