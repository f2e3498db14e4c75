"""Kernel interpolation from a full grid in any number of dimensions, for a few thousand rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from gpflow_sparse.bases.grids import require_nodes
from gpflow_sparse.bases.product import ProductFactors
from gpflow_sparse.validation import checks

_MAX_ROWS = 5_000


def interpolated_covariance(
    kernel: Kernel, grid: Sequence[Any], X: Any, X2: Any = None
) -> tf.Tensor:
    """
    ``E K_UU E2^T``: the kernel on a full grid U, interpolated linearly in every column.

    Structured kernel interpolation (Wilson and Nickisch, 2015) keeps all ``prod m_i`` grid points
    and so is confined to few columns. Here a product kernel and weights that are products, too,
    make it the elementwise product over columns of ``E_i K_i E2_i^T``, so that any number of
    columns will do and the grid is never formed: Evans and Nair, "Scalable Gaussian Processes with
    Grid-Structured Eigenfunctions" (2018), section 4.2 with theorem 2.

    Time O(N N2 sum_i m_i) and memory O(N N2), for which reason it refuses many rows. Gradients
    reach the kernel's parameters. Between nodes a distance h apart the error falls with h^2, for
    kernels that are smooth at zero distance.

    :param kernel: a product over columns of stationary kernels.
    :param grid: for every column of X its nodes ``[m_i]``, sorted and distinct; one node is right
        for a constant column. Inputs beyond the first or last node are moved to it.
    :param X: ``[N, D]``, N at most 5,000.
    :param X2: ``[N2, D]``, likewise; None for X itself.
    :return: ``[N, N2]``.
    :raises ValueError: for a kernel that is no product, another number of columns, bad nodes or
        inputs, or too many rows.
    """
    if not isinstance(kernel, Kernel):
        raise ValueError(f"kernel must be a GPflow Kernel, got {type(kernel).__name__}; pass one.")
    X = checks.require_matrix(X, "X")
    inputs = [X] if X2 is None else [X, checks.require_matrix(X2, "X2")]
    nodes = _require_grid(grid)
    for name, part in zip(("X", "X2"), inputs, strict=False):
        _require_rows(part, name, len(nodes))
    factors = ProductFactors(kernel, len(nodes))
    K = tf.cast(factors.variance(), X.dtype)
    for i in factors.columns:
        u = tf.constant(nodes[i], X.dtype)
        E = [interpolation_weights(u, part[:, i]) for part in inputs]  # [N, m_i], [N2, m_i]
        right = tf.linalg.matmul(factors.factor(i, u, u), E[-1], transpose_b=True)  # [m_i, N2]
        K = K * tf.linalg.matmul(E[0], right)  # [N, N2]
    return tf.broadcast_to(K, [tf.shape(inputs[0])[0], tf.shape(inputs[-1])[0]])


def interpolation_weights(nodes: tf.Tensor, column: tf.Tensor) -> tf.Tensor:
    """
    Linear interpolation as a matrix: ``g(column)`` is nearly ``E g(nodes)``, exactly for a line.

    :param nodes: ``[m]``, increasing.
    :param column: ``[N]``; beyond the nodes the value at the nearest one is taken.
    :return: ``[N, m]``: at most two weights in a row, of at least 0, with sum 1.
    """
    size = nodes.shape[0]
    if size == 1:
        return tf.ones_like(column)[:, None]
    inside = tf.clip_by_value(column, nodes[0], nodes[-1])
    right = tf.clip_by_value(tf.searchsorted(nodes, inside, side="right"), 1, size - 1)
    left_node, right_node = tf.gather(nodes, right - 1), tf.gather(nodes, right)
    share = ((inside - left_node) / (right_node - left_node))[:, None]
    left_weight = (1.0 - share) * tf.one_hot(right - 1, size, dtype=nodes.dtype)
    return left_weight + share * tf.one_hot(right, size, dtype=nodes.dtype)


def _require_grid(grid: Any) -> list[np.ndarray]:
    if isinstance(grid, str) or not isinstance(grid, Sequence):
        raise ValueError(
            "grid must be a tuple or list of arrays [m_i], one per column of X, got "
            f"{type(grid).__name__}."
        )
    return [require_nodes(nodes, f"grid[{i}]") for i, nodes in enumerate(grid)]


def _require_rows(X: tf.Tensor, name: str, num_columns: int) -> None:
    if X.shape[1] != num_columns:
        raise ValueError(
            f"{name} must have as many columns as grid has entries, {num_columns}; got shape "
            f"{tuple(X.shape)}."
        )
    if X.shape[0] is not None and X.shape[0] > _MAX_ROWS:
        raise ValueError(
            f"{name} must have at most {_MAX_ROWS} rows, got {X.shape[0]}: the covariance is a "
            "full matrix, quadratic in the rows; use GridEigenfunctions for more."
        )
