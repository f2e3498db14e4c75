"""Hyperparameters of a kernel, fitted with an exact Gaussian process on a few rows."""

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.kernels import Kernel

from gpflow_sparse.numerics import linalg
from gpflow_sparse.validation import checks, component_checks

Array = np.ndarray

# Bounds of the fit: lengthscales within this factor of their starting value, and the noise variance
# above this fraction of it. For very small or large lengthscales rounding makes factorizations
# fail.
_LENGTHSCALE_FACTOR, _NOISE_FRACTION = 100.0, 1e-3
# Relative decrease of the loss in an iteration at which the fit ends. SciPy's default, 2e-9, took
# up to 2.6 times the evaluations, with scores of new rows that differed by less than 4e-4.
_TOLERANCE = 1e-6
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
    mean_function: gpflow.functions.MeanFunction | None = None,
) -> float:
    """
    Fit an exact GP to a random subset of rows by L-BFGS and assign the result to the kernel.

    For this fit every positive parameter without a prior has a log-normal prior around its starting
    value, one e-fold wide: a linear trend or an irrelevant column would otherwise make variance and
    lengthscales diverge. A lengthscale without a prior also stays within a factor of 100 (29 in
    float32) of its starting value, and the noise variance above a thousandth of its. Start the
    lengthscales from ``median_lengthscales``.

    The result is tested on rows outside of the subset, at most ``num_rows``: if the fitted GP,
    given the subset, predicts them with a lower mean log density than the GP at the starting
    values, the kernel is not changed and ``noise_variance`` is returned.

    :param Y: outputs [N, P].
    :param kernel: the kernel with the starting values; only trainable parameters change.
    :param num_rows: largest number of rows in the subset, which has at most four fifths of all
        rows; an iteration costs O(num_rows^3).
    :param noise_variance: starting value of the noise variance.
    :param mean_function: a mean function, fitted and changed like the kernel; None for zero.
    :return: the fitted noise variance, or ``noise_variance`` if the starting values are kept.
    :raises ValueError: X or Y is not a finite matrix, their rows differ, or the fit does not end in
        a finite optimum; then the kernel is not changed.
    """
    checks.require_count(num_rows, "num_rows")
    checks.require_count(max_iterations, "max_iterations")
    if not (checks.is_number(noise_variance) and 0.0 < noise_variance < np.inf):
        raise ValueError(f"noise_variance must be one positive number; got {noise_variance!r}.")
    X, Y = checks.require_data((X, Y))
    component_checks.require_kernel(kernel, X.shape[1])
    if mean_function is not None:
        component_checks.require_mean_function(mean_function, X.shape[1], Y.shape[1])
    order = np.random.default_rng(checks.require_seed(seed)).permutation(len(X))
    count = min(num_rows, len(X) - len(X) // 5)
    data, others = (
        tuple(tf.gather(values, rows) for values in (X, Y))
        for rows in (order[:count], order[count : count + num_rows])
    )
    model = gpflow.models.GPR(data, kernel, mean_function, noise_variance=noise_variance)
    # Fitted on a copy, so that a failed fit does not change the caller's kernel.
    fitted = gpflow.utilities.deepcopy(model)
    _maximize(fitted, max_iterations, _set_priors(fitted))
    if len(others[0]) and _log_density(fitted, others) < _log_density(model, others):
        return float(noise_variance)
    for variable, value in zip(model.trainable_variables, fitted.trainable_variables, strict=True):
        variable.assign(value)
    return float(model.likelihood.variance.numpy())


def _set_priors(model: gpflow.models.GPR) -> list[tuple[float, float]]:
    """
    Set log-normal priors around the starting values of parameters without a prior.

    :return: bounds of every entry of the trainable variables, which are unconstrained.
    """
    found = gpflow.utilities.parameter_dict(model)
    scales = {id(parameter) for path, parameter in found.items() if path.endswith(".lengthscales")}
    bounds = {id(v): (np.full(v.shape, -np.inf), np.inf) for v in model.trainable_variables}
    for parameter in model.trainable_parameters:
        start, transform = parameter.numpy(), parameter.transform
        if parameter.prior is not None or transform is None or not np.all(start > 0.0):
            continue
        parameter.prior = tfp.distributions.LogNormal(np.log(start), start.dtype.type(1.0))
        if id(parameter) in scales:
            factor = min(_LENGTHSCALE_FACTOR, linalg.largest_radius(parameter.dtype))
            limits = (start / factor, start * factor)
        elif parameter is model.likelihood.variance:
            limits = (start * _NOISE_FRACTION, np.full_like(start, np.inf))
        else:
            continue
        bounds[id(parameter.unconstrained_variable)] = tuple(
            transform.inverse(limit).numpy() for limit in limits
        )
    pairs = (np.broadcast_arrays(*bounds[id(v)]) for v in model.trainable_variables)
    return [pair for low, high in pairs for pair in zip(low.flat, high.flat, strict=True)]


def _maximize(
    model: gpflow.models.GPR, max_iterations: int, bounds: list[tuple[float, float]]
) -> None:
    minimize = gpflow.optimizers.Scipy().minimize
    options = {"maxiter": max_iterations, "ftol": _TOLERANCE}
    try:
        found = minimize(
            model.training_loss,
            model.trainable_variables,
            bounds=bounds,
            options=options,
            tf_fun_args={"autograph": False},  # the conversion takes longer than many iterations
        )
        finite = np.isfinite(found.fun) and np.all(np.isfinite(found.x))
    except _FAILURES:
        finite = False
    if not finite:
        raise ValueError(
            "kernel: expected a finite optimum, got a failed factorization, NaN or infinity (its "
            "values are kept). Standardize X and Y, raise noise_variance if rows repeat, or start "
            "the lengthscales from median_lengthscales."
        )


def _log_density(model: gpflow.models.GPR, rows: tuple[tf.Tensor, tf.Tensor]) -> float:
    """Mean log density of rows outside of the model's data; minus infinity on failure."""
    try:
        value = float(tf.reduce_mean(model.predict_log_density(rows)))
    except _FAILURES:
        return -np.inf
    return value if np.isfinite(value) else -np.inf
