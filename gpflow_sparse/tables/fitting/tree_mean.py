"""
Boosted trees as the prior mean of a GP, of outputs or of log odds of classes: thresholds and
interactions that a stationary kernel does not extrapolate.
"""

import dataclasses
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.model_selection import KFold, StratifiedKFold
from threadpoolctl import threadpool_limits

import gpflow_sparse as gs
from gpflow_sparse.data import Dataset
from gpflow_sparse.mean_functions import BoostedTrees, TreeLogits
from gpflow_sparse.tables.fitting.observations import is_standardized
from gpflow_sparse.tables.methods.base import TREES, ZERO
from gpflow_sparse.tables.methods.rows import Pair, shuffled

# Trees of a table with few and with many rows. Root mean squared errors of test rows, of the first
# and the second: 15,000 rows (elevators) .389, .394; 27,000 rows of thresholds and hours .335,
# .335; 36,000 rows (kin40k) .386, .284; 40,000 rows (protein) .576, .543; with 127 leaves and a
# rate of .2 .412, .350, .301, .545.
_SMALL = {"max_depth": 8, "max_leaf_nodes": 31}
_LARGE = {"max_depth": 10, "max_leaf_nodes": 63}
_MANY_ROWS = 20_000
# Folds, rows above which there are three, times the classes if there are more than two, and above
# which there are two. Values of the inputs to which the trees of all folds are fitted.
_NUM_FOLDS, _THREE_FOLDS, _TWO_FOLDS = 5, 10_000, 50_000
_MAX_ROUNDS = 400  # trees of a fold
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

    Log odds of classes have no residuals, so rows and labels stay as they are: the function
    has the log odds of the training rows by trees that were fitted to other rows.
    """

    function: BoostedTrees | TreeLogits
    seconds: float
    """Time of the trees of all folds, estimated where only the first fold has trees."""
    models: tuple[Any, ...]
    """The trees of each fold, as scikit-learn has them."""
    out_of_fold: np.ndarray | None = None
    """``o [N, 1]``; None for classes."""
    average: np.ndarray | None = None
    """Predictions of the trees of all folds ``[N, 1]``; None for classes."""

    @property
    def weight(self) -> float:
        """w, by which the predictions of the trees are multiplied; 1 for classes."""
        return getattr(self.function, "weight", 1.0)

    def weighted(self, weight: float) -> "TreeMean":
        """The mean with another weight."""
        function = BoostedTrees.from_scikit_learn(self.models, weight)
        return dataclasses.replace(self, function=function)

    @property
    def start_variance(self) -> float:
        """The variance of a kernel that is not fitted: little remains of log odds after trees."""
        return 0.1 if self.out_of_fold is None else 1.0

    def residual_data(self, dataset: Dataset) -> Dataset:
        """The data set with the residuals for training outputs, for starting hyperparameters."""
        if self.out_of_fold is None:
            return dataset
        X, Y = dataset.train
        return dataclasses.replace(dataset, train=(X, Y - self.weight * self.out_of_fold))

    def model_rows(self, dataset: Dataset) -> Pair:
        """The training rows for a model that has the mean function."""
        if self.average is None:
            return dataset.train
        X, residuals = self.residual_data(dataset).train
        return X, residuals + self.weight * self.average

    def remember(self, X: tf.Tensor) -> None:
        """Keep the known values of the function at the rows of a model that holds all rows."""
        # a model of other rows leaves out copies of rows
        if self.average is not None and X.shape[0] == len(self.average):
            values = tf.constant(self.weight * self.average, X.dtype)
            self.function.remember(X, values)


def expected_seconds(
    num_rows: int, num_columns: int, num_classes: int | None = None, num_known: int = 0
) -> float:
    """
    Time to fit the trees and to evaluate them at all rows, on one core.

    :param num_known: folds whose trees are known.
    """
    folds = num_folds(num_rows, num_classes)
    values = min(_MAX_VALUES, (folds - 1) * num_rows * num_columns) / folds
    seconds = (folds - num_known) * (_SECONDS * values + _ROW_SECONDS * num_rows)
    return seconds if num_classes is None else _CLASS_FRACTION * _columns(num_classes) * seconds


def _columns(num_classes: int) -> int:
    """Columns of log odds."""
    return 1 if num_classes == 2 else num_classes


def takes_trees(task: Any) -> bool:
    """
    Whether trees may be a model of the rows, alone or as a mean.

    :param task: a :class:`~gpflow_sparse.tables.fitting.task.Task`.
    """
    given = task.likelihood or task.options.get("likelihood")
    if not task.has_labels:
        has_one = task.num_outputs == 1 and given != "heteroskedastic"
        return has_one and is_standardized(given)
    rare = has_rare_classes(task.dataset.train[1], task.dataset.num_classes)
    return given in (None, "bernoulli_logit", "softmax") and not rare


def has_rare_classes(labels: np.ndarray, num_classes: int) -> bool:
    """Whether a class has too few rows ``[N, 1]``, or none, to be in the rows of each fold."""
    counts = np.unique(labels, return_counts=True)[1]
    return len(counts) < num_classes or bool(counts.min() < 2 * _NUM_FOLDS)


def num_folds(num_rows: int, num_classes: int | None) -> int:
    """Folds whose trees are averaged."""
    if num_rows > _TWO_FOLDS:
        return 2
    return 3 if num_rows * _columns(num_classes or 2) > _THREE_FOLDS else _NUM_FOLDS


def fit_tree_mean(
    dataset: Dataset, seed: int = 0, weight: float = 1.0, known: Sequence[Any] = ()
) -> TreeMean:
    """
    The average of the trees of five folds, fewer for long tables. The scale of log odds of classes
    is a hyperparameter of the model.

    :param dataset: standardized, with one output; of long tables the trees are fitted to some rows.
    :param weight: w, see :func:`weight_beside`.
    :param known: the trees of the first folds, from :func:`fit_first_trees`.
    :raises ValueError: for several outputs, or a class with few of the rows to which the trees are
        fitted.
    """
    begin, X = time.perf_counter(), dataset.train[0]
    folds = _folds(dataset, seed)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        fitted = pool.map(lambda fold: _fitted(dataset, fold, seed), folds[len(known) :])
        models = [*known, *fitted]
        values = list(pool.map(lambda model: _values(model, X), models))
    average = np.mean(values, axis=0)
    out_of_fold = average.copy()  # of rows that no trees were fitted to
    for (_, others), each in zip(folds, values, strict=True):
        out_of_fold[others] = each[others]
    return _mean_of(dataset, models, out_of_fold, average, weight, begin)


def fit_first_trees(dataset: Dataset, seed: int = 0) -> tuple[TreeMean, np.ndarray]:
    """
    As :func:`fit_tree_mean`, but for long tables with the trees of the first fold alone, as a mean
    for the rows left out of it: a half or a third of the time of all folds.

    :return: the mean, and its rows.
    :raises ValueError: as :func:`fit_tree_mean`.
    """
    num_rows = len(dataset.train[0])
    count = num_folds(num_rows, dataset.num_classes)
    if count == _NUM_FOLDS:
        return fit_tree_mean(dataset, seed), np.arange(num_rows)
    begin, fold = time.perf_counter(), _folds(dataset, seed)[0]
    model, left_out = _fitted(dataset, fold, seed), dataset.take(fold[1])
    values = _values(model, left_out.train[0])
    mean = _mean_of(left_out, [model], values, values, 1.0, begin)
    return dataclasses.replace(mean, seconds=count * mean.seconds), fold[1]


def _mean_of(
    dataset: Dataset,
    models: list[Any],
    out_of_fold: np.ndarray,
    average: np.ndarray,
    weight: float,
    begin: float,
) -> TreeMean:
    """The mean of rows, by trees whose predictions of these are known ``[N, P]``."""
    if dataset.num_classes is not None:
        trees = BoostedTrees.from_scikit_learn(models)
        logits = TreeLogits(trees, dataset.train[0], out_of_fold)
        return TreeMean(logits, time.perf_counter() - begin, tuple(models))
    function = BoostedTrees.from_scikit_learn(models, weight)
    seconds = time.perf_counter() - begin
    return TreeMean(function, seconds, tuple(models), out_of_fold, average)


def _folds(dataset: Dataset, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """
    For each fold the rows to which its trees are fitted, and the others of the rows for trees.

    :raises ValueError: for several outputs, and for a class of few rows, without which trees of a
        fold may lack its column.
    """
    X, Y = dataset.train
    if dataset.num_classes is None and Y.shape[1] != 1:
        raise ValueError(f"mean must be {ZERO} for several outputs; {TREES} are fitted to one.")
    count = num_folds(len(X), dataset.num_classes)
    rows = shuffled(len(X), seed)[: max(1000, int(_MAX_VALUES / ((count - 1) * X.shape[1])))]
    if dataset.num_classes is not None and has_rare_classes(Y[rows], dataset.num_classes):
        raise ValueError(
            f"mean must be {ZERO} where a class has fewer than {2 * _NUM_FOLDS} of the {len(rows)} "
            f"rows to which {TREES} are fitted."
        )
    kind = KFold if dataset.num_classes is None else StratifiedKFold
    folds = kind(min(count, len(rows)), shuffle=True, random_state=seed)
    return [(rows[own], rows[others]) for own, others in folds.split(rows, Y[rows, 0])]


def _fitted(dataset: Dataset, fold: tuple[np.ndarray, np.ndarray], seed: int) -> Any:
    """The trees of a fold."""
    (X, Y), weights, (own, others) = dataset.train, dataset.weights, fold
    is_class = dataset.num_classes is not None
    kind = HistGradientBoostingClassifier if is_class else HistGradientBoostingRegressor
    sizes = _LARGE if len(own) + len(others) > _MANY_ROWS else _SMALL
    # threads of OpenMP wait busily: beside other work two took 25 times the time of one
    with threadpool_limits(1, "openmp"):
        model = kind(max_iter=_MAX_ROUNDS, early_stopping=True, random_state=seed, **sizes)
        return model.fit(X[own], Y[own, 0], None if weights is None else weights[own])


def _values(model: Any, X: np.ndarray) -> np.ndarray:
    """Predictions or log odds ``[N, P]``."""
    is_classifier = isinstance(model, HistGradientBoostingClassifier)
    with threadpool_limits(1, "openmp"):  # as for its fit
        values = model.decision_function(X) if is_classifier else model.predict(X)
    return values.reshape(len(X), -1)


def weight_beside(
    dataset: Dataset, mean: TreeMean, kernel: Any, noise_variance: Any, seed: int = 0
) -> float:
    """
    The weight that trees need beside a GP: 1 where they predict held-out rows better, by the mean
    absolute error, than a GP of the nearest other rows, and 1/2 elsewhere.

    A weight by least squares was worse: rows with the largest errors, which neither predicts,
    determine it.

    :param kernel: of a GP of the outputs without the trees.
    """
    assert mean.out_of_fold is not None
    order = shuffled(len(dataset.train[0]), seed)
    count = min(_HELD_OUT, len(order) // 5)
    held_out, rest = dataset.take(order[:count]), dataset.take(order[count:])
    model = gs.models.NearestNeighborGP(
        rest.train,
        kernel,
        num_neighbors=_NEIGHBORS,
        noise_variance=noise_variance,
        row_weights=rest.weights,
        known_variance=rest.noise_variance,
    )
    X, y = held_out.train[0], held_out.train[1][:, 0]
    trees = mean.out_of_fold[order[:count], 0]
    errors = y - model.predict_f(X)[0].numpy()[:, 0], y - trees
    of_rows, of_trees = (np.average(np.abs(e), weights=held_out.weights) for e in errors)
    return 1.0 if of_trees < of_rows else 0.5
