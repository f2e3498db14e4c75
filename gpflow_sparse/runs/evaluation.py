"""Scores of a trained model on rows of data."""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.data import Standardizer, metrics
from gpflow_sparse.runs.observations import quantiles
from gpflow_sparse.validation import checks

_DEEP_ROWS = 256


class CachedModel:
    """
    The predictions of a model for observations, from one posterior computed once.

    The posterior of a deep model is a mixture, not one Gaussian per row: it averages densities over
    draws of its hidden layers. These take memory, so it predicts 256 rows at a time.
    """

    def __init__(self, model: gpflow.models.GPModel, posterior: Any = None) -> None:
        """:param posterior: predicts in place of the model's own."""
        self._model = model
        self._posterior = model.posterior() if posterior is None else posterior

    @property
    def likelihood(self) -> gpflow.likelihoods.Likelihood:
        """The likelihood of the model."""
        return self._model.likelihood

    def predict_f(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of f, equal to those of the model."""
        return self._posterior.predict_f(X)

    def predict_y(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of new observations, equal to those of the model."""
        likelihood = self._model.likelihood
        if not hasattr(self._posterior, "predict_y"):
            return likelihood.predict_mean_and_var(X, *self._posterior.predict_f(X))
        parts = [self._posterior.predict_y(X[rows], likelihood) for rows in self._slices(X)]
        mean, variance = (tf.concat(part, axis=0) for part in zip(*parts, strict=True))
        return mean, variance

    def predict_log_density(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """Log density of each row, equal to that of the model."""
        likelihood, num_latent_gps = self._model.likelihood, self._model.num_latent_gps
        X, Y = checks.require_data(data, likelihood=likelihood, num_latent_gps=num_latent_gps)
        checks.require_range(Y, "Y")
        if not hasattr(self._posterior, "predict_log_density"):
            mean, variance = self._posterior.predict_f(X)
            return likelihood.predict_log_density(X, mean, variance, Y)
        density = self._posterior.predict_log_density
        return tf.concat(
            [density((X[rows], Y[rows]), likelihood) for rows in self._slices(X)], axis=0
        )

    def _slices(self, X: tf.Tensor) -> list[slice]:
        """Rows whose predictions fit into memory together."""
        most = _DEEP_ROWS if hasattr(self._model, "layers") else len(X)
        return [slice(i, i + most) for i in range(0, len(X), most)]


def predictor(model: gpflow.models.GPModel, inference: str = "type2") -> Any:
    """
    An object that predicts for a model.

    :param inference: "type1" integrates over weights and noise of a GRIEF model, by quadrature.
    """
    if inference == "type2":
        return CachedModel(model)
    return model.sample_posterior(method="quadrature")


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

    :param model: trained on standardized data; a model, or a :func:`predictor`.
    :param X: ``[N, D]``, original units.
    :param Y: ``[N, 1]``, original units or integer labels.
    :param num_classes: None for regression.
    :param chunk_size: rows per call of the model; bounds the memory.
    :return: metrics by name (regression: rmse, nlpd, crps, coverage of the central 95 %, and rmse
        and nlpd of standardized outputs; classification: error_rate, nlpd, brier, ece), and the
        predictions that they score (mean and variance, or probabilities).
    """
    cached = CachedModel(model) if isinstance(model, gpflow.models.GPModel) else model
    nlpd = float(-np.mean(standardizer.predict_log_density(cached, X, Y, chunk_size)))
    mean, variance = standardizer.predict_y(cached, X, chunk_size)
    if num_classes is not None:
        P = class_probabilities(mean, num_classes)
        scores = {
            "error_rate": metrics.error_rate(Y, P),
            "nlpd": nlpd,
            "brier": metrics.brier(Y, P),
            "ece": metrics.ece(Y, P),
        }
        return scores, {"probabilities": P}
    scores = {
        "rmse": metrics.rmse(Y, mean),
        "nlpd": nlpd,
        "crps": metrics.crps(Y, mean, variance),
        "coverage": metrics.coverage(Y, mean, variance),
        "rmse_standardized": metrics.rmse(*map(standardizer.transform_outputs, (Y, mean))),
        "nlpd_standardized": nlpd + standardizer.log_density_offset,
    }
    predictions = {"mean": mean, "variance": variance}
    return {name: float(value) for name, value in scores.items()}, predictions


def central_interval(
    model: CachedModel,
    standardizer: Standardizer,
    X: np.ndarray,
    coverage: float = 0.95,
    chunk_size: int = 4096,
) -> list[np.ndarray]:
    """
    Lower and upper ends ``[N, P]`` of central intervals of new observations, original units.

    :param X: ``[N, D]``, original units.
    :param coverage: the probability of an observation to fall into its interval.
    """
    rows = tf.convert_to_tensor(standardizer.transform_inputs(X), gpflow.default_float())
    parts = [model.predict_f(rows[i : i + chunk_size]) for i in range(0, len(X), chunk_size)]
    mean, variance = (np.concatenate(part).astype(np.float64) for part in zip(*parts, strict=True))
    levels = (0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage)
    ends = quantiles(model.likelihood, mean, variance, levels)
    return [standardizer.inverse_outputs(end) for end in ends]


def class_probabilities(mean: np.ndarray, num_classes: int) -> np.ndarray:
    """Predicted means of labels as probabilities ``[N, C]`` that add up to one."""
    P = np.concatenate([1.0 - mean, mean], axis=1) if num_classes == 2 else mean
    return P / P.sum(axis=1, keepdims=True)
