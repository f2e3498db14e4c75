"""Means and standard deviations of columns, from parts of the rows in any order."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class RunningMoments:
    """
    Sums from which the means and standard deviations of columns follow.

    Parts are merged by the update of Chan, Golub and LeVeque, "Updating formulae and a pairwise
    algorithm for computing sample variances" (1979), which is exact but for rounding: the rows may
    be divided among files and processes in any way.
    """

    num_rows: int
    """Number of rows."""
    origin: np.ndarray
    """One of the rows, ``[C]``: deviations from it keep their precision where values are large."""
    offset: np.ndarray
    """Mean of each column, less ``origin``, ``[C]``."""
    squares: np.ndarray
    """Sum of squared deviations from the mean, ``[C]``."""
    low: np.ndarray
    """Smallest values, ``[C]``."""
    high: np.ndarray
    """Largest values, ``[C]``."""

    @classmethod
    def of(cls, values: np.ndarray) -> "RunningMoments":
        """:param values: at least one row, finite, ``[n, C]``."""
        deviations = values - values[0]
        offset = deviations.mean(axis=0)
        squares = np.square(deviations - offset).sum(axis=0)
        low, high = values.min(axis=0), values.max(axis=0)
        return cls(len(values), values[0].copy(), offset, squares, low, high)

    @property
    def mean(self) -> np.ndarray:
        """Mean of each column, ``[C]``."""
        return self.origin + self.offset

    def merge(self, other: "RunningMoments") -> "RunningMoments":
        """The moments of the rows of both."""
        count = self.num_rows + other.num_rows
        step = (other.origin - self.origin) + (other.offset - self.offset)
        offset = self.offset + step * (other.num_rows / count)
        squares = self.squares + other.squares + step**2 * (self.num_rows * other.num_rows / count)
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return RunningMoments(count, self.origin, offset, squares, low, high)

    def mean_and_scale(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations ``[C]``; a constant column has its value and 1."""
        scale = np.sqrt(self.squares / self.num_rows)
        constant = self.low == self.high
        return np.where(constant, self.low, self.mean), np.where(
            constant | (scale == 0), 1.0, scale
        )
