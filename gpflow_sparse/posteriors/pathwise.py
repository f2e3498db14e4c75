"""Functions drawn from a posterior by pathwise conditioning of draws of the prior.

Wilson et al., "Efficiently Sampling Functions from Gaussian Process Posteriors" (2020,
arXiv:2002.09309), with one departure, which :class:`FunctionDraws` explains.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.covariances import Kuf
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import Kernel

from gpflow_sparse.bases import FiniteBasis, GridEigenfunctions, KernelDictionary
from gpflow_sparse.bases.base import float_type
from gpflow_sparse.bases.fourier import draw_frequencies, require_num_features
from gpflow_sparse.bases.product import ProductFactors
from gpflow_sparse.inference.chevron import tail_projections
from gpflow_sparse.numerics import devices, linalg
from gpflow_sparse.numerics.cosines import cos_two_pi
from gpflow_sparse.validation import checks, component_checks

# Entries of the largest tensor of one block of rows: 16 MiB in float64, and a few such at a time.
_BLOCK = 2**21


class FunctionDraws(tf.Module):
    r"""
    Functions drawn from a posterior, to be evaluated at any X: ``draws(X)`` is ``[S, N, P]``, and
    the value at a point is the same in every call. Made by ``posterior.sample_functions``.

    With u the values at the inducing inputs U, and jitter eps as in the posterior,

        f(x) = mean(x) + f_prior(x) + k(x, U) c,
        c = (Kuu + eps I)^-1 (u - f_prior(U) - sqrt(eps) zeta),     u ~ q(u),  zeta ~ N(0, I).

    This is linear in ``f_prior``, so the mean and the covariance of the draws depend only on the
    mean and the covariance of ``f_prior``. Every draw has frequencies of its own, so these are
    exactly zero and ``k`` for any number of features, and the mean and the covariance of the draws
    are *exactly* ``predict_f(X, full_cov=True)``. Few features change higher moments: given its
    frequencies a draw is Gaussian, marginally it is a mixture with heavier tails. Largest excess
    kurtosis of 4,000 draws at 6 points among 50 inducing points, Matern 5/2, q much narrower than
    the prior: 8.6 with 4 features, 2.8 with 16, 0.8 with 64, 0.3 with 256, 0.1 (the noise of the
    estimate) with 1024. Frequencies shared by all draws would give them a common error instead.

    It copies hyperparameters, inducing inputs, ``q`` and the mean function; later changes of the
    model have no effect. It can be differentiated with respect to X, and called inside
    ``tf.function``.
    """

    def __init__(
        self,
        paths: Sequence["Paths"],
        mean_function: MeanFunction | None,
        input_dim: int | None,
        mixing: tf.Tensor | None = None,
    ) -> None:
        """
        :param paths: draws of latent functions, whose outputs are concatenated.
        :param mean_function: copied; None for zero.
        :param input_dim: D; None if any number is accepted.
        :param mixing: ``W [P, L]`` that makes P outputs of L latent functions; None for ``I``.
        """
        super().__init__()
        self.paths = tuple(paths)
        self.mean_function = None
        if mean_function is not None:
            self.mean_function = gpflow.utilities.freeze(mean_function)
        self.input_dim = input_dim
        self._mixing = None if mixing is None else tf.convert_to_tensor(mixing)

    def __call__(self, X: Any) -> tf.Tensor:
        """
        Time O(N (S P num_features D + M S P + M D)) with M inducing points in all. Blocks of rows
        bound the memory of intermediate results; a gradient needs the results of all blocks, O(N (S
        P num_features + M)).

        :param X: ``[N, D]``.
        :return: ``[S, N, P]``, mean function included, observation noise not.
        :raises ValueError: for inputs of another rank or D, or that are not finite.
        """
        dtype = self.paths[0].dtype
        X = checks.require_inputs(checks.require_matrix(X, "X", dtype), self.input_dim, dtype, "X")
        checks.require_range(X, "X")
        if not tf.executing_eagerly():
            X = checks.require_finite_in_graph(X, "X")
        values = tf.concat([path(X) for path in self.paths], axis=-1)  # [S, N, L]
        if self._mixing is not None:
            values = tf.linalg.matmul(values, self._mixing, transpose_b=True)  # [S, N, P]
        if self.mean_function is None:
            return values
        mean = self.mean_function(X)
        return values + component_checks.require_mean(mean, values[0], self.mean_function)


class Sampler(NamedTuple):
    """Arguments of ``sample_functions``, and the draws that functions are made of."""

    num_samples: int
    num_features: int
    generator: np.random.Generator
    scale: float = 1.0
    """Factor of all deviations from the mean, that is of everything random in a draw."""

    @classmethod
    def make(cls, num_samples: Any, num_features: Any, seed: int | None) -> "Sampler":
        """
        Validate the arguments. Without a seed the generator is seeded by TensorFlow's global one,
        so that ``tf.random.set_seed`` decides.

        :raises ValueError: for invalid arguments, and inside ``tf.function``.
        """
        checks.require_count(num_samples, "num_samples")
        require_num_features(num_features)
        if not tf.executing_eagerly():
            raise ValueError(
                "sample_functions must be called outside of tf.function; call what it returns "
                "inside."
            )
        if seed is not None:
            generator = np.random.default_rng(checks.require_seed(seed))
        else:
            fresh = tf.random.uniform([4], maxval=2**31 - 1, dtype=tf.int32)
            generator = np.random.default_rng(fresh.numpy())
        return cls(num_samples, num_features, generator)

    def normal(self, shape: Sequence[int], dtype: tf.DType) -> tf.Tensor:
        """Independent standard normal numbers, times ``scale``."""
        return tf.constant(self.scale * self.generator.normal(size=tuple(shape)), dtype)

    def gaussian(self, mean: tf.Tensor, factor: tf.Tensor | None) -> tf.Tensor:
        """
        Draws ``[S, M, P]`` of independent Gaussian columns.

        :param mean: ``[M, P]``.
        :param factor: lower factors of the covariances, ``[P, M, M]``; None for zero.
        """
        shape = (self.num_samples, *mean.shape)
        if factor is None:
            return tf.broadcast_to(mean, shape)
        return mean + tf.einsum("pij,sjp->sip", factor, self.normal(shape, mean.dtype))


class Paths(tf.Module):
    """Functions drawn, without a mean function, called with valid inputs."""

    def __init__(self, dtype: tf.DType, entries_per_row: int) -> None:
        """
        :param dtype: float type of X and of the values.
        :param entries_per_row: entries of the largest intermediate tensor for each row of X.
        """
        super().__init__()
        self.dtype, self.entries_per_row = dtype, entries_per_row

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """``[S, N, P]`` at ``X [N, D]``, some rows at a time."""
        return in_blocks(self.evaluate, X, self.entries_per_row)

    def evaluate(self, X: tf.Tensor) -> tf.Tensor:
        """Values ``[S, N, P]`` at ``X [N, D]``, computed for all rows at once."""
        raise NotImplementedError


class PriorPaths(Paths):
    r"""
    Functions drawn from a zero-mean prior, one for each of S samples and P outputs:

        f(x) = sqrt(variance / F) sum_i a_i cos(w_i^T x + b_i),      F = num_features / 2,

    with ``w`` from the spectral density, ``a`` from a Rayleigh distribution, ``b`` uniform on the
    circle. One such cosine is ``v_1 cos(w^T x) + v_2 sin(w^T x)`` with standard normal ``v``, in
    polar coordinates: a pair of random features for one evaluation.
    """

    def __init__(
        self, kernel: Kernel, num_outputs: int, num_columns: int, sampler: Sampler
    ) -> None:
        """
        :param kernel: SquaredExponential, Matern12, Matern32, Matern52, MainEffects, or a Sum,
            Product or LinearMap of such, or one with ``draw_frequencies`` of its own; its
            hyperparameters are copied.
        :param num_outputs: P.
        :param num_columns: D of the inputs; the kernel may read some of the columns.
        :raises ValueError: for a kernel without random Fourier features.
        """
        self.shape = (sampler.num_samples, num_outputs)
        num_cosines = sampler.num_features // 2
        size = (*self.shape, num_cosines)
        dtype = float_type(kernel)
        super().__init__(dtype, math.prod(size))
        generator = sampler.generator
        drawn = draw_frequencies(kernel, math.prod(size), num_columns, generator)
        frequencies = np.swapaxes(drawn.reshape(*size, num_columns), -1, -2)
        phases = generator.uniform(0.0, 2.0 * math.pi, size=size)
        amplitudes = tf.constant(sampler.scale * generator.rayleigh(size=size), dtype)
        self.kernel: Kernel = gpflow.utilities.freeze(kernel)
        variance = self.kernel(tf.zeros([1, num_columns], dtype), full_cov=False)[0]  # everywhere
        self.frequencies = tf.constant(frequencies, dtype)  # [S, P, D, F]
        self.phases = tf.constant(phases, dtype)  # [S, P, F]
        self.amplitudes = tf.sqrt(variance / num_cosines) * amplitudes  # [S, P, F]

    def evaluate(self, X: tf.Tensor) -> tf.Tensor:
        shape, one = self.frequencies.shape, tf.ones([], X.dtype)
        # phases as the frequencies of a constant column
        rows = tf.concat([X, tf.ones_like(X[:, :1])], axis=1)
        turns = tf.concat([self.frequencies, self.phases[:, :, None]], axis=2) / (2.0 * math.pi)
        turns = tf.linalg.matmul(rows, turns)  # [S, P, N, F]
        width = shape[0] * shape[1] * shape[3]  # so that many are known to be many for any N
        cosines = cos_two_pi(tf.reshape(turns, [-1, width]), tf.zeros([width], X.dtype), one)
        values = tf.linalg.matvec(
            tf.reshape(cosines, tf.shape(turns)), self.amplitudes
        )  # [S, P, N]
        return tf.linalg.matrix_transpose(values)


class PosteriorPaths(Paths):
    """``f_prior(x) + sum_b Kuf_b(x)^T c_b``: draws of a prior, updated by inducing points."""

    def __init__(
        self,
        prior: "PriorPaths | PosteriorPaths",
        sets: Sequence[InducingPoints],
        coefficients: Sequence[tf.Tensor],
    ) -> None:
        """
        :param prior: the draws to update, which may have been updated before.
        :param sets: inducing points, by blocks; copied.
        :param coefficients: ``c_b [S, M_b, P]``, or ``[1, M_b, P]`` for all draws.
        """
        num_inducing = sum(c.shape[1] for c in coefficients)
        super().__init__(prior.dtype, max(prior.entries_per_row, num_inducing))
        self.prior = prior
        self.kernel: Kernel = prior.kernel
        self.shape: tuple[int, int] = prior.shape
        self._sets = tuple(gpflow.utilities.freeze(s) for s in sets)
        self._coefficients = tuple(  # [M_b, S P]
            stack(tf.broadcast_to(c, [self.shape[0], *c.shape[1:]])) for c in coefficients
        )

    def evaluate(self, X: tf.Tensor) -> tf.Tensor:
        update = tf.add_n(
            [
                tf.linalg.matmul(Kuf(s, self.kernel, X), c, transpose_a=True)  # [N, S P]
                for s, c in zip(self._sets, self._coefficients, strict=True)
            ]
        )
        return self.prior.evaluate(X) + unstack(update, self.shape)


class LocalPaths(Paths):
    """
    ``f_prior(x) + sum_(i in I(x)) w_i(x) v_i``: draws of a prior, updated by values v at the
    inducing points that are neighbors of x. The values are drawn once for each function, so that it
    is one function wherever it is evaluated; it jumps where the neighbors I(x) change.

    A point costs O(H^3 + H S P) and the prior's draws.
    """

    def __init__(
        self,
        prior: PriorPaths | PosteriorPaths,
        values: tf.Tensor,
        weights: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
        num_neighbors: int,
    ) -> None:
        """
        :param values: v, ``[S, M, P]``.
        :param weights: from ``X [n, D]`` to the neighbors I(x) of each row, int32 ``[n, H]``, and
            ``w [n, H, P]`` or ``[n, H, 1]``; must depend on constants only.
        :param num_neighbors: H.
        """
        H, (S, P) = num_neighbors, prior.shape
        super().__init__(prior.dtype, max(prior.entries_per_row, H * max(H * P, S * P)))
        self.prior, self.weights = prior, weights
        self._values = tf.transpose(values, [1, 0, 2])  # [M, S, P]

    def evaluate(self, X: tf.Tensor) -> tf.Tensor:
        neighbors, w = self.weights(X)
        values = tf.gather(self._values, neighbors)  # [n, H, S, P]
        update = tf.reduce_sum(w[:, :, None, :] * values, axis=1)
        return self.prior.evaluate(X) + tf.transpose(update, [1, 0, 2])


def require_points(sets: Sequence[InducingVariables]) -> None:
    """
    Refuse inducing variables that are not values of ``f``.

    :raises ValueError: naming the kind.
    """
    for s in sets:
        if type(s) is not InducingPoints:
            raise ValueError(
                "functions can be drawn if inducing_variable holds points, arrays [M, D] or "
                f"gpflow's InducingPoints; got {type(s).__name__}, where the prior's draws have no "
                "values. Draw values instead: predict_f_samples."
            )


class WeightPaths(Paths):
    """``A(x)^T w``: exact draws of a finite sum of basis functions; plus draws of a ``prior``."""

    def __init__(
        self, basis: FiniteBasis, weights: tf.Tensor, prior: PriorPaths | None = None
    ) -> None:
        """
        :param basis: copied.
        :param weights: ``[S, m, P]``, one for each function of the basis.
        :param prior: None for zero.
        """
        S, m, P = weights.shape
        super().__init__(weights.dtype, max(m, S * P, prior.entries_per_row if prior else 0))
        self.basis, self.shape = gpflow.utilities.freeze(basis), (S, P)
        self._weights = stack(weights)  # [m, S P]
        self._prior = prior

    def evaluate(self, X: tf.Tensor) -> tf.Tensor:
        A = self.basis.features(X)
        values = unstack(tf.linalg.matmul(A, self._weights, transpose_a=True), self.shape)
        return values if self._prior is None else values + self._prior.evaluate(X)


class ColumnPaths(WeightPaths):
    """``phi(x)^T w`` for the columns of a basis, which are computed in chunks."""

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        values = tail_projections(
            lambda indices: self.basis(X, indices), 0, [self._weights], tf.shape(X)[0]
        )
        return unstack(values, self.shape)


def residual_paths(basis: FiniteBasis, weights: tf.Tensor, sampler: Sampler) -> WeightPaths:
    r"""
    ``A(x)^T w + r(x)`` with ``r ~ GP(0, k - A^T A)`` independent of the weights w.

    For a basis that projects its kernel the weights of ``f ~ GP(0, k)`` are linear functionals
    ``w_0(f)`` with ``Cov[w_0] = I`` and ``Cov[f(x), w_0] = A(x)``, so that what is left of a draw
    of the prior is

        r(x) = f_prior(x) - A(x)^T w_0(f_prior).

    As in :class:`FunctionDraws` every draw has frequencies of its own, so mean and covariance are
    exact for any number of features.

    :param basis: a projection of ``basis.kernel``; copied.
    :param weights: w, draws ``[S, m, P]``.
    :raises ValueError: for a kernel without random Fourier features, and for a basis whose
        functionals are not known.
    """
    columns = basis.input_dim
    if columns is None or not isinstance(basis, GridEigenfunctions | KernelDictionary):
        raise ValueError(
            "functions can be drawn with the residual of the kernel for "
            f"GridEigenfunctions and KernelDictionary; got {type(basis).__name__}. Draw values "
            "instead: predict_f_samples."
        )
    prior = PriorPaths(basis.kernel, weights.shape[2], columns, sampler)
    own = tf.cast(projections(basis, prior, sampler), weights.dtype)
    return WeightPaths(basis, weights - own, prior)


def projections(
    basis: GridEigenfunctions | KernelDictionary, prior: PriorPaths, sampler: Sampler
) -> tf.Tensor:
    """
    The functionals ``w_0 [S, m, P]`` of draws of the prior.

    For points Z: ``L^-1 (f(Z) + sqrt(eps) zeta)``, ``L L^T = k(Z, Z) + eps I``. For a grid
    of nodes u: ``sum_u c_j(u) f(u)``. Both ``c_j`` and ``exp(i w^T u)`` are products over columns,
    so that a sum over all nodes is a product of sums over the nodes of a column: time
    O(S P F (m D + sum_i m_i^2)) for F cosines, whatever the size of the grid.
    """
    if isinstance(basis, KernelDictionary):
        values = prior(tf.convert_to_tensor(basis.centers))  # [S, M, P]
        jitter = linalg.jitter(basis.kernel(basis.centers, full_cov=False))
        (L,) = basis.precompute()
        values = values + tf.sqrt(jitter) * sampler.normal(values.shape, values.dtype)
        return tf.linalg.triangular_solve(tf.broadcast_to(L, [values.shape[0], *L.shape]), values)
    factors = ProductFactors(basis.kernel, len(basis.grid))
    tables = basis.precompute()[0].numpy()  # of columns with fewer nodes the last rows are zero
    indices, scale = basis.indices.numpy(), 1.0 / np.sqrt(factors.variance().numpy())
    cosines = prior.frequencies, prior.phases, prior.amplitudes
    frequencies, phases, amplitudes = (part.numpy() for part in cosines)
    S, P = prior.shape
    found = np.empty((S, basis.num_basis, P))
    for s, p in np.ndindex(S, P):  # O(m F) memory
        terms = scale * amplitudes[s, p] * np.exp(1j * phases[s, p])  # [F]
        for i, column in enumerate(factors.columns):
            angles = np.outer(basis.grid[column], frequencies[s, p, column])
            waves = np.exp(1j * angles)  # [m_i, F]
            terms = terms * (tables[i, : len(waves)].T @ waves)[indices[:, i]]
        found[s, :, p] = terms.real.sum(axis=1)
    return tf.constant(found)


def in_blocks(
    function: Callable[[tf.Tensor], tf.Tensor], X: tf.Tensor, numbers_per_row: int
) -> tf.Tensor:
    """``function`` from ``[N, D]`` to ``[S, N, P]``, some rows at a time."""
    most = max(1, devices.block_entries(_BLOCK) // numbers_per_row)
    if X.shape[0] is not None and X.shape[0] <= most:
        return function(X)
    num_rows = tf.shape(X)[0]
    count = tf.maximum(1, (num_rows + most - 1) // most)  # one empty block for no rows
    rows = (num_rows + count - 1) // count  # blocks of equal height: fewer than `count` spare rows
    padded = tf.pad(X, [[0, count * rows - num_rows], [0, 0]])
    blocks = tf.reshape(padded, [count, rows, X.shape[1]])
    # AutoGraph would convert GPflow's kernels at every call: 10 s in place of 0.4 s on small blocks
    plain = tf.autograph.experimental.do_not_convert(function)
    values = tf.map_fn(plain, blocks, parallel_iterations=1)  # [count, S, rows, P]
    S, P = values.shape[1], values.shape[3]
    joined = tf.reshape(tf.transpose(values, [1, 0, 2, 3]), [S, count * rows, P])
    return joined[:, :num_rows]


def stack(values: tf.Tensor) -> tf.Tensor:
    """``[S, M, P]`` as ``[M, S P]``: one right-hand side per function."""
    S, M, P = values.shape
    return tf.reshape(tf.transpose(values, [1, 0, 2]), [M, S * P])


def unstack(values: tf.Tensor, shape: tuple[int, int]) -> tf.Tensor:
    """``[M, S P]`` as ``[S, M, P]``."""
    return tf.transpose(tf.reshape(values, [-1, *shape]), [1, 0, 2])
