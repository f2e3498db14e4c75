"""Products of one-dimensional kernels: their factors, grids, and interpolation from a grid.

``k(x, z) = variance prod_i k_i(x_i, z_i)`` with ``k_i(t, t) = 1``. A kernel that is not known to be
such a product is refused by name; a kernel class of the user's own is tested numerically.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import kernels
from gpflow.kernels import Kernel

from gpflow_sparse.bases.base import float_type
from gpflow_sparse.validation import checks, component_checks

# Radial kernels: products if they read one column; of more columns they read one distance.
_RADIAL = (
    kernels.Exponential,
    kernels.Matern12,
    kernels.Matern32,
    kernels.Matern52,
    kernels.RationalQuadratic,
    kernels.Cosine,
)
_TOLERANCE = 1e-9  # relative, of the four-point identity in float64
_NUM_POINTS = 16
_DISTANCES = 10.0 ** np.arange(-4, 5)
# Rows of an interpolated covariance, whose memory is quadratic in them.
_MAX_ROWS = 5_000


class ProductFactors:
    """One-dimensional factors of a product kernel, evaluated at its present parameters."""

    def __init__(self, kernel: Kernel, num_columns: int) -> None:
        """
        :param num_columns: D of the inputs.
        :raises ValueError: if the kernel is not a product over columns; the message names the part.
        """
        component_checks.require_kernel(kernel, num_columns)
        self._num_columns = num_columns
        self._leaves = kernel.kernels if type(kernel) is kernels.Product else [kernel]
        # the parts of the kernel that read a column, and the place of the column in each
        self._readers: dict[int, list[tuple[Kernel, int]]] = {}
        for leaf in self._leaves:
            read = np.arange(num_columns)[leaf.active_dims].tolist()
            _require_product_leaf(leaf, len(read), num_columns)
            if type(leaf) is not kernels.Constant:
                for place, column in enumerate(read):
                    self._readers.setdefault(column, []).append((leaf, place))
        self.columns = tuple(sorted(self._readers))
        """The input columns that the kernel reads."""

    def variance(self) -> tf.Tensor:
        """``k(x, x)``, a scalar."""
        origin = tf.zeros([1, self._num_columns], float_type(self._leaves[0]))
        values = [leaf(origin, full_cov=False)[0] for leaf in self._leaves]
        return tf.reduce_prod(tf.stack(values))

    def factor(self, column: int, t: tf.Tensor, u: tf.Tensor) -> tf.Tensor:
        """
        ``k_i(t, u) [n, m]`` for values ``t [n]`` and ``u [m]`` of one input column.

        In the float type of ``t``; see :meth:`precision`.
        """
        center = 0.5 * (tf.reduce_min(u) + tf.reduce_max(u))  # stationary: shifts have no effect
        t, u, product = t - center, u - center, None
        for leaf, place in self._readers[column]:
            if type(leaf) is kernels.SquaredExponential:
                # a Python float would be cast through float32
                scale = tf.convert_to_tensor(leaf.lengthscales, dtype_hint=t.dtype)
                scale = tf.cast(scale, t.dtype)
                scale = scale[place] if scale.shape.rank else scale
                part = tf.exp(-0.5 * tf.square((t[:, None] - u[None, :]) / scale))
            else:
                # all other columns at the same value: their factors are 1
                dtype = float_type(leaf)
                axis = tf.one_hot([column], self._num_columns, dtype=dtype)  # [1, D]
                part = leaf(tf.cast(t, dtype)[:, None] * axis, tf.cast(u, dtype)[:, None] * axis)
                part = tf.cast(part / leaf(tf.zeros_like(axis), full_cov=False), t.dtype)
            product = part if product is None else product * part
        return product

    def stacked(self, T: tf.Tensor, nodes: np.ndarray) -> tf.Tensor:
        """
        :meth:`factor` of all :attr:`columns` together, ``[d, n, m]``.

        :param T: values ``[d, n]``, float64.
        :param nodes: ``[d, m]``.
        """
        leaf = self._leaves[0]
        if len(self._leaves) > 1 or type(leaf) is not kernels.SquaredExponential:
            parts = zip(self.columns, tf.unstack(T), tf.unstack(nodes), strict=True)
            return tf.stack([self.factor(*part) for part in parts])
        center = 0.5 * (nodes[:, :1] + nodes[:, -1:])  # sorted
        scale = tf.cast(tf.convert_to_tensor(leaf.lengthscales), T.dtype)
        if scale.shape.rank:  # in the order of `active_dims`
            places = [self._readers[column][0][1] for column in self.columns]
            if places != list(range(len(places))):
                scale = tf.gather(scale, places)
            scale = scale[:, None, None]
        difference = (T - center)[:, :, None] - (nodes - center)[:, None, :]
        return tf.exp(-0.5 * tf.square(difference / scale))

    def precision(self, column: int, dtype: tf.DType) -> float:
        """Machine epsilon of :meth:`factor` in ``dtype``: some kernels compute in their own."""
        others = [k for k, _ in self._readers[column] if type(k) is not kernels.SquaredExponential]
        types = [dtype, *map(float_type, others)]
        return max(float(np.finfo(kind.as_numpy_dtype).eps) for kind in types)


def is_product_kernel(kernel: Kernel, num_columns: int, *, seed: int = 0) -> bool:
    """
    Whether a kernel equals a product over columns of stationary factors at random points.

    The four-point identity ``k(x, z) k(a, b)^(D-1) = prod_i k(a with x_i, b with z_i)``, here with
    ``a = b = x``, holds for products only; and ``k(x, x)`` must not depend on x, nor ``k(x, z)`` on
    a common shift. Relative 1e-9 (1e-3 in float32), at 16 pairs of points, which are 1e-4 to 1e4
    apart so that some of them are within a lengthscale of each other, whatever it is.
    """
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(3, _NUM_POINTS, num_columns))
    dtype = float_type(kernel)
    tolerance = _TOLERANCE if dtype == tf.float64 else 1e-3

    def paired(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        return np.diag(kernel(tf.cast(A, dtype), tf.cast(B, dtype)).numpy())

    for scale in _DISTANCES:
        X, Z, shift = scale * points
        whole, anchor = paired(X, Z), paired(X, X)
        product = anchor.copy()
        for i in range(num_columns):
            moved = X.copy()
            moved[:, i] = Z[:, i]
            product *= paired(X, moved) / anchor
        pairs = ((anchor, anchor[0]), (paired(X + shift, Z + shift), whole), (product, whole))
        small = 1e-3 * tolerance * np.abs(anchor).max()
        if not all(np.allclose(a, b, rtol=tolerance, atol=small) for a, b in pairs):
            return False
    return True


def _require_product_leaf(leaf: Kernel, num_active: int, num_columns: int) -> None:
    """
    Refuse a kernel that is not a product over the ``num_active`` columns that it reads.

    :param num_columns: D of the inputs.
    """
    kind, name = type(leaf), type(leaf).__name__
    hint = "take SquaredExponential, or a Product of them"
    if kind in (kernels.SquaredExponential, kernels.Constant) or (
        num_active == 1 and kind in _RADIAL
    ):
        return
    if kind is kernels.Periodic:
        _require_product_leaf(leaf.base_kernel, num_active, num_columns)
        return
    if kind in _RADIAL:
        hint = (
            f"take one {name} per column, gs.kernels.product_of({name}, lengthscales), which is "
            "another kernel, or SquaredExponential"
        )
        name = f"{name} of {num_active} columns"
    elif not kind.__module__.startswith("gpflow.") and not isinstance(
        leaf, kernels.MultioutputKernel
    ):
        with tf.init_scope():
            # values are unknown in a graph; the basis has tested the kernel when it was made
            if not tf.executing_eagerly() or is_product_kernel(leaf, num_columns):
                return
    raise ValueError(
        "kernel must be a product over input columns of stationary kernels, but it has a part "
        f"that is not: {name}; {hint}."
    )


def make_grid(X: Any, points_per_dimension: int, grid: Any) -> tuple[np.ndarray, ...]:
    """
    Nodes of every column in float64; see ``GridEigenfunctions``.

    :raises ValueError: for nodes of a wrong kind or number, and without X or grid.
    """
    columns = None if X is None else checks.require_matrix(X, "X", tf.float64).numpy().T
    if grid is not None:
        parts = _per_column(grid, "grid", "nodes", None if columns is None else len(columns))
        nodes = tuple(require_nodes(part, f"grid[{i}]") for i, part in enumerate(parts))
    elif columns is not None:
        nodes = tuple(percentile_grid(column, points_per_dimension) for column in columns)
    else:
        raise ValueError("X is needed for the nodes: give X, or grid.")
    return nodes


def _per_column(value: Any, name: str, content: str, count: int | None) -> list[Any]:
    """The entries of ``value``, one for each column; None where their number is not known."""
    try:
        parts = list(value)
    except TypeError:
        raise ValueError(
            f"{name} must be a sequence, one array per column, got {type(value).__name__}."
        ) from None
    if count not in (None, len(parts)):
        raise ValueError(
            f"{name} must have {content} for each of the {count} columns of X, got {len(parts)}."
        )
    return parts


def percentile_grid(column: Any, num_points: int) -> np.ndarray:
    """
    Nodes at evenly spaced quantiles of a column, sorted and distinct.

    With at most ``num_points`` distinct values the nodes are those values; a constant column has
    one node. Where quantiles coincide (a column that is mostly zeros), distinct values that are not
    among them take the places of the repeats, evenly over their ranks.

    Such grids in every column follow the product of the marginal distributions of the data, not
    their joint one.

    :param column: ``[N]``, finite.
    :return: ``[m]``, float64, m at most ``num_points``.
    :raises ValueError: for anything but finite values, or a count that is not positive.
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


