"""Average targets of the levels of categories that have too many for an indicator column each."""

import dataclasses

import numpy as np
from sklearn.model_selection import KFold
from sklearn.preprocessing import TargetEncoder

from gpflow_sparse.tables.reading.column_kinds import Column

# Most classes that have a column each.
_MAX_CLASSES = 10
_NUM_FOLDS = 5


def with_averages(
    column: Column, labels: np.ndarray, targets: np.ndarray, num_classes: int | None
) -> tuple[Column, np.ndarray]:
    """
    A category with the average target of each level, and the averages of the training rows.

    Averages of few rows are moved towards that of all rows, by scikit-learn's ``TargetEncoder``:
    Micci-Barreca, "A preprocessing scheme for high-cardinality categorical attributes in
    classification and prediction problems", SIGKDD Explorations 3 (2001). A training row has an
    average of other rows (five folds), or a level of one row would give its target away.

    :param labels: levels of the training rows [N].
    :param targets: numbers, or integer labels [N].
    :param num_classes: None for numbers; of more than two the averages are the frequencies of each.
    :return: the column with ``averages``, and those of the training rows [N, A]. With more than ten
        classes the column as it is, and A = 0.
    """
    if num_classes is None:
        wanted = np.asarray(targets, np.float64)[:, None]
    elif num_classes > _MAX_CLASSES:
        return column, np.empty((len(labels), 0))
    else:
        wanted = np.equal.outer(targets, np.arange(num_classes)).astype(np.float64)
        wanted = wanted[:, 1:] if num_classes == 2 else wanted  # [N, A]
    cells, out_of_fold = np.asarray(labels, object)[:, None], np.empty_like(wanted)
    levels, table = np.unique(labels), []
    for y, part in zip(wanted.T, out_of_fold.T, strict=True):
        for rest, fold in KFold(_NUM_FOLDS, shuffle=True, random_state=0).split(cells):
            part[fold] = _encoder(cells[rest], y[rest]).transform(cells[fold])[:, 0]
        of_levels = _encoder(cells, y).transform(levels.astype(object)[:, None])[:, 0]
        table.append([*of_levels, y.mean()])
    averaged = dataclasses.replace(
        column,
        averaged=tuple(map(str, levels)),
        averages=tuple(np.transpose(table).ravel().tolist()),
        note=f"{column.note[:-1]}; and every level the average target of its rows.",
    )
    return averaged, out_of_fold


def _encoder(cells: np.ndarray, y: np.ndarray) -> TargetEncoder:
    return TargetEncoder(target_type="continuous").fit(cells, y)


def averages_of(column: Column, labels: np.ndarray) -> np.ndarray:
    """The averages of the levels of rows [N, A]; unknown levels have that of all training rows."""
    table = np.reshape(column.averages, (len(column.averaged) + 1, -1))
    place = {level: i for i, level in enumerate(column.averaged)}
    unknown = len(column.averaged)
    return np.asarray(table[[place.get(label, unknown) for label in labels]])
