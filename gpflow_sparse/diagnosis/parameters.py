"""Diagnostics of lengthscales and noise in relation to the data."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel, MultioutputKernel, Stationary
from gpflow.likelihoods import Gaussian
from scipy.spatial import cKDTree

from gpflow_sparse.models.regression import noise_variance

# An input is irrelevant if its lengthscale is at least so many standard deviations of its column,
# and the mean squared change of f over one of them is below this fraction of the variance of Y.
LONG_LENGTHSCALE, SMALL_EFFECT = 30.0, 0.01
# Fraction of the prior variance of f at a typical row that its nearest neighbor should explain.
LITTLE_EXPLAINED = 0.1
# The noise variance is at its lower bound if it is below this multiple of it.
AT_BOUND = 2.0
# Fraction of the variance of Y above which noise means that the model explains almost nothing.
ALL_NOISE = 0.9

# Rows whose nearest neighbors are searched, and entries (rows times columns) of the search tree.
_QUERIES, _SEARCHED = 200, 2e7


def column_lengthscales(kernel: Any, num_columns: int) -> np.ndarray | None:
    """
    The lengthscale of every input column, infinite for columns that the kernel does not read.

    :return: ``[D]``; None for a kernel that is not stationary, or is a sum or product.
    """
    if not isinstance(kernel, Stationary):
        return None
    scales = np.full(num_columns, np.inf)
    scales[kernel.active_dims] = kernel.lengthscales.numpy()
    return scales


def has_hidden_layers(model: Any) -> bool:
    """Whether it is a deep model of two layers or more."""
    return len(getattr(model, "layers", ())) > 1


def input_kernel(model: Any) -> Any:
    """The kernel of f at the inputs; None for deep models and models without a kernel."""
    return None if has_hidden_layers(model) else getattr(model, "kernel", None)


def constant_noise(likelihood: Any) -> float | None:
    """The constant noise variance of a Gaussian likelihood; None for any other likelihood."""
    try:
        return float(noise_variance(likelihood, tf.float64))
    except ValueError:
        return None


def hyperparameters(model: Any, X: tf.Tensor, Y: tf.Tensor) -> dict[str, Any]:
    """The entry ``hyperparameters`` of :func:`gpflow_sparse.diagnostics`."""
    kernel = input_kernel(model)
    usable = isinstance(kernel, Kernel) and not isinstance(kernel, MultioutputKernel)
    noise = constant_noise(model.likelihood)
    gaussian = isinstance(model.likelihood, Gaussian)
    spread = float(np.mean(np.var(np.asarray(Y, dtype=np.float64), axis=0)))
    distance, explained = _nearest_neighbor(kernel, X) if usable else (None, None)
    lowest = float(model.likelihood.variance_lower_bound) if noise is not None else np.nan
    fraction = None if noise is None or spread == 0.0 else noise / spread
    conditions = {
        "noise at its lower bound": noise is not None and noise < AT_BOUND * lowest,
        "explains almost nothing": fraction is not None and fraction > ALL_NOISE,
        "memorizes": explained is not None and explained < LITTLE_EXPLAINED,
    }
    return {
        "kernel": type(getattr(model, "kernel", None)).__name__,
        "prior_variance": float(np.mean(kernel(X[:1000], full_cov=False))) if usable else None,
        "noise_variance": noise,
        "noise_lower_bound": None if noise is None else lowest,
        "noise_fraction": fraction,
        "nearest_neighbor_distance": distance,
        "nearest_neighbor_explains": explained,
        "columns": _columns(kernel, X, spread if gaussian else 1.0) if usable else None,
        "flags": [name for name, holds in conditions.items() if holds],
    }


def _columns(kernel: Kernel, X: tf.Tensor, spread: float) -> list[dict[str, Any]] | None:
    """One entry per input column; an effect is relative to the variance ``spread``."""
    scales = column_lengthscales(kernel, X.shape[1])
    if scales is None:
        return None
    values = np.asarray(X, dtype=np.float64)
    deviations = np.where(np.ptp(values, axis=0) > 0.0, values.std(axis=0), 0.0)
    moved = _prior_change(kernel, X, deviations)
    columns = []
    for i, (scale, deviation) in enumerate(zip(scales, deviations, strict=True)):
        effect = float(moved[i] / spread) if spread > 0.0 else None
        small = effect is not None and effect < SMALL_EFFECT
        ratio = float(scale / deviation) if deviation > 0.0 and np.isfinite(scale) else None
        flag = "hardly matters" if small and ratio and ratio > LONG_LENGTHSCALE else None
        flag = flag if np.isfinite(scale) else "not read"
        columns.append(
            {
                "column": i,
                "lengthscale": float(scale) if np.isfinite(scale) else None,
                "standard_deviation": float(deviation),
                "ratio": ratio,
                "effect": effect,
                "flag": flag if deviation > 0.0 else "constant",
            }
        )
    return columns


def _prior_change(kernel: Kernel, X: tf.Tensor, deviations: np.ndarray) -> np.ndarray:
    """``E[(f(x + s_d) - f(x))^2] = 2 (k(x, x) - k(x, x + s_d))`` [D], for a stationary kernel."""
    x = np.mean(np.asarray(X, dtype=np.float64), axis=0, keepdims=True)
    moved = (x + np.diag(deviations)).astype(X.dtype.as_numpy_dtype)
    x = x.astype(moved.dtype)
    K = np.asarray(kernel(x, np.concatenate([x, moved])), dtype=np.float64)[0]
    return 2.0 * np.maximum(K[0] - K[1:], 0.0)


def _nearest_neighbor(kernel: Kernel, X: tf.Tensor) -> tuple[float | None, float | None]:
    """
    Median over rows of the distance to the nearest other row, in lengthscales, and of the fraction
    of the prior variance of ``f`` that the value there explains.
    """
    scales = column_lengthscales(kernel, X.shape[1])
    if scales is None or X.shape[0] < 2:
        return None, None
    limit = max(_QUERIES, int(_SEARCHED / X.shape[1]))
    rows = np.random.default_rng(0).permutation(X.shape[0])[:limit]
    values = np.asarray(X)[rows]
    scaled = values / scales
    distance, index = map(np.asarray, cKDTree(scaled).query(scaled[:_QUERIES], k=2))
    # the second found is another row, or the row itself if it is repeated, at the same distance
    pairs = np.stack([values[: len(index)], values[index[:, 1]]], axis=1)  # [n, 2, D]
    K = np.asarray(kernel(tf.constant(pairs, X.dtype)), dtype=np.float64)  # [n, 2, 2]
    explained = K[:, 0, 1] ** 2 / (K[:, 0, 0] * K[:, 1, 1])
    return float(np.median(distance[:, 1])), float(np.median(explained))
