"""
Boosted trees as the prior mean of a GP, of outputs or of log odds of classes: thresholds and
interactions that a stationary kernel does not extrapolate.
"""

import dataclasses
import time
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.model_selection import KFold, StratifiedKFold

import gpflow_sparse as gs
from gpflow_sparse.data import Dataset
from gpflow_sparse.mean_functions import BoostedTrees, TreeLogits
from gpflow_sparse.tables.methods.base import TREES, ZERO
from gpflow_sparse.tables.methods.rows import Pair, shuffled

# Trees of a table with few and with many rows. Root mean squared errors of rows left out, of the
# first and the second: 3,000 rows .66, .68; 15,000 rows .385, .400; 41,000 rows (protein) .587,
# .557; 246,000 rows (flights2013) .733, .686; times are similar.
_SMALL = {"max_depth": 8, "max_leaf_nodes": 31, "learning_rate": 0.1}
_LARGE = {"max_depth": 10, "max_leaf_nodes": 127, "learning_rate": 0.2}
_MANY_ROWS = 20_000
# Folds, and rows above which there are two; with more than two classes there are three folds where
# the rows times the classes are more. Values of the inputs to which the trees of all folds are
# fitted.
_NUM_FOLDS, _TWO_FOLDS = 5, 50_000
_MAX_ROUNDS = 300  # trees of a fold
_MAX_VALUES = 4e6
# Seconds of a core for each of these values, and for a row to pass through the trees of a fold; and
# fraction of both for each column of log odds of classes, whose trees end earlier.
_SECONDS, _ROW_SECONDS, _CLASS_FRACTION = 3e-6, 1.2e-5, 0.5
# Held-out rows that give the weight of the trees, at most a fifth, and their nearest rows.
_HELD_OUT, _NEIGHBORS = 2000, 64


@dataclasses.dataclass(frozen=True)
class TreeMean:
    """
    A mean function m of boosted trees, and the data with which a GP of that mean is trained.

    Residuals of rows to which trees were fitted are too small. With predictions o of every row by
    trees that were fitted to other rows, the GP of mean m is given the outputs ``Y - w o + m(X)``,
    so that its residuals are the out-of-fold ones, ``Y - w o``; nothing in its model changes.

    Of log odds of classes there are no residuals, and rows and labels stay as they are: the
    function has the log odds of the training rows by trees that were fitted to other rows.
    """

    function: BoostedTrees | TreeLogits
    seconds: float
    """Time of the trees."""
    residuals: np.ndarray | None = None
    """``Y - w o [N, 1]``; None for classes."""
    values: np.ndarray | None = None
    """``m(X) [N, 1]``; None for classes, of which the function has them."""

    @property
    def start_variance(self) -> float:
        """Of a kernel that is not fitted: what trees leave of log odds varies little."""
        return 0.1 if self.residuals is None else 1.0

    def residual_data(self, dataset: Dataset) -> Dataset:
        """The data set with the residuals for training outputs, for starting hyperparameters."""
        if self.residuals is None:
            return dataset
        return dataclasses.replace(dataset, train=(dataset.train[0], self.residuals))

    def model_rows(self, dataset: Dataset) -> Pair:
        """The training rows for a model that has the mean function."""
        if self.residuals is None or self.values is None:
            return dataset.train
        return dataset.train[0], self.residuals + self.values

    def remember(self, X: tf.Tensor) -> None:
        """Keep the known values of the function at the rows of a model that holds all rows."""
        # a model of other rows leaves out copies of rows
        if self.values is not None and X.shape[0] == len(self.values):
            self.function.remember(X, tf.constant(self.values, X.dtype))


def expected_seconds(num_rows: int, num_columns: int, num_classes: int | None = None) -> float:
    """Time to fit the trees and to evaluate them at all rows, on one core."""
    folds = _num_folds(num_rows, num_classes)
    values = min(_MAX_VALUES, (folds - 1) * num_rows * num_columns)
    seconds = _SECONDS * values + _ROW_SECONDS * folds * num_rows
    return seconds if num_classes is None else _CLASS_FRACTION * _columns(num_classes) * seconds


def _columns(num_classes: int) -> int:
    """Columns of log odds."""
    return 1 if num_classes == 2 else num_classes


def has_rare_classes(labels: np.ndarray, num_classes: int) -> bool:
    """Whether a class has too few rows ``[N, 1]``, or none, to be in the rows of each fold."""
    counts = np.unique(labels, return_counts=True)[1]
    return len(counts) < num_classes or bool(counts.min() < 2 * _NUM_FOLDS)


def _num_folds(num_rows: int, num_classes: int | None) -> int:
    if num_rows > _TWO_FOLDS:
        return 2
    return 3 if num_rows * _columns(num_classes or 2) > _TWO_FOLDS else _NUM_FOLDS


