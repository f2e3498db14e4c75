"""Advice on the likelihood and the transform for the values of a target."""

import warnings

import numpy as np
from scipy import stats

# A number is an outlier at this many median absolute deviations from the median; noise of a
# Gaussian reaches 10 of them once in 10^11 draws.
_OUTLIER = 30.0
_FEW_VALUES = 10
_SKEWED = 2.0  # skewness of an exponential distribution


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
