"""Patch kernels in naive NumPy: patches cut pixel by pixel, sums over patches written as loops.

Shi, Titsias and Mnih (2020, arXiv:1910.10596v5), section 4, with the constant c of
``docs/errata.md``: f(x) = c sum_p w_p g(x^[p], s_p), c = 1 / P if averaged. Locations ``s`` are
None without a location kernel.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


def squared_exponential(A, B, variance=1.0, lengthscales=1.0):
    K = np.empty((len(A), len(B)))
    for i, a in enumerate(A):
        for j, b in enumerate(B):
            K[i, j] = variance * np.exp(-0.5 * np.sum(((a - b) / lengthscales) ** 2))
    return K


def matern32(A, B, variance=1.0, lengthscales=1.0):
    K = np.empty((len(A), len(B)))
    for i, a in enumerate(A):
        for j, b in enumerate(B):
            r = np.sqrt(3.0 * np.sum(((a - b) / lengthscales) ** 2))
            K[i, j] = variance * (1.0 + r) * np.exp(-r)
    return K


def grid_shape(image_shape, patch_shape, stride=1):
    """How many patches fit, downward and across, none of them over the edge."""
    return tuple(
        len([start for start in range(0, size, stride) if start + extent <= size])
        for size, extent in zip(image_shape, patch_shape, strict=False)
    )


def patches(X, image_shape, patch_shape, stride=1):
    """``[N, P, L]`` of flat images ``X [N, H W C]``; all orders are (row, column, channel)."""
    _, W, C = image_shape
    rows, columns = grid_shape(image_shape, patch_shape, stride)
    result = []
    for x in X:
        for row in range(rows):
            for column in range(columns):
                for i in range(patch_shape[0]):
                    for j in range(patch_shape[1]):
                        pixel = (row * stride + i) * W + column * stride + j
                        result.extend(x[pixel * C + channel] for channel in range(C))
    return np.reshape(result, (len(X), rows * columns, -1))


def locations(image_shape, patch_shape, stride=1):
    """``[P, 2]``: row and column of each patch in the grid of patches."""
    rows, columns = grid_shape(image_shape, patch_shape, stride)
    return np.array(
        [[float(row), float(column)] for row in range(rows) for column in range(columns)]
    )


class PatchSum(NamedTuple):
    """A prior over functions of images: a weighted sum of responses to patches."""

    base: Callable[[np.ndarray, np.ndarray], np.ndarray]
    image_shape: tuple[int, int, int]
    patch_shape: tuple[int, int]
    weights: np.ndarray
    stride: int = 1
    average: bool = True
    location: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None

    @property
    def c(self):
        return 1.0 / len(self.weights) if self.average else 1.0

    def cut(self, X):
        return patches(X, self.image_shape, self.patch_shape, self.stride)

    @property
    def places(self):
        return locations(self.image_shape, self.patch_shape, self.stride)

    def g(self, A, B, places_A=None, places_B=None):
        """Covariance of responses to patches ``A [n, L]`` and ``B [m, L]``."""
        K = self.base(A, B)
        return K if self.location is None else K * self.location(places_A, places_B)

    def Kuu(self, Z, places=None):
        return self.g(Z, Z, places, places)

    def Kuv(self, Z, O, places_Z=None, places_O=None):
        return self.g(Z, O, places_Z, places_O)

    def Kuf(self, Z, X, places=None):
        K = np.zeros((len(Z), len(X)))
        for n, image in enumerate(self.cut(X)):
            responses = self.g(Z, image, places, self.places)
            for p, weight in enumerate(self.weights):
                K[:, n] += self.c * weight * responses[:, p]
        return K

    def Kff(self, X, X2=None):
        X2 = X if X2 is None else X2
        K = np.zeros((len(X), len(X2)))
        for i, first in enumerate(self.cut(X)):
            for j, second in enumerate(self.cut(X2)):
                responses = self.g(first, second, self.places, self.places)
                for p, weight in enumerate(self.weights):
                    for q, other in enumerate(self.weights):
                        K[i, j] += self.c**2 * weight * other * responses[p, q]
        return K

    def Kdiag(self, X):
        return np.array([self.Kff(x[None])[0, 0] for x in X])