def fit_tree_mean(
    dataset: Dataset, kernel: Any, noise_variance: Any, seed: int = 0, weight: float | None = None
) -> TreeMean:
    """
    The average of the trees of five folds, of two folds of more than 50,000 rows, weighted as the
    GP beside them needs it. The scale of log odds of classes is a hyperparameter of the model.

    The weight w is 1 where the trees predict held-out rows better, by the mean absolute error, than
    a GP of the nearest other rows, and 1/2 elsewhere. A weight by least squares was worse: rows
    with the largest errors, which neither predicts, determine it.

    :param dataset: standardized, with one output; of long tables the trees are fitted to some rows.
    :param kernel: of a GP of the outputs without the trees.
    :param weight: w, if it is known already.
    :raises ValueError: for several outputs, or a class with few of the rows to which the trees are
        fitted.
    """
    begin = time.perf_counter()
    order = shuffled(len(dataset.train[0]), seed)
    if dataset.num_classes is None and dataset.train[1].shape[1] != 1:
        raise ValueError(f"mean must be {ZERO} for several outputs; {TREES} are fitted to one.")
    models, out_of_fold, average = _fitted_trees(dataset, order, seed)
    if dataset.num_classes is not None:
        trees = BoostedTrees.from_scikit_learn(models)
        logits = TreeLogits(trees, dataset.train[0], out_of_fold)
        return TreeMean(logits, time.perf_counter() - begin)
    if weight is None:
        weight = _weight(dataset, out_of_fold[:, 0], kernel, noise_variance, order)
    function = BoostedTrees.from_scikit_learn(models, weight)
    residuals = dataset.train[1] - weight * out_of_fold
    return TreeMean(function, time.perf_counter() - begin, residuals, weight * average)


def _fitted_trees(
    dataset: Dataset, order: np.ndarray, seed: int
) -> tuple[list[Any], np.ndarray, np.ndarray]:
    """
    The trees of all folds, and for every row their average predictions by trees that were fitted
    without it ``[N, P]`` and by all ``[N, P]``; of classes these are log odds.

    :param order: of the rows ``[N]``; those that are not fitted are the last.
    :raises ValueError: for a class of few rows, without which trees of a fold may lack its column.
    """
    (X, Y), weights = dataset.train, dataset.weights
    count = _num_folds(len(X), dataset.num_classes)
    rows = order[: max(1000, int(_MAX_VALUES / ((count - 1) * X.shape[1])))]
    if dataset.num_classes is not None and has_rare_classes(Y[rows], dataset.num_classes):
        raise ValueError(
            f"mean must be {ZERO} where a class has fewer than {2 * _NUM_FOLDS} of the {len(rows)} "
            f"rows to which {TREES} are fitted."
        )
    kinds = (KFold, HistGradientBoostingRegressor)
    if dataset.num_classes is not None:
        kinds = (StratifiedKFold, HistGradientBoostingClassifier)
    folds = kinds[0](min(count, len(rows)), shuffle=True, random_state=seed)
    sizes = _LARGE if len(rows) > _MANY_ROWS else _SMALL
    columns = _columns(dataset.num_classes or 2)
    models, out_of_fold, average = [], np.zeros((len(X), columns)), np.zeros((len(X), columns))
    for fitted, left_out in folds.split(rows, Y[rows, 0]):
        own, others = rows[fitted], rows[left_out]
        model = kinds[1](max_iter=_MAX_ROUNDS, early_stopping=True, random_state=seed, **sizes).fit(
            X[own], Y[own, 0], None if weights is None else weights[own]
        )
        values = _values(model, X)
        out_of_fold[others] = values[others]
        average += values / folds.n_splits
        models.append(model)
    never_fitted = order[len(rows) :]
    out_of_fold[never_fitted] = average[never_fitted]
    return models, out_of_fold, average


def _values(model: Any, X: np.ndarray) -> np.ndarray:
    """Predictions or log odds ``[N, P]``."""
    is_classifier = isinstance(model, HistGradientBoostingClassifier)
    values = model.decision_function(X) if is_classifier else model.predict(X)
    return values.reshape(len(X), -1)


def _weight(
    dataset: Dataset, trees: np.ndarray, kernel: Any, noise: Any, order: np.ndarray
) -> float:
    """The weight of predictions of trees ``[N]``, see :func:`fit_tree_mean`."""
    count = min(_HELD_OUT, len(order) // 5)
    held_out, rest = dataset.take(order[:count]), dataset.take(order[count:])
    model = gs.models.NearestNeighborGP(
        rest.train, kernel, num_neighbors=_NEIGHBORS, noise_variance=noise, row_weights=rest.weights
    )
    X, y = held_out.train[0], held_out.train[1][:, 0]
    errors = y - model.predict_f(X)[0].numpy()[:, 0], y - trees[order[:count]]
    of_rows, of_trees = (np.average(np.abs(e), weights=held_out.weights) for e in errors)
    return 1.0 if of_trees < of_rows else 0.5
