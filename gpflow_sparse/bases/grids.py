"""One-dimensional grids that follow the data, and the share of the data near each node."""

from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_sparse.validation import checks


def percentile_grid(column: Any, num_points: int) -> np.ndarray:
    """
    Nodes at evenly spaced quantiles of a column, sorted and distinct.

    With at most ``num_points`` distinct values the nodes are those values; a constant column has
    one node. Where quantiles coincide (a column that is mostly zeros), the nodes that are lost go
    to distinct values that are no node yet, evenly over their ranks.

    Such grids in every column follow the product of the marginal distributions of the data, not
    their joint one.

    :param column: ``[N]``, finite.
    :return: ``[m]``, float64, m at most ``num_points``.
    :raises ValueError: for anything but finite numbers, or a count that is none.
    """
    checks.require_count(num_points, "num_points")
    values = _require_column(column, "column")
    distinct = np.unique(values)
    if len(distinct) <= num_points:
        return distinct
    nodes = np.unique(np.quantile(values, np.linspace(0.0, 1.0, num_points)))
    missing = num_points - len(nodes)
    unused = np.setdiff1d(distinct, nodes, assume_unique=True)
    ranks = np.linspace(0.0, len(unused) - 1.0, missing).round().astype(int)
    return np.union1d(nodes, unused[ranks])


def nearest_shares(column: Any, nodes: np.ndarray) -> np.ndarray:
    """
    The share of a column that is nearest to each node; a node with nothing near counts one row.

    :param nodes: ``[m]``, sorted.
    :return: ``[m]``, positive, with sum 1.
    """
    values = _require_column(column, "column")
    middles = 0.5 * (nodes[1:] + nodes[:-1])
    counts = np.bincount(np.searchsorted(middles, values), minlength=len(nodes))
    counts = np.maximum(counts, 1)
    return counts / counts.sum()


def require_nodes(value: Any, name: str) -> np.ndarray:
    """
    ``value`` as nodes of one column.

    :raises ValueError: unless it is finite numbers ``[m]``, sorted and distinct.
    """
    nodes = _require_column(value, name)
    if np.any(np.diff(nodes) <= 0.0):
        raise ValueError(f"{name} must be sorted and distinct: use np.unique.")
    return nodes


def require_shares(value: Any, num_nodes: int, name: str) -> np.ndarray:
    """
    ``value`` as weights of ``num_nodes`` nodes, scaled to sum 1.

    :raises ValueError: unless it is that many positive finite numbers.
    """
    weights = _require_column(value, name)
    if len(weights) != num_nodes or np.any(weights <= 0.0):
        raise ValueError(
            f"{name} must be {num_nodes} positive numbers, one per node; got {len(weights)}"
            + (f", the smallest {weights.min():g}." if len(weights) else ".")
        )
    return weights / weights.sum()


def _require_column(value: Any, name: str) -> np.ndarray:
    column = checks.as_array(value, name, tf.float64)
    if column.ndim != 1 or column.size == 0 or not np.isfinite(column).all():
        raise ValueError(
            f"{name} must be a vector of finite numbers, got shape {column.shape}"
            + (" with NaN or infinity." if column.ndim == 1 and column.size else ".")
        )
    return column
