"""The transform of the outputs of a regression, chosen by the density of held-out rows."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
from scipy import stats

from gpflow_sparse import initialization
from gpflow_sparse.data.standardize import TRANSFORMS, Standardizer
from gpflow_sparse.tables.fitting.calibration import num_held_out
from gpflow_sparse.tables.methods.rows import shuffled

AUTO_TRANSFORM = "auto"
# Rows to which hyperparameters are fitted, rows on which predictions are conditioned, and held-out
# rows; with fewer rows in all there is no choice.
_FITTED, _GIVEN, _HELD_OUT, _MIN_ROWS = 500, 1000, 1000, 1000
# Least skewness of outputs for which transforms are tried.
_MIN_SKEWNESS = 1.0
# Least gain of a row, in nats, and in standard errors.
_MIN_GAIN, _MIN_ERRORS = 0.01, 2.0


def resolve(
    transform: str,
    X: np.ndarray,
    Y: np.ndarray,
    seed: int = 0,
    report: Callable[[str], Any] = lambda line: None,
) -> str:
    """
    The transform itself, or for "auto" the best one of outputs in original units.

    Exact GPs on 1,000 random rows predict others, at most 1,000; none of them is a row that a model
    may be calibrated on. Another transform than none is taken if it raises the mean log density of
    these by more than 0.01 nats and two standard errors. Logarithms are tried for positive outputs.
    The answer is none without a trial for outputs whose skewness is below 1 in size (of eight such
    sets of the benchmarks one, kin40k, would have had a gain, of 0.03), and with at most 1,000
    rows, for which a mixture averages over transforms.

    :param X: inputs ``[N, D]``.
    :param Y: outputs ``[N, P]``.
    :param seed: of the recipe, whose order of the rows this is.
    """
    if transform != AUTO_TRANSFORM:
        return transform
    if len(X) <= _MIN_ROWS or np.abs(stats.skew(Y, axis=0)).max() < _MIN_SKEWNESS:
        return "none"
    order = shuffled(len(X), seed)[num_held_out(len(X)) :][: _GIVEN + _HELD_OUT]
    held_out = order[: min(_HELD_OUT, len(order) // 3)]
    given = order[len(held_out) :][:_GIVEN]
    names = [name for name in TRANSFORMS if name != "log" or np.all(Y > 0.0)]
    densities = {name: _densities(name, X, Y, given, held_out, seed) for name in names}
    best, gain = "none", 0.0
    for name, found in densities.items():
        gains = found - densities["none"]
        error = float(gains.std()) / len(gains) ** 0.5
        mean = float(gains.mean())
        if mean > max(_MIN_GAIN, _MIN_ERRORS * error, gain):
            best, gain = name, mean
    if best != "none":
        report(f"transform {best}: the log density of a held-out row is higher by {gain:.3f}.")
    return best


def _densities(
    transform: str,
    X: np.ndarray,
    Y: np.ndarray,
    given: np.ndarray,
    held_out: np.ndarray,
    seed: int,
) -> np.ndarray:
    """Log densities of held-out rows ``[n]`` in original units; minus infinity on failure."""
    scaler = Standardizer.fit(X[given], Y[given], transform=transform)
    A, B = scaler.transform(X[given], Y[given])
    kernel = gpflow.kernels.Matern32(lengthscales=initialization.median_lengthscales(A, seed=seed))
    try:
        noise = initialization.subset_hyperparameters(A, B, kernel, num_rows=_FITTED, seed=seed)
    except ValueError:
        return np.full(len(held_out), -np.inf if transform != "none" else 0.0)
    model = gpflow.models.GPR((A, B), kernel, noise_variance=noise)
    rows = scaler.transform(X[held_out], Y[held_out])
    return model.predict_log_density(rows).numpy() + scaler.log_jacobian(Y[held_out])