def require_nodes(value: Any, name: str) -> np.ndarray:
    """
    ``value`` as nodes of one column.

    :raises ValueError: unless it is a finite vector ``[m]``, sorted and distinct.
    """
    nodes = _require_column(value, name)
    if np.any(np.diff(nodes) <= 0.0):
        raise ValueError(f"{name} must be sorted and distinct: use np.unique.")
    return nodes


def _require_column(value: Any, name: str) -> np.ndarray:
    column = checks.as_array(value, name, tf.float64)
    if column.ndim != 1 or column.size == 0 or not np.isfinite(column).all():
        raise ValueError(
            f"{name} must be a vector of finite numbers, got shape {column.shape}"
            + (" with NaN or infinity." if column.ndim == 1 and column.size else ".")
        )
    return column


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
    :param X2: ``[N2, D]``, N2 at most 5,000; None for X itself.
    :return: ``[N, N2]``.
    :raises ValueError: for a kernel that is not a product, another number of columns, bad nodes or
        inputs, or too many rows.
    """
    X = checks.require_matrix(X, "X")
    inputs = {"X": X} if X2 is None else {"X": X, "X2": checks.require_matrix(X2, "X2")}
    parts = _per_column(grid, "grid", "nodes", X.shape[1])
    nodes = [require_nodes(part, f"grid[{i}]") for i, part in enumerate(parts)]
    for name, part in inputs.items():
        if part.shape[1] != len(nodes):
            raise ValueError(
                f"{name} must have {len(nodes)} column(s); got shape {tuple(part.shape)}."
            )
        if part.shape[0] is not None and part.shape[0] > _MAX_ROWS:
            raise ValueError(
                f"{name} must have at most {_MAX_ROWS} rows, got {part.shape[0]}: the covariance "
                "is a full matrix, quadratic in the rows; use GridEigenfunctions for more."
            )
    first, second = X, list(inputs.values())[-1]
    factors = ProductFactors(kernel, len(nodes))
    K = tf.cast(factors.variance(), X.dtype)
    for i in factors.columns:
        u = tf.constant(nodes[i], X.dtype)
        E, E2 = (interpolation_weights(u, part[:, i]) for part in (first, second))  # [N, m_i]
        right = tf.linalg.matmul(factors.factor(i, u, u), E2, transpose_b=True)  # [m_i, N2]
        K = K * tf.linalg.matmul(E, right)  # [N, N2]
    return tf.broadcast_to(K, [tf.shape(first)[0], tf.shape(second)[0]])


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
