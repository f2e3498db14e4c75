"""Scores of a trained model on rows of data."""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from scipy import stats
from sklearn.metrics import r2_score

from gpflow_sparse.data import Standardizer, metrics
from gpflow_sparse.tables.fitting.observations import blocks, can_sample, sample_outputs
from gpflow_sparse.tables.methods.cached_model import CachedModel

# Full chunks from which predictions are compiled: tracing takes the time of about twenty.
_COMPILED = 32
# Draws of f and y per row where there is no formula.
_NUM_DRAWS = 2000
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
    noise_variance: np.ndarray | None = None,
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """
    Metrics and predictions in original units.

    :param model: the predictor of a recipe, or another one of standardized data.
    :param X: ``[N, D]``, original units.
    :param Y: ``[N, 1]``, original units or integer labels.
    :param num_classes: None for regression.
    :param chunk_size: rows per call of the model; bounds the memory.
    :param row_weights: weights of the rows ``[N]``, 2 counts a row twice; None for 1.
    :param noise_variance: known part of the variance of each observation ``[N]``, in original
        units; None for 0.
    :return: metrics by name (regression: rmse, mae and r2 of the point predictions, nlpd, crps,
        coverage of the 95 % intervals of :meth:`Observations.interval`, and rmse and nlpd of
        standardized outputs; classification: error_rate, nlpd, brier, ece), and the predictions
        that they score: probabilities; or point (mean, or median of transformed outputs), variance,
        probability integral transform (pit) and the probability of the smallest central interval
        that holds the observation (central); also the log density, and the CRPS, of each row. CRPS,
        pit and central are in closed form for Gaussian noise, and otherwise from 2,000 draws of
        every observation; likelihoods without draws are replaced by a Gaussian with mean and
        variance of the observation.
    """
    rows = standardizer.transform_inputs(X)
    found = Observations(model, standardizer, rows, chunk_size, noise_variance)
    if found.has_known_noise:
        density = found.log_density(Y)
    else:
        density = standardizer.predict_log_density(model, X, Y, chunk_size)
    nlpd = -float(np.average(density, weights=row_weights))
    if num_classes is not None:
        P = class_probabilities(standardizer.predict_y(model, X, chunk_size)[0], num_classes)
        scores = {
            "error_rate": metrics.error_rate(Y, P, row_weights),
            "nlpd": nlpd,
            "brier": metrics.brier(Y, P, row_weights),
            "ece": metrics.ece(Y, P, row_weights=row_weights),
        }
        return scores, {"probabilities": P, "density": density}
    crps, pit, central = found.compare(Y)
    point, _, variance = found.original
    calibration = getattr(model, "calibration", None)
    if calibration is not None and calibration.scores is not None:
        errors = standardizer.transform_outputs(Y) - found.moments[0]
        central = calibration.conformal_levels(np.abs(errors) / np.sqrt(found.moments[1]))

    def average(values: np.ndarray) -> float:
        return float(np.average(values.reshape(len(Y), -1).mean(axis=1), weights=row_weights))

    standardized = [standardizer.transform_outputs(part) for part in (Y, point)]
    scores = {
        "rmse": metrics.rmse(Y, point, row_weights),
        "mae": average(np.abs(Y - point)),
        "r2": float(r2_score(Y, point, sample_weight=row_weights)) if len(Y) > 1 else 0.0,
        "nlpd": nlpd,
        "crps": average(crps),
        "coverage": average(central < 0.95),
        "rmse_standardized": metrics.rmse(standardized[0], standardized[1], row_weights),
        "nlpd_standardized": nlpd + average(standardizer.log_jacobian(Y)),
    }
    predictions = {"point": point, "variance": variance, "pit": pit, "central": central}
    return scores, predictions | {"density": density, "crps": crps.reshape(len(Y), -1).mean(axis=1)}


