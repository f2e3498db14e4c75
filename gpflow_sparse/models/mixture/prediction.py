"""
Predictions by draws in NumPy, where training rows are few: an operation of TensorFlow takes longer
to begin than to run, and 32 draws of 9 components took some hundred of them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel, Linear
from scipy.linalg import blas

from gpflow_sparse.inference.exact_gp import LEAST_SQUARE, PROFILES, Profile
from gpflow_sparse.initialization.repeated_rows import Rows
from gpflow_sparse.kernels.function import scale_of, terms_of
from gpflow_sparse.kernels.main_effects import MainEffects
from gpflow_sparse.models.mixture.component import States
from gpflow_sparse.models.mixture.likelihood import ClosedFormLikelihood

Array = np.ndarray
# Training rows up to which threads of TensorFlow gain nothing, and entries of a covariance with
# predicted rows that stay in the cache of a core: 512 KiB of float64.
_MAX_ROWS, _BLOCK_ENTRIES = 1000, 2**16


class _Term(NamedTuple):
    """A term of a kernel, a variance times a fixed function of two rows."""

    columns: Any
    """Indices of the columns that it sees."""
    profile: Profile | None
    """The profile of main effects; None for a linear term."""
    lengthscale: float
    number: int
    """Index of its variance among the values of the kernel's parameters."""

    def between(self, X: Array, Z: Array) -> Array:
        """``[N, n]`` at variance 1."""
        X, Z = X[:, self.columns], Z[:, self.columns]
        if self.profile is None:
            return X @ Z.T
        total = np.zeros((len(X), len(Z)))
        for x, z in zip(X.T / self.lengthscale, Z.T / self.lengthscale, strict=True):
            squares = np.square(x[:, None] - z)
            total += self.profile(np.maximum(squares, LEAST_SQUARE, out=squares))[0]
        return total / X.shape[1]

    def diagonal(self, Z: Array) -> Array:
        """``[n]`` at variance 1."""
        if self.profile is None:
            return np.sum(np.square(Z[:, self.columns]), axis=1)
        return np.ones(len(Z))


class ClosedFormPrediction:
    """
    Means and variances of f by the draws of a component, prior mean excluded.

    :param kernel: for which :meth:`takes` holds.
    :param rows: distinct training rows.
    """

    @staticmethod
    def takes(kernel: Kernel, rows: Rows) -> bool:
        """Whether a kernel has a closed form, and the rows are few, at hand and of float64."""
        if not (ClosedFormLikelihood.takes(kernel, rows) and rows.X.dtype == tf.float64):
            return False
        others = [term for term in terms_of(kernel) if scale_of(term) is not None]
        known = all(
            type(term) is Linear or (isinstance(term, MainEffects) and type(term.base) in PROFILES)
            for term in others
        )
        return known and len(rows.X) <= _MAX_ROWS

    def __init__(self, kernel: Kernel, rows: Rows) -> None:
        numbers = {id(p): number for number, p in enumerate(kernel.trainable_parameters)}
        pairs = [(term, scale_of(term)) for term in terms_of(kernel)]
        (stationary,) = (term for term, scale in pairs if scale is None)
        self._X, self._columns = rows.X.numpy(), stationary.active_dims
        self._center = self._X.mean(axis=0)  # distances do not depend on a common shift
        self._profile = PROFILES[type(stationary)]
        own = stationary.variance, stationary.lengthscales
        self._own = [(numbers.get(id(p)), p.numpy()[None]) for p in own]
        self._terms = []
        for term, scale in pairs:
            if scale is not None:
                effect = term.base if isinstance(term, MainEffects) else None
                self._terms.append(
                    _Term(
                        term.active_dims,
                        None if effect is None else PROFILES[type(effect)],
                        1.0 if effect is None else float(effect.lengthscales.numpy()),
                        numbers[id(scale)],
                    )
                )

    def __call__(self, states: States, new: Array, known: dict[Any, Array]) -> tuple[Array, Array]:
        """
        Means ``[S, n, P]`` and variances ``[S, n]``.

        :param states: of the component, in arrays.
        :param new: rows to predict ``[n, D]``.
        :param known: covariances of terms with these rows, for all components with them.
        """
        num_draws, num_rows = states.L.shape[:2]
        mean = np.empty((num_draws, len(new), states.weights.shape[2]))
        variance = np.empty((num_draws, len(new)))
        scales = np.empty((num_draws, len(self._terms)))
        for column, term in enumerate(self._terms):
            scales[:, column] = states.values[term.number]
        size = max(1, _BLOCK_ENTRIES // num_rows)
        for start in range(0, len(new), size):
            rows = slice(start, start + size)
            constants, diagonals = self._constants(new[rows], start, known)
            step = max(1, _BLOCK_ENTRIES // (num_rows * len(new[rows])))
            for first in range(0, num_draws, step):
                draws = slice(first, first + step)
                own, K = self._stationary(states.values, draws, new[rows])
                K = K + np.tensordot(scales[draws], constants, 1)  # [S, N, n]
                mean[draws, rows] = np.matmul(K.transpose(0, 2, 1), states.weights[draws])
                for L, A in zip(states.L[draws], K, strict=True):  # overwritten by L^-1 K
                    blas.dtrsm(1.0, L.T, A.T, side=1, overwrite_b=1)
                prior = own[:, None] + scales[draws] @ diagonals
                variance[draws, rows] = prior - np.einsum("sij,sij->sj", K, K)
        return mean, np.maximum(variance, 0.0)

    def _constants(self, new: Array, start: int, known: dict[Any, Array]) -> tuple[Array, Array]:
        """Covariances ``[T, N, n]`` and variances ``[T, n]`` of the terms at variance 1."""
        found = np.empty((len(self._terms), len(self._X), len(new)))
        diagonals = np.empty((len(self._terms), len(new)))
        for number, term in enumerate(self._terms):
            key = (str(term.columns), term.profile, term.lengthscale, start)
            if key not in known:
                known[key] = term.between(self._X, new)
            found[number], diagonals[number] = known[key], term.diagonal(new)
        return found, diagonals

    def _stationary(self, values: Sequence[Array], draws: slice, new: Array) -> tuple[Array, Array]:
        """Variances ``[S]``, and covariances ``[S, N, n]``, of the stationary term."""
        variances, lengthscales = (
            fixed if number is None else values[number][draws] for number, fixed in self._own
        )
        scales = lengthscales.reshape(len(lengthscales), 1, -1)  # [S or 1, 1, D or 1]
        X, Z = ((part - self._center)[:, self._columns] / scales for part in (self._X, new))
        squares = np.matmul(X, -2.0 * Z.transpose(0, 2, 1))
        squares += np.einsum("sij,sij->si", X, X)[:, :, None]
        squares += np.einsum("sij,sij->si", Z, Z)[:, None]
        K = self._profile(np.maximum(squares, LEAST_SQUARE, out=squares))[0]
        return variances, K * variances[:, None, None]
