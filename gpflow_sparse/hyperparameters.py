"""Hyperparameters from an exact GP on a few rows."""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.kernels import Kernel

from gpflow_sparse import component_checks
from gpflow_sparse.checks import require_count, require_data, require_seed

Array = np.ndarray


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
    Fit an exact GP to a random subset of rows by L-BFGS and write what it finds into the kernel.

    Every positive parameter without a prior of its own gets a log-normal one for this fit, around
    where it starts and one e-fold wide: a linear trend or an irrelevant column would otherwise send
    variance and lengthscales to infinity. Start the lengthscales from ``median_lengthscales``.

    :param Y: outputs [N, P].
    :param kernel: the kernel to start from and to write to; only trainable parameters change.
    :param num_rows: the most rows in the subset; an iteration costs O(num_rows^3).
    :param noise_variance: the noise variance to start from.
    :param mean_function: a mean function, fitted and written like the kernel; zero without one.
    :return: the fitted noise variance.
    :raises ValueError: X or Y is not a finite matrix, their rows differ, or the fit does not end in
        a finite optimum; the kernel is as it was.
    """
    require_count(num_rows, "num_rows")
    require_count(max_iterations, "max_iterations")
    if not (isinstance(noise_variance, int | float | np.number) and 0.0 < noise_variance < np.inf):
        raise ValueError(f"noise_variance must be positive, got {noise_variance!r}.")
    X, Y = require_data((X, Y))
    _require_parts(kernel, mean_function, X.shape[1], Y.shape[1])
    rows = np.random.default_rng(require_seed(seed)).permutation(len(X))[:num_rows]
    data = tuple(tf.gather(values, rows) for values in (X, Y))
    model = gpflow.models.GPR(data, kernel, mean_function, noise_variance=noise_variance)
    # Fitted on a copy, so that a failed fit leaves the caller's kernel alone.
    fitted = gpflow.utilities.deepcopy(model)
    _tether(fitted)
    _maximize(fitted, max_iterations)
    for variable, value in zip(model.trainable_variables, fitted.trainable_variables, strict=True):
        variable.assign(value)
    return float(model.likelihood.variance.numpy())


def _require_parts(kernel: Any, mean_function: Any, num_columns: int, num_outputs: int) -> None:
    for name, value, kind in (
        ("kernel", kernel, Kernel),
        ("mean_function", mean_function, gpflow.functions.Function),
    ):
        if not (isinstance(value, kind) or (value is None and name == "mean_function")):
            raise ValueError(
                f"{name} must be a GPflow {kind.__name__}, got {type(value).__name__}."
            )
    component_checks.require_kernel(kernel, num_columns)
    if mean_function is not None:
        component_checks.require_mean_function(mean_function, num_columns, num_outputs)


def _tether(model: gpflow.models.GPR) -> None:
    for parameter in model.trainable_parameters:
        start = parameter.numpy()
        if parameter.prior is None and parameter.transform is not None and np.all(start > 0.0):
            parameter.prior = tfp.distributions.LogNormal(np.log(start), start.dtype.type(1.0))


def _maximize(model: gpflow.models.GPR, max_iterations: int) -> None:
    minimize, options = gpflow.optimizers.Scipy().minimize, {"maxiter": max_iterations}
    try:
        found = minimize(model.training_loss, model.trainable_variables, options=options)
        finite = np.isfinite(found.fun) and np.all(np.isfinite(found.x))
    except tf.errors.InvalidArgumentError:
        finite = False  # A Cholesky factorization failed.
    if not finite:
        raise ValueError(
            "kernel: expected a finite optimum, got a failed factorization, NaN or infinity (its "
            "values are kept). Standardize X and Y, raise noise_variance if rows repeat, or start "
            "the lengthscales from median_lengthscales."
        )