def standard_errors(
    scores: Mapping[str, float],
    Y: np.ndarray,
    predictions: Mapping[str, np.ndarray],
    row_weights: np.ndarray | None = None,
    clusters: np.ndarray | None = None,
) -> dict[str, float]:
    """
    Standard errors of scores over other rows of the same kind; there are none of scores that
    are not means of rows, and of a single row or cluster.

    :param scores: from :func:`evaluate`, as the predictions.
    :param clusters: numbers of groups of rows whose errors may depend on each other [N]; None where
        rows are independent.
    """
    losses = {"nlpd": -predictions["density"]}
    if "probabilities" in predictions:
        P, labels = predictions["probabilities"], Y[:, 0].astype(int)
        losses["error_rate"] = (P.argmax(axis=1) != labels).astype(np.float64)
        losses["brier"] = np.square(P - np.eye(P.shape[1])[labels]).sum(axis=1)
    else:
        squares = np.square(Y - predictions["point"])
        mean = np.average(Y, axis=0, weights=row_weights)
        spread = np.average(np.square(Y - mean), axis=0, weights=row_weights)
        half = max(2.0 * scores["rmse"], np.finfo(float).tiny)  # of the error of the square
        losses |= {"rmse": squares.mean(axis=1) / half, "mae": np.sqrt(squares).mean(axis=1)}
        losses |= {"crps": predictions["crps"], "coverage": (predictions["central"] < 0.95).mean(1)}
        if spread.all():
            losses["r2"] = (squares / spread).mean(axis=1)
    found = {name: _standard_error(loss, row_weights, clusters) for name, loss in losses.items()}
    return {name: found[name] for name in scores if np.isfinite(found.get(name, np.nan))}


def _standard_error(
    losses: np.ndarray, row_weights: np.ndarray | None, clusters: np.ndarray | None
) -> float:
    """The standard error of a mean of losses [N], from its sums over clusters."""
    weights = np.ones(len(losses)) if row_weights is None else row_weights
    parts = weights / weights.sum() * (losses - np.average(losses, weights=weights))
    if clusters is not None:
        parts = np.bincount(np.unique(clusters, return_inverse=True)[1], parts)
    count = len(parts)
    return float(np.sqrt(count / (count - 1) * np.sum(parts**2))) if count > 1 else np.nan


class Predicted(NamedTuple):
    """New observations in original units ``[N, P]`` each."""

    point: np.ndarray
    """The mean; of transformed outputs the median, since the mean of the inverse of a logarithm
    grows without bound with the variance, and may lie above nearly all of the distribution."""
    mean: np.ndarray
    variance: np.ndarray


