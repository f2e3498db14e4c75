"""Methods and their automatic choice at equal time, beside a linear model and boosted trees."""

import time
from collections.abc import Mapping
from typing import Any

import click
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import BayesianRidge, LogisticRegression

from gpflow_sparse.bench.papers.spec import Record
from gpflow_sparse.bench.papers.training import Budget
from gpflow_sparse.data import Dataset, metrics
from gpflow_sparse.runs.choice import Task, choose, train
from gpflow_sparse.runs.evaluation import evaluate
from gpflow_sparse.runs.rows import Pair, original_units, scaler_of

# Fraction of the training rows whose residuals give boosted trees a Gaussian for NLPD, and levels
# of the quantiles that they learn for CRPS.
_RESIDUALS = 0.2
_LEVELS = np.linspace(0.05, 0.95, 10)


def fit_choice(options: Mapping[str, Any], dataset: Dataset, budget: Budget) -> Record:
    """
    Train one method, or the one that is chosen, within the time of the budget, and score it.

    :param options: ``method``, "boosting", "linear", or one of ``runs.choice.choose``, with options
        of ``RunConfig``; at most half of the rows are inducing points.
    """
    begin, method = time.perf_counter(), options["method"]
    given = {name: value for name, value in options.items() if name != "method"}
    if method in ("boosting", "linear"):
        score = _score_classes if dataset.num_classes else _score_numbers
        scores = score(method, dataset, budget.seed)
        return scores | {"chosen": method, "training_seconds": time.perf_counter() - begin}
    if "num_inducing" in given:
        given["num_inducing"] = min(given["num_inducing"], len(dataset.train[0]) // 2)
    task = Task(dataset, options=given | {"seed": budget.seed})
    choice = choose(task, method, seconds=budget.seconds, report=_echo)
    left = None if budget.seconds is None else budget.seconds - (time.perf_counter() - begin)
    model = train(task, choice, seconds=left)
    seconds = time.perf_counter() - begin
    test, scaler = original_units(dataset, dataset.test), scaler_of(dataset)
    found, _ = evaluate(model, scaler, *test, dataset.num_classes)
    named = {"chosen": choice.config.method, "training_seconds": seconds}
    if dataset.num_classes is not None:
        return {name: found[name] for name in ("error_rate", "nlpd", "brier")} | named
    scale = found["rmse"] / found["rmse_standardized"]
    return {
        "rmse": found["rmse_standardized"],
        "nlpd": found["nlpd_standardized"],
        "crps": found["crps"] / scale,
        "coverage": found["coverage"],
        **named,
    }


def _echo(line: str) -> None:
    click.echo(f"  {line}", err=True)


def _score_numbers(method: str, dataset: Dataset, seed: int) -> Record:
    """Scores of a regression, in standardized units; CRPS of trees from ten learned quantiles."""
    (X, Y), (X_new, Y_new) = dataset.train, dataset.test
    y = Y[:, 0]
    if method == "linear":
        mean, deviation = BayesianRidge().fit(X, y).predict(X_new, return_std=True)
        moments = mean[:, None], deviation[:, None] ** 2
        crps = float(metrics.crps(Y_new, *moments))
    else:
        mean, residual = _boosted(X, y, X_new, seed)
        moments = mean[:, None], np.full((len(X_new), 1), residual)
        trees = (
            HistGradientBoostingRegressor(loss="quantile", quantile=q, random_state=seed).fit(X, y)
            for q in _LEVELS
        )
        points = np.stack([tree.predict(X_new)[:, None] for tree in trees])
        crps = float(metrics.crps_of_points(Y_new, points))
    return {
        "rmse": float(metrics.rmse(Y_new, moments[0])),
        "nlpd": float(metrics.nlpd(Y_new, *moments)),
        "crps": crps,
        "coverage": float(metrics.coverage(Y_new, *moments)),
    }


def _boosted(X: np.ndarray, y: np.ndarray, X_new: np.ndarray, seed: int) -> tuple[Any, float]:
    """Means of boosted trees, and the variance of residuals of rows kept back from others."""
    rows = np.random.default_rng(seed).permutation(len(X))
    back, rest = np.split(rows, [max(1, int(_RESIDUALS * len(X)))])
    first = HistGradientBoostingRegressor(random_state=seed).fit(X[rest], y[rest])
    residual = float(np.mean((y[back] - first.predict(X[back])) ** 2))
    return HistGradientBoostingRegressor(random_state=seed).fit(X, y).predict(X_new), residual


def _score_classes(method: str, dataset: Dataset, seed: int) -> Record:
    """Scores of a classification."""
    models = {
        "linear": lambda: LogisticRegression(max_iter=500),
        "boosting": lambda: HistGradientBoostingClassifier(random_state=seed),
    }
    (X, Y), test = dataset.train, dataset.test
    P = models[method]().fit(X, Y[:, 0].astype(int)).predict_proba(test[0])
    return _class_scores(test, np.clip(P, 1e-12, 1.0))


def _class_scores(test: Pair, P: np.ndarray) -> Record:
    P = P / P.sum(axis=1, keepdims=True)
    labels = test[1][:, 0].astype(int)
    return {
        "error_rate": float(metrics.error_rate(test[1], P)),
        "nlpd": float(-np.mean(np.log(P[np.arange(len(labels)), labels]))),
        "brier": float(metrics.brier(test[1], P)),
    }
