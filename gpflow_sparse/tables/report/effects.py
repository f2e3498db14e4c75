"""Partial dependence of predictions on input columns, and the rows that were least expected."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats
from scipy.spatial import cKDTree

from gpflow_sparse.data import metrics
from gpflow_sparse.tables.reading.targets import TableFormat

# Compared values of a factor, and most distinct values or levels that are compared as they are.
_GRID, _MAX_LEVELS = 30, 12
_MAX_ROWS = 5000
# Probability integral transforms are clipped to this distance from 0 and 1, residuals so to 6.0.
_MIN_TAIL = 1e-9


class Factor(NamedTuple):
    """Encoded input columns that vary together."""

    name: str
    kind: str
    """ "number", "date", "category", or "period": the sine and the cosine of a phase."""
    columns: tuple[int, ...]
    """Positions of its n columns among the D inputs."""
    levels: tuple[str, ...] = ()
    """Levels of a category, one for each column."""

    def typical(self, X: np.ndarray) -> np.ndarray:
        """The median, the most frequent level, or the mean phase of ``X [N, D]``, as values [n]."""
        part = X[:, self.columns]
        if self.kind == "category":
            return np.eye(len(self.columns))[part.sum(axis=0).argmax()]
        if self.kind == "period":
            angle = np.arctan2(*part.mean(axis=0))
            return np.array([np.sin(angle), np.cos(angle)])
        return np.quantile(part, 0.5, axis=0, method="lower")

    def grid(self, X: np.ndarray) -> np.ndarray:
        """
        Values to compare [G, n]: frequent levels, phases, all of a few numbers, or equally spaced
        numbers from the 1st to the 99th percentile of ``X [N, D]``.
        """
        part = X[:, self.columns]
        if self.kind == "category":
            most = np.argsort(-part.sum(axis=0), kind="stable")[:_MAX_LEVELS]
            return np.eye(len(self.columns))[np.sort(most)]
        if self.kind == "period":
            angles = np.linspace(0.0, 2.0 * np.pi, _GRID, endpoint=False)
            return np.stack([np.sin(angles), np.cos(angles)], axis=1)
        distinct = np.unique(part)
        if len(distinct) <= _MAX_LEVELS:
            return distinct[:, None]
        low, high = np.quantile(part, (0.01, 0.99))
        ends = (low, high) if low < high else (distinct[0], distinct[-1])
        return np.linspace(*ends, _GRID)[:, None]

    def places(self, X: np.ndarray) -> np.ndarray:
        """One number for each row [N]: the value, the position of the level (NaN for none), or the
        phase in [0, 1)."""
        part = X[:, self.columns]
        if self.kind == "category":
            return np.where(part.any(axis=1), part.argmax(axis=1), np.nan)
        if self.kind == "period":
            return np.arctan2(*part.T) / (2.0 * np.pi) % 1.0
        return part[:, 0]

    def cells(self, X: np.ndarray) -> list[Any]:
        """The value of each row for a table; None or NaN for a NaN."""
        places = self.places(X)
        if self.kind == "category":
            return ["other" if np.isnan(place) else self.levels[int(place)] for place in places]
        if self.kind == "date":
            return [None if np.isnan(place) else _date_of(place) for place in places]
        return list(places)


def _date_of(days: float) -> str:
    return str(np.datetime64(round(86400 * days), "s"))[:16].removesuffix("T00:00")


class Effect(NamedTuple):
    """Predictions for a typical row in which one factor varies."""

    factor: Factor
    places: np.ndarray
    """Values of the factor [G], see :meth:`Factor.places`."""
    predicted: pd.DataFrame
    """Predictions with intervals, or probabilities of classes; G rows."""
    size: float
    """Standard deviation of the mean, or of the probabilities of all classes, over the rows, each
    with the value of the grid that is nearest to its own."""


def factors_of(names: Sequence[str], table: TableFormat | None) -> list[Factor]:
    """
    The factors of encoded inputs.

    :param names: names of the D inputs.
    :param table: the table they are encoded from; None if every input is a number.
    """
    if table is None:
        return [Factor(name, "number", (i,)) for i, name in enumerate(names)]
    free, found = iter(range(len(names))), []
    for column in table.columns:
        kind, name = column.kind, column.name
        if kind == "category":
            places = tuple(itertools.islice(free, len(column.levels)))
            found.append(Factor(name, kind, places, column.levels))
            averages = itertools.islice(free, column.num_averages)
            found += [Factor(names[place], "number", (place,)) for place in averages]
        elif kind != "dropped":
            found.append(Factor(name, kind, (next(free),)))
            if column.missing:
                found.append(Factor(f"{name} missing", "number", (next(free),)))
            for period in column.periods:
                found.append(
                    Factor(f"{name}: time of {period}", "period", (next(free), next(free)))
                )
    return found


def partial_dependence(
    predict: Callable[[np.ndarray], pd.DataFrame],
    X: np.ndarray,
    factors: Sequence[Factor],
    most: int,
) -> list[Effect]:
    """
    Predictions for a typical row in which one factor after the other varies.

    The others keep their median, most frequent level or mean phase. This shows what the model
    predicts, not what changing a column would cause. At most 30 predictions for each factor; grids
    and sizes are computed from at most 5000 rows.

    :param predict: predictions as a table from inputs in original units.
    :param X: ``[N, D]``, original units.
    :param factors: which together have the D columns.
    :param most: how many of the first factors are varied.
    :return: the largest first; none for factors with a single value.
    """
    X = X[np.random.default_rng(0).permutation(len(X))[:_MAX_ROWS]]
    typical, grids = np.empty(X.shape[1]), {}
    for factor in factors:
        typical[list(factor.columns)] = factor.typical(X)
    for factor in factors[:most]:
        values = factor.grid(X)
        if len(values) > 1:
            grids[factor] = np.tile(typical, (len(values), 1))
            grids[factor][:, factor.columns] = values
    if not grids:
        return []
    frame = predict(np.concatenate(list(grids.values())))
    ends, effects = np.cumsum([len(rows) for rows in grids.values()]), []
    for (factor, rows), end in zip(grids.items(), ends, strict=True):
        part = frame[end - len(rows) : end]
        nearest = cKDTree(rows[:, factor.columns]).query(X[:, factor.columns])[1]
        heights = part.filter(regex="^(mean|median|probability_)").to_numpy()[nearest]
        size = float(np.sqrt(heights.var(axis=0).sum()))
        effects.append(Effect(factor, factor.places(rows), part, size))
    return sorted(effects, key=lambda effect: -effect.size)


def pit_of(Y: np.ndarray, predictions: dict[str, np.ndarray]) -> np.ndarray:
    """Probability integral transforms [N, P]; of Gaussians if the predictions have none."""
    if "pit" in predictions:
        return predictions["pit"]
    return metrics.pit(Y, predictions["point"], predictions["variance"])


def residuals(Y: np.ndarray, predictions: dict[str, np.ndarray]) -> np.ndarray:
    """
    Standardized residuals: Gaussian quantiles [N, P] of the probability integral transforms,
    clipped to 6.0 in size. Of classes 1 where the likeliest is right, else 0, less its probability.
    """
    if "probabilities" in predictions:
        P = predictions["probabilities"]
        return (P.argmax(axis=1) == Y[:, 0])[:, None] - P.max(axis=1, keepdims=True)
    pit = pit_of(Y, predictions)
    tail = np.maximum(np.minimum(pit, 1.0 - pit), _MIN_TAIL)  # exactly symmetric, also if clipped
    return np.where(pit > 0.5, -1.0, 1.0) * stats.norm.ppf(tail)


def surprising_rows(Y: np.ndarray, predictions: dict[str, np.ndarray], count: int) -> np.ndarray:
    """
    Positions of the least expected rows, the worst first.

    Rows are ordered by the largest standardized residual, clipped residuals by the distance from
    the mean in standard deviations; classes by the probability of the label.
    """
    if "probabilities" in predictions:
        likelihood = predictions["probabilities"][np.arange(len(Y)), Y[:, 0].astype(int)]
        return np.argsort(likelihood, kind="stable")[:count]
    distance = np.abs(Y - predictions["point"]) / np.sqrt(predictions["variance"])
    size = np.abs(residuals(Y, predictions))
    return np.lexsort((-distance.max(axis=1), -size.max(axis=1)))[:count]
