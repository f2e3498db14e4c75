"""
Hyperparameters of a kernel, fitted with exact Gaussian processes on a few rows.

Where inputs repeat, every number of rows is one of distinct rows, each with all of its outputs: see
:mod:`gpflow_sparse.initialization.repeated_rows`. No likelihood and no density is approximated.
"""

from collections.abc import Callable
from typing import Any, cast

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel

from gpflow_sparse.covariances.stationary import covariance
from gpflow_sparse.inference import heavy_tails
from gpflow_sparse.inference.laplace import Density, find_mode, laplace
from gpflow_sparse.inference.log_parameters import LogParameters, is_positive
from gpflow_sparse.inference.marginal_likelihood import log_density
from gpflow_sparse.inference.nearest_rows import nearest_rows_moments
from gpflow_sparse.initialization.exact_likelihood import (
    ExactDensity,
    ExactLikelihood,
    has_closed_form,
    lower_factor,
)
from gpflow_sparse.initialization.inducing_inputs import in_units
from gpflow_sparse.initialization.repeated_rows import Rows, copies_of, held_out, merge_rows
from gpflow_sparse.numerics import linalg
from gpflow_sparse.numerics.neighbors import NeighborIndex
from gpflow_sparse.numerics.tracing import with_gradients
from gpflow_sparse.validation import checks, component_checks

Array = np.ndarray

_MIN_FOR_TAILS = 200  # rows to which scale and tails are fitted, for a comparison
# Bounds of the fit: lengthscales within this factor of their starting value, and the noise variance
# above a fraction of it. For very small or large lengthscales, or little noise in single precision,
# rounding makes factorizations fail.
_LENGTHSCALE_FACTOR = 100.0
_NOISE_FRACTION = {tf.float64: 2e-5, tf.float32: 1e-3}
# Relative decrease of the loss in an iteration at which the fit ends. SciPy's default, 2e-9, took
# up to 2.6 times the evaluations, with scores of new rows that differed by less than 4e-4.
_TOLERANCE = 1e-6
# Held-out rows, and training rows around each of them, that hyperparameters are judged by.
_HELD_OUT, _AROUND = 500, 128
# Entries of the covariances of neighbors in memory together: 16 MiB of float64. Those of 2,000 rows
# at once took 1.2 GB.
_ENTRIES = 2**21
_FAILURES = (tf.errors.OpError, ArithmeticError, np.linalg.LinAlgError)


