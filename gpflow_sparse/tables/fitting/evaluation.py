"""Scores of a trained model on rows of data."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from scipy import stats

from gpflow_sparse.data import Standardizer, metrics
from gpflow_sparse.tables.fitting.observations import (
    blocks,
    can_sample,
    quantiles,
    sample_marginals,
)
from gpflow_sparse.tables.methods.cached_model import CachedModel

# Full chunks from which predictions are compiled: tracing takes the time of about twenty.
_COMPILED = 32
# Quantiles from which the CRPS is computed: of a transformed output, and of a mixture.
_NUM_LEVELS, _FEWER_LEVELS = 500, 100


def evaluate(
    model: Any,
    standardizer: Standardizer,
    X: np.ndarray,
    Y: np.ndarray,
    num_classes: int | None = None,
    chunk_size: int = 4096,
    row_weights: np.ndarray | None = None,
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """
    Metrics and predictions in original units.

    :param model: trained on standardized data; a model, or the predictor of a recipe.
    :param X: ``[N, D]``, original units.
    :param Y: ``[N, 1]``, original units or integer labels.
    :param num_classes: None for regression.
    :param chunk_size: rows per call of the model; bounds the memory.
    :param row_weights: weights of the rows ``[N]``, 2 counts a row twice; None for 1.
    :return: metrics by name (regression: rmse of the point predictions, nlpd, crps, coverage of the
        95 % intervals that :func:`predict_interval` gives, and rmse and nlpd of standardized
        outputs; classification: error_rate, nlpd, brier, ece), and the predictions that they score:
        probabilities; or point (mean, or median of transformed outputs), variance, probability
        integral transform (pit) and the probability of the smallest central interval that holds the
        observation (central). CRPS, pit and central are in closed form for Gaussian noise, and
        otherwise from 2,000 draws of every observation; likelihoods without draws are replaced by a
        Gaussian with mean and variance of the observation.
    """
    cached = CachedModel(model) if isinstance(model, gpflow.models.GPModel) else model
    density = standardizer.predict_log_density(cached, X, Y, chunk_size)
    nlpd = -float(np.average(density, weights=row_weights))
    if num_classes is not None:
        P = class_probabilities(standardizer.predict_y(cached, X, chunk_size)[0], num_classes)
        scores = {
            "error_rate": metrics.error_rate(Y, P, row_weights),
            "nlpd": nlpd,
            "brier": metrics.brier(Y, P, row_weights),
            "ece": metrics.ece(Y, P, row_weights=row_weights),
        }
        return scores, {"probabilities": P}
    rows = standardizer.transform_inputs(X)
    moments = moments_in_chunks(cached, "predict_y", rows, chunk_size)
    point, _, variance = in_original_units(cached, standardizer, rows, moments, chunk_size)
    crps, pit, central = _calibration(cached, standardizer, (X, Y), moments, chunk_size)
    calibration = getattr(cached, "calibration", None)
    if calibration is not None and calibration.scores is not None:
        errors = standardizer.transform_outputs(Y) - moments[0]
        central = calibration.conformal_levels(np.abs(errors) / np.sqrt(moments[1]))

    def average(values: np.ndarray) -> float:
        return float(np.average(values.reshape(len(Y), -1).mean(axis=1), weights=row_weights))

    standardized = [standardizer.transform_outputs(part) for part in (Y, point)]
    scores = {
        "rmse": metrics.rmse(Y, point, row_weights),
        "nlpd": nlpd,
        "crps": average(crps),
        "coverage": average(central < 0.95),
        "rmse_standardized": metrics.rmse(standardized[0], standardized[1], row_weights),
        "nlpd_standardized": nlpd + average(standardizer.log_jacobian(Y)),
    }
    return scores, {"point": point, "variance": variance, "pit": pit, "central": central}


def _calibration(
    model: Any,
    standardizer: Standardizer,
    pairs: tuple[np.ndarray, np.ndarray],
    moments: tuple[np.ndarray, np.ndarray],
    chunk_size: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """
    CRPS in original units, the probability integral transform, and the probability of the smallest
    central interval that holds the observation, of all observations [N, P].

    :param moments: mean and variance of standardized observations.
    """
    X, Y = pairs
    rows = standardizer.transform_inputs(X)
    if getattr(model, "has_quantiles", False):
        crps, pit = _by_quantiles(model, standardizer, (rows, Y))
        return crps, pit, 2.0 * np.abs(pit - 0.5)
    by_formula = _has_gaussian_quantiles(model)
    if by_formula:
        pit = metrics.pit(standardizer.transform_outputs(Y), *moments)
        central = 2.0 * np.abs(pit - 0.5)
        if standardizer.y_transform == "none":
            original = standardizer.inverse_mean_variance(*moments)
            return metrics.crps_of_entries(Y, *original), pit, central
        levels = stats.norm.ppf((np.arange(_NUM_LEVELS) + 0.5) / _NUM_LEVELS)
        draw = functools.partial(_quantile_points, levels)
    else:
        moments = moments_in_chunks(model, "predict_f", rows, chunk_size)
        pit, central = np.empty(Y.shape), np.empty(Y.shape)
        draw = functools.partial(sample_marginals, model.likelihood)
    scores = []
    for part in blocks(len(Y)):
        Z = tf.constant(draw(moments[0][part], moments[1][part]))
        points = standardizer.to_original_units(Z).numpy()  # [S, N, P]
        if not by_formula:
            # half of the ties, which counts have, are below; intervals hold all or none of them
            below, up_to = np.mean(points < Y[part], axis=0), np.mean(points <= Y[part], axis=0)
            pit[part] = 0.5 * (below + up_to)
            central[part] = np.round(2.0 * np.maximum(below - 0.5, 0.5 - up_to), 9)
        scores.append(metrics.crps_of_points(Y[part], points))
    return np.concatenate(scores), pit, central


def _by_quantiles(
    model: Any,
    standardizer: Standardizer,
    pairs: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """CRPS and transform as :func:`_calibration`, the CRPS from 100 quantiles of a predictor."""
    rows, Y = pairs
    pit = np.empty(Y.shape)
    outputs, scores = standardizer.transform_outputs(Y), []
    levels = (np.arange(_FEWER_LEVELS) + 0.5) / _FEWER_LEVELS
    for part in blocks(len(Y)):
        X = tf.convert_to_tensor(rows[part], gpflow.default_float())
        Z = tf.convert_to_tensor(outputs[part], gpflow.default_float())
        pit[part] = model.predict_distribution((X, Z)).numpy()
        points = standardizer.to_original_units(
            tf.cast(model.predict_quantiles(X, levels), "float64")
        )
        scores.append(metrics.crps_of_points(Y[part], points.numpy()))
    return np.concatenate(scores), pit


class Predicted(NamedTuple):
    """New observations in original units ``[N, P]`` each."""

    point: np.ndarray
    """The mean; of transformed outputs the median, since the mean of the inverse of a logarithm
    grows without bound with the variance, and may lie above nearly all of the distribution."""
    mean: np.ndarray
    variance: np.ndarray


def in_original_units(
    model: Any,
    standardizer: Standardizer,
    rows: np.ndarray,
    moments: tuple[np.ndarray, np.ndarray],
    chunk_size: int = 4096,
) -> Predicted:
    """
    Predictions of observations in original units; of transformed outputs from the quantiles of the
    predictor, or from 2,000 draws. Student's t noise under a logarithm has no finite moments.

    :param rows: standardized inputs ``[N, D]``.
    :param moments: mean and variance of the standardized observations ``[N, P]``.
    """
    if standardizer.y_transform == "none":
        mean, variance = standardizer.inverse_mean_variance(*moments)
        return Predicted(mean, mean, variance)
    if not (getattr(model, "has_quantiles", False) or _has_gaussian_quantiles(model)):
        of_f = moments_in_chunks(model, "predict_f", rows, chunk_size)
        parts = [
            _of_draws(model.likelihood, standardizer, *(part[block] for part in of_f))
            for block in blocks(len(rows))
        ]
    else:
        parts = [
            _of_quantiles(model, standardizer, rows[block], [part[block] for part in moments])
            for block in blocks(len(rows))
        ]
    return Predicted(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _of_quantiles(
    model: Any, standardizer: Standardizer, rows: np.ndarray, moments: list[np.ndarray]
) -> list[np.ndarray]:
    """Medians, means and variances of a predictor with quantiles, or of Gaussians."""
    X = tf.convert_to_tensor(rows, gpflow.default_float())

    def quantiles(levels: np.ndarray) -> tf.Tensor:
        if getattr(model, "has_quantiles", False):
            return model.predict_quantiles(X, levels)
        return tf.constant(_quantile_points(stats.norm.ppf(levels), *moments))

    return [part.numpy() for part in standardizer.to_original_summary(quantiles)]


def _of_draws(
    likelihood: Any, standardizer: Standardizer, mean: np.ndarray, variance: np.ndarray
) -> list[np.ndarray]:
    """Medians, means and variances of 2,000 draws of every observation."""
    Z = tf.constant(sample_marginals(likelihood, mean, variance))
    Y = standardizer.to_original_units(Z).numpy()  # [S, N, P]
    found = [np.median(Y, axis=0), Y.mean(axis=0), Y.var(axis=0)]
    heavy = isinstance(likelihood, gpflow.likelihoods.StudentT)
    if heavy and standardizer.y_transform == "log":
        found[1:] = [np.full_like(part, np.inf) for part in found[1:]]
    return found


def _has_gaussian_quantiles(model: Any) -> bool:
    """Whether observations are Gaussian, or are taken for such since they cannot be drawn."""
    return _is_gaussian(model) or not can_sample(model.likelihood)


def _is_gaussian(model: Any) -> bool:
    """Whether observations have Gaussian noise, as in inference over the weights of a GRIEF."""
    likelihood = getattr(model, "likelihood", None)
    if getattr(model, "has_quantiles", False):
        return False
    return likelihood is None or isinstance(likelihood, gpflow.likelihoods.Gaussian)


def _quantile_points(levels: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Quantiles of Gaussians [S, N, P]."""
    return mean + np.sqrt(variance) * levels[:, None, None]


