"""Kernels with prior distributions of their hyperparameters, for standardized tables."""

import functools
import math
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.kernels import IsotropicStationary, Kernel

from gpflow_sparse.inference.priors import ExchangeableNormal
from gpflow_sparse.kernels.main_effects import MainEffects
from gpflow_sparse.validation import checks

# Medians and deviations of the logarithms of the variances a, b and c, for outputs of unit variance
# and for the latent functions of classes; of the noise variance.
_OUTPUTS = ((1.0, 1.0), (0.3, 1.5), (0.3, 1.5))
_CLASSES = ((4.0, 1.5), (1.0, 1.5), (1.0, 1.5))
_NOISE = (0.1, 1.5)
# Deviations of the logarithms of lengthscales: of their common level, and of each from it.
_LEVEL, _COLUMN = 1.0, 0.7


def table_kernel(
    profile: type[IsotropicStationary],
    input_dim: int,
    *,
    ard: bool = True,
    for_classes: bool = False,
) -> Kernel:
    """
    A kernel with priors for a table of standardized columns,

        k(x, z) = a kappa(x / l, z / l) + b / D  sum_d kappa(x_d, z_d) + c / D  x^T z,

    an interaction of all columns, one smooth effect of each column, and a linear trend. With
    ``m ~ N(0, 1)`` and ``t_d ~ N(0, 0.7^2)`` the priors are

        log l_d = log(1.5 sqrt(D)) + m + t_d    (one lengthscale of all columns: without t_d)
        log a ~ N(0, 1),  log b, log c ~ N(log 0.3, 1.5^2)    for outputs of unit variance
        log a ~ N(log 4, 1.5^2),  log b, log c ~ N(0, 1.5^2)    for latent functions of classes

    Common level and independent deviations let single columns have long lengthscales at a small
    cost in prior density. All parameters start at the medians of their priors. Transforms are
    exponential, so that the unconstrained variables are logarithms. The constants were chosen on
    seven small regression tables, and confirmed on thirteen others.

    :param profile: ``kappa``, a class such as ``gpflow.kernels.Matern32``.
    :param input_dim: D, number of input columns.
    :param ard: one lengthscale for each column, or one of all.
    :raises ValueError: for a class that is not a stationary kernel, and D below 1.
    """
    if not (isinstance(profile, type) and issubclass(profile, IsotropicStationary)):
        raise ValueError(
            "profile must be a class of stationary kernels, such as gpflow.kernels.Matern32; got "
            f"{profile!r}."
        )
    D = checks.require_count(input_dim, "input_dim")
    if tf.distribute.has_strategy() or not tf.executing_eagerly():  # variables belong to the scope
        return _new_kernel(profile, D, ard, for_classes)
    template = _template(profile, D, ard, for_classes, gpflow.config.config())
    return gpflow.utilities.deepcopy(template)


@functools.lru_cache(maxsize=32)
def _template(*arguments: Any) -> Kernel:
    """
    The kernel of these arguments, to be copied: to build one takes 32 ms, to copy it 4 ms.

    :param arguments: of :func:`_new_kernel`, and the configuration of GPflow.
    """
    *own, _ = arguments
    return _new_kernel(*own)


def _new_kernel(profile: type[IsotropicStationary], D: int, ard: bool, for_classes: bool) -> Kernel:
    of_a, of_b, of_c = _CLASSES if for_classes else _OUTPUTS
    interaction = profile()
    interaction.variance = log_normal(*of_a)
    interaction.lengthscales = _lengthscales(D if ard else None, 1.5 * math.sqrt(D))
    effect = profile()
    effect.variance = log_normal(*of_b)
    gpflow.set_trainable(effect.lengthscales, False)
    trend = gpflow.kernels.Linear()
    trend.variance = log_normal(of_c[0] / D, of_c[1])
    return gpflow.kernels.Sum([interaction, MainEffects(effect), trend])


def noise_parameter() -> gpflow.Parameter:
    """The noise variance of standardized outputs, with the prior ``log ~ N(log 0.1, 1.5^2)``."""
    return log_normal(*_NOISE)


def log_normal(median: float, deviation: float) -> gpflow.Parameter:
    """A positive parameter at the median of its prior, which is normal in the logarithm."""
    dtype = gpflow.default_float()
    start: np.ndarray = np.asarray(median, dtype)
    prior = tfp.distributions.Normal(np.log(start), np.asarray(deviation, dtype))
    return _in_logarithms(start, prior)


def _lengthscales(num_columns: int | None, median: float) -> gpflow.Parameter:
    """
    :param num_columns: None for one lengthscale of all columns.
    """
    if num_columns is None:
        return log_normal(median, _LEVEL)
    if num_columns == 1:
        return _as_vector(median)
    dtype = gpflow.default_float()
    start: np.ndarray = np.full(num_columns, median, dtype)
    return _in_logarithms(start, ExchangeableNormal(np.log(start), _LEVEL, _COLUMN))


def _as_vector(median: float) -> gpflow.Parameter:
    """The lengthscale of the only column, with the prior of a common lengthscale."""
    start: np.ndarray = np.full(1, median, gpflow.default_float())
    deviation = np.full(1, _LEVEL, start.dtype)
    return _in_logarithms(start, tfp.distributions.Normal(np.log(start), deviation))


def _in_logarithms(start: np.ndarray, prior: tfp.distributions.Distribution) -> gpflow.Parameter:
    return gpflow.Parameter(
        start,
        transform=tfp.bijectors.Exp(),
        prior=prior,
        prior_on=gpflow.base.PriorOn.UNCONSTRAINED,
    )