def subset_hyperparameters(
    X: Array,
    Y: Array,
    kernel: Kernel,
    *,
    num_rows: int = 1000,
    noise_variance: float = 0.1,
    max_iterations: int = 100,
    seed: int = 0,
    mean_function: MeanFunction | None = None,
    row_weights: Any = None,
    known_variance: Any = None,
) -> float:
    """
    Fit an exact GP to a random subset of rows by L-BFGS and assign the result to the kernel.

    For this fit every positive parameter without a prior has a log-normal prior around its starting
    value, one e-fold wide: a linear trend or an irrelevant column would otherwise make variance and
    lengthscales diverge. What is found is the mode of the density of the logarithms of positive
    parameters; the density of their values has its mode at smaller ones. A lengthscale without a
    prior also stays within a factor of 100 (29 in float32) of its starting value, and the noise
    variance above 2e-5 of its (1e-3 in float32). Start lengthscales from ``median_lengthscales``.

    The result is tested on at most ``num_rows`` rows outside of the subset: if the fitted GP, given
    the subset, predicts them with a lower mean log density than the GP at the starting values, with
    and without calibrated variances, the starting values are kept.

    :param Y: outputs [N, P].
    :param kernel: the kernel with the starting values; only trainable parameters change.
    :param num_rows: largest number of rows in the subset, which has at most four fifths of all
        rows; an iteration costs O(num_rows^3).
    :param noise_variance: starting value of the noise variance.
    :param mean_function: a mean function, fitted and changed like the kernel; None for zero.
    :param row_weights: positive ``[N]``, divided by their mean where it is above 1; None for 1.
    :param known_variance: of the noise of each row ``[N]``, added to the learned one; None for 0.
    :return: the fitted noise variance, or ``noise_variance`` if the starting values are kept.
    :raises ValueError: X or Y is not a finite matrix, their rows differ, or the fit does not end in
        a finite optimum; then the kernel is not changed.
    """
    given = row_weights, known_variance, num_rows, max_iterations, noise_variance
    rows = _require_arguments(X, Y, kernel, mean_function, *given)
    order = np.random.default_rng(checks.require_seed(seed)).permutation(len(rows.X))
    count = min(num_rows, len(order) - len(order) // 5)
    data, others = rows.take(order[:count]), rows.take(order[count : count + num_rows])
    model = _ExactGPs(data, kernel, mean_function, noise_variance)
    return _fit(model, max_iterations, noise_variance, lambda tried: _log_density(tried, others))[0]


def posterior_mode(
    X: Array,
    Y: Array,
    kernel: Kernel,
    *,
    noise_variance: float = 0.1,
    max_iterations: int = 100,
    mean_function: MeanFunction | None = None,
    row_weights: Any = None,
    known_variance: Any = None,
) -> tuple[float, float]:
    """
    Fit an exact GP to all rows by L-BFGS, and assign the result to the kernel.

    Priors, bounds and errors are as in :func:`subset_hyperparameters`; no row is left to test the
    result. An iteration costs O(N^3).

    :param Y: outputs [N, P].
    :param kernel: the kernel with the starting values; only trainable parameters change.
    :param noise_variance: starting value of the noise variance.
    :param mean_function: a mean function, fitted and changed like the kernel; None for zero.
    :param row_weights: positive ``[N]``, divided by their mean where it is above 1; None for 1.
    :param known_variance: of the noise of each row ``[N]``, added to the learned one; None for 0.
    :return: the fitted noise variance, and the log evidence of the outputs, integrated over the
        parameters by Laplace's method, in nats. It compares kernels of any numbers of parameters:
        on few rows a kernel with a lengthscale for every column is often worse than with a common
        lengthscale, although its marginal likelihood is higher. It takes one evaluation of O(N^3)
        for each parameter.
    :raises ValueError: as :func:`subset_hyperparameters`.
    """
    given = row_weights, known_variance, 1, max_iterations, noise_variance
    rows = _require_arguments(X, Y, kernel, mean_function, *given)
    model = _ExactGPs(rows, kernel, mean_function, noise_variance)
    return _fit(model, max_iterations, noise_variance, summary=_log_evidence)


def local_hyperparameters(
    X: Array,
    Y: Array,
    kernel: Kernel,
    *,
    num_subsets: int = 64,
    num_rows: int = 64,
    noise_variance: float = 0.1,
    max_iterations: int = 100,
    seed: int = 0,
    mean_function: MeanFunction | None = None,
    row_weights: Any = None,
    known_variance: Any = None,
) -> float:
    """
    Fit independent exact GPs with common hyperparameters to local subsets of rows, by L-BFGS, and
    assign the result to the kernel.

    A subset holds the rows nearest to a random row, in lengthscales of the kernel's starting
    values. Rows as near to each other as in the whole table show the noise and short lengthscales,
    which a random subset of a large table mistakes for each other. The objective is the sum of the
    log marginal likelihoods of all subsets, the likelihood under a covariance that is block
    diagonal. Priors, bounds and errors are as in :func:`subset_hyperparameters`.

    The result is tested on 500 rows, at most a fifth, that are in no subset: if they have a lower
    :func:`neighbor_log_density` than at the starting values, the kernel is not changed and
    ``noise_variance`` is returned.

    :param Y: outputs [N, P].
    :param kernel: the kernel with the starting values; only trainable parameters change.
    :param num_subsets: largest number of subsets, which together have at most as many rows as the
        table; an iteration costs O(num_subsets num_rows^3).
    :param num_rows: rows of each subset.
    :param noise_variance: starting value of the noise variance.
    :param mean_function: a mean function, fitted and changed like the kernel; None for zero.
    :param row_weights: positive ``[N]``, divided by their mean where it is above 1; None for 1.
    :param known_variance: of the noise of each row ``[N]``, added to the learned one; None for 0.
    :return: the fitted noise variance, or ``noise_variance`` if the starting values are kept.
    :raises ValueError: as :func:`subset_hyperparameters`.
    """
    given = row_weights, known_variance, num_rows, max_iterations, noise_variance
    rows = _require_arguments(X, Y, kernel, mean_function, *given)
    checks.require_count(num_subsets, "num_subsets")
    rest, _ = held_out(len(rows.X), _HELD_OUT, seed)
    scaled = in_units(kernel, rows.X)[rest]
    centers = scaled[: max(1, min(num_subsets, len(rest) // num_rows))]
    found = rest[NeighborIndex(scaled).query(centers, min(num_rows, len(rest)))]  # [B, n]
    model = _ExactGPs(rows.take(found), kernel, mean_function, noise_variance)

    def score(tried: "_ExactGPs") -> float:
        return _neighbor_log_density(rows, tried, _HELD_OUT, _AROUND, seed, calibrated=True)

    return _fit(model, max_iterations, noise_variance, score)[0]


def neighbor_log_density(
    X: Array,
    Y: Array,
    kernel: Kernel,
    noise_variance: float,
    *,
    num_held_out: int = _HELD_OUT,
    num_neighbors: int = _AROUND,
    seed: int = 0,
    mean_function: MeanFunction | None = None,
    row_weights: Any = None,
    known_variance: Any = None,
    calibrated: bool = False,
) -> float:
    """
    Mean log density of held-out rows, each predicted by an exact GP from the nearest other rows: a
    quick comparison of hyperparameters, without training a model.

    Time O(num_held_out num_neighbors^3).

    :param Y: outputs [N, P].
    :param kernel: stationary kernels have neighbors in units of their lengthscales, and others in
        the units of X.
    :param num_held_out: number of random rows that are held out, at most a fifth.
    :param num_neighbors: number of neighbors of each among the other rows.
    :param mean_function: the prior mean; None for zero.
    :param row_weights: positive ``[N]``, divided by their mean where it is above 1; None for 1.
    :param known_variance: of the noise of each row ``[N]``, added to the learned one; None for 0.
    :param calibrated: with the scale and the tails of a Student t distribution that fit these rows
        best, as for predictions that will be calibrated: few outliers do not decide. Not of fewer
        than 200 rows.
    :return: nats per row; minus infinity if a covariance cannot be factorized.
    :raises ValueError: for arguments of a wrong kind.
    """
    counts = num_held_out, num_neighbors
    given = row_weights, known_variance, *counts, noise_variance
    rows = _require_arguments(X, Y, kernel, mean_function, *given)
    model = _ExactGPs(rows, kernel, mean_function, noise_variance)
    return _neighbor_log_density(rows, model, *counts, seed, calibrated)


class _ExactGPs(gpflow.models.BayesianModel, gpflow.models.InternalDataTrainingLossMixin):
    """One exact GP, or several independent ones whose hyperparameters are the same."""

    def __init__(
        self,
        data: Rows,
        kernel: Kernel,
        mean_function: MeanFunction | None,
        noise_variance: float,
    ) -> None:
        """:param data: with at most one leading axis."""
        super().__init__()
        self.data, self.kernel = data, kernel
        self.mean_function = mean_function or gpflow.functions.Zero()
        self.likelihood = gpflow.likelihoods.Gaussian(noise_variance)

    @property
    def noise_variance(self) -> gpflow.Parameter:
        """The noise variance of the likelihood."""
        return cast(gpflow.Parameter, self.likelihood.variance)

    def log_prior_density(self) -> tf.Tensor:
        """Log prior density of the logarithms of positive parameters, and of others as they are."""
        values = [
            tf.reduce_sum(tf.math.log(parameter))
            for parameter in self.trainable_parameters
            if parameter.prior is not None and is_positive(parameter)
        ]
        return tf.add_n([super().log_prior_density(), *values])

    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """The sum of the log marginal likelihoods."""
        rows, noise = self.data, tf.convert_to_tensor(self.noise_variance)
        K = linalg.add_jitter(covariance(self.kernel, rows.X), rows.noises(noise))
        value = log_density(K, rows.Y - self.mean_function(rows.X))
        return value + tf.reduce_sum(rows.within(noise))


def _require_arguments(
    X: Array,
    Y: Array,
    kernel: Kernel,
    mean_function: MeanFunction | None,
    row_weights: Any,
    known_variance: Any,
    num_rows: int,
    max_iterations: int,
    noise_variance: float,
) -> Rows:
    """X and Y as tensors: of copies one row with the sum of their weights, equal inputs merged."""
    checks.require_count(num_rows, "num_rows")
    checks.require_count(max_iterations, "max_iterations")
    component_checks.require_noise(noise_variance)
    X, Y = checks.require_data((X, Y))
    component_checks.require_kernel(kernel, X.shape[1])
    if mean_function is not None:
        component_checks.require_mean_function(mean_function, X.shape[1], Y.shape[1])
    known = checks.require_known_variance(known_variance, X)
    weights = checks.require_row_weights(row_weights, X)
    copies = copies_of(np.asarray(X), np.asarray(Y)) if known is None else None
    if copies is not None:
        X, Y = (tf.gather(part, copies.first) for part in (X, Y))
        summed = np.bincount(copies.of_row, weights)
        weights = tf.constant(checks.mean_at_most_one(summed), X.dtype)
    return merge_rows(X, Y, weights, known_variance=known)


def _fit(
    model: _ExactGPs,
    max_iterations: int,
    noise_variance: float,
    score: Callable[[_ExactGPs], Any] = lambda tried: 0.0,
    summary: Callable[[_ExactGPs], float] = lambda fitted: 0.0,
) -> tuple[float, float]:
    """
    Fit a model, and keep its starting values if they have a higher score.

    :param noise_variance: its starting value.
    :param score: a number, or an array; of an array all scores must be higher.
    :param summary: a function of the fitted model.
    :return: the noise variance, and the summary.
    """
    # Fitted on a copy, so that a failed fit does not change the caller's kernel.
    fitted = gpflow.utilities.deepcopy(model)
    bounds = _set_priors(fitted)
    density, vector = _density(fitted)
    mode = find_mode(
        density,
        vector.get(),
        num_rows=fitted.data.X.shape[-2],
        max_iterations=max_iterations,
        bounds=bounds,
        tolerance=_TOLERANCE,
    )
    vector.assign(mode)
    found = summary(fitted)
    if np.all(score(fitted) < score(model)):
        return float(noise_variance), found
    for variable, value in zip(model.trainable_variables, fitted.trainable_variables, strict=True):
        variable.assign(value)
    return float(model.noise_variance.numpy()), found


def _log_evidence(fitted: _ExactGPs) -> float:
    """The log evidence of the outputs by Laplace's method around the fitted values."""
    density, vector = _density(fitted)
    mode = vector.get()
    try:
        return laplace(density, vector.log_prior, mode).log_evidence
    except _FAILURES:
        return -np.inf
    finally:
        vector.assign(mode)


def _density(model: _ExactGPs) -> tuple[Density, LogParameters]:
    """
    The log density of a model's hyperparameters with their priors, and their vector: in closed form
    in NumPy, or by TensorFlow, which assigns them.
    """
    closed = _closed_form(model)
    if closed is not None:
        return closed, closed.logs
    vector = LogParameters(model.trainable_parameters)
    variables = [parameter.unconstrained_variable for parameter in vector.parameters]
    loss = with_gradients(model.training_loss, variables)
    return lambda at: vector.differentiate(lambda: -loss(), at), vector


def _set_priors(model: _ExactGPs) -> list[tuple[float, float]]:
    """
    Set log-normal priors around the starting values of parameters without a prior.

    :return: bounds of every entry of the vector of :class:`LogParameters`.
    """
    found = gpflow.utilities.parameter_dict(model)
    scales = {id(parameter) for path, parameter in found.items() if path.endswith(".lengthscales")}
    bounds: list[tuple[float, float]] = []
    for parameter in model.trainable_parameters:
        start, low, high = parameter.numpy(), -np.inf, np.inf
        transform: Any = parameter.transform
        if parameter.prior is None and transform is not None and np.all(start > 0.0):
            parameter.prior = tfp.distributions.LogNormal(np.log(start), start.dtype.type(1.0))
            if id(parameter) in scales:
                high = np.log(min(_LENGTHSCALE_FACTOR, linalg.largest_radius(parameter.dtype)))
                low = -high
            elif parameter is model.noise_variance:
                low = np.log(_NOISE_FRACTION[parameter.dtype])
        if is_positive(parameter):
            # a transform takes no values at its own lower bound, and none near it in float32
            least = np.log(1.001 * transform.forward(tf.constant(-50.0, parameter.dtype)).numpy())
            bounds += [(max(at + low, least), at + high) for at in np.log(start).flat]
        elif np.isfinite(high):
            # an end that the transform cannot take is NaN, which leaves that side without a bound
            lows = np.fmax(transform.inverse(start * np.exp(low)), -np.inf)
            highs = np.fmin(transform.inverse(start * np.exp(high)), np.inf)
            bounds += zip(lows.flat, highs.flat, strict=True)
        else:
            bounds += [(-np.inf, np.inf)] * start.size
    return bounds


def _closed_form(model: _ExactGPs) -> ExactDensity | None:
    """The density of a model with priors in NumPy; None for models that TensorFlow evaluates."""
    kernel, rows, noise = model.kernel, model.data, model.noise_variance
    by_variable = {id(p.unconstrained_variable): p for p in model.trainable_parameters}
    parameters = [by_variable[id(variable)] for variable in model.trainable_variables]
    if type(model.mean_function) is not gpflow.functions.Zero:
        return None
    if not has_closed_form(kernel, rows, noise, parameters):
        return None
    return ExactDensity(ExactLikelihood(kernel, rows, noise), parameters)


def _log_density(model: _ExactGPs, rows: Rows) -> Array:
    """
    Mean log densities ``[2]`` of rows outside of the model's data, with calibrated variances and as
    they are; minus infinity on failure, 0 of no rows.
    """
    if not len(rows.X):
        return np.zeros(2)
    data, noise = model.data, tf.convert_to_tensor(model.noise_variance)
    try:
        L = lower_factor(model.kernel, data, model.noise_variance)
        if L is None:
            K = linalg.add_jitter(covariance(model.kernel, data.X), data.noises(noise))
            L = tf.linalg.cholesky(K)
        A = linalg.solve_triangular(L, covariance(model.kernel, data.X, rows.X))
        white = linalg.solve_triangular(L, _errors(model, data).Y)
        var = model.kernel(rows.X, full_cov=False) - tf.reduce_sum(tf.square(A), axis=0)
        mean = tf.linalg.matmul(A, white, transpose_a=True)
        moments = _errors(model, rows), noise, mean, var
        return np.array([_mean_density(*moments, calibrated) for calibrated in (True, False)])
    except _FAILURES:
        return np.full(2, -np.inf)


def _errors(model: _ExactGPs, rows: Rows) -> Rows:
    """The rows, with outputs less the prior mean."""
    return rows._replace(Y=rows.Y - model.mean_function(rows.X))


def _mean_density(
    rows: Rows, noise: tf.Tensor, mean: tf.Tensor, var: tf.Tensor, calibrated: bool
) -> float:
    """
    Log density of the outputs of an average row; minus infinity where it is not finite.

    :param rows: with outputs less the prior mean.
    :param mean: mean of f ``[n, P]``, prior mean excluded.
    :param var: variance of f ``[n]``.
    :param calibrated: see :func:`neighbor_log_density`.
    """
    var = (var + rows.noises(noise))[:, None]
    densities = tf.reduce_sum(gpflow.logdensities.gaussian(rows.Y, mean, var), axis=1)
    densities += rows.within(noise)
    count = len(rows.X) if rows.counts is None else tf.reduce_sum(rows.counts)
    value = float(tf.reduce_sum(densities) / count)
    if not np.isfinite(value):
        return -np.inf
    if calibrated and len(rows.X) >= _MIN_FOR_TAILS:
        errors, counts = rows.standardized(noise, mean, var)
        value += heavy_tails.improvement(errors, counts) / float(count)
    return value


def _neighbor_log_density(
    rows: Rows,
    model: _ExactGPs,
    num_held_out: int,
    num_neighbors: int,
    seed: int,
    calibrated: bool,
) -> float:
    """See :func:`neighbor_log_density`."""
    kernel, noise = model.kernel, tf.convert_to_tensor(model.noise_variance)
    rest, judged = held_out(len(rows.X), num_held_out, seed)
    if not len(judged):
        return 0.0
    scaled = in_units(kernel, rows.X)
    count = min(num_neighbors, len(rest))
    around = rest[NeighborIndex(scaled[rest]).query(scaled[judged], count)]  # [n, H]
    errors, size = _errors(model, rows), max(1, _ENTRIES // count**2)
    moments = []
    try:
        for start in range(0, len(judged), size):
            block = slice(start, start + size)
            near, X = errors.take(around[block]), tf.gather(rows.X, judged[block])
            noises = near.noises(noise)
            moments.append(nearest_rows_moments(kernel, noises, X, near.X, near.Y))
    except (*_FAILURES, linalg.FactorizationError):
        return -np.inf
    mean, var = (tf.concat(parts, axis=0) for parts in zip(*moments, strict=True))
    return _mean_density(errors.take(judged), noise, mean, var, calibrated)
