"""Comparison of predictions with observations, overall and by region of the inputs."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Bernoulli, Gaussian
from scipy.spatial import cKDTree

from gpflow_sparse.data import metrics
from gpflow_sparse.diagnosis.inducing import UnavailableError, batches
from gpflow_sparse.diagnosis.parameters import column_lengthscales
from gpflow_sparse.inference.calibration import has_classes
from gpflow_sparse.initialization import kmeans

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
MAX_REGIONS = 8
# Largest number of rows from which centers of the regions are computed.
_CENTER_ROWS = 10_000


class Predictions(NamedTuple):
    """Predictions of all rows, noise included, in float64 and the units of the model."""

    Y: np.ndarray
    """Outputs ``[N, P]``, or labels ``[N * P]``."""
    mean: np.ndarray
    """``[N, P]``, or class probabilities ``[N * P, C]``."""
    variance: np.ndarray | None
    """``[N, P]``; None for classification."""
    transform: np.ndarray | None = None
    """Probability integral transforms ``[N, P]``; None for classification."""


def predict_rows(model: Any, X: tf.Tensor, Y: tf.Tensor) -> Predictions:
    """
    Predictions for every row, batch by batch.

    :raises UnavailableError: for likelihoods that are neither Gaussian nor over classes, and for
        predictions that are not finite.
    """
    likelihood = model.likelihood
    if not (isinstance(likelihood, Gaussian) or has_classes(likelihood)):
        raise UnavailableError(f"not for {type(likelihood).__name__} likelihoods.")
    parts = [model.predict_y(X[rows]) for rows in batches(X.shape[0])]
    mean, variance = (
        np.concatenate([np.asarray(part[i], dtype=np.float64) for part in parts]) for i in (0, 1)
    )
    if not (np.isfinite(mean).all() and np.isfinite(variance).all()):
        raise UnavailableError("predictions are not finite: the model's own factorization failed.")
    observed = np.asarray(Y, dtype=np.float64)
    if isinstance(likelihood, Gaussian):
        return Predictions(observed, mean, variance, _transform(model, X, Y, (mean, variance)))
    if isinstance(likelihood, Bernoulli):  # one binary label per output
        mean = np.stack([1.0 - mean.reshape(-1), mean.reshape(-1)], axis=1)
    return Predictions(observed.reshape(-1), mean / mean.sum(axis=1, keepdims=True), None)


def _transform(model: Any, X: tf.Tensor, Y: tf.Tensor, moments: Any) -> np.ndarray:
    """Probability integral transforms by the distribution that the model predicts."""
    found = getattr(model, "calibration", None)
    if hasattr(model, "predict_distribution"):
        parts = [model.predict_distribution((X[rows], Y[rows])) for rows in batches(X.shape[0])]
        return np.concatenate([np.asarray(part, dtype=np.float64) for part in parts])
    if found is not None and found.has_shape:
        both = [tf.constant(part) for part in moments]
        return found.distribution(both, tf.cast(Y, tf.float64)).numpy()  # type: ignore[no-any-return]
    return metrics.pit(np.asarray(Y, dtype=np.float64), *moments)


def calibration(p: Predictions) -> dict[str, Any]:
    """The entry ``calibration`` of :func:`gpflow_sparse.diagnostics`."""
    if p.transform is None:
        bins = metrics.reliability(p.Y, p.mean)
        confidence = np.nansum(bins.confidence * bins.num_points) / bins.num_points.sum()
        return {
            "kind": "classification",
            "count": len(p.Y),
            "error_rate": metrics.error_rate(p.Y, p.mean),
            "mean_confidence": float(confidence),
            "ece": metrics.ece(p.Y, p.mean),
        }
    values = p.transform
    observed = [np.mean(np.abs(values - 0.5) <= 0.5 * level) for level in LEVELS]
    return {
        "kind": "regression",
        "count": int(values.size),
        "pit_mean": float(values.mean()),
        "pit_variance": float(values.var()),
        "pit_ks": metrics.ks_uniform(values),
        "coverage": [
            {"nominal": nominal, "observed": float(found)}
            for nominal, found in zip(LEVELS, observed, strict=True)
        ],
    }


def split_regions(kernel: Any, X: tf.Tensor) -> np.ndarray:
    """
    The region of every row, by k-means in lengthscales where the kernel has them.

    :return: consecutive integers from 0, ``[N]``, at most :data:`MAX_REGIONS` different ones.
    """
    scales = column_lengthscales(kernel, X.shape[1])
    scaled = np.asarray(X, dtype=np.float64)
    scaled = scaled if scales is None else scaled / scales
    rows = scaled[np.random.default_rng(0).permutation(len(scaled))[:_CENTER_ROWS]]
    centers = kmeans(rows, min(MAX_REGIONS, len(np.unique(rows, axis=0))))
    _, regions = np.unique(cKDTree(centers).query(scaled)[1], return_inverse=True)
    return np.asarray(regions)


def regional(
    X: tf.Tensor, regions: np.ndarray, unexplained: np.ndarray | None, p: Predictions | None
) -> dict[str, Any]:
    """
    The entry ``residual_variance`` of :func:`gpflow_sparse.diagnostics`.

    :param regions: region of every row ``[N]``, see :func:`split_regions`.
    :param unexplained: unexplained fraction of the prior variance of every row, ``[N]``.
    """
    values = np.asarray(X, dtype=np.float64)
    found = [
        {
            "region": region,
            "center": values[regions == region].mean(axis=0).tolist(),
            **_row_scores(regions == region, unexplained, p),
        }
        for region in range(regions.max() + 1)
    ]
    return {"overall": _row_scores(regions >= 0, unexplained, p), "regions": found}


def _row_scores(
    rows: np.ndarray, unexplained: np.ndarray | None, p: Predictions | None
) -> dict[str, Any]:
    scores: dict[str, Any] = {
        "rows": int(rows.sum()),
        "unexplained": None if unexplained is None else float(unexplained[rows].mean()),
        "rmse": None,
        "mean_squared_z": None,
        "coverage_95": None,
        "error_rate": None,
    }
    if p is not None and p.variance is None:
        entries = np.repeat(rows, len(p.Y) // len(rows))  # labels of all outputs of a row
        scores["error_rate"] = metrics.error_rate(p.Y[entries], p.mean[entries])
    elif p is not None and p.variance is not None:
        Y, mean, variance = p.Y[rows], p.mean[rows], p.variance[rows]
        scores["rmse"] = metrics.rmse(Y, mean)
        scores["mean_squared_z"] = float(np.mean((Y - mean) ** 2 / variance))
        assert p.transform is not None
        scores["coverage_95"] = float(np.mean(np.abs(p.transform[rows] - 0.5) <= 0.475))
    return scores
