"""Few draws that predict what all draws of a mixture predict."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from scipy.optimize import nnls
from scipy.stats import norm

from gpflow_sparse.models.mixture.transform import YeoJohnson

Array = np.ndarray
# Training rows whose predictions are compared.
_MAX_ROWS = 100
# Observations of each row at which densities are compared, and the loss of log density there,
# in nats, from which on no draw is added.
_NUM_POINTS, _LOSS = 8, 1e-5
# Added to the diagonal, relative to it, for draws that predict the same.
_RIDGE = 1e-10


class LeftOut(NamedTuple):
    """Observations at some training rows as each draw predicts them from all other rows."""

    mean: Array
    """``[S, m, P]``, in the units of the component."""
    variance: Array
    """``[S, m]``"""
    transform: YeoJohnson | None

    def densities(self, Y: Array) -> Array:
        """Densities of observations ``[q, m, P]``, separately for each output: ``[S, q, m, P]``."""
        slope: Array | float = 1.0
        if self.transform is not None:
            points = tf.constant(Y)
            slope = np.exp(self.transform.log_derivative(points).numpy())
            Y = self.transform.forward(points).numpy()
        deviation = np.sqrt(self.variance)[:, None, :, None]
        return slope * norm.pdf((Y - self.mean[:, None]) / deviation) / deviation


def compared_rows(num_rows: int) -> Array:
    """Indices of at most 100 random rows."""
    return np.random.default_rng(0).permutation(num_rows)[:_MAX_ROWS]


def reduced(log_weights: Array, parts: Sequence[LeftOut], most: int) -> Array:
    """
    New weights of all draws ``[S]`` that sum to 1; at most ``most`` of them are positive.

    The chi-squared divergence of two densities is half of the loss of mean log density, up to third
    order: ``E_p[log p - log p'] = E_p[(p' / p - 1)^2] / 2``. It is a quadratic function of the
    weights, here at leave-one-out predictions of training rows, which costs no further
    factorization. The draw that lowers it most is added, one after the other, with all weights
    fitted again (orthogonal matching pursuit, nonnegative weights), until it is below 1e-5 nats.

    :param log_weights: of all draws ``[S]``.
    :param parts: of each component, in the order of the weights.
    """
    weights = np.exp(log_weights - np.max(log_weights))
    weights /= weights.sum()
    Y = _observations(weights, parts)
    densities = np.concatenate([part.densities(Y).reshape(len(part.mean), -1) for part in parts])
    ratios = densities / np.maximum(weights @ densities, 1e-300)  # of a draw to all  [S, F]
    G = ratios @ ratios.T / ratios.shape[1]
    b = G @ weights
    goal, chosen = float(weights @ b), [int(np.argmax(weights))]
    while True:
        among = G[np.ix_(chosen, chosen)]
        L = np.linalg.cholesky(among + _RIDGE * np.diag(np.diag(among)))
        found = nnls(L.T, np.linalg.solve(L, b[chosen]))[0]
        chosen, found = [s for s, w in zip(chosen, found, strict=True) if w > 0.0], found[found > 0]
        error = b - G[:, chosen] @ found
        loss = 0.5 * (goal - float(found @ (b + error)[chosen]))
        if loss < _LOSS or len(chosen) == most:
            break
        error[chosen] = -np.inf
        chosen.append(int(np.argmax(error / np.sqrt(np.diag(G)))))
    result = np.zeros(len(weights))
    result[chosen] = found / found.sum()
    return result


def _observations(weights: Array, parts: Sequence[LeftOut]) -> Array:
    """Stratified draws of the mixture at every row ``[q, m, P]``, in the units of the data."""
    rng = np.random.default_rng(0)
    means = np.concatenate([part.mean for part in parts])
    deviations = np.sqrt(np.concatenate([part.variance for part in parts]))
    shape = (_NUM_POINTS, *means.shape[1:])

    def levels(*shape: int) -> Array:
        """Evenly spaced probabilities in random order."""
        size = int(np.prod(shape))
        return ((rng.permutation(size) + 0.5) / size).reshape(shape)

    draws = np.searchsorted(np.cumsum(weights), levels(*shape[:2]) * (1.0 - 1e-12))
    draws = np.minimum(draws, len(weights) - 1)
    columns = np.arange(shape[1])
    Y = means[draws, columns] + deviations[draws, columns, None] * norm.ppf(levels(*shape))
    start = 0
    for part in parts:
        own = (draws >= start) & (draws < start + len(part.mean))
        if part.transform is not None:
            Y[own] = part.transform.inverse(tf.constant(Y[own])).numpy()
        start += len(part.mean)
    return Y
