"""Randomized block Gauss-Seidel for the linear system of exact GP regression.

The weights A of ``(K + Sigma) A = B``, with ``K = k(X, X)`` and a diagonal Sigma, minimize

    tr(A^T (K + Sigma) A) / 2 - tr(A^T B),

the dual of kernel ridge regression. A step minimizes it exactly over the weights of one block of
rows I, with ``R = B - (K + Sigma) A``:

    A_I += D,    R -= (K + Sigma)[:, I] D,    D = (K_II + Sigma_II)^-1 R_I,

so the objective never increases, and there is no step size. A pass visits every row once. Blocks
are drawn anew in each pass; ``partition`` chooses how:

- "neighbors": rows are cut in halves, repeatedly, at a quantile of their projections on a random
  direction, so that a block holds rows that are near each other, in lengthscales. A block then
  explains its own rows almost completely; the rows at its borders are inside of another block in
  the next pass.
- "random": rows without replacement.

Measured on 8,000 rows of kin40k, blocks of at most 800 rows: a relative residual of 3e-4 after ten
passes with "neighbors", 1e-2 with "random". Blocks that stay the same in all passes, whose factors
could be kept, stall: 5e-2 after twenty passes, of neighbors and of random rows alike.

Related methods: stochastic dual descent, Lin et al., "Stochastic Gradient Descent for Gaussian
Processes Done Right" (2024, arXiv:2310.20581), takes gradient steps on random rows; ASkotch,
Rathore et al., "Have ASkotch" (arXiv:2407.10070), and ADASAP (arXiv:2505.13723) are block methods
with sampled blocks, a Nystrom approximation of the block and Nesterov's acceleration. Here blocks
are small enough for their exact factors, and there is no acceleration.

Products with K are computed in float32, or in float64 with ``precision="float64"``. Weights,
residuals and factors are in float64, and the residuals are computed anew in float64 whenever they
have fallen a hundredfold, and before the solver stops: iterative refinement, so that float32 does
not limit the accuracy.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from gpflow_sparse.covariances.stationary import centered, covariance, in_lengthscales
from gpflow_sparse.numerics import linalg
from gpflow_sparse.numerics.tracing import compiled
from gpflow_sparse.validation import checks, component_checks

PARTITIONS = ("neighbors", "random")
PRECISIONS = ("float32", "float64")
# Entries of one tile of K, 4 MB in float32.
_TILE_ENTRIES = 2**20
# Factor by which the residual falls between two computations in float64.
_REFRESH = 1e-2
# A run has stalled if this many passes reduce the residual by less than one per cent, and has
# diverged if the residual is this many times the right-hand side.
_STALL_PASSES, _DIVERGED = 10, 1e3


class ConvergenceError(ValueError):
    """A solve that stalls or diverges; the message says what helps."""


@dataclass(frozen=True)
class DualOptions:
    """
    Options of the block solver of :class:`gpflow_sparse.models.DualGPR`.

    :param block_size: largest number of rows in a block. A pass takes O(N b^2) time for blocks and
        O(N^2) for products: larger blocks need fewer passes.
    :param partition: "neighbors" or "random"; see :mod:`gpflow_sparse.models.dual.solver`.
    :param tolerance: relative residual ``|B - (K + Sigma) A| / |B|`` at which to stop, the largest
        over all right-hand sides.
    :param max_passes: number of passes after which to stop in any case.
    :param precision: type of products with K: "float32", or "float64" for tiny noise variances.
    :param seed: seed of the blocks.
    """

    block_size: int = 500
    partition: str = "neighbors"
    tolerance: float = 1e-3
    max_passes: int = 50
    precision: str = "float32"
    seed: int = 0

    def __post_init__(self) -> None:
        checks.require_count(self.block_size, "block_size")
        checks.require_choice(self.partition, "partition", PARTITIONS)
        checks.require_count(self.max_passes, "max_passes")
        checks.require_choice(self.precision, "precision", PRECISIONS)
        checks.require_seed(self.seed)
        if not (checks.is_number(self.tolerance) and 0.0 < self.tolerance < 1.0):
            raise ValueError(f"tolerance must be between 0 and 1, got {self.tolerance!r}.")


class DualState(NamedTuple):
    """All that a solve continues from: with the same options, to the last bit."""

    weights: np.ndarray
    """A, float64 ``[N, c]``."""
    residuals: np.ndarray
    """R, float64 ``[N, c]``, as tracked by the steps."""
    history: tuple[float, ...]
    """Relative residual after each pass, the largest over all right-hand sides."""
    refreshed: float
    """Relative residual when it was last computed in float64."""

    @property
    def num_passes(self) -> int:
        """Number of passes taken."""
        return len(self.history)

    @property
    def relative_residual(self) -> float:
        """Relative residual after the last pass."""
        return self.history[-1] if self.history else self.refreshed


class DualSolution(NamedTuple):
    """The result of :func:`solve`."""

    state: DualState
    """Weights, and the state from which more passes continue."""
    residuals: np.ndarray
    """``B - (K + Sigma) A``, computed in float64 after the last pass if refined, ``[N, c]``."""
    relative_residual: float
    """Relative residual of ``residuals``, the largest over all right-hand sides."""
    converged: bool
    """Whether ``relative_residual`` is at most the tolerance."""


def solve(
    kernel: Kernel,
    X: Any,
    noise: Any,
    B: Any,
    options: DualOptions | None = None,
    *,
    weights: Any = None,
    state: DualState | None = None,
    callback: Callable[[DualState], None] | None = None,
) -> DualSolution:
    """
    ``(k(X, X) + diag(noise))^-1 B``, to a relative residual.

    A pass takes O(N^2 (D + c) + N b^2) time for c right-hand sides and blocks of b rows, and memory
    is O(N (D + c) + b^2): K is computed in tiles in every pass. Keeping it saved a third of a pass
    on 8,000 rows in 8 columns, and its memory limits N.

    :param kernel: any kernel of one output.
    :param X: ``[N, D]``.
    :param noise: noise variance of each row, positive, ``[N]``.
    :param B: right-hand sides ``[N, c]``.
    :param weights: A to start from, ``[N, c]``, such as the solution for other hyperparameters;
        zero by default.
    :param state: state of an earlier call with the same arguments, to continue from.
    :param callback: called after each pass with the state.
    :raises ConvergenceError: if the residual grows, or no longer falls.
    """
    columns = tf.convert_to_tensor(B).shape[1]
    system = System(kernel, X, columns, options or DualOptions())
    return system.solve(kernel, noise, B, weights=weights, state=state, callback=callback)


def require_options(options: Any, name: str) -> DualOptions:
    """
    The options given to a method, or the defaults for None.

    :param name: name of the method, which must be called eagerly.
    """
    if not tf.executing_eagerly():
        raise ValueError(f"{name} must be called outside of tf.function.")
    found: DualOptions = component_checks.require_kind(
        DualOptions() if options is None else options,
        DualOptions,
        "options",
        "a gs.models.DualOptions",
    )
    return found


def warn_unless_converged(solution: DualSolution, options: DualOptions, name: str) -> None:
    """Warn the caller of the method of this name, which is called by a public method."""
    if solution.converged:
        return
    warnings.warn(
        f"the relative residual is {solution.relative_residual:.2g} after {options.max_passes} "
        f"passes, above the tolerance of {options.tolerance:g}: call {name}() again, or with more "
        "max_passes.",
        stacklevel=4,
    )


def partition(places: np.ndarray, options: DualOptions, index: int) -> list[np.ndarray]:
    """
    Blocks of rows of pass ``index``, in random order; their sizes differ by at most one.

    :param places: ``[N, D]``, in units in which distances count.
    :return: disjoint sorted arrays of row numbers.
    """
    rng = np.random.default_rng([options.seed, index])
    num_blocks = -(-len(places) // options.block_size)
    order = rng.permutation(len(places))
    blocks = np.array_split(order, num_blocks)
    if options.partition == "neighbors":
        blocks = _halves(order, [len(block) for block in blocks], places, rng)
    return [np.sort(blocks[i]) for i in rng.permutation(num_blocks)]


def _halves(
    rows: np.ndarray, sizes: list[int], places: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    """Blocks of given sizes, from cuts across random directions."""
    if len(sizes) == 1:
        return [rows]
    half = len(sizes) // 2
    cut = sum(sizes[:half])
    order = np.argpartition(places[rows] @ rng.normal(size=places.shape[1]), cut)
    below, above = rows[order[:cut]], rows[order[cut:]]
    return _halves(below, sizes[:half], places, rng) + _halves(above, sizes[half:], places, rng)


class System:
    """
    Linear systems of the same rows and number of right-hand sides, solved one after the other for
    changing values of the kernel's parameters: steps are compiled once.
    """

    def __init__(
        self, kernel: Kernel, X: Any, num_columns: int, options: DualOptions, *, refine: bool = True
    ) -> None:
        """
        :param X: ``[N, D]``.
        :param num_columns: c.
        :param refine: whether residuals are computed anew in float64; if not, all are of
            ``options.precision``, for a few passes from a near start, at less than half the cost.
        """
        self.options, self.refine = options, refine
        self.dtype = tf.as_dtype(options.precision)
        self.X = centered(kernel, X)  # [N, D]
        self.num_rows, self.num_passes = int(self.X.shape[0]), 0
        self.values = [
            [tf.Variable(tf.cast(p, dtype), trainable=False) for p in kernel.parameters]
            for dtype in (tf.float64, self.dtype)
        ]
        self.kernel, self.product_kernel = (with_values(kernel, v) for v in self.values)
        self.noise = tf.Variable(tf.zeros([self.num_rows], tf.float64), trainable=False)
        zeros = tf.zeros([self.num_rows, num_columns], tf.float64)
        self.A, self.R = tf.Variable(zeros, trainable=False), tf.Variable(zeros, trainable=False)
        self.tiles = self._tiled(tf.cast(self.X, self.dtype))  # [T, t, D]
        # compiled for each of the two sizes of blocks and of tiles, once
        self.step = compiled(self._step)
        self._times_weights = compiled(self._rows_times_weights)

    def solve(
        self,
        kernel: Kernel,
        noise: Any,
        B: Any,
        *,
        weights: Any = None,
        state: DualState | None = None,
        callback: Callable[[DualState], None] | None = None,
    ) -> DualSolution:
        """
        See :func:`solve`. Blocks differ from earlier calls, unless ``state`` is given.

        :param kernel: a kernel of the same structure as at first.
        """
        options, earlier = self.options, 0 if state is not None else self.num_passes
        self.assign(kernel, noise, B)
        state = self._start(weights) if state is None else self._restore(state)
        while state.num_passes < options.max_passes and state.relative_residual > options.tolerance:
            state = self._take_pass(state, earlier + state.num_passes)
            if callback is not None:
                callback(state)
            _require_progress(state, options)
        self.num_passes = earlier + state.num_passes
        is_fresh = not self.refine or state.relative_residual == state.refreshed
        residuals = self.R if is_fresh else self._true_residuals()
        relative = self._relative(residuals)
        return DualSolution(state, residuals.numpy(), relative, relative <= options.tolerance)

    def assign(self, kernel: Kernel, noise: Any, B: Any) -> None:
        """Assign a system; weights and residuals of the system before it stay."""
        for values in self.values:
            for value, parameter in zip(values, kernel.parameters, strict=True):
                value.assign(tf.cast(parameter, value.dtype))
        self.noise.assign(tf.cast(noise, tf.float64))
        self.B = tf.cast(B, tf.float64)  # [N, c]
        self.places = in_lengthscales(self.kernel, self.X).numpy()
        norms = tf.norm(self.B, axis=0)
        self.scales = tf.where(norms > 0.0, norms, 1.0)  # [c]

    def _start(self, weights: Any) -> DualState:
        """The state before the first pass."""
        self.A.assign(tf.zeros_like(self.A) if weights is None else tf.cast(weights, tf.float64))
        self.R.assign(self.B if weights is None else self._true_residuals())
        return self._state((), self._relative(self.R))

    def _restore(self, state: DualState) -> DualState:
        """Continue from a state."""
        for name, variable in (("weights", self.A), ("residuals", self.R)):
            value = getattr(state, name)
            if tuple(value.shape) != tuple(variable.shape):
                raise ValueError(
                    f"state must be of the same rows and right-hand sides: {name} has shape "
                    f"{tuple(value.shape)}, expected {tuple(variable.shape)}."
                )
            variable.assign(value)
        return state

    def _take_pass(self, state: DualState, index: int) -> DualState:
        """One step on each block of the partition ``index``."""
        for rows in partition(self.places, self.options, index):
            try:
                self.step(tf.constant(rows, tf.int32))
            except tf.errors.InvalidArgumentError as error:
                raise linalg.FactorizationError(
                    f"Cholesky factorization of a block of k(X, X) + noise failed: {error.message}"
                ) from error
        relative, refreshed = self._relative(self.R), state.refreshed
        if self.refine and relative <= max(self.options.tolerance, _REFRESH * refreshed):
            self.R.assign(self._true_residuals())
            relative = refreshed = self._relative(self.R)
        return self._state((*state.history, relative), refreshed)

    def _state(self, history: tuple[float, ...], refreshed: float) -> DualState:
        return DualState(self.A.numpy(), self.R.numpy(), history, refreshed)

    def _relative(self, residuals: Any) -> float:
        """The largest relative residual of all right-hand sides."""
        return float(tf.reduce_max(tf.norm(tf.convert_to_tensor(residuals), axis=0) / self.scales))

    def _true_residuals(self) -> tf.Tensor:
        """``B - (K + Sigma) A  [N, c]``."""
        return self.B - self.times_weights()

    def times_weights(self) -> tf.Tensor:
        """``(K + Sigma) A  [N, c]``, products in float64 if they are to be refined."""
        N = self.num_rows
        height = tile_height(N)
        parts = [
            self._times_weights(tf.constant(start), self.X[start : start + height])
            for start in range(0, N, height)
        ]
        return tf.concat(parts, axis=0) + self.noise[:, None] * self.A

    def _rows_times_weights(self, start: tf.Tensor, X: tf.Tensor) -> tf.Tensor:
        """``K[start : start + n] A`` for these rows ``X [n, D]``."""
        kernel, dtype = (
            (self.kernel, tf.float64) if self.refine else (self.product_kernel, self.dtype)
        )
        X, others, A = (tf.cast(part, dtype) for part in (X, self.X, self.A))
        K = covariance(kernel, X, others)  # [n, N]
        # exact, also for kernels that are zero between different arguments
        K = tf.linalg.set_diag(K, kernel(X, full_cov=False), k=start)
        return tf.cast(tf.linalg.matmul(K, A), tf.float64)

    def _step(self, rows: tf.Tensor) -> None:
        X = tf.gather(self.X, rows)  # [b, D]
        K = covariance(self.kernel, X)
        K = tf.linalg.set_diag(K, tf.linalg.diag_part(K) + tf.gather(self.noise, rows))
        L = linalg.cholesky(K, "a block of k(X, X) + noise")
        half = linalg.solve_triangular(L, tf.gather(self.R, rows))
        D = linalg.solve_triangular(L, half, adjoint=True)  # [b, c]
        self.A.scatter_add(tf.IndexedSlices(D, rows))
        product = self._columns_times(rows, X, tf.cast(D, self.dtype))
        self.R.assign_sub(tf.cast(product, tf.float64))
        # zero but for rounding, which matters where the noise is tiny
        self.R.scatter_update(tf.IndexedSlices(tf.zeros_like(D), rows))

    def _columns_times(self, rows: tf.Tensor, X: tf.Tensor, D: tf.Tensor) -> tf.Tensor:
        """``K[:, I] D  [N, c]`` for the rows I, whose inputs are ``X``."""
        X = tf.cast(X, self.dtype)
        if len(self.tiles) == 1:
            return tf.linalg.matmul(covariance(self.product_kernel, self.tiles[0], X), D)
        products = tf.map_fn(
            lambda tile: tf.linalg.matmul(covariance(self.product_kernel, tile, X), D),
            self.tiles,
            parallel_iterations=1,
        )  # [T, t, c]
        return tf.reshape(products, [-1, D.shape[1]])[: self.num_rows]

    def _tiled(self, X: tf.Tensor) -> tf.Tensor:
        """Rows in tiles of equal height ``[T, t, D]``, the last of which is padded."""
        width = min(self.options.block_size, self.num_rows)
        count = -(-self.num_rows * width // _TILE_ENTRIES)
        height = -(-self.num_rows // count)
        X = tf.pad(X, [[0, count * height - self.num_rows], [0, 0]])
        return tf.reshape(X, [count, height, -1])


def tile_height(num_columns: int) -> int:
    """Rows of a tile of K with this number of columns."""
    return max(1, _TILE_ENTRIES // num_columns)


def in_type(kernel: Kernel, dtype: tf.DType) -> Kernel:
    """A copy with constant parameters of another float type."""
    return with_values(kernel, [tf.cast(p, dtype) for p in kernel.parameters])


def with_values(kernel: Kernel, values: Sequence[tf.Tensor]) -> Kernel:
    """A copy with these tensors in place of ``kernel.parameters``."""
    constants = {id(p): value for p, value in zip(kernel.parameters, values, strict=True)}
    copy: Kernel = gpflow.utilities.deepcopy(kernel, constants)
    return copy


def _require_progress(state: DualState, options: DualOptions) -> None:
    """:raises ConvergenceError: unless the residual falls."""
    history = state.history
    if not history[-1] < _DIVERGED:
        problem = f"diverges: the relative residual is {history[-1]:.2g}"
    elif len(history) > _STALL_PASSES and history[-1] > 0.99 * history[-1 - _STALL_PASSES]:
        problem = (
            f"has stalled: the relative residual was {history[-1 - _STALL_PASSES]:.3g} and is "
            f"{history[-1]:.3g} ten passes later"
        )
    else:
        return
    advice = ["a larger noise variance", f"larger blocks than block_size={options.block_size}"]
    if options.precision == "float32":
        advice.insert(0, "precision='float64'")
    if options.partition == "random":
        advice.append("partition='neighbors'")
    raise ConvergenceError(
        f"The block solver {problem}, after {state.num_passes} passes. Any of these helps: "
        f"{', '.join(advice)}."
    )
