"""Scores of predictive means, variances, and class probabilities, in NumPy.

Regression: `Y` are observed outputs [N,P] or [N]; `mean` and `variance`, of exactly the same shape
(a mean [N,1] against outputs [N] would broadcast to an N x N table), are predicted means and
variances of observations, noise included. For several outputs P the negative log density of a point
is the sum over its outputs, which are taken as independent; every other regression score is the
average over all N * P entries.

Classification: `labels` are integers in range(C), [N] or [N,1]; `probabilities` [N,C] are predicted
probabilities of the classes.

Every function raises ValueError for other shapes, no points, NaN or infinity, for variances that
are not positive, and for probabilities that are negative or do not sum to 1.
"""

from typing import NamedTuple

import numpy as np
from scipy import stats

__all__ = [
    "Reliability",
    "brier",
    "coverage",
    "coverage_curve",
    "crps",
    "ece",
    "error_rate",
    "ks_uniform",
    "nlpd",
    "pit",
    "rejection_curve",
    "reliability",
    "rmse",
]

_SUM_TOLERANCE = 1e-3


def rmse(Y: np.ndarray, mean: np.ndarray, row_weights: np.ndarray | None = None) -> float:
    """Root mean squared error.

    :param row_weights: weights of the points [N]; None for 1.
    :return: the error in the units of `Y`; 0 is perfect.
    """
    Y, mean = _checked(Y=Y, mean=mean)
    errors = Y - mean
    # in units of a power of 2, which is exact: squares of 1e-200 and of 1e200 are not numbers
    _, exponent = np.frexp(np.abs(errors).max())
    squares = np.ldexp(errors, -exponent) ** 2
    return float(np.ldexp(np.sqrt(_average(squares, row_weights)), exponent))


def nlpd(
    Y: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    row_weights: np.ndarray | None = None,
) -> float:
    """Mean negative log predictive density under a Gaussian, in nats per point.

    :param row_weights: weights of the points [N]; None for 1.
    :return: the average over points of the sum over outputs; smaller is better.
    """
    Y, mean, variance = _checked(Y=Y, mean=mean, variance=variance)
    each = stats.norm.logpdf(Y, mean, np.sqrt(variance)).reshape(len(Y), -1).sum(axis=1)
    return float(-np.average(each, weights=row_weights))


def crps(
    Y: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    row_weights: np.ndarray | None = None,
) -> float:
    r"""Continuous ranked probability score of a Gaussian, in closed form.

    With :math:`z = (y - \mu) / \sigma` it is
    :math:`\sigma\,(z\,(2\Phi(z) - 1) + 2\phi(z) - 1 / \sqrt\pi)`.

    :param row_weights: as how many equal points each counts [N]; None for 1.
    :return: the average over all entries, in the units of `Y`; smaller is better.
    """
    return _average(crps_of_entries(Y, mean, variance), row_weights)


def crps_of_entries(Y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """The :func:`crps` of each entry, in the shape of `Y`."""
    Y, mean, variance = _checked(Y=Y, mean=mean, variance=variance)
    std = np.sqrt(variance)
    z = (Y - mean) / std
    score = z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi)
    return np.asarray(std * score)


def crps_of_points(Y: np.ndarray, points: np.ndarray) -> np.ndarray:
    r"""Continuous ranked probability score of equally probable points, such as draws.

    With two independent points :math:`x, x'` it is
    :math:`\mathrm{E}|x - y| - \tfrac12 \mathrm{E}|x - x'|`.

    :param points: S points for each output [S,N,P].
    :return: the score of each entry [N,P], in the units of `Y`; smaller is better.
    """
    points, count = np.sort(points, axis=0), len(points)
    weights = (2.0 * np.arange(count) - count + 1.0) / count**2
    spread = np.tensordot(weights, points, axes=1)  # [N, P]
    return np.asarray(np.abs(points - Y).mean(axis=0) - spread)


