"""Kernels that are products over input columns: which ones are, and their one-dimensional factors.

``k(x, z) = variance prod_i k_i(x_i, z_i)`` with ``k_i(t, t) = 1``. What is not known to be such a
product is refused by name; a kernel of the user's own is looked at numerically.
"""

from collections.abc import Iterator
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import kernels
from gpflow.kernels import Kernel

from gpflow_sparse.validation import component_checks

# Of one column these are products for want of another factor; of more they read a distance.
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


class ProductFactors:
    """The factors of a product kernel, read from the kernel as it is at every call."""

    def __init__(self, kernel: Kernel, num_columns: int) -> None:
        """
        :param num_columns: D of the inputs.
        :raises ValueError: if the kernel is not a product over columns; the message names the part.
        """
        if not isinstance(kernel, Kernel):
            raise ValueError(
                "kernel must be a GPflow kernel, such as gpflow.kernels.SquaredExponential(); got "
                f"{type(kernel).__name__}."
            )
        component_checks.require_kernel(kernel, num_columns)
        self._leaves = [
            (leaf, tuple(np.arange(num_columns)[leaf.active_dims].tolist()))
            for leaf in _leaves(kernel)
        ]
        for leaf, columns in self._leaves:
            _require_product_leaf(leaf, columns, num_columns)
        self._num_columns = num_columns
        self.columns = tuple(
            sorted({i for leaf, columns in self._leaves if not _is_constant(leaf) for i in columns})
        )
        """The input columns that the kernel reads."""

    def variance(self) -> tf.Tensor:
        """``k(x, x)``, a scalar."""
        origin = tf.zeros([1, self._num_columns], _dtype(self._leaves[0][0]))
        values = [leaf(origin, full_cov=False)[0] for leaf, _ in self._leaves]
        return tf.reduce_prod(tf.stack(values))

    def factor(self, column: int, t: tf.Tensor, u: tf.Tensor) -> tf.Tensor:
        """
        ``k_i(t, u) [n, m]`` for values ``t [n]`` and ``u [m]`` of one input column.

        In the float type of ``t``; see :meth:`precision`.
        """
        center = 0.5 * (tf.reduce_min(u) + tf.reduce_max(u))  # stationary: a shift is nothing
        parts = [
            _leaf_factor(leaf, columns, column, t - center, u - center, self._num_columns)
            for leaf, columns in self._leaves
            if column in columns and not _is_constant(leaf)
        ]
        product = parts[0]
        for part in parts[1:]:
            product = product * part
        return product

    def precision(self, column: int, dtype: tf.DType) -> float:
        """Machine epsilon of :meth:`factor` in ``dtype``: some kernels compute in their own."""
        types = [dtype] + [
            _dtype(leaf)
            for leaf, columns in self._leaves
            if column in columns and type(leaf) is not kernels.SquaredExponential
        ]
        return max(float(np.finfo(kind.as_numpy_dtype).eps) for kind in types)


def is_product_kernel(kernel: Kernel, num_columns: int, *, seed: int = 0) -> bool:
    """
    Whether a kernel looks like a product over columns of stationary factors, at random points.

    The four-point identity ``k(x, z) k(a, b)^(D-1) = prod_i k(a with x_i, b with z_i)``, here with
    ``a = b = x``, holds for products only; and ``k(x, x)`` must not depend on x, nor ``k(x, z)`` on
    a common shift. Relative 1e-9 (1e-3 in float32), at 16 pairs of points, which are 1e-4 to 1e4
    apart so that some of them are within a lengthscale of each other, whatever it is.
    """
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(3, _NUM_POINTS, num_columns))
    return all(_is_product_at(kernel, *(scale * points)) for scale in _DISTANCES)


def _is_product_at(kernel: Kernel, X: np.ndarray, Z: np.ndarray, shift: np.ndarray) -> bool:
    dtype = _dtype(kernel)
    tolerance = _TOLERANCE if dtype == tf.float64 else 1e-3

    def paired(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        return np.diag(kernel(tf.cast(A, dtype), tf.cast(B, dtype)).numpy())

    whole, anchor = paired(X, Z), paired(X, X)
    product = anchor.copy()
    for i in range(X.shape[1]):
        moved = X.copy()
        moved[:, i] = Z[:, i]
        product *= paired(X, moved) / anchor
    pairs = ((anchor, anchor[0]), (paired(X + shift, Z + shift), whole), (product, whole))
    small = 1e-3 * tolerance * np.abs(anchor).max()
    return all(np.allclose(a, b, rtol=tolerance, atol=small) for a, b in pairs)


def _leaf_factor(
    leaf: Kernel,
    columns: tuple[int, ...],
    column: int,
    t: tf.Tensor,
    u: tf.Tensor,
    num_columns: int,
) -> tf.Tensor:
    if type(leaf) is kernels.SquaredExponential:
        # a number of Python's would be cast by way of float32
        lengthscales = tf.cast(tf.convert_to_tensor(leaf.lengthscales, dtype_hint=t.dtype), t.dtype)
        if lengthscales.shape.rank:
            lengthscales = lengthscales[columns.index(column)]
        return tf.exp(-0.5 * tf.square((t[:, None] - u[None, :]) / lengthscales))
    # all other columns at the same place: their factors are 1
    dtype = _dtype(leaf)
    axis = tf.one_hot([column], num_columns, dtype=dtype)  # [1, D]
    values = leaf(tf.cast(t, dtype)[:, None] * axis, tf.cast(u, dtype)[:, None] * axis)
    return tf.cast(values / leaf(tf.zeros_like(axis), full_cov=False), t.dtype)


def _leaves(kernel: Kernel) -> Iterator[Kernel]:
    if type(kernel) is kernels.Product:
        for part in kernel.kernels:
            yield from _leaves(part)
    else:
        yield kernel


def _require_product_leaf(leaf: Kernel, columns: tuple[int, ...], num_columns: int) -> None:
    kind = type(leaf)
    if kind in (kernels.SquaredExponential, kernels.Constant) or (
        len(columns) == 1 and kind in _RADIAL
    ):
        return
    if kind is kernels.Periodic:
        _require_product_leaf(leaf.base_kernel, columns, num_columns)
        return
    if kind in _RADIAL:
        hint = (
            f"take one {kind.__name__} per column, gs.kernels.product_of({kind.__name__}, "
            "lengthscales), which is another kernel, or SquaredExponential"
        )
        raise ValueError(_not_a_product(leaf, f"of {len(columns)} columns", hint))
    if kind.__module__.startswith("gpflow.") or not _looks_like_a_product(leaf, num_columns):
        raise ValueError(_not_a_product(leaf, "", "take SquaredExponential, or a Product of them"))


def _not_a_product(leaf: Kernel, what: str, hint: str) -> str:
    name = f"{type(leaf).__name__} {what}".strip()
    return (
        "kernel must be a product over input columns of stationary kernels, but it has a part "
        f"that is not: {name}; {hint}."
    )


def _looks_like_a_product(leaf: Kernel, num_columns: int) -> bool:
    if isinstance(leaf, gpflow.kernels.MultioutputKernel):
        return False
    with tf.init_scope():
        # in a graph the values are not to be had; the basis looked when it was made
        return not tf.executing_eagerly() or is_product_kernel(leaf, num_columns)


def _is_constant(leaf: Kernel) -> bool:
    return type(leaf) is kernels.Constant


def _dtype(kernel: Any) -> tf.DType:
    types = (p.dtype for p in kernel.parameters if p.dtype.is_floating)
    return tf.as_dtype(next(types, gpflow.default_float()))