def moments_in_chunks(
    model: Any,
    method: str,
    rows: np.ndarray,
    chunk_size: int,
    advance: Callable[[int], None] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """
    Means and variances of standardized rows, float64 [N, P].

    :param model: a model, or the predictor of a recipe; of many rows the method is compiled, and
        so is that of few rows when it is called again and again.
    :param method: "predict_f" or "predict_y".
    :param chunk_size: rows in a call of the model.
    :param advance: called with the number of rows of each chunk that is done.
    :raises ValueError: if variances of observations are negative.
    """
    X, parts = tf.convert_to_tensor(rows, gpflow.default_float()), []
    predict = whole = getattr(model, method)
    if isinstance(model, CachedModel):
        chunk_size = 1 if model.takes_single_rows(len(rows)) else chunk_size
        if chunk_size == 1 or len(rows) >= _COMPILED * chunk_size:
            whole = model.compiled(method)
    for start in range(0, len(rows), chunk_size):
        chunk = X[start : start + chunk_size]
        found = (whole if len(chunk) == chunk_size else predict)(chunk)
        parts.append([np.asarray(part) for part in found])
        if advance is not None:
            advance(len(chunk))
    mean, variance = (np.concatenate(part).astype(np.float64) for part in zip(*parts, strict=True))
    if method == "predict_y" and (negative := np.sum(variance < 0.0)):
        raise ValueError(
            f"{negative} of {variance.size} predicted variances are negative, down to "
            f"{variance.min():.3g}: rounding has taken the model's digits. Train it in float64, or "
            "with fewer points."
        )
    return mean, variance


def central_interval(
    model: Any,
    standardizer: Standardizer,
    X: np.ndarray,
    coverage: float = 0.95,
    chunk_size: int = 4096,
) -> list[np.ndarray]:
    """
    Lower and upper ends ``[N, P]`` of central intervals of new observations, original units.

    By quantiles of residuals for a model with conformal calibration, in closed form for Gaussian
    noise, otherwise from 2,000 draws.

    :param model: a :func:`predictor`.
    :param X: ``[N, D]``, original units.
    :param coverage: the probability of an observation to fall into its interval.
    """
    rows = standardizer.transform_inputs(X)
    of_y = None
    if _has_closed_form(model, coverage):
        of_y = moments_in_chunks(model, "predict_y", rows, chunk_size)
    return _interval_ends(model, standardizer, rows, of_y, coverage, chunk_size)


def predict_interval(
    model: Any,
    standardizer: Standardizer,
    X: np.ndarray,
    coverage: float = 0.95,
    chunk_size: int = 4096,
    advance: Callable[[int], None] | None = None,
) -> tuple[Predicted, list[np.ndarray]]:
    """
    New observations in original units, and :func:`central_interval`, ``[N, P]`` each.

    :param advance: called with the number of rows of each chunk that is done.
    """
    rows = standardizer.transform_inputs(X)
    of_y = moments_in_chunks(model, "predict_y", rows, chunk_size, advance)
    ends = _interval_ends(model, standardizer, rows, of_y, coverage, chunk_size)
    return in_original_units(model, standardizer, rows, of_y, chunk_size), ends


def _has_closed_form(model: Any, coverage: float) -> bool:
    """Whether intervals follow from mean and variance of observations."""
    return _conformal_radius(model, coverage) is not None or _is_gaussian(model)


def _interval_ends(
    model: Any,
    standardizer: Standardizer,
    rows: np.ndarray,
    of_y: tuple[np.ndarray, np.ndarray] | None,
    coverage: float,
    chunk_size: int,
) -> list[np.ndarray]:
    """
    :func:`central_interval` of standardized rows.

    :param of_y: mean and variance of observations, which may be None without a closed form.
    """
    levels = 0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage
    if of_y is not None and _has_closed_form(model, coverage):
        (mean, variance), radius = of_y, _conformal_radius(model, coverage)
        if radius is None:
            radius = stats.norm.ppf(levels[1])
        ends = [mean - radius * np.sqrt(variance), mean + radius * np.sqrt(variance)]
    elif getattr(model, "has_quantiles", False):
        ends = _quantiles_in_chunks(model, rows, levels, chunk_size)
    else:
        moments = moments_in_chunks(model, "predict_f", rows, chunk_size)
        ends = quantiles(model.likelihood, *moments, levels)
    return [standardizer.inverse_outputs(end) for end in ends]


def _quantiles_in_chunks(
    model: Any, rows: np.ndarray, levels: Sequence[float], chunk_size: int
) -> list[np.ndarray]:
    """Quantiles of standardized rows at each of the levels, float64 ``[N, P]``."""
    X = tf.convert_to_tensor(rows, gpflow.default_float())
    parts = [
        model.predict_quantiles(X[i : i + chunk_size], levels).numpy()
        for i in range(0, len(rows), chunk_size)
    ]
    return list(np.concatenate(parts, axis=1).astype(np.float64))


def _conformal_radius(model: Any, coverage: float) -> np.ndarray | None:
    """Half widths ``[P]`` of conformal intervals in standard deviations; None without them."""
    found = getattr(model, "calibration", None)
    return None if found is None else found.radius(coverage)


def class_probabilities(mean: np.ndarray, num_classes: int) -> np.ndarray:
    """Predicted means of labels as probabilities ``[N, C]`` that add up to one."""
    P = mean if mean.shape[1] == num_classes else np.concatenate([1.0 - mean, mean], axis=1)
    return P / P.sum(axis=1, keepdims=True)


def held_out_scores(
    model: Any,
    rows: tuple[np.ndarray, np.ndarray],
    num_classes: int | None,
    row_weights: np.ndarray | None = None,
) -> tuple[float, float]:
    """NLPD and error on held-out rows, whose weights may differ."""
    X, Y = (tf.convert_to_tensor(values, gpflow.default_float()) for values in rows)
    parts = [slice(i, i + 4096) for i in range(0, len(X), 4096)]
    mean = np.concatenate([model.predict_y(X[p])[0].numpy() for p in parts])
    density = [model.predict_log_density((X[p], Y[p])).numpy() for p in parts]
    nlpd = -float(np.average(np.concatenate(density), weights=row_weights))
    if num_classes is None:
        return nlpd, float(metrics.rmse(rows[1], mean, row_weights))
    P = class_probabilities(mean, num_classes)
    return nlpd, float(metrics.error_rate(rows[1], P, row_weights))
