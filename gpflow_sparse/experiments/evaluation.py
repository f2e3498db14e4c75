"""A trained model against held-out rows."""

from typing import Any

import gpflow
import numpy as np

from gpflow_sparse.data import Standardizer, metrics

REGRESSION_METRICS = ("rmse", "nlpd", "crps", "coverage")
CLASSIFICATION_METRICS = ("error_rate", "nlpd", "brier", "ece")


def evaluate(
    model: gpflow.models.GPModel,
    standardizer: Standardizer,
    X: np.ndarray,
    Y: np.ndarray,
    num_classes: int | None = None,
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """
    Metrics and predictions in original units.

    :param model: trained on standardized data.
    :param X: ``[N, D]``, original units.
    :param Y: ``[N, 1]``, original units or integer labels.
    :param num_classes: None for regression.
    :return: metrics by name (regression: rmse, nlpd, crps, coverage of the central 95 %, and rmse
        and nlpd of standardized outputs; classification: error_rate, nlpd, brier, ece), and the
        predictions behind them (mean and variance, or probabilities).
    """
    log_density = standardizer.predict_log_density(model, X, Y)
    mean, variance = standardizer.predict_y(model, X)
    nlpd = float(-np.mean(log_density))
    if num_classes is None:
        scores = {
            "rmse": metrics.rmse(Y, mean),
            "nlpd": nlpd,
            "crps": metrics.crps(Y, mean, variance),
            "coverage": metrics.coverage(Y, mean, variance),
            "rmse_standardized": metrics.rmse(*map(standardizer.transform_outputs, (Y, mean))),
            "nlpd_standardized": nlpd + standardizer.log_density_offset,
        }
        return _floats(scores), {"mean": mean, "variance": variance}
    probabilities = np.concatenate([1.0 - mean, mean], axis=1) if num_classes == 2 else mean
    probabilities = probabilities / probabilities.sum(axis=1, keepdims=True)
    scores = {
        "error_rate": metrics.error_rate(Y, probabilities),
        "nlpd": nlpd,
        "brier": metrics.brier(Y, probabilities),
        "ece": metrics.ece(Y, probabilities),
    }
    return _floats(scores), {"probabilities": probabilities}


def _floats(scores: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in scores.items()}
