"""GRIEF: the leading eigenfunctions of a product kernel on a Cartesian grid of any size.

One-dimensional eigensystems of each column, the search for the largest products of their
eigenvalues, the basis of products of their eigenfunctions, and bases with other weights.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.kernels import Kernel

from gpflow_sparse.bases.base import FiniteBasis, require_basis
from gpflow_sparse.bases.product import ProductFactors, make_grid
from gpflow_sparse.numerics import linalg
from gpflow_sparse.validation import checks

# Fraction of the prior variance below which the basis warns that it approximates the kernel badly.
_EXPLAINED = 0.9
# Entries of a unit eigenvector below this, relative to its largest, may be rounding.
_CLEAR = 1e-6
# Logarithms are compared as integers, in units of 1e-9: exact sums, so that ties are ties.
_RESOLUTION = 1e9


def eigensystems(
    factors: ProductFactors, grid: Sequence[np.ndarray]
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Eigensystems of ``K_i = k_i(nodes, nodes)`` of the d columns that the kernel reads, in float64,
    largest eigenvalue first; of columns with fewer nodes than m the last eigenvalues are lost.

    The computed eigenvalues of a smooth kernel carry an absolute error of about ``eps``
    times the largest, and a third of them may be negative: only those above ``m eps`` times the
    largest are kept, and no gradient passes through the root of the others. Gradients reach the
    parameters of the kernel by the perturbation formula over all eigenvectors, the lost ones
    included. Time O(d m^3).

    :return: logarithms of the eigenvalues ``[d, m]``, ``-inf`` where one is lost to rounding; and
        tables of ``q / sqrt(lam)``, ``[d, m, m]``, whose columns are zero there: ``k_i(x, nodes)
        table`` are the scaled eigenfunctions at x.
    """
    nodes, sizes = padded(grid, factors.columns)
    K = factors.stacked(tf.constant(nodes), nodes)
    K = _with_finite_columns(0.5 * (K + tf.linalg.matrix_transpose(K)), factors.columns)
    exists = np.arange(nodes.shape[1]) < sizes[:, None]  # [d, m]
    if not exists.all():  # different negative eigenvalues, since the gradient divides by gaps
        others = tf.linalg.diag(tf.constant(-1.0 - np.arange(nodes.shape[1]), tf.float64))
        K = tf.where(exists[:, :, None] & exists[:, None, :], K, others)
    ascending, vectors = tf.linalg.eigh(K)
    lam, Q = tf.reverse(ascending, [1]), _with_signs(tf.reverse(vectors, [2]))
    precisions = [factors.precision(column, tf.float64) for column in factors.columns]
    least = tf.constant(sizes * precisions)[:, None] * lam[:, :1]
    kept = tf.stop_gradient(lam > least)
    safe = tf.where(kept, lam, tf.ones_like(lam))  # no division by zero, nor its gradient
    table = tf.where(kept[:, None], Q / tf.sqrt(safe)[:, None], tf.zeros_like(Q))
    return tf.where(kept, tf.math.log(safe), tf.constant(-np.inf, tf.float64)), table


def _with_finite_columns(K: tf.Tensor, columns: Sequence[int]) -> tf.Tensor:
    """
    Covariances ``[d, m, m]`` of columns on their nodes.

    :raises FactorizationError: naming a column whose covariance is not finite.
    """
    message = (
        "The covariance of column {} on the grid must be finite, look at the parameters of the "
        "kernel: its lengthscales may be NaN or have underflowed to zero"
    )
    parts = zip(columns, tf.unstack(K, len(columns)), strict=True)
    return tf.stack([linalg.require_finite(part, message.format(i)) for i, part in parts])