class Observations:
    """
    New observations at some rows, as a predictor has them; no moments are computed twice.

    :param model: a model, or the predictor of a recipe.
    :param rows: standardized inputs ``[N, D]``.
    :param chunk_size: rows in a call of the model.
    :param noise_variance: known part of the variance of each observation ``[N]``, in original
        units, beside which a mixture counts as the Gaussian of its mean and variance; None for 0.
    """

    def __init__(
        self,
        model: Any,
        standardizer: Standardizer,
        rows: np.ndarray,
        chunk_size: int = 4096,
        noise_variance: np.ndarray | None = None,
    ) -> None:
        self.standardizer, self.rows = standardizer, rows
        self._model, self._chunk_size = model, chunk_size
        likelihood = getattr(model, "likelihood", None)
        self.known: Any = 0.0
        if noise_variance is not None:
            assert standardizer.y_scale is not None  # of Gaussian noise
            self.known = noise_variance[:, None] / standardizer.y_scale.numpy() ** 2
        self.has_known_noise = noise_variance is not None
        self._has_quantiles = getattr(model, "has_quantiles", False) and not self.has_known_noise
        # Gaussian noise, as in inference over the weights of a GRIEF
        self._is_gaussian = not self._has_quantiles and (
            likelihood is None or isinstance(likelihood, gpflow.likelihoods.Gaussian)
        )
        # else observations are drawn, or are taken for Gaussian since they cannot be
        self._is_drawn = not (self._has_quantiles or self._is_gaussian) and can_sample(
            model.likelihood
        )

    @functools.cached_property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of standardized observations ``[N, P]``."""
        mean, variance = self._moments("predict_y")
        return mean, variance + self.known

    def log_density(self, Y: np.ndarray) -> np.ndarray:
        """Log densities ``[N]`` of Gaussian observations ``Y [N, P]``, not transformed."""
        mean, _, variance = self.original
        return stats.norm.logpdf(Y, mean, np.sqrt(variance)).sum(axis=1)  # type: ignore[no-any-return]

    @functools.cached_property
    def _moments_of_f(self) -> tuple[np.ndarray, np.ndarray]:
        return self._moments("predict_f")

    def _moments(self, method: str) -> tuple[np.ndarray, np.ndarray]:
        """
        Means and variances, float64 [N, P]; of many rows the method is compiled, and so is that of
        few rows when it is called again and again.

        :param method: "predict_f" or "predict_y".
        :raises ValueError: if variances of observations are negative.
        """
        X, parts = tf.convert_to_tensor(self.rows, gpflow.default_float()), []
        predict = whole = getattr(self._model, method)
        num_rows, size = len(self.rows), self._chunk_size
        if isinstance(self._model, CachedModel):
            size = 1 if self._model.takes_single_rows(num_rows) else size
            if size == 1 or num_rows >= _COMPILED * size:
                whole = self._model.compiled(method)
        for start in range(0, num_rows, size):
            chunk = X[start : start + size]
            found = (whole if len(chunk) == size else predict)(chunk)
            parts.append([np.asarray(part) for part in found])
        mean, variance = (np.concatenate(p).astype(np.float64) for p in zip(*parts, strict=True))
        if method == "predict_y" and (negative := np.sum(variance < 0.0)):
            raise ValueError(
                f"{negative} of {variance.size} predicted variances are negative, down to "
                f"{variance.min():.3g}: rounding has taken the model's digits. Train it in "
                "float64, or with fewer points."
            )
        return mean, variance

    @functools.cached_property
    def original(self) -> Predicted:
        """
        Predictions in original units; of transformed outputs from the quantiles of the predictor,
        or from 2,000 draws. Student's t noise under a logarithm has no finite moments.
        """
        if self.standardizer.y_transform == "none":
            mean, variance = self.standardizer.inverse_mean_variance(*self.moments)
            return Predicted(mean, mean, variance)
        summary = self._summary_of_draws if self._is_drawn else self._summary_of_quantiles
        parts = [summary(part) for part in blocks(len(self.rows))]
        return Predicted(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    @property
    def function(self) -> tuple[np.ndarray, np.ndarray]:
        """
        Means and standard deviations of f in original units ``[N, P]``. For transformed
        outputs, the value of the mean on the transformed scale, and half of the distance between
        the values a deviation below and above it there: quantiles of f.
        """
        mean, variance = self._moments_of_f
        if self.standardizer.y_mean is not None:  # noise that depends on inputs is a function too
            count = self.standardizer.y_mean.shape[0]
            mean, variance = mean[:, :count], variance[:, :count]
        deviation, original = np.sqrt(np.maximum(variance, 0.0)), self.standardizer.inverse_outputs
        return original(mean), 0.5 * (original(mean + deviation) - original(mean - deviation))

    def interval(self, coverage: float = 0.95) -> list[np.ndarray]:
        """
        Lower and upper ends ``[N, P]`` of central intervals in original units.

        By quantiles of residuals for a model with conformal calibration, in closed form for
        Gaussian noise, otherwise by quantiles of the predictor or from 2,000 draws.

        :param coverage: the probability of an observation to fall into its interval.
        """
        return self.quantiles((0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage))

    def quantiles(self, levels: Any) -> list[np.ndarray]:
        """
        Quantiles ``[N, P]`` in original units for each level, as :meth:`interval` has its ends.

        :param levels: probabilities between 0 and 1.
        """
        calibration = getattr(self._model, "calibration", None)
        coverages = [round(abs(2.0 * level - 1.0), 12) for level in levels]
        radii: list[Any] = [
            None if calibration is None else calibration.radius(each) for each in coverages
        ]
        if self._is_gaussian:
            normal = np.abs(stats.norm.ppf(levels))
            radii = [z if r is None else r for r, z in zip(radii, normal, strict=True)]
        if all(radius is not None for radius in radii):
            mean, variance = self.moments
            signs = np.sign(np.asarray(levels) - 0.5)
            ends = [mean + s * r * np.sqrt(variance) for s, r in zip(signs, radii, strict=True)]
        elif self._has_quantiles:
            size, count = self._chunk_size, len(self.rows)
            chunks = [slice(i, i + size) for i in range(0, count, size)]
            parts = [self._quantiles(chunk, levels).numpy() for chunk in chunks]
            ends = list(np.concatenate(parts, axis=1).astype(np.float64))
        else:
            draws = (self._draws(part) for part in blocks(len(self.rows)))
            parts = [np.quantile(points, levels, axis=0) for points in draws]
            ends = list(np.concatenate(parts, axis=1))
        return [self.standardizer.inverse_outputs(end) for end in ends]

    def compare(self, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """
        CRPS in original units, the probability integral transform, and the probability of the
        smallest central interval that holds the observation, of all observations ``Y [N, P]``.
        """
        if self._is_drawn:
            return self._compare_draws(Y)
        outputs = self.standardizer.transform_outputs(Y)
        if self._has_quantiles:
            pit, count = np.empty(Y.shape), _FEWER_LEVELS
            for part in blocks(len(Y)):
                Z = tf.convert_to_tensor(outputs[part], gpflow.default_float())
                pit[part] = self._model.predict_distribution((self._inputs(part), Z)).numpy()
        else:
            pit, count = metrics.pit(outputs, *self.moments), _NUM_LEVELS
        central = 2.0 * np.abs(pit - 0.5)
        if not self._has_quantiles and self.standardizer.y_transform == "none":
            original = self.standardizer.inverse_mean_variance(*self.moments)
            return metrics.crps_of_entries(Y, *original), pit, central
        levels = (np.arange(count) + 0.5) / count
        scores = []
        for part in blocks(len(Y)):
            points = tf.cast(self._quantiles(part, levels), "float64")
            points = self.standardizer.to_original_units(points).numpy()  # [S, N, P]
            scores.append(metrics.crps_of_points(Y[part], points))
        return np.concatenate(scores), pit, central

    def _compare_draws(self, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As :meth:`compare`, from draws of every observation."""
        pit, central, scores = np.empty(Y.shape), np.empty(Y.shape), []
        for part in blocks(len(Y)):
            points = self._original_draws(part)
            # half of the ties, which counts have, are below; intervals hold all or none of them
            below, up_to = np.mean(points < Y[part], axis=0), np.mean(points <= Y[part], axis=0)
            pit[part] = 0.5 * (below + up_to)
            central[part] = np.round(2.0 * np.maximum(below - 0.5, 0.5 - up_to), 9)
            scores.append(metrics.crps_of_points(Y[part], points))
        return np.concatenate(scores), pit, central

    def _inputs(self, part: slice) -> tf.Tensor:
        return tf.convert_to_tensor(self.rows[part], gpflow.default_float())

    def _quantiles(self, part: slice, levels: Any) -> tf.Tensor:
        """Quantiles of standardized observations ``[L, n, P]``, by default Gaussian ones."""
        if self._has_quantiles:
            return self._model.predict_quantiles(self._inputs(part), levels)
        mean, variance = (moment[part] for moment in self.moments)
        return tf.constant(mean + np.sqrt(variance) * stats.norm.ppf(levels)[:, None, None])

    def _draws(self, part: slice) -> np.ndarray:
        """2,000 draws of every standardized observation ``[S, n, P]``, independent between rows."""
        mean, variance = (moment[part] for moment in self._moments_of_f)
        rng = np.random.RandomState(0)
        F = mean + np.sqrt(variance) * rng.standard_normal((_NUM_DRAWS, *mean.shape))
        return sample_outputs(self._model.likelihood, F, rng)

    def _original_draws(self, part: slice) -> np.ndarray:
        Z = tf.constant(self._draws(part))
        return self.standardizer.to_original_units(Z).numpy()  # type: ignore[no-any-return]

    def _summary_of_quantiles(self, part: slice) -> list[np.ndarray]:
        """Medians, means and variances in original units."""
        summary = self.standardizer.to_original_summary(lambda p: self._quantiles(part, p))
        return [values.numpy() for values in summary]

    def _summary_of_draws(self, part: slice) -> list[np.ndarray]:
        """Medians, means and variances of draws."""
        Y, likelihood = self._original_draws(part), self._model.likelihood
        found = [np.median(Y, axis=0), Y.mean(axis=0), Y.var(axis=0)]
        heavy = isinstance(likelihood, gpflow.likelihoods.StudentT)
        if heavy and self.standardizer.y_transform == "log":
            found[1:] = [np.full_like(part, np.inf) for part in found[1:]]
        return found


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
    return nlpd, error_of(mean, rows[1], num_classes, row_weights)


def error_of(
    mean: np.ndarray, Y: np.ndarray, num_classes: int | None, row_weights: np.ndarray | None
) -> float:
    """Root mean squared error of predicted means, or the fraction of wrong labels."""
    if num_classes is None:
        return float(metrics.rmse(Y, mean, row_weights))
    return float(metrics.error_rate(Y, class_probabilities(mean, num_classes), row_weights))
