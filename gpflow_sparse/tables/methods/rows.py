"""Training rows: which are distinct, which are held out, and which are inducing points."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import gpflow_sparse as gs
from gpflow_sparse.numerics.row_groups import group_rows

Pair = tuple[np.ndarray, np.ndarray]
"""Inputs [N, D] and outputs [N, P]."""

EXACT_SUBSET = 1000
"""Least number of rows to which hyperparameters of an exact GP are fitted, if there are more."""


def num_distinct(X: np.ndarray) -> int:
    """Number of distinct rows."""
    return len(group_rows(X).first)


def sized(recipe: Any, X: np.ndarray, chosen: Iterable[str]) -> Any:
    """
    A recipe with fewer inducing points for a short table; sets whose sizes were chosen keep them.

    :param X: training inputs [N, D].
    :param chosen: names of the options that a user gave.
    """
    sets = {name for name in ("num_inducing", "num_orthogonal") if hasattr(recipe, name)}
    kept = {name: getattr(recipe, name) for name in sets & set(chosen)}
    if "num_inducing" not in sets or kept.keys() == sets:
        return recipe
    distinct = num_distinct(X)
    if not kept:
        return recipe.shrunk_to(distinct, len(X))
    if rows_repeat(distinct, len(X)):  # sets with room for all of them are taken
        return recipe
    return dataclasses.replace(recipe.shrunk_to(distinct), **kept)


def rows_repeat(num_distinct: int, num_rows: int | None) -> bool:
    """Whether rows occur twice or more on average; ``num_rows`` is None if none is repeated."""
    return num_rows is not None and 2 * num_distinct <= num_rows


def shuffled(num_rows: int, seed: int) -> np.ndarray:
    """Rows in random order; the first are held out."""
    return np.random.default_rng(seed).permutation(num_rows)


def random_rows(X: np.ndarray, most: int, seed: int) -> np.ndarray:
    """At most ``most`` distinct rows, chosen at random; X itself if it has no more rows."""
    count = min(most, num_distinct(X))
    return X if count == len(X) else gs.initialization.random_subset(X, count, seed=seed)


def choose_points(recipe: Any, X: np.ndarray, kernel: Any, *sizes: int) -> tuple[np.ndarray, ...]:
    """
    Sets of inducing points among the training inputs, as the option ``initialization`` says.

    :raises ValueError: if there are fewer training rows than inducing points.
    """
    if sum(sizes) > len(X) == num_distinct(X):
        names = " + ".join(("num_inducing", "num_orthogonal")[: len(sizes)])
        raise ValueError(
            f"{names} = {' + '.join(map(str, sizes))} exceeds the {len(X)} "
            "training rows; take fewer inducing points."
        )
    method = getattr(recipe, "initialization", "kmeans")
    return gs.initialization.split_orthogonal(
        X, *sizes, kernel=kernel, method=method, seed=recipe.seed
    )


def variational(likelihood: Any, data: Any, **given: Any) -> dict[str, Any]:
    """Arguments that all variational models take."""
    return {"num_latent_gps": int(likelihood.latent_dim or 1), "num_data": len(data[0]), **given}


def require_range(values: np.ndarray, names: Sequence[str], source: str, dtype: type) -> None:
    """
    Refuse rows with values whose squares overflow, which models and scores need.

    :param names: names of the columns.
    :param source: the table, in the message.
    """
    limit = float(np.finfo(dtype).max) ** 0.5 / 1e3
    for row, column in np.argwhere(~(np.abs(values) < limit))[:1]:
        raise ValueError(
            f"row {row + 1} of {source} (its header not counted) holds "
            f"{values[row, column]:.3g} in column {names[column]!r}, but its square must not "
            f"overflow in {np.dtype(dtype).name}: it must be smaller than {limit:.0e} in size. "
            "Drop that row."
        )
