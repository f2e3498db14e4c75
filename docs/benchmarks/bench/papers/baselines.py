"""Simple models that are scored beside the candidates of a choice: constant, linear, and trees."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import BayesianRidge, LogisticRegression

from gpflow_sparse.data import metrics
from gpflow_sparse.tables.methods.rows import Pair

Weights = np.ndarray | None
CONSTANT, LINEAR, TREES = "constant", "linear", "trees"
# Fraction of the rows whose residuals give the variance of boosted trees.
_RESIDUALS = 0.2
_LEAST = 1e-12  # least probability of a class


def score_baseline(
    name: str,
    rows: Pair,
    new: Pair,
    num_classes: int | None = None,
    seed: int = 0,
    weights: tuple[Weights, Weights] = (None, None),
) -> dict[str, float]:
    """
    Scores of a simple model on other rows.

    :param name: "constant"; "linear", Bayesian ridge or logistic regression; or "trees",
        scikit-learn's histogram gradient boosting, with a Gaussian around its predictions whose
        variance is the mean squared error on a held-out fifth of the rows.
    :param rows: training rows ``(X [N, D], Y [N, P])``, standardized, or labels.
    :param new: rows to predict.
    :param weights: of the training rows and of the others ``[N]``; None for 1.
    :return: rmse, nlpd (summed over outputs), crps, coverage; of classes error_rate, nlpd, brier.
    """
    if num_classes is not None:
        P = _probabilities(name, rows, new[0], num_classes, seed, weights[0])
        labels = new[1][:, 0].astype(int)
        return {
            "error_rate": float(metrics.error_rate(new[1], P, weights[1])),
            "nlpd": float(
                -np.average(np.log(P[np.arange(len(labels)), labels]), weights=weights[1])
            ),
            "brier": float(metrics.brier(new[1], P, weights[1])),
        }
    moments = baseline_moments(name, rows, new[0], seed, weights[0])
    return score_moments(new[1], *moments, weights[1])


def score_moments(
    Y: np.ndarray, mean: np.ndarray, variance: np.ndarray, weights: Weights = None
) -> dict[str, float]:
    """RMSE, NLPD, CRPS and coverage of Gaussian predictions for rows that may have weights."""
    return {
        "rmse": float(metrics.rmse(Y, mean, weights)),
        "nlpd": float(metrics.nlpd(Y, mean, variance, weights)),
        "crps": float(metrics.crps(Y, mean, variance, weights)),
        "coverage": float(metrics.coverage(Y, mean, variance, row_weights=weights)),
    }


def baseline_moments(
    name: str, rows: Pair, X: np.ndarray, seed: int = 0, weights: Weights = None
) -> Pair:
    """Means and variances ``[N, P]`` by a simple model, see :func:`score_baseline`."""
    return _MOMENTS[name](rows, X, seed, weights)


def _probabilities(
    name: str, rows: Pair, X: np.ndarray, num_classes: int, seed: int, weights: Weights
) -> np.ndarray:
    """Probabilities of all classes [N, C], classes without training rows included."""
    models: dict[str, Any] = {
        CONSTANT: DummyClassifier(strategy="prior"),
        LINEAR: LogisticRegression(max_iter=500),
        TREES: HistGradientBoostingClassifier(random_state=seed),
    }
    labels = rows[1][:, 0].astype(int)
    model = models[name if np.ptp(labels) else CONSTANT].fit(rows[0], labels, sample_weight=weights)
    P = np.full((len(X), num_classes), _LEAST)
    P[:, model.classes_] = np.maximum(model.predict_proba(X), _LEAST)
    return P / P.sum(axis=1, keepdims=True)


def _constant(rows: Pair, X: np.ndarray, seed: int, weights: Weights) -> Pair:
    mean = np.average(rows[1], axis=0, weights=weights)
    variance = np.average(np.square(rows[1] - mean), axis=0, weights=weights)
    return np.tile(mean, (len(X), 1)), np.tile(variance, (len(X), 1))


def _linear(rows: Pair, X: np.ndarray, seed: int, weights: Weights) -> Pair:
    models = [BayesianRidge().fit(rows[0], y, weights) for y in rows[1].T]
    fits = [model.predict(X, return_std=True) for model in models]
    return np.stack([m for m, _ in fits], axis=1), np.stack([s**2 for _, s in fits], axis=1)


def _boosted(rows: Pair, X: np.ndarray, seed: int, weights: Weights) -> Pair:
    weights = np.ones(len(rows[0])) if weights is None else weights
    order = np.random.default_rng(seed).permutation(len(rows[0]))
    back, rest = np.split(order, [max(1, int(_RESIDUALS * len(order)))])

    def predict(y: np.ndarray, fitted: Any, X: np.ndarray) -> np.ndarray:
        trees = HistGradientBoostingRegressor(random_state=seed)
        return np.asarray(trees.fit(rows[0][fitted], y[fitted], weights[fitted]).predict(X))

    means, variances = [], []
    for y in rows[1].T:
        errors = y[back] - predict(y, rest, rows[0][back])
        variances.append(np.average(errors**2, weights=weights[back]))
        means.append(predict(y, slice(None), X))
    return np.stack(means, axis=1), np.tile(variances, (len(X), 1))


_MOMENTS: Mapping[str, Callable[[Pair, np.ndarray, int, Weights], Pair]] = {
    CONSTANT: _constant,
    LINEAR: _linear,
    TREES: _boosted,
}
"""Means and variances [N, P] of new outputs."""
