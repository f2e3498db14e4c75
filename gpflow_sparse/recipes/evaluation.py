"""Scores of a trained model on rows of data."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from scipy import stats

from gpflow_sparse.data import Standardizer, metrics
from gpflow_sparse.inference.calibration import Calibration
from gpflow_sparse.numerics.tracing import compiled
from gpflow_sparse.posteriors.exact import posterior_of
from gpflow_sparse.recipes.observations import blocks, can_sample, quantiles, sample_marginals
from gpflow_sparse.validation import checks

_DEEP_ROWS = 256
# Full chunks from which predictions are compiled: tracing takes the time of about twenty.
_COMPILED = 32
# Calls of at most so many rows, from which on they are compiled for one row: a call takes 40 ms,
# tracing 200 to 600 ms, and a compiled call 1 to 2 ms a row.
_FEW_ROWS, _FEW_CALLS = 8, 5
# Quantiles from which the CRPS is computed: of a transformed output, and of a mixture.
_NUM_LEVELS, _FEWER_LEVELS = 500, 100
# Negative variances, relative to the prior variance, that are rounding.
_ROUNDING = 1e-6


class CachedModel:
    """
    The predictions of a model for observations, from one posterior computed once.

    The posterior of a deep model is a mixture, not one Gaussian per row: it averages densities over
    draws of its hidden layers. These take memory, so it predicts 256 rows at a time.
    """

    def __init__(self, model: gpflow.models.GPModel, posterior: Any = None) -> None:
        """:param posterior: predicts in place of the model's own."""
        self._model = model
        self._posterior = posterior_of(model) if posterior is None else posterior
        self._compiled: dict[str, Callable[[tf.Tensor], Any]] = {}
        self._few_calls = 0

    def takes_single_rows(self, num_rows: int) -> bool:
        """Whether a call of so many rows, which is counted, is to be compiled for one row."""
        if num_rows > _FEW_ROWS or hasattr(self._model, "layers"):
            return False
        self._few_calls += 1
        return self._few_calls >= _FEW_CALLS

    def compiled(self, method: str) -> Callable[[tf.Tensor], Any]:
        """
        A method compiled for rows of one number in all calls, which takes half the time; of a deep
        model the method itself, whose graph would repeat it for every 256 rows.
        """
        if hasattr(self._model, "layers"):
            return getattr(self, method)
        if method not in self._compiled:
            self._compiled[method] = compiled(getattr(self, method))
        return self._compiled[method]

    @property
    def likelihood(self) -> gpflow.likelihoods.Likelihood:
        """The likelihood of the model."""
        return self._model.likelihood

    @property
    def calibration(self) -> Calibration | None:
        """The calibration of the model, which its predictions have."""
        return getattr(self._model, "calibration", None)

    def noise_factors(self, X: tf.Tensor) -> Any:
        """Factors of the variance of Gaussian noise beside the likelihood's; ``[N, 1]`` or one."""
        found, local = self.calibration, getattr(self._posterior, "noise_factors", None)
        factor = 1.0 if found is None else found.noise_beyond_likelihood
        return factor if local is None else factor * local(X).numpy()

    def predict_f(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of f, equal to the model's but for rounding to variances below 0."""
        mean, var = self._posterior.predict_f(X)
        if isinstance(self._model, gpflow.models.SVGP):  # GPflow's own, whose caches lose digits
            largest = tf.reduce_max(self._model.kernel(X, full_cov=False))
            is_rounding = (var < 0.0) & (var > -_ROUNDING * largest)
            var = tf.where(is_rounding, tf.zeros_like(var), var)
        return mean, var

    def predict_y(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of new observations, equal to the model's."""
        likelihood = self._model.likelihood
        if not hasattr(self._posterior, "predict_y"):
            return likelihood.predict_mean_and_var(X, *self.predict_f(X))
        parts = [self._posterior.predict_y(X[rows], likelihood) for rows in self._slices(X)]
        mean, variance = (tf.concat(part, axis=0) for part in zip(*parts, strict=True))
        return mean, variance

    def predict_log_density(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """Log density of each row, equal to the model's."""
        likelihood, num_latent_gps = self._model.likelihood, self._model.num_latent_gps
        X, Y = checks.require_data(data, likelihood=likelihood, num_latent_gps=num_latent_gps)
        checks.require_range(Y, "Y")
        if not hasattr(self._posterior, "predict_log_density"):
            mean, variance = self.predict_f(X)
            return likelihood.predict_log_density(X, mean, variance, Y)
        density = self._posterior.predict_log_density
        return tf.concat(
            [density((X[rows], Y[rows]), likelihood) for rows in self._slices(X)], axis=0
        )

    @property
    def has_quantiles(self) -> bool:
        """Whether the distribution of an observation is known, and is not one Gaussian."""
        shaped = self.calibration is not None and self.calibration.has_shape
        return shaped or hasattr(self._posterior, "predict_quantiles")

    def predict_quantiles(self, X: tf.Tensor, levels: Sequence[float]) -> tf.Tensor:
        """Quantiles of new observations at probabilities ``[L]``, ``[L, N, P]``."""
        if hasattr(self._posterior, "predict_quantiles"):
            return self._posterior.predict_quantiles(X, levels)
        assert self.calibration is not None
        return self.calibration.quantiles(self.predict_y(X), levels)

    def predict_distribution(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """The probability of a new observation at ``X`` below ``Y``, ``[N, P]``."""
        if hasattr(self._posterior, "predict_distribution"):
            return self._posterior.predict_distribution(data)
        assert self.calibration is not None
        return self.calibration.distribution(self.predict_y(data[0]), data[1])

    @property
    def draws_observations(self) -> bool:
        """Whether :meth:`sample_y` is the only way to joint draws of observations."""
        return hasattr(self._posterior, "sample_y")

    def sample_y(self, X: tf.Tensor, num_samples: int) -> tf.Tensor:
        """Joint draws of new observations ``[S, N, P]``."""
        return self._posterior.sample_y(X, num_samples)

    def _slices(self, X: tf.Tensor) -> list[slice]:
        """Rows whose predictions fit into memory together."""
        num_rows = int(X.shape[0])
        most = _DEEP_ROWS if hasattr(self._model, "layers") else num_rows
        return [slice(i, i + most) for i in range(0, num_rows, most)]


def evaluate(
    model: Any,
    standardizer: Standardizer,
    X: np.ndarray,
    Y: np.ndarray,
    num_classes: int | None = None,
    chunk_size: int = 4096,
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """
    Metrics and predictions in original units.

    :param model: trained on standardized data; a model, or the predictor of a recipe.
    :param X: ``[N, D]``, original units.
    :param Y: ``[N, 1]``, original units or integer labels.
    :param num_classes: None for regression.
    :param chunk_size: rows per call of the model; bounds the memory.
    :return: metrics by name (regression: rmse, nlpd, crps, coverage of the central 95 %, and rmse
        and nlpd of standardized outputs; classification: error_rate, nlpd, brier, ece), and the
        predictions that they score (mean, variance and probability integral transform, or
        probabilities). CRPS and the transform are in closed form for Gaussian noise, and otherwise
        from 2,000 draws of every observation; likelihoods without draws are replaced by a Gaussian
        with mean and variance of the observation.
    """
    cached = CachedModel(model) if isinstance(model, gpflow.models.GPModel) else model
    nlpd = float(-np.mean(standardizer.predict_log_density(cached, X, Y, chunk_size)))
    if num_classes is not None:
        P = class_probabilities(standardizer.predict_y(cached, X, chunk_size)[0], num_classes)
        scores = {
            "error_rate": metrics.error_rate(Y, P),
            "nlpd": nlpd,
            "brier": metrics.brier(Y, P),
            "ece": metrics.ece(Y, P),
        }
        return scores, {"probabilities": P}
    moments = moments_in_chunks(cached, "predict_y", standardizer.transform_inputs(X), chunk_size)
    mean, variance = standardizer.inverse_mean_variance(*moments)
    crps, pit = _calibration(cached, standardizer, (X, Y), moments, chunk_size)
    inside, radius = np.abs(pit - 0.5) <= 0.475, _conformal_radius(cached, 0.95)
    if radius is not None:
        errors = standardizer.transform_outputs(Y) - moments[0]
        inside = np.abs(errors) <= radius * np.sqrt(moments[1])
    scores = {
        "rmse": metrics.rmse(Y, mean),
        "nlpd": nlpd,
        "crps": crps,
        "coverage": float(np.mean(inside)),
        "rmse_standardized": metrics.rmse(*map(standardizer.transform_outputs, (Y, mean))),
        "nlpd_standardized": nlpd + float(np.mean(standardizer.log_jacobian(Y))),
    }
    return scores, {"mean": mean, "variance": variance, "pit": pit}


def _calibration(
    model: Any,
    standardizer: Standardizer,
    pairs: tuple[np.ndarray, np.ndarray],
    moments: tuple[np.ndarray, np.ndarray],
    chunk_size: int,
) -> tuple[float, np.ndarray]:
    """
    CRPS in original units, and the probability integral transform of observations [N, P].

    :param moments: mean and variance of standardized observations.
    """
    X, Y = pairs
    rows = standardizer.transform_inputs(X)
    if getattr(model, "has_quantiles", False):
        return _by_quantiles(model, standardizer, (rows, Y))
    by_formula = _is_gaussian(model) or not can_sample(model.likelihood)
    if by_formula:
        pit = metrics.pit(standardizer.transform_outputs(Y), *moments)
        if standardizer.y_transform == "none":
            original = standardizer.inverse_mean_variance(*moments)
            return float(metrics.crps(Y, *original)), pit
        levels = stats.norm.ppf((np.arange(_NUM_LEVELS) + 0.5) / _NUM_LEVELS)
        draw = functools.partial(_quantile_points, levels)
    else:
        moments = moments_in_chunks(model, "predict_f", rows, chunk_size)
        pit = np.empty(Y.shape)
        draw = functools.partial(sample_marginals, model.likelihood)
    scores, weights = [], []
    for part in blocks(len(Y)):
        Z = tf.constant(draw(moments[0][part], moments[1][part]))
        points = standardizer.to_original_units(Z).numpy()  # [S, N, P]
        if not by_formula:
            # half of the ties, which counts have, are below
            below = [np.mean(points < Y[part], axis=0), np.mean(points <= Y[part], axis=0)]
            pit[part] = 0.5 * (below[0] + below[1])
        scores.append(metrics.crps_of_points(Y[part], points))
        weights.append(len(Y[part]))
    return float(np.average(scores, weights=weights)), pit


def _by_quantiles(
    model: Any,
    standardizer: Standardizer,
    pairs: tuple[np.ndarray, np.ndarray],
) -> tuple[float, np.ndarray]:
    """:func:`_calibration` for a predictor of quantiles; the CRPS from 100 of them."""
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
        scores.append(metrics.crps_of_points(Y[part], points.numpy()) * len(Y[part]))
    return float(np.sum(scores) / len(Y)), pit


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
) -> tuple[tuple[np.ndarray, np.ndarray], list[np.ndarray]]:
    """
    Mean and variance of new observations, and :func:`central_interval`, ``[N, P]`` each.

    :param advance: called with the number of rows of each chunk that is done.
    """
    rows = standardizer.transform_inputs(X)
    of_y = moments_in_chunks(model, "predict_y", rows, chunk_size, advance)
    ends = _interval_ends(model, standardizer, rows, of_y, coverage, chunk_size)
    return standardizer.inverse_mean_variance(*of_y), ends


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
