"""GRIEF: the leading eigenfunctions of a product kernel on a Cartesian grid of any size."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from gpflow_sparse.bases import grids, search
from gpflow_sparse.bases.base import FiniteBasis
from gpflow_sparse.bases.eigensystems import Eigensystem, eigensystem
from gpflow_sparse.bases.product import ProductFactors
from gpflow_sparse.validation import checks

# Below this share of the prior variance, models are warned that the basis is another kernel.
_EXPLAINED = 0.9


class GridEigenfunctions(FiniteBasis):
    r"""
    The p leading eigenfunctions of a product kernel, from a grid of ``prod_i m_i`` points that is
    never formed.

    With nodes ``U_i`` in column i and ``k_i(U_i, U_i) = Q_i diag(lam_i) Q_i^T``, an eigenfunction
    is a product of one-dimensional ones, one per column,

        phi_j(x) = sqrt(variance) prod_i k_i(x_i, U_i) Q_i[:, j_i] / sqrt(lam_i[j_i]),

    and those with the p largest ``prod_i lam_i[j_i]`` are kept. They are orthonormal in the
    function space of k: ``basis(X) basis(X)^T`` never exceeds ``k(X, X)``, whatever p, and with all
    of them it is the Nystrom approximation from the whole grid. Weights are ``N(0, I)``.

    Evans and Nair, "Scalable Gaussian Processes with Grid-Structured Eigenfunctions" (2018), eqs.
    (3) and (10) and algorithm 1. Departures, each listed in ``docs/errata.md``: eigenvalues lost to
    rounding are masked, where the paper takes their logarithm; every column is scaled by its own
    eigenvalue, so no product can overflow and no logarithm of features is needed; ties are broken
    by index.

    *Frozen index set.* Which eigenfunctions are kept is found when the basis is made, and again by
    :meth:`refresh` only: the functions follow the kernel's parameters smoothly in between.

    Time O(N p) times a third of the number of columns, for products of shared prefixes are formed
    once; memory O(N p).
    """

    is_projection = True

    def __init__(
        self,
        kernel: Kernel,
        X: Any,
        num_eigenfunctions: int,
        points_per_dimension: int = 10,
        *,
        grid: Sequence[Any] | None = None,
        grid_weights: Any = None,
    ) -> None:
        """
        :param kernel: a product over columns: SquaredExponential, or a Product of kernels of one
            column each.
        :param X: training inputs ``[N, D]``, whose percentiles are the nodes.
        :param num_eigenfunctions: p, at most; there may be fewer.
        :param points_per_dimension: nodes in each column, at most.
        :param grid: nodes ``[m_i]`` of each of the D columns instead, sorted; X is then needed only
            for ``grid_weights="data"``, and may be None.
        :param grid_weights: None for the plain spectrum of the grid; "data" weighs each node by the
            share of the rows of X nearest to it; or shares ``[m_i]`` for every column. Weights
            change which functions a truncated basis keeps, towards those of the data's
            distribution.
        :raises ValueError: for a kernel that is not a product, naming the part; for X or nodes that
            are not finite; for counts that are none.
        """
        super().__init__()
        checks.require_count(num_eigenfunctions, "num_eigenfunctions")
        columns = None if X is None else checks.require_matrix(X, "X", tf.float64).numpy().T
        if grid is None:
            if columns is None:
                raise ValueError("X is needed for the nodes: give X, or grid.")
            nodes = [grids.percentile_grid(c, points_per_dimension) for c in columns]
        else:
            parts = _per_column(grid, "grid")
            nodes = [grids.require_nodes(c, f"grid[{i}]") for i, c in enumerate(parts)]
            if columns is not None and len(nodes) != len(columns):
                raise ValueError(
                    f"grid must have nodes for each of the {len(columns)} columns of X, got "
                    f"{len(nodes)}."
                )
        self.kernel = kernel
        self.grid: tuple[np.ndarray, ...] = tuple(nodes)
        """Nodes of each column, float64."""
        self.grid_weights = _shares(grid_weights, columns, nodes)
        """Their weights; None without."""
        self._used = ProductFactors(kernel, len(nodes)).columns
        if not self._used:
            raise ValueError(
                f"kernel must read a column of X; {type(kernel).__name__} is constant."
            )
        indices = search.top_products(self._spectra(), num_eigenfunctions)
        self.num_basis = len(indices)
        self.indices = tf.Variable(indices, trainable=False, name="indices")
        """Which eigenfunctions, ``[p, d]``: one-dimensional indices for the columns in use."""
        self._plan = [
            tuple(tf.Variable(part, trainable=False, shape=[None]) for part in step)
            for step in search.prefix_plan(indices)
        ]
        self._warn_of_lost_variance()

    def precompute(self) -> tuple[tf.Tensor, ...]:
        """The scaled eigenvectors of each column; O(sum m_i^3), in float64."""
        return tuple(system.table for system in self._systems())

    def refresh(self) -> bool:
        """
        Choose the eigenfunctions anew, for the parameters as they are now.

        Their number stays: where fewer exist now, the rest are zero. An objective jumps here, so
        never within a line search. Compiled functions see the change.

        :return: whether the choice changed.
        """
        if not tf.executing_eagerly():
            raise ValueError("refresh must be called outside of tf.function.")
        spectra = self._spectra()
        found = search.top_products(spectra, self.num_basis)
        indices = np.concatenate([found, self._nothing(spectra, self.num_basis - len(found))])
        if np.array_equal(indices, self.indices.numpy()):
            return False
        self.indices.assign(indices)
        for variables, step in zip(self._plan, search.prefix_plan(indices), strict=True):
            for variable, part in zip(variables, step, strict=True):
                variable.assign(part)
        self._warn_of_lost_variance()
        return True

    def log_eigenvalues(self) -> tf.Tensor:
        """``log prod_i lam_i [p]`` of the unit-variance kernel, in float64."""
        logs = [
            tf.gather(system.log_eigenvalues, self.indices[:, i])
            for i, system in enumerate(self._systems())
        ]
        return tf.add_n(logs)

    def explained_variance(self) -> float:
        """
        The share of the prior variance that the basis has, from 0 to 1: the mean over the grid (by
        its weights, if any) of ``|phi(u)|^2 / k(u, u)``.
        """
        with tf.init_scope():
            kept = tf.reduce_logsumexp(self.log_eigenvalues())
            total = sum(float(np.log(len(self.grid[i]))) for i in self._factors().columns)
            return float(tf.exp(kept - total))

    def complete_multiplets(self) -> int:
        """
        The largest number of eigenfunctions, up to p, that cuts through no group of equal
        eigenvalues. Equal grids and lengthscales in several columns make such groups; a basis that
        cuts one keeps an arbitrary part of it.
        """
        return search.whole_groups(self._spectra(), self.num_basis)

    def fraction_outside(self, X: Any) -> float:
        """The share of rows of ``X [N, D]`` outside of the grid, where all functions decay."""
        X = self._require_inputs(X).numpy()
        columns = self._factors().columns
        low = np.array([self.grid[i][0] for i in columns])
        high = np.array([self.grid[i][-1] for i in columns])
        inside = (X[:, columns] >= low) & (X[:, columns] <= high)
        return float(1.0 - inside.all(axis=1).mean())

    @property
    def numbers_per_row(self) -> int:
        # distinct prefixes are a third of all, in 8 as in 100 columns
        return self.num_basis * (1 + len(self._plan) // 3)

    @property
    def input_dim(self) -> int:
        return len(self.grid)

    def _features(self, X: tf.Tensor, precomputed: Sequence[tf.Tensor]) -> tf.Tensor:
        """Column after column, each distinct prefix once; rows are functions: gathers are fast."""
        factors = self._factors()
        features = tf.sqrt(factors.variance())[None, None]
        functions = self._functions(factors, X, precomputed)
        for (parent, column), values in zip(self._plan, functions, strict=True):
            features = tf.gather(features, parent) * tf.gather(values, column)
        return tf.ensure_shape(features, [self.num_basis, X.shape[0]])

    def _columns(self, X: tf.Tensor, indices: tf.Tensor | None) -> tf.Tensor:
        precomputed = self.precompute()
        if indices is None:
            return tf.transpose(self._features(X, precomputed))
        factors = self._factors()
        chosen = tf.gather(self.indices, indices)  # [k, d]
        features = tf.sqrt(factors.variance())
        for i, values in enumerate(self._functions(factors, X, precomputed)):
            features = features * tf.gather(values, chosen[:, i])
        return tf.transpose(features)

    def _functions(
        self, factors: ProductFactors, X: tf.Tensor, tables: Sequence[tf.Tensor]
    ) -> list[tf.Tensor]:
        """
        The scaled one-dimensional eigenfunctions of each column in use, ``[m_i, N]``.

        Computed in float64 whatever the type of X: the table holds ``1 / sqrt(lam)`` up to 1e7,
        which would bring float32 rounding up to the size of the functions.
        """
        functions = [
            tf.linalg.matmul(
                table,
                factors.factor(i, tf.cast(X[:, i], tf.float64), tf.constant(self.grid[i])),
                transpose_a=True,
                transpose_b=True,
            )
            for i, table in zip(factors.columns, tables, strict=True)
        ]
        return [tf.cast(values, X.dtype) for values in functions]

    def _factors(self) -> ProductFactors:
        factors = ProductFactors(self.kernel, len(self.grid))
        if factors.columns != tuple(self._used):
            raise ValueError(
                f"kernel must read columns {list(self._used)} of X, as when the eigenfunctions "
                f"were chosen; it reads {list(factors.columns)}. Make a new basis."
            )
        return factors

    def _systems(self) -> list[Eigensystem]:
        factors = self._factors()
        shares = self.grid_weights
        return [
            eigensystem(factors, i, self.grid[i], None if shares is None else shares[i])
            for i in factors.columns
        ]

    def _spectra(self) -> list[np.ndarray]:
        return [system.log_eigenvalues.numpy() for system in self._systems()]

    def _nothing(self, spectra: list[np.ndarray], count: int) -> np.ndarray:
        """``count`` times the index of an eigenfunction that does not exist, and so is zero."""
        row = np.zeros([1, len(spectra)], np.int32)
        for i, spectrum in enumerate(spectra):
            lost = np.flatnonzero(~np.isfinite(spectrum))
            if len(lost):
                row[0, i] = lost[0]
                break
        return np.repeat(row, count, axis=0)

    def _warn_of_lost_variance(self) -> None:
        share = self.explained_variance()
        if share < _EXPLAINED:
            warnings.warn(
                f"the {self.num_basis} eigenfunctions have {share:.0%} of the kernel's prior "
                "variance: take more of them, or longer lengthscales, or a model that keeps the "
                "rest (BasisFeatures, or the GRIEF model with objective='bound').",
                stacklevel=3,
            )


def _per_column(value: Any, name: str) -> list[Any]:
    try:
        return list(value)
    except TypeError:
        raise ValueError(
            f"{name} must be a sequence, one array per column, got {type(value).__name__}."
        ) from None


def _shares(
    value: Any, columns: np.ndarray | None, nodes: list[np.ndarray]
) -> tuple[np.ndarray, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        if value != "data" or columns is None:
            raise ValueError(
                f'grid_weights must be None, "data" (with X), or arrays; got {value!r}'
                + (" without X." if columns is None else ".")
            )
        pairs = zip(columns, nodes, strict=True)
        return tuple(grids.nearest_shares(column, n) for column, n in pairs)
    value = _per_column(value, "grid_weights")
    if len(value) != len(nodes):
        raise ValueError(
            f"grid_weights must have weights for each of the {len(nodes)} columns, got "
            f"{len(value)}."
        )
    return tuple(
        grids.require_shares(shares, len(n), f"grid_weights[{i}]")
        for i, (shares, n) in enumerate(zip(value, nodes, strict=True))
    )