def coverage(
    Y: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    level: float = 0.95,
    row_weights: np.ndarray | None = None,
) -> float:
    """Fraction of outputs inside the central Gaussian prediction interval.

    :param level: the probability of the interval, in (0, 1).
    :param row_weights: as how many equal points each counts [N]; None for 1.
    :return: a fraction in [0, 1]; a calibrated model comes close to `level`.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), got {level!r}; 95 % is 0.95")
    Y, mean, variance = _checked(Y=Y, mean=mean, variance=variance)
    half_width = stats.norm.ppf(0.5 + 0.5 * level) * np.sqrt(variance)
    return _average(np.abs(Y - mean) <= half_width, row_weights)


def coverage_curve(
    Y: np.ndarray, mean: np.ndarray, variance: np.ndarray, levels: np.ndarray
) -> np.ndarray:
    """The :func:`coverage` of several central intervals.

    :param levels: probabilities of the intervals [L], each in (0, 1).
    :return: fractions [L], close to `levels` for a calibrated model.
    """
    return np.array([coverage(Y, mean, variance, float(level)) for level in levels])


def pit(Y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    r"""Probability integral transform: the predictive distribution function at the observations.

    With :math:`z = (y - \mu) / \sigma` it is :math:`\Phi(z)`. If the predictions are right, these
    values are uniform on [0, 1]: mean 1/2, variance 1/12. Too many near 0 and 1 mean intervals that
    are too narrow, too many near 1/2 intervals that are too wide, a slope means a bias.

    :return: values in [0, 1], the shape of `Y`.
    """
    Y, mean, variance = _checked(Y=Y, mean=mean, variance=variance)
    return np.asarray(stats.norm.cdf((Y - mean) / np.sqrt(variance)))


def ks_uniform(values: np.ndarray) -> float:
    """Kolmogorov-Smirnov distance of a sample from the uniform distribution on [0, 1].

    :param values: values in [0, 1], any shape, such as results of :func:`pit`.
    :return: the largest distance between the two distribution functions, in [0, 1]. For n
        uniform numbers it exceeds 1.36 / sqrt(n) one time in twenty.
    :raises ValueError: for no values, or values outside [0, 1].
    """
    values = np.asarray(values, dtype=np.float64).reshape(-1)
    if values.size == 0 or not ((values >= 0) & (values <= 1)).all():
        raise ValueError("values must be at least one number, each in [0, 1]")
    return float(stats.kstest(values, "uniform").statistic)


def error_rate(
    labels: np.ndarray, probabilities: np.ndarray, row_weights: np.ndarray | None = None
) -> float:
    """Fraction of points whose most probable class is not their label.

    :param row_weights: weights of the points [N]; None for 1.
    :return: a fraction in [0, 1]; of equal probabilities the first counts.
    """
    labels, probabilities = _classes(labels, probabilities)
    return float(np.average(probabilities.argmax(axis=1) != labels, weights=row_weights))


def brier(
    labels: np.ndarray, probabilities: np.ndarray, row_weights: np.ndarray | None = None
) -> float:
    """Multi-class Brier score: squared error of the probabilities, summed over classes.

    For two classes this is twice the score of one class alone.

    :param row_weights: as how many equal points each counts [N]; None for 1.
    :return: the average over points, in [0, 2]; smaller is better.
    """
    labels, probabilities = _classes(labels, probabilities)
    one_hot = np.eye(probabilities.shape[1])[labels]
    return _average(np.sum((probabilities - one_hot) ** 2, axis=1), row_weights)


def ece(
    labels: np.ndarray,
    probabilities: np.ndarray,
    num_bins: int = 15,
    row_weights: np.ndarray | None = None,
) -> float:
    """Expected calibration error of the top class.

    :param num_bins: the number of equal-width bins (lower, upper] of the top probability.
    :param row_weights: as how many equal points each counts [N]; None for 1.
    :return: the average over bins, weighted by their points, of the distance between accuracy and
        mean top probability, in [0, 1].
    """
    bins = reliability(labels, probabilities, num_bins, row_weights)
    filled = bins.num_points > 0
    gap = np.abs(bins.accuracy[filled] - bins.confidence[filled])
    return float(np.average(gap, weights=bins.num_points[filled]))


def rejection_curve(
    labels: np.ndarray, probabilities: np.ndarray, fractions: np.ndarray
) -> np.ndarray:
    """Accuracy of the points that are kept when the least certain ones are rejected.

    The ceil(f N) of N points with the largest top probabilities are kept; where points with equal
    ones are kept in part, the expected accuracy of a random choice counts.

    :param fractions: fractions f to keep [F], each in (0, 1].
    :return: accuracies [F], in [0, 1]; the last is 1 - error rate if f is 1.
    """
    fractions = np.asarray(fractions, dtype=np.float64)
    if fractions.ndim != 1 or not ((fractions > 0) & (fractions <= 1)).all():
        raise ValueError(f"fractions must be a vector of numbers in (0, 1], got {fractions!r}")
    labels, probabilities = _classes(labels, probabilities)
    correct = probabilities.argmax(axis=1) == labels
    _, group, size = np.unique(-probabilities.max(axis=1), return_inverse=True, return_counts=True)
    share = np.bincount(group, weights=correct) / size  # from the most certain to the least
    sums = np.concatenate([[0.0], np.cumsum(np.repeat(share, size))])
    # a product such as 0.7 * 10 is rounded up before its ceiling is taken
    kept = np.ceil(np.round(fractions * len(labels), 9)).astype(int)
    return np.asarray(sums[kept] / kept)


class Reliability(NamedTuple):
    """Accuracy of the top class by its predicted probability; see :func:`reliability`."""

    num_points: np.ndarray
    """Points per bin [B], integers; or sums of their weights."""
    confidence: np.ndarray
    """Mean top probability per bin [B]; NaN in a bin without points."""
    accuracy: np.ndarray
    """Fraction of rows per bin [B] whose top class is their label; NaN for empty bins."""


def reliability(
    labels: np.ndarray,
    probabilities: np.ndarray,
    num_bins: int = 15,
    row_weights: np.ndarray | None = None,
) -> Reliability:
    """Accuracy against confidence, in equal-width bins (lower, upper] of the top probability.

    :param num_bins: the number of bins B.
    :param row_weights: as how many equal points each counts [N]; None for 1.
    :return: counts, mean confidences and accuracies; in a calibrated model the last two agree.
    """
    if num_bins < 1 or int(num_bins) != num_bins:
        raise ValueError(f"num_bins must be an integer of at least 1, got {num_bins!r}")
    labels, probabilities = _classes(labels, probabilities)
    confidence = probabilities.max(axis=1)
    correct = probabilities.argmax(axis=1) == labels
    inner_edges = np.linspace(0, 1, int(num_bins) + 1)[1:-1]
    bins = np.digitize(confidence, inner_edges, right=True)
    count = np.bincount(bins, row_weights, minlength=int(num_bins))
    points = np.where(count > 0, count, np.nan)
    weights = 1.0 if row_weights is None else row_weights
    sums = [np.bincount(bins, weights * v, int(num_bins)) for v in (confidence, correct)]
    return Reliability(count, sums[0] / points, sums[1] / points)


def _average(values: np.ndarray, row_weights: np.ndarray | None) -> float:
    """The mean of all entries [N,P] or [N], where rows have these weights [N] or equal ones."""
    return float(np.average(values.reshape(len(values), -1).mean(axis=1), weights=row_weights))


def _checked(**arrays: np.ndarray) -> list[np.ndarray]:
    """The arrays as float64: one shape [N,P] or [N], finite, not empty; variances positive."""
    checked = {name: np.asarray(value, dtype=np.float64) for name, value in arrays.items()}
    shape = checked["Y"].shape
    if len(shape) not in (1, 2) or 0 in shape:
        raise ValueError(f"Y must have shape [N,P] or [N] with N at least 1, got {shape}")
    for name, value in checked.items():
        if value.shape != shape:
            raise ValueError(
                f"{name} must have the shape of Y, {shape}, got {value.shape}; "
                "reshape one of them, nothing is broadcast"
            )
        _check_finite(name, value)
        if name == "variance" and value.min() <= 0:
            raise ValueError(
                f"variance must be positive, its smallest value is {value.min():g}; "
                "pass the variance of the observations, noise included"
            )
    return list(checked.values())


def _classes(labels: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Integer labels [N] and float64 probabilities [N,C], both checked."""
    probabilities = np.asarray(probabilities, dtype=np.float64)
    if probabilities.ndim != 2 or probabilities.shape[1] < 2 or len(probabilities) == 0:
        raise ValueError(
            "probabilities must have shape [N,C] with N at least 1 and C at least 2, got "
            f"{probabilities.shape}; for a binary model stack 1 - p and p as two columns"
        )
    _check_finite("probabilities", probabilities)
    num_points, num_classes = probabilities.shape
    row_error = np.max(np.abs(probabilities.sum(axis=1) - 1))
    if probabilities.min() < 0 or row_error > _SUM_TOLERANCE:
        raise ValueError(
            "probabilities must be non-negative with rows that sum to 1, got a smallest value "
            f"of {probabilities.min():g} and a row that is {row_error:g} off; normalize the rows"
        )
    raw = np.asarray(labels, dtype=np.float64)
    if raw.shape not in ((num_points,), (num_points, 1)):
        raise ValueError(
            f"labels must have shape [N] or [N,1] with N = {num_points}, got {raw.shape}"
        )
    _check_finite("labels", raw)
    raw = raw.reshape(-1)
    valid = (raw == np.floor(raw)) & (raw >= 0) & (raw < num_classes)
    if not valid.all():
        raise ValueError(
            f"labels must be integers from 0 to {num_classes - 1}, got {raw[~valid][0]:g}; "
            "number the classes from 0"
        )
    return raw.astype(np.int64), probabilities


def _check_finite(name: str, value: np.ndarray) -> None:
    bad = ~np.isfinite(value)
    if bad.any():
        first = np.argwhere(bad)[0].tolist()
        raise ValueError(
            f"{name} must be finite, got {bad.sum()} NaN or infinite entries, the first at index "
            f"{first}"
        )
