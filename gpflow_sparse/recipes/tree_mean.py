"""
Boosted trees as the prior mean of a GP: thresholds and interactions that a stationary kernel does
not extrapolate.
"""

import dataclasses
import time
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold

import gpflow_sparse as gs
from gpflow_sparse.data import Dataset
from gpflow_sparse.mean_functions import BoostedTrees
from gpflow_sparse.recipes.base import TREES, ZERO
from gpflow_sparse.recipes.rows import Pair, shuffled

_NUM_FOLDS = 5
# Values of the inputs to which trees are fitted, and seconds for one of them: 6,000 rows of 99
# columns took 2 s on one core, here rounded up. Seconds for a row to pass through the trees of a
# fold, and rows above which those of one fold predict new rows in place of all.
_MAX_VALUES, _SECONDS = 1e6, 5e-6
_ROW_SECONDS, _MANY_ROWS = 3e-5, 50_000
# Held-out rows that give the weight of the trees, at most a fifth, and their nearest rows.
_HELD_OUT, _NEIGHBORS = 2000, 64


@dataclasses.dataclass(frozen=True)
class TreeMean:
    """
    A mean function m of boosted trees, and the data with which a GP of that mean is trained.

    Residuals of rows to which trees were fitted are too small. With predictions o of every row by
    trees that were fitted to other rows, the GP of mean m is given the outputs ``Y - w o + m(X)``,
    so that its residuals are the out-of-fold ones, ``Y - w o``; nothing in its model changes.
    """

    function: BoostedTrees
    residuals: np.ndarray
    """``Y - w o [N, 1]``."""
    seconds: float
    """Time of the trees."""

    def residual_data(self, dataset: Dataset) -> Dataset:
        """The data set with the residuals for training outputs, for starting hyperparameters."""
        return dataclasses.replace(dataset, train=(dataset.train[0], self.residuals))

    def model_rows(self, dataset: Dataset) -> Pair:
        """The training rows for a model that has the mean function."""
        X = dataset.train[0]
        return X, self.residuals + self.function(X).numpy()


def expected_seconds(num_rows: int, num_columns: int) -> float:
    """Time to fit the trees and to evaluate them at all rows, on one core."""
    used = 1 if num_rows > _MANY_ROWS else _NUM_FOLDS
    fitting = _SECONDS * min(_MAX_VALUES, num_rows * num_columns)
    return fitting + _ROW_SECONDS * used * num_rows


def fit_tree_mean(
    dataset: Dataset,
    kernel: Any,
    noise_variance: Any,
    seed: int = 0,
    weight: float | None = None,
) -> TreeMean:
    """
    The average of the trees of five folds, of more than 50,000 rows the trees of one, weighted as
    the GP beside them needs it.

    The weight w is 1 where the trees predict held-out rows better, by the mean absolute error, than
    a GP of the nearest other rows, and 1/2 elsewhere. A weight by least squares was worse: rows
    with the largest errors, which neither predicts, determine it.

    :param dataset: standardized, with one output; of long tables the trees are fitted to some rows.
    :param kernel: of a GP of the outputs without the trees.
    :param weight: w, if it is known already.
    :raises ValueError: for classes or several outputs.
    """
    (X, Y), weights = dataset.train, dataset.weights
    if dataset.num_classes is not None or Y.shape[1] != 1:
        raise ValueError(
            f"mean must be {ZERO} for classes and for several outputs; {TREES} are fitted to one."
        )
    begin = time.perf_counter()
    order = shuffled(len(X), seed)
    rows = order[: max(1000, int(_MAX_VALUES / X.shape[1]))]
    folds = KFold(min(_NUM_FOLDS, len(rows)), shuffle=True, random_state=seed)
    models, out_of_fold = [], np.zeros(len(X))
    for fitted, left_out in folds.split(rows):
        model = HistGradientBoostingRegressor(
            max_iter=300, max_depth=8, early_stopping=True, random_state=seed
        ).fit(
            X[rows[fitted]], Y[rows[fitted], 0], None if weights is None else weights[rows[fitted]]
        )
        out_of_fold[rows[left_out]] = model.predict(X[rows[left_out]])
        models.append(model)
    others = order[len(rows) :]
    for model in models if len(others) else []:
        out_of_fold[others] += model.predict(X[others]) / len(models)
    if weight is None:
        weight = _weight(dataset, out_of_fold, kernel, noise_variance, order)
    used = models[:1] if len(X) > _MANY_ROWS else models
    function = BoostedTrees.from_scikit_learn(used, weight)
    residuals = Y - weight * out_of_fold[:, None]
    return TreeMean(function, residuals, time.perf_counter() - begin)


def _weight(
    dataset: Dataset, trees: np.ndarray, kernel: Any, noise: Any, order: np.ndarray
) -> float:
    """The weight of predictions of trees ``[N]``, see :func:`fit_tree_mean`."""
    count = min(_HELD_OUT, len(order) // 5)
    held_out, rest = dataset.take(order[:count]), dataset.take(order[count:])
    model = gs.models.NearestNeighborGP(
        rest.train,
        kernel,
        num_neighbors=_NEIGHBORS,
        noise_variance=noise,
        row_weights=rest.weights,
    )
    X, y = held_out.train[0], held_out.train[1][:, 0]
    errors = y - model.predict_f(X)[0].numpy()[:, 0], y - trees[order[:count]]
    of_rows, of_trees = (np.average(np.abs(e), weights=held_out.weights) for e in errors)
    return 1.0 if of_trees < of_rows else 0.5
