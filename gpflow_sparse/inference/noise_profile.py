"""The evidence of a finite basis at every noise variance, from one eigendecomposition."""

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from scipy.optimize import minimize_scalar

from gpflow_sparse.inference.collapsed import RowSums

_GRID = 200


class NoiseProfile(NamedTuple):
    """``log N(e | 0, A^T A + s I)`` as a function of s alone, in O(m) for each."""

    eigenvalues: np.ndarray
    """Of ``A A^T``, ``[m]``."""
    squared_projections: np.ndarray
    """``|u_i^T A e|^2`` for its eigenvectors u, over all outputs, ``[m]``."""
    squares: float
    """``|e|^2``, over all outputs."""
    num_rows: float
    """N."""
    num_outputs: int
    """P."""

    def log_density(self, noise: float) -> float:
        """
        ``-(P (N log 2 pi s + sum_i log(1 + l_i / s)) + (|e|^2 - sum_i p_i / (s + l_i)) / s) / 2``,
        with eigenvalues l and squared projections p; over all outputs, in nats.
        """
        log_det = self.num_rows * math.log(2.0 * math.pi * noise)
        log_det += float(np.sum(np.log1p(self.eigenvalues / noise)))
        explained = float(np.sum(self.squared_projections / (noise + self.eigenvalues)))
        return -0.5 * (self.num_outputs * log_det + (self.squares - explained) / noise)

    def best_noise(self, lowest: float) -> float:
        """
        The noise variance with the highest density, from ``lowest`` to the variance of the errors:
        the best of 200 values a constant ratio apart, refined between its neighbors.
        """
        highest = max(2.0 * lowest, self.squares / (self.num_rows * self.num_outputs))
        grid = np.linspace(math.log(lowest), math.log(highest), _GRID)
        best = int(np.argmax([self.log_density(math.exp(value)) for value in grid]))
        found = minimize_scalar(
            lambda value: -self.log_density(math.exp(value)),
            bounds=(grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)]),
            method="bounded",
        )
        return math.exp(found.x)


def profile(sums: RowSums) -> NoiseProfile:
    """From the sums over rows, in O(m^3)."""
    eigenvalues, vectors = np.linalg.eigh(sums.AAT.numpy())
    projections = vectors.T @ sums.Ae.numpy()  # [m, P]
    return NoiseProfile(
        eigenvalues=np.maximum(eigenvalues, 0.0),
        squared_projections=np.sum(projections**2, axis=1),
        squares=float(sums.squares),
        num_rows=float(sums.num_rows),
        num_outputs=int(tf.shape(sums.Ae)[1]),
    )
