"""
The log marginal likelihood of an exact Gaussian process and its gradient, in NumPy.

The kernel is a variance times a function of the distance in lengthscales, plus constant matrices,
each times a variance of its own; rows may be means of several outputs. The factorization and the
inverse overwrite one matrix ``[n, n]``, and the other operations go through its lower triangle in
blocks of rows: differentiated by TensorFlow the same value took nearly ten such matrices.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from gpflow.kernels import Kernel, Matern12, Matern32, Matern52, SquaredExponential
from scipy.linalg import lapack

Array = np.ndarray
Profile = Callable[[Array], tuple[Array, Array]]
LEAST_SQUARE = 1e-36
"""As in GPflow; a root has no derivative at zero."""
# Squared distances below this fraction of the largest squared norm are computed from differences
# of the inputs: as differences of squares they have few correct digits, or none. The derivative of
# the Matern 1/2 by a squared distance grows without bound as the distance vanishes.
_NEAR = 1e-6
# Entries of a block of rows, 512 KiB of float64. A gradient of 200 rows takes 1.2 ms, and 1.8 in
# blocks of a sixteenth; of 1,000 rows 46 ms, and 52 in blocks of four times as many.
_BLOCK_ENTRIES = 2**16
# Most rows for which a gradient takes the kernel's values from the evaluation before it. With
# more rows they are computed a second time, which takes a small part of the time.
_MOST_KEPT = 1000


def _matern12(squares: Array) -> tuple[Array, Array]:
    r = np.sqrt(squares)
    e = np.exp(-r)
    return e, -0.5 * e / r


def _matern32(squares: Array) -> tuple[Array, Array]:
    s = np.sqrt(3.0 * squares)
    e = np.exp(-s)
    s += 1.0
    s *= e
    e *= -1.5
    return s, e


def _matern52(squares: Array) -> tuple[Array, Array]:
    s = np.sqrt(5.0 * squares)
    e = np.exp(-s)
    s += 1.0
    s *= e  # (1 + s) e
    e *= squares
    e *= 5.0 / 3.0
    e += s
    s *= -5.0 / 6.0
    return e, s


def _squared_exponential(squares: Array) -> tuple[Array, Array]:
    e = np.exp(-0.5 * squares)
    return e, -0.5 * e


PROFILES: dict[type[Kernel], Profile] = {
    Matern12: _matern12,
    Matern32: _matern32,
    Matern52: _matern52,
    SquaredExponential: _squared_exponential,
}
"""Kernels of variance 1 and their derivatives by squared distances in lengthscales."""


class Values(NamedTuple):
    """Hyperparameters, or derivatives by them."""

    variance: float
    lengthscales: Array
    """``[D]`` or one ``[]``."""
    noise: float
    """The noise variance of an output."""
    scales: Sequence[float] = ()
    """Variances of the constant matrices."""


class ExactGP(NamedTuple):
    """Data and prior of one Gaussian process of prior mean zero."""

    X: Array
    """``[n, D]``, with means near zero, since squared distances are differences of squares."""
    Y: Array
    """``[n, P]``"""
    profile: Profile
    counts: Array | None = None
    """How many outputs each row of Y is the mean of, or their weights ``[n]``; None for one."""
    deviations: Array | None = None
    """Their squared deviations from it, summed over outputs ``[n]``."""
    powers: Array | None = None
    """How many observations each row of Y stands for in the density ``[n]``."""
    known: Array | None = None
    """Known variances of noise beside the others ``[n]``; None for 0."""
    constants: Sequence[Array] = ()
    """Covariances ``[n, n]`` of other terms of the kernel, at variance 1."""

    def log_density(self, at: Values, K: Array) -> float:
        """
        Sum of the log densities of the columns of Y, in nats.

        :param K: memory ``[n, n]`` that is overwritten.
        :raises LinAlgError: for a covariance that is not positive definite.
        """
        self._covariances(at, K, None)
        return self._factorized(K)[0] + self._within(at.noise)[0]

    def with_gradient(self, at: Values, K: Array) -> tuple[float, Values]:
        """The log density, and its derivatives; see :meth:`log_density`."""
        kept: list[_Block] | None = [] if len(self.Y) <= _MOST_KEPT else None
        self._covariances(at, K, kept)
        value, a = self._factorized(K)
        lapack.dpotri(K.T, lower=0, overwrite_c=1)  # the lower triangle of K is that of K^-1 now
        within, rate = self._within(at.noise)
        slopes = self._slopes(at, K, a, kept)
        return value + within, slopes._replace(noise=slopes.noise + rate)

    def left_out(self, at: Values, K: Array, rows: Array) -> tuple[float, Array, Array]:
        """
        The log density; and for some rows, predicted from all others, the errors of Y less the mean
        ``[m, P]`` and the variances of Y ``[m]``: Rasmussen and Williams (2006), equation 5.12.

        :param rows: indices ``[m]``.
        """
        self._covariances(at, K, None)
        value, a = self._factorized(K)
        units = np.zeros((len(K), len(rows)))
        units[rows, np.arange(len(rows))] = 1.0
        white, _ = lapack.dtrtrs(K.T, units, lower=0, trans=1, overwrite_b=1)
        variances = 1.0 / np.sum(np.square(white), axis=0)
        return value + self._within(at.noise)[0], a[rows] * variances[:, None], variances

    def factor(self, at: Values, L: Array) -> None:
        """
        Write the lower factor of the covariance of the rows to L.

        :param L: zeros ``[n, n]``.
        :raises LinAlgError: for a covariance that is not positive definite.
        """
        self._covariances(at, L, None)
        _factorize(L)
        for rows, columns in _lower(len(L)):
            L[rows, columns] = np.tril(L[rows, columns], rows.start)

    def _covariances(self, at: Values, K: Array, kept: "list[_Block] | None") -> None:
        """
        Write the lower triangle of the covariance of the rows to K.

        :param kept: the profile in each block is appended to it.
        """
        for (rows, columns), found in zip(_lower(len(K)), self._profiles(at), strict=True):
            if kept is not None:
                kept.append(found)
            block = np.multiply(found.unit, at.variance, out=K[rows, columns])
            for scale, constant in zip(at.scales, self.constants, strict=True):
                block += scale * constant[rows, columns]
        K.reshape(-1)[:: len(K) + 1] += at.noise / self._rates
        if self.known is not None:
            K.reshape(-1)[:: len(K) + 1] += self.known

    def _factorized(self, K: Array) -> tuple[float, Array]:
        """The log density, and ``K^-1 Y [n, P]``; K is overwritten by its lower factor."""
        _factorize(K)
        a, _ = lapack.dpotrs(K.T, self.Y, lower=0)
        num_rows, num_outputs = self.Y.shape
        log_det = 2.0 * float(np.sum(np.log(np.diagonal(K))))
        constant = num_rows * num_outputs * np.log(2.0 * np.pi)
        return -0.5 * (float(np.vdot(self.Y, a)) + num_outputs * log_det + constant), a

    def _slopes(self, at: Values, inverse: Array, a: Array, kept: "list[_Block] | None") -> Values:
        """Derivatives, from the lower triangle of the inverse of the covariance."""
        Z, num_outputs = self.X / at.lengthscales, self.Y.shape[1]
        variance, scales = 0.0, np.zeros(len(self.constants))
        sums, products = np.zeros(len(Z)), np.zeros_like(Z)
        moved, noise, rates = np.zeros(Z.shape[1]), 0.0, 1.0 / self._rates
        profiles = self._profiles(at) if kept is None else iter(kept)
        for (rows, columns), (unit, slope, near, moves) in zip(
            _lower(len(Z)), profiles, strict=True
        ):
            # (a a^T - P K^-1) / 2, twice below the diagonal, since the upper triangle is left out
            dK = a[rows] @ a[columns].T
            dK -= num_outputs * inverse[rows, columns]
            dK[:, rows] = np.tril(dK[:, rows])
            diagonal = _on_diagonal(dK, rows)
            diagonal *= 0.5
            noise += float(rates[rows] @ diagonal)
            variance += float(np.vdot(dK, unit))
            scales += [float(np.vdot(dK, part[rows, columns])) for part in self.constants]
            dK *= slope
            moved += 0.5 * dK[near] @ moves
            dK[near] = 0.0
            sums[rows] += dK.sum(axis=1)
            sums[columns] += dK.sum(axis=0)
            products[rows] += dK @ Z[columns]
        # the squared distance of two rows falls by twice its term of a column as that column's
        # logarithmic lengthscale rises
        moved += 0.5 * sums @ (Z * Z) - np.sum(Z * products, axis=0)  # [D]
        by_logs = -4.0 * at.variance * moved
        by_lengthscales = (by_logs if np.ndim(at.lengthscales) else by_logs.sum()) / at.lengthscales
        return Values(variance, np.asarray(by_lengthscales), noise, list(scales))

    @property
    def _rates(self) -> Array:
        """Counts of outputs ``[n]``."""
        return np.ones(len(self.Y)) if self.counts is None else self.counts

    def _within(self, noise: float) -> tuple[float, float]:
        """
        Log density of all outputs less that of the means, see
        :mod:`gpflow_sparse.initialization.repeated_rows`, and its derivative by the noise variance.
        """
        if self.counts is None or self.deviations is None or self.powers is None:
            return 0.0, 0.0
        num_outputs, deviations = self.Y.shape[1], self.deviations
        logs = (self.powers - 1.0) * np.log(2.0 * np.pi * noise) + np.log(self.counts)
        value = -0.5 * float(np.sum(num_outputs * logs + deviations / noise))
        rates = num_outputs * (self.powers - 1.0) / noise - deviations / noise**2
        return value, -0.5 * float(np.sum(rates))

    def _profiles(self, at: Values) -> "Iterator[_Block]":
        """The profile in each block of the lower triangle."""
        Z = self.X / at.lengthscales
        norms, ones = np.sum(Z * Z, axis=1, keepdims=True), np.ones((len(Z), 1))
        left, right = np.hstack([-2.0 * Z, norms, ones]), np.hstack([Z, ones, norms])
        threshold = _NEAR * norms.max()
        for rows, columns in _lower(len(Z)):
            squares = left[rows] @ right[columns].T
            _on_diagonal(squares, rows)[:] = threshold  # the diagonal is known
            near = np.nonzero(squares < threshold)
            moves = np.square(Z[rows][near[0]] - Z[near[1]])
            squares[near] = moves.sum(axis=1)
            unit, slope = self.profile(np.maximum(squares, LEAST_SQUARE, out=squares))
            _on_diagonal(unit, rows)[:], _on_diagonal(slope, rows)[:] = 1.0, 0.0
            yield _Block(unit, slope, near, moves)


class _Block(NamedTuple):
    """The profile in a block of rows of the lower triangle."""

    unit: Array
    """Covariances at variance 1."""
    slope: Array
    """Their derivatives by squared distances in lengthscales."""
    near: tuple[Array, ...]
    """Indices in the block of pairs of rows that are near each other."""
    moves: Array
    """Squared differences of the columns of these pairs, in lengthscales ``[pairs, D]``."""


def _factorize(K: Array) -> None:
    """Overwrite the lower triangle of K by its lower factor."""
    _, info = lapack.dpotrf(K.T, lower=0, clean=0, overwrite_a=1)  # Fortran's is the transpose
    if info:
        raise np.linalg.LinAlgError("K + s2 I (covariance of rows) is not positive definite")


def _lower(num_rows: int) -> Iterator[tuple[slice, slice]]:
    """Blocks of rows that cover a lower triangle, with their columns up to the diagonal."""
    size, start = max(32, _BLOCK_ENTRIES // num_rows), 0
    while start < num_rows:
        end = min(start + size, num_rows)
        yield slice(start, end), slice(0, end)
        start = end


def _on_diagonal(block: Array, rows: slice) -> Array:
    """A view of the entries of an array ``[rows, :rows.stop]`` that are on the diagonal."""
    return block.reshape(-1)[rows.start :: rows.stop + 1]
