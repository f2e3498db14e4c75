"""The transform of the outputs of a regression, and advice on it and on the likelihood."""

import warnings
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
from scipy import stats

from gpflow_sparse import initialization
from gpflow_sparse.data.standardize import TRANSFORMS, Standardizer
from gpflow_sparse.tables.fitting.calibration import num_held_out
from gpflow_sparse.tables.fitting.splits import INDEPENDENT, Groups, held_out_rows

AUTO_TRANSFORM = "auto"
# Rows to which hyperparameters are fitted, rows on which predictions are conditioned, and held-out
# rows; with fewer rows in all there is no choice.
_FITTED, _GIVEN, _HELD_OUT, _MIN_ROWS = 500, 1000, 1000, 1000
# The same for outputs between 0 and 1, whose transform no method averages over.
_MIN_BOUNDED = 60
# Least skewness of outputs for which transforms are tried.
_MIN_SKEWNESS = 1.0
# Least gain of a row, in nats, and in standard errors.
_MIN_GAIN, _MIN_ERRORS = 0.01, 2.0

# A number is an outlier at this many median absolute deviations from the median; noise of a
# Gaussian reaches 10 of them once in 10^11 draws.
_OUTLIER = 30.0
_FEW_VALUES = 10
_SKEWED = 2.0  # skewness of an exponential distribution


def resolve(
    transform: str,
    X: np.ndarray,
    Y: np.ndarray,
    seed: int = 0,
    groups: Groups = INDEPENDENT,
    report: Callable[[str], Any] = lambda line: None,
) -> str:
    """
    The transform itself, or for "auto" the best one of outputs in original units.

    Exact GPs on 1,000 random rows predict others, at most 1,000; none of them is a row that a model
    may be calibrated on. Another transform than none is taken if it raises the mean log density of
    these by more than 0.01 nats and two standard errors. Logarithms are tried for positive outputs,
    and a logit for outputs between 0 and 1, of 60 rows or more and of any skewness.
    The answer is none without a trial for outputs whose skewness is below 1 in size (of eight such
    sets of the benchmarks one, kin40k, would have had a gain, of 0.03), and with at most 1,000
    rows, for which a mixture averages over transforms.

    :param X: inputs ``[N, D]``.
    :param Y: outputs ``[N, P]``.
    :param seed: of the recipe, whose order of the rows this is.
    :param groups: of the rows.
    """
    if transform != AUTO_TRANSFORM:
        return transform
    is_bounded = bool(np.all((Y > 0.0) & (Y < 1.0)))
    names = [name for name in TRANSFORMS if name != "log" or np.all(Y > 0.0)]
    if len(X) <= _MIN_ROWS or np.abs(stats.skew(Y, axis=0)).max() < _MIN_SKEWNESS:
        if not is_bounded or len(X) < _MIN_BOUNDED:
            return "none"
        names = ["none", "logit"]
    if not is_bounded:
        names.remove("logit")
    of_row, count = groups.of_row, num_held_out(len(X))
    _, order = held_out_rows(len(X), count, seed, of_row, in_time=groups.in_time)
    order = order[: _GIVEN + _HELD_OUT]
    held_out = order[: min(_HELD_OUT, len(order) // 3)]
    given = order[len(held_out) :][:_GIVEN]
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
    transform: str, X: np.ndarray, Y: np.ndarray, given: np.ndarray, held_out: np.ndarray, seed: int
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


def advice_on(
    name: str, values: np.ndarray, num_classes: int | None, task: str | None
) -> tuple[str, ...]:
    """
    Sentences on options that suit the values of a target better than the defaults.

    :param values: numbers [N].
    :param num_classes: None for regression.
    :param task: "regression", "classification", or None.
    """
    if num_classes is not None:
        return ()
    distinct = np.unique(values)
    whole = np.array_equal(distinct, np.round(distinct))
    if task is None and whole and len(distinct) <= _FEW_VALUES:
        return (f"{name!r} has {len(distinct)} integers: if they are labels, take classification.",)
    if transform := _transform_of(values):
        return (
            f"{name!r} is skewed, from {distinct[0]:g} to {distinct[-1]:g} with a median of "
            f"{np.median(values):g}: the transform {transform} makes it more like a Gaussian.",
        )
    return (found,) if (found := outliers_of(name, values)) else ()


def _transform_of(values: np.ndarray) -> str:
    """The transform that makes skewed values more like a Gaussian; empty if there is none."""
    if stats.skew(values) <= _SKEWED:
        return ""
    is_positive = values.min() > 0.0
    after = stats.skew(np.log(values) if is_positive else np.arcsinh(values))
    if abs(after) >= _SKEWED:
        return ""
    return "log" if is_positive else "yeo-johnson"


def outliers_of(name: str, values: np.ndarray) -> str:
    """
    A sentence on outliers of a target, with what to do; empty if there are none.

    :param values: numbers [N]; skewed ones have outliers only if no transform makes them symmetric.
    """
    center = np.median(values)
    spread = np.median(np.abs(values - center))
    far = np.abs(values - center) > _OUTLIER * spread
    if spread == 0.0 or not far.any() or _transform_of(values):
        return ""
    worst, count = values[np.argmax(np.abs(values - center))], int(far.sum())
    found = "1 value" if count == 1 else f"{count} values"
    return (
        f"{found} of {name!r} {'is an outlier' if count == 1 else 'are outliers'}, the "
        f"farthest {worst:g} beside a median of {center:g}: the likelihood student_t gives "
        "them less weight."
    )


def warn_of_outliers(Y: np.ndarray) -> None:
    """A warning, for the caller of an estimator's ``fit``, for each column [N, P] with outliers."""
    for column, values in enumerate(Y.T):
        if found := outliers_of("y" if Y.shape[1] == 1 else f"y[:, {column}]", values):
            warnings.warn(found, stacklevel=6)
