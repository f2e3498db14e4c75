"""Products of one-dimensional kernels, as GRIEF needs them."""

from typing import Any

import gpflow
from gpflow.kernels import Kernel, Product

from gpflow_sparse.validation import checks


def product_of(kind: type[Kernel], lengthscales: Any, variance: float = 1.0) -> Kernel:
    """
    One kernel per input column, multiplied: ``variance prod_i k_i(x_i, z_i)``.

    For Matern kernels this differs from GPflow's kernel, a function of one distance over all
    columns; for SquaredExponential it is the same.

    :param kind: a stationary GPflow kernel, such as ``gpflow.kernels.Matern32``.
    :param lengthscales: one per column, ``[D]``.
    :param variance: variance of the product; the factors have variance 1, fixed.
    :raises ValueError: for a class without variance and lengthscales, or bad lengthscales.
    """
    if not (isinstance(kind, type) and issubclass(kind, gpflow.kernels.IsotropicStationary)):
        raise ValueError(
            "kind must be a class of stationary kernels, such as gpflow.kernels.Matern32; got "
            f"{kind!r}."
        )
    given, wanted = checks.as_tensor(lengthscales, "lengthscales"), "positive, one per column"
    shapes = [tuple(given.shape)] if given.shape.rank == 1 and given.shape[0] else []
    scales = checks.require_positive(given, "lengthscales", wanted, shapes)
    level = checks.require_positive(variance, "variance")
    parts = [kind(lengthscales=scale, active_dims=[i]) for i, scale in enumerate(scales)]
    for part in parts[1:]:
        gpflow.set_trainable(part.variance, False)
    parts[0].variance.assign(level)
    return parts[0] if len(parts) == 1 else Product(parts)