def padded(grid: Sequence[np.ndarray], columns: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of some columns ``[d, m]``, the last one repeated, and their numbers ``[d]``."""
    nodes = [grid[column] for column in columns]
    sizes = np.array([len(part) for part in nodes])
    widths = sizes.max() - sizes
    return np.stack(
        [np.pad(part, (0, n), "edge") for part, n in zip(nodes, widths, strict=True)]
    ), sizes


def _with_signs(Q: tf.Tensor) -> tf.Tensor:
    """
    Eigenvectors ``[d, m, m]`` with signs such that the last entry above rounding is positive.

    The sign of a computed eigenvector differs between compilers and may flip as a parameter moves,
    which would change the meaning of a trained weight. The j-th eigenvector of the usual kernels
    crosses zero j times and never at the end of the grid (they are totally positive), so this sign
    does not change with the parameters.
    """
    sizes = tf.abs(Q)
    clear = sizes > _CLEAR * tf.reduce_max(sizes, axis=1, keepdims=True)
    last = tf.reduce_max(tf.where(clear, tf.range(tf.shape(Q)[1])[:, None], 0), axis=1)  # [d, m]
    signs = tf.sign(tf.gather(tf.linalg.matrix_transpose(Q), last, batch_dims=2))  # [d, m]
    return Q * tf.stop_gradient(signs)[:, None]


def top_products(log_spectra: Sequence[np.ndarray], count: int) -> np.ndarray:
    r"""
    Indices of the ``count`` largest products ``prod_i lam_i[index_i]``, largest first.

    Exact: dropping a prefix takes ``count`` better ones, each of which beats it with the same
    suffix. Ties, which equal grids and lengthscales make massively, are broken by the smaller index
    in lexicographic order, so the result does not depend on rounding. Evans and Nair, "Scalable
    Gaussian Processes with Grid-Structured Eigenfunctions" (2018), algorithm 1, whose indices
    assume lists of one length and whose logarithms assume positive numbers.

    Time O(count sum_i m_i).

    :param log_spectra: ``log lam_i [m_i]``, each in descending order; ``-inf`` at its end marks
        products that do not exist.
    :return: indices ``[min(count, all that exist), d]``.
    """
    values = np.zeros(1, np.int64)
    parents: list[np.ndarray] = []
    columns: list[np.ndarray] = []
    for spectrum in _as_integers(log_spectra):
        if len(values) == count:
            # all of these with the leading entry are `count` products already
            spectrum = spectrum[spectrum >= values.min() - values.max()]
        products = (values[:, None] + spectrum[None, :]).ravel()
        # prefixes are in lexicographic order, and so are these; of ties the first ones are taken
        kept = np.sort(np.argsort(-products, kind="stable")[:count])
        values = products[kept]
        parents.append(kept // len(spectrum))
        columns.append(kept % len(spectrum))
    rows = np.argsort(-values, kind="stable")
    indices = np.empty((len(rows), len(columns)), np.int32)
    for i in range(len(columns) - 1, -1, -1):
        indices[:, i] = columns[i][rows]
        rows = parents[i][rows]
    return indices


def whole_groups(log_spectra: Sequence[np.ndarray], count: int) -> int:
    """
    The most products, at most ``count``, that can be taken without cutting through a tie.

    :return: from 0 (the largest products tie, more than ``count`` of them) to ``count``.
    """
    indices = top_products(log_spectra, count + 1)
    if len(indices) <= count:
        return len(indices)
    spectra = _as_integers(log_spectra)
    values = sum(spectrum[indices[:, i]] for i, spectrum in enumerate(spectra))
    steps = np.flatnonzero(np.diff(values))  # a group ends here
    return int(steps[-1]) + 1 if len(steps) else 0


def prefix_plan(indices: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """
    Order of multiplications that makes all products with every distinct prefix multiplied once.

    :param indices: ``[p, d]``.
    :return: for each of the d factors ``(parent, column)``: the products up to it are ``previous[
        parent] * factor[column]``; the last ones in the order of ``indices``.
    """
    num_products, num_factors = indices.shape
    order = np.lexsort(indices.T[::-1])
    rows = indices[order]
    prefixes = np.zeros(num_products, np.int32)  # number of each row's prefix so far
    fresh = np.zeros(num_products, bool)
    fresh[0] = True
    plan = []
    for i in range(num_factors - 1):
        fresh[1:] |= rows[1:, i] != rows[:-1, i]
        first = np.flatnonzero(fresh)
        plan.append((prefixes[first], rows[first, i].astype(np.int32)))
        prefixes = (np.cumsum(fresh) - 1).astype(np.int32)
    parent = np.empty(num_products, np.int32)
    parent[order] = prefixes
    plan.append((parent, indices[:, -1].astype(np.int32)))
    return plan


def _as_integers(log_spectra: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Logarithms relative to the leading entry, in whole units; infinite ones left out."""
    kept = [np.asarray(s)[np.isfinite(s)] for s in log_spectra]
    return [np.rint((s - s[0]) * _RESOLUTION).astype(np.int64) for s in kept]


class GridEigenfunctions(FiniteBasis):
    r"""
    The p leading eigenfunctions of a product kernel, from a grid of ``prod_i m_i`` points that is
    never formed.

    With nodes ``U_i`` in column i and ``k_i(U_i, U_i) = Q_i diag(lam_i) Q_i^T``, an eigenfunction
    is a product of one-dimensional ones, one per column,

        phi_j(x) = sqrt(variance) prod_i k_i(x_i, U_i) Q_i[:, j_i] / sqrt(lam_i[j_i]),

    and the eigenfunctions with the p largest ``prod_i lam_i[j_i]`` are kept. They are orthonormal
    in the function space of k: ``basis(X) basis(X)^T`` never exceeds ``k(X, X)``, whatever p, and
    with all of them it is the Nystrom approximation from the whole grid. Weights are ``N(0, I)``.

    Evans and Nair, "Scalable Gaussian Processes with Grid-Structured Eigenfunctions" (2018), eqs.
    (3) and (10) and algorithm 1. Departures, listed in ``docs/errata.md``: eigenvalues lost to
    rounding are masked, where the paper takes their logarithm; every column is scaled by its own
    eigenvalue, so no product can overflow and no logarithm of features is needed; ties are broken
    by index.

    *Fixed index set.* The eigenfunctions are chosen when the basis is constructed, and again by
    :meth:`refresh` only: in between they are smooth functions of the kernel's parameters.

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
    ) -> None:
        """
        :param kernel: a product over columns: SquaredExponential, or a Product of kernels of one
            column each.
        :param X: training inputs ``[N, D]``, whose percentiles are the nodes.
        :param num_eigenfunctions: p, at most; there may be fewer.
        :param points_per_dimension: nodes in each column, at most.
        :param grid: nodes ``[m_i]`` of each of the D columns instead, sorted; X may then be None.
        :raises ValueError: for a kernel that is not a product, naming the part; for X or nodes that
            are not finite; for counts that are not positive.
        """
        super().__init__()
        checks.require_count(num_eigenfunctions, "num_eigenfunctions")
        self.kernel = kernel
        self.grid = make_grid(X, points_per_dimension, grid)
        """Nodes of each column, float64."""
        self._used = ProductFactors(kernel, len(self.grid)).columns
        if not self._used:
            raise ValueError(
                f"kernel must read a column of X; {type(kernel).__name__} is constant."
            )
        indices = top_products(self._spectra(), num_eigenfunctions)
        self.num_basis = len(indices)
        self.indices = tf.Variable(indices, trainable=False, name="indices")
        """Indices of the factors of each eigenfunction in the columns in use, ``[p, d]``."""
        self._plan = [
            tuple(tf.Variable(part, trainable=False, shape=[None]) for part in step)
            for step in prefix_plan(indices)
        ]
        self._warn_of_lost_variance()

    def precompute(self) -> tuple[tf.Tensor, ...]:
        """The scaled eigenvectors of all columns; O(d m^3), in float64."""
        return (self._systems()[1],)

    def refresh(self) -> bool:
        """
        Choose the eigenfunctions again for the present parameters.

        Their number is constant: if fewer exist now, the others are zero. The objective jumps, so
        do not call this within a line search. Compiled functions use the new choice.

        :return: whether the choice changed.
        """
        if not tf.executing_eagerly():
            raise ValueError("refresh must be called outside of tf.function.")
        spectra = self._spectra()
        found = top_products(spectra, self.num_basis)
        # in place of missing ones a product of eigenfunctions lost to rounding, which is zero
        lost = np.array([[np.argmin(np.isfinite(s)) for s in spectra]], np.int32)
        missing = self.num_basis - len(found)
        indices = np.concatenate([found, np.repeat(lost, missing, axis=0)])
        if np.array_equal(indices, self.indices.numpy()):
            return False
        self.indices.assign(indices)
        for variables, step in zip(self._plan, prefix_plan(indices), strict=True):
            for variable, part in zip(variables, step, strict=True):
                variable.assign(part)
        self._warn_of_lost_variance()
        return True

    def log_eigenvalues(self) -> tf.Tensor:
        """``log prod_i lam_i [p]`` of the unit-variance kernel, in float64."""
        chosen = tf.gather(self._systems()[0], tf.transpose(self.indices), batch_dims=1)  # [d, p]
        return tf.reduce_sum(chosen, axis=0)

    def explained_variance(self) -> float:
        """
        The share of the prior variance that the basis has, from 0 to 1: the mean over the grid
        of ``|phi(u)|^2 / k(u, u)``.
        """
        with tf.init_scope():
            kept = tf.reduce_logsumexp(self.log_eigenvalues())
            return float(tf.exp(kept - sum(np.log(len(self.grid[i])) for i in self._used)))

    def complete_multiplets(self) -> int:
        """
        The largest number of eigenfunctions, up to p, that cuts through no group of equal
        eigenvalues. Equal grids and lengthscales in several columns make such groups; a basis that
        cuts one keeps an arbitrary part of it.
        """
        return whole_groups(self._spectra(), self.num_basis)

    def fraction_outside(self, X: Any) -> float:
        """The share of rows of ``X [N, D]`` outside of the grid, where all functions decay."""
        X = self._require_inputs(X).numpy()
        inside = [(self.grid[i][0] <= X[:, i]) & (X[:, i] <= self.grid[i][-1]) for i in self._used]
        return float(1.0 - np.all(inside, axis=0).mean())

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
        self, factors: ProductFactors, X: tf.Tensor, precomputed: Sequence[tf.Tensor]
    ) -> list[tf.Tensor]:
        """
        The scaled one-dimensional eigenfunctions of each column in use, ``[m_i, N]``.

        Computed in float64 whatever the type of X: the table holds ``1 / sqrt(lam)`` up to 1e7,
        which would bring float32 rounding up to the size of the functions.
        """
        rows = tf.gather(tf.cast(tf.transpose(X), tf.float64), factors.columns)  # [d, N]
        K = factors.stacked(rows, padded(self.grid, factors.columns)[0])  # [d, N, m]
        values = tf.linalg.matmul(precomputed[0], K, transpose_a=True, transpose_b=True)
        return tf.unstack(tf.cast(values, X.dtype))

    def _factors(self) -> ProductFactors:
        factors = ProductFactors(self.kernel, len(self.grid))
        if factors.columns != tuple(self._used):
            raise ValueError(
                f"kernel must read columns {list(self._used)} of X, as when the eigenfunctions "
                f"were chosen; it reads {list(factors.columns)}. Make a new basis."
            )
        return factors

    def _systems(self) -> tuple[tf.Tensor, tf.Tensor]:
        return eigensystems(self._factors(), self.grid)

    def _spectra(self) -> list[np.ndarray]:
        logs, sizes = self._systems()[0].numpy(), [len(self.grid[i]) for i in self._used]
        return [part[:size] for part, size in zip(logs, sizes, strict=True)]

    def _warn_of_lost_variance(self) -> None:
        share = self.explained_variance()
        if share < _EXPLAINED:
            warnings.warn(
                f"the {self.num_basis} eigenfunctions have {share:.0%} of the kernel's prior "
                "variance: take more of them, or longer lengthscales, or a model that keeps the "
                "rest (BasisFeatures, or the GRIEF model with objective='bound').",
                stacklevel=3,
            )


class ReweightedBasis(FiniteBasis):
    """
    ``sqrt(w_j) (V^T phi(x))_j``: the functions of another basis, rotated by V, with prior variances
    w in place of 1.

    Without V its kernel is eq. (11) of Evans and Nair, "Scalable Gaussian Processes with
    Grid-Structured Eigenfunctions" (2018). With V it is another family of kernels: a diagonal in
    rotated coordinates is not diagonal in the old ones, except for ``w = 1``, which is the basis
    itself either way (an orthogonal V).
    """

    def __init__(self, basis: FiniteBasis, weights: Any, rotation: Any = None) -> None:
        """
        :param basis: m functions.
        :param weights: w ``[m]``, positive; an array or a ``gpflow.Parameter``, which it shares.
        :param rotation: V ``[m, m]``, orthogonal; None for the identity.
        :raises ValueError: for weights that are not positive or not m, or another shape of V.
        """
        super().__init__()
        self.basis = require_basis(basis)
        self.kernel = basis.kernel
        self.num_basis = basis.num_basis
        self.num_leading = basis.num_leading if rotation is None else 0
        if not isinstance(weights, Parameter):
            wanted = f"positive, {self.num_basis} of them"
            weights = checks.require_positive(weights, "weights", wanted, ((self.num_basis,),))
            weights = Parameter(weights, transform=gpflow.utilities.positive())
        if rotation is not None and not isinstance(rotation, tf.Variable):
            rotation = checks.as_tensor(rotation, "rotation")
        m = self.num_basis
        for name, value, shape in (("weights", weights, (m,)), ("rotation", rotation, (m, m))):
            if value is not None and tuple(value.shape) != shape:
                raise ValueError(f"{name} must have shape {shape}, got {tuple(value.shape)}.")
        self.weights = weights
        self.rotation = rotation

    def precompute(self) -> tuple[tf.Tensor, ...]:
        """Precomputed tensors of the underlying basis."""
        return self.basis.precompute()

    def refresh(self) -> bool:
        """Choose the functions of the underlying basis again; weights and rotation stay."""
        return self.basis.refresh()

    def unweighted(self, coefficients: tf.Tensor) -> tf.Tensor:
        """Coefficients of the underlying basis from coefficients of this one, ``[..., m, P]``."""
        scaled = tf.sqrt(tf.cast(self.weights, coefficients.dtype))[:, None] * coefficients
        if self.rotation is None:
            return scaled
        return tf.linalg.matmul(tf.cast(self.rotation, scaled.dtype), scaled)

    @property
    def numbers_per_row(self) -> int:
        return self.basis.numbers_per_row + self.num_basis

    @property
    def input_dim(self) -> int | None:
        return self.basis.input_dim

    def _features(self, X: tf.Tensor, precomputed: Sequence[tf.Tensor]) -> tf.Tensor:
        A = self.basis._features(X, precomputed)
        if self.rotation is not None:
            A = tf.linalg.matmul(tf.cast(self.rotation, A.dtype), A, transpose_a=True)
        return tf.sqrt(tf.cast(self.weights, A.dtype))[:, None] * A

    def _columns(self, X: tf.Tensor, indices: tf.Tensor | None) -> tf.Tensor:
        roots = tf.sqrt(tf.cast(self.weights, X.dtype))
        roots = roots if indices is None else tf.gather(roots, indices)
        if self.rotation is None and self.basis.precision == "identity":
            return self.basis._columns(X, indices) * roots
        A = tf.transpose(self.basis._features(X, self.precompute()))  # [N, m]
        if self.rotation is None:
            return (A if indices is None else tf.gather(A, indices, axis=1)) * roots
        V = tf.cast(self.rotation, A.dtype)
        V = V if indices is None else tf.gather(V, indices, axis=1)  # [m, k]
        return tf.linalg.matmul(A, V) * roots
