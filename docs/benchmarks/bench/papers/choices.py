"""Methods and their automatic choice at equal time, beside a linear model and boosted trees."""

import time
from collections.abc import Mapping
from typing import Any

import click
import gpflow
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from bench.papers import baselines
from bench.papers.baselines import LINEAR, TREES, baseline_moments, score_baseline
from bench.papers.comparison import LEVELS
from bench.papers.spec import Record
from bench.papers.training import Budget
from gpflow_sparse.data import Dataset, metrics
from gpflow_sparse.tables.fitting.choice import choose
from gpflow_sparse.tables.fitting.evaluation import evaluate
from gpflow_sparse.tables.fitting.task import Task
from gpflow_sparse.tables.fitting.training import train
from gpflow_sparse.tables.methods.cached_model import CachedModel
from gpflow_sparse.tables.methods.rows import num_distinct

# Levels of the quantiles that boosted trees learn for their CRPS.
_LEVELS = np.linspace(0.05, 0.95, 10)
# Options of ``fit_choice`` that are not options of a recipe.
_NOT_OF_RECIPES = ("method", "as_trained")


def fit_choice(options: Mapping[str, Any], dataset: Dataset, budget: Budget) -> Record:
    """
    Train one method, or the one that is chosen, within the time of the budget, and score it.

    :param options: ``method``, "trees", "linear", or one of ``recipes.choice.choose``, with its
        options; at most half of the distinct rows are inducing points. ``as_trained=True``: there
        are also scores of the model without its calibration.
    """
    begin, method = time.perf_counter(), options["method"]
    given = {name: value for name, value in options.items() if name not in _NOT_OF_RECIPES}
    if method in (TREES, LINEAR):
        scores = _score_simple(method, dataset, budget.seed)
        return scores | {"chosen": method, "training_seconds": time.perf_counter() - begin}
    if "num_inducing" in given:
        given["num_inducing"] = min(given["num_inducing"], most_points(dataset))
    likelihood = given.pop("likelihood", None)
    task = Task(dataset, likelihood=likelihood, options=given | {"seed": budget.seed})
    choice = choose(task, method, seconds=budget.seconds, report=_echo)
    left = None if budget.seconds is None else budget.seconds - (time.perf_counter() - begin)
    choice, model = train(task, choice, seconds=left)
    seconds = time.perf_counter() - begin
    found = score(model, dataset)
    if options.get("as_trained"):
        model.calibration = None
        found |= {f"{name}_as_trained": value for name, value in score(model, dataset).items()}
    return found | {"chosen": choice.recipe.name, "training_seconds": seconds}


def most_points(dataset: Dataset) -> int:
    """Half of the number of distinct training rows."""
    return num_distinct(dataset.train[0]) // 2


def score(model: gpflow.models.GPModel, dataset: Dataset) -> Record:
    """
    Scores of the test rows; those of regression for standardized outputs.

    ``covered`` are fractions of the rows inside central intervals of the probabilities ``LEVELS``.
    """
    test, scaler = dataset.in_original_units(dataset.test), dataset.scaler
    found, predictions = evaluate(CachedModel(model), scaler, *test, dataset.num_classes)
    if dataset.num_classes is not None:
        return {name: found[name] for name in ("error_rate", "nlpd", "brier", "ece")}
    scale = found["rmse"] / found["rmse_standardized"]
    return {
        "rmse": found["rmse_standardized"],
        "nlpd": found["nlpd_standardized"],
        "crps": found["crps"] / scale,
        "coverage": found["coverage"],
        "covered": _covered(predictions["pit"]),
    }


def score_moments(Y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> Record:
    """The same scores of Gaussian predictions of standardized outputs ``[N, 1]``."""
    scores = baselines.score_moments(Y, mean, variance)
    return scores | {"covered": _covered(metrics.pit(Y, mean, variance))}


def _covered(pit: np.ndarray) -> list[float]:
    """Fractions of rows inside central intervals, from probability integral transforms."""
    return [float(np.mean(np.abs(pit - 0.5) <= 0.5 * level)) for level in LEVELS]


def _echo(line: str) -> None:
    click.echo(f"  {line}", err=True)


def _score_simple(method: str, dataset: Dataset, seed: int) -> Record:
    """Scores of a baseline; CRPS of boosted trees is that of ten quantiles that they learn."""
    (X, Y), test, classes = dataset.train, dataset.test, dataset.num_classes
    if classes is not None:
        return dict(score_baseline(method, (X, Y), test, classes, seed))
    scores = score_moments(test[1], *baseline_moments(method, (X, Y), test[0], seed))
    if method == TREES:
        trees = (
            HistGradientBoostingRegressor(loss="quantile", quantile=q, random_state=seed)
            for q in _LEVELS
        )
        points = [tree.fit(X, Y[:, 0]).predict(test[0])[:, None] for tree in trees]
        scores["crps"] = float(metrics.crps_of_points(test[1], np.stack(points)).mean())
    return scores
