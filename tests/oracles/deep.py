"""Sparse layers and deep models in naive NumPy: inverses, loops over outputs, images and draws.

Shi, Titsias and Mnih (2020, arXiv:1910.10596v5), section 4 and eqs. (31)-(35), with the errata of
``docs/errata.md``. A layer is a function from rows to the mean and variance of its outputs.
"""

from typing import NamedTuple

import numpy as np

from tests.oracles.convolutional import PatchSum
from tests.oracles.solvegp import gaussian_kl


class Prior(NamedTuple):
    """Covariances of the inducing sets with each other and with f; jitter in Kuu and Kvv."""

    Kuu: np.ndarray
    Kuf: np.ndarray
    Kff: np.ndarray
    Kuv: np.ndarray | None = None
    Kvv: np.ndarray | None = None
    Kvf: np.ndarray | None = None

    @property
    def orthogonal(self):
        """Cvv and Cvf: of what the first set leaves of the second, with itself and with f."""
        inverse = np.linalg.inv(self.Kuu)
        return (
            self.Kvv - self.Kuv.T @ inverse @ self.Kuv,
            self.Kvf - self.Kuv.T @ inverse @ self.Kuf,
        )

    @property
    def sets(self):
        """Covariance of each set, and with f."""
        sets = [(self.Kuu, self.Kuf)]
        return sets if self.Kuv is None else [*sets, self.orthogonal]


def prior_of(k, sets, X, eps):
    """
    Of f ~ GP(0, k) at rows X, with ``eps`` for jitter.

    :param k: a function of two matrices; or a :class:`PatchSum`, then X are images and each set is
        a pair of patches [M, L] and their places [M, 2] or None.
    """
    if isinstance(k, PatchSum):
        diagonal = [k.Kuu(Z, places) + eps * np.eye(len(Z)) for Z, places in sets]
        cross = [k.Kuf(Z, X, places) for Z, places in sets]
        Kff = k.Kff(X)
        between = [k.Kuv(sets[0][0], O, sets[0][1], places) for O, places in sets[1:]]
    else:
        diagonal = [k(Z, Z) + eps * np.eye(len(Z)) for Z in sets]
        cross = [k(Z, X) for Z in sets]
        Kff = k(X, X)
        between = [k(sets[0], O) for O in sets[1:]]
    return Prior(diagonal[0], cross[0], Kff, *between, *diagonal[1:], *cross[1:])


def unwhiten(prior, q_mu, q_sqrt, whiten):
    """m and S of each set, for one output, from what a model holds: [M] and [M, M] per set."""
    result = []
    for (K, _), m, R in zip(prior.sets, q_mu, q_sqrt, strict=True):
        L = np.linalg.cholesky(K) if whiten else np.eye(len(K))
        result.append((L @ m, L @ R @ R.T @ L.T))
    return result


def joint(prior, q):
    """Mean and covariance of f for one output; ``q`` is m and S of each set."""
    mean, cov = np.zeros(prior.Kuf.shape[1]), prior.Kff.copy()
    for (K, Kf), (m, S) in zip(prior.sets, q, strict=True):
        A = np.linalg.inv(K) @ Kf
        mean += A.T @ m
        cov -= A.T @ (K - S) @ A
    return mean, cov


def shared(prior, q):
    """As :func:`joint`, but what the inducing variables leave is independent from row to row."""
    mean, cov = joint(prior, q)
    spread = np.zeros_like(cov)
    for (K, Kf), (_, S) in zip(prior.sets, q, strict=True):
        A = np.linalg.inv(K) @ Kf
        spread += A.T @ S @ A
    return mean, spread + np.diag(np.diag(cov - spread))


def kl(prior, q):
    return sum(gaussian_kl(m, S, K) for (K, _), (m, S) in zip(prior.sets, q, strict=True))


def merged(prior, q):
    """The same process with one inducing set [Z; O] and a full q over f there; SVGP's prior, q."""
    (m_u, S_u), (m_v, S_v) = q
    a = prior.Kuv.T @ np.linalg.inv(prior.Kuu)  # f(O) = a u + v
    mean = np.concatenate([m_u, a @ m_u + m_v])
    S = np.block([[S_u, S_u @ a.T], [a @ S_u, a @ S_u @ a.T + S_v]])
    K = np.block([[prior.Kuu, prior.Kuv], [prior.Kuv.T, prior.Kvv]])
    return Prior(K, np.concatenate([prior.Kuf, prior.Kvf]), prior.Kff), [(mean, S)]


class Layer(NamedTuple):
    """G outputs over the same inducing inputs, each with its own q."""

    k: object
    """See :func:`prior_of`, as for ``sets``."""
    sets: tuple
    """Of Z, or of Z and O."""
    q_mu: tuple
    """[M_b, G] per set."""
    q_sqrt: tuple
    """[G, M_b, M_b] per set."""
    eps: float
    """Jitter."""
    whiten: bool = True
    mean_function: object = None

    def prior(self, rows):
        return prior_of(self.k, self.sets, rows, self.eps)

    def q(self, prior, g):
        means, factors = [m[:, g] for m in self.q_mu], [R[g] for R in self.q_sqrt]
        return unwhiten(prior, means, factors, self.whiten)

    def _moments(self, function, rows):
        prior = self.prior(rows)
        per_output = [function(prior, self.q(prior, g)) for g in range(self.q_mu[0].shape[1])]
        mean = np.stack([mean for mean, _ in per_output], axis=1)
        if self.mean_function is not None:
            mean = mean + self.mean_function(rows)
        return mean, np.stack([cov for _, cov in per_output])

    def joint(self, rows):
        """Mean [n, G] and covariance [G, n, n]."""
        return self._moments(joint, rows)

    def shared(self, rows):
        return self._moments(shared, rows)

    def marginals(self, rows):
        """Mean and variance, [n, G]."""
        mean, cov = self.joint(rows)
        return mean, np.stack([np.diag(c) for c in cov], axis=1)

    def kl(self, rows):
        """KL of all outputs; it does not depend on the rows."""
        prior = self.prior(rows[:1])
        return sum(kl(prior, self.q(prior, g)) for g in range(self.q_mu[0].shape[1]))


class Convolution(NamedTuple):
    """The same layer at all patches of an image: outputs [H', W', G], flat."""

    layer: Layer
    cut: object
    """Patches [N, P, L] of images."""

    def marginals(self, X):
        per_image = [self.layer.marginals(rows) for rows in self.cut(X)]
        return tuple(
            np.stack([moment.reshape(-1) for moment in m]) for m in zip(*per_image, strict=True)
        )

    def _covariance(self, X, kind):
        """[N, P G, P G]: outputs are independent, patches of one image are not."""
        result = []
        for rows in self.cut(X):
            _, cov = getattr(self.layer, kind)(rows)
            G, P = cov.shape[:2]
            full = np.zeros((P, G, P, G))
            for g in range(G):
                full[:, g, :, g] = cov[g]
            result.append(full.reshape(P * G, P * G))
        return np.stack(result)

    def joint(self, X):
        return self.marginals(X)[0], self._covariance(X, "joint")

    def shared(self, X):
        return self.marginals(X)[0], self._covariance(X, "shared")

    def kl(self, X):
        """Once per output, not once per patch."""
        return self.layer.kl(self.cut(X)[0])


def deep_forward(layers, X, eps):
    """Mean and variance of the last layer, [S, N, P]; ``eps``: [S, N, width] per hidden layer."""
    means, variances = [], []
    for s in range(len(eps[0])):
        h = X
        for layer, draws in zip(layers[:-1], eps, strict=True):
            mean, var = layer.marginals(h)
            h = mean + np.sqrt(var) * draws[s]
        mean, var = layers[-1].marginals(h)
        means.append(mean)
        variances.append(var)
    return np.stack(means), np.stack(variances)


def gaussian_elbo(layers, X, Y, eps, noise, scale=1.0):
    """Expected log N(y | f, noise) averaged over draws and summed over rows, less all KLs."""
    mean, var = deep_forward(layers, X, eps)
    expectations = -0.5 * np.log(2.0 * np.pi * noise) - ((Y - mean) ** 2 + var) / (2.0 * noise)
    h, total = X, 0.0
    for layer in layers:
        total += layer.kl(h)
        h = layer.marginals(h)[0]
    return scale * expectations.sum() / len(mean) - total


def layer_signals(layers, X, eps, widths):
    """
    Of each hidden layer signal, noise and the share of the mean function, by output function.

    :param eps: [S, width] per hidden layer, the same for all rows.
    :param widths: number G of functions of each.
    :return: per layer ``signal [G]``, ``noise [G]``: variance of the mean over rows, and mean of
        the variance, averaged over draws and patches.
    """
    found = []
    for place, G in enumerate(widths):
        signal, noise = [], []
        for s in range(len(eps[0])):
            h = X
            for layer, draw in zip(layers[:place], eps, strict=False):
                mean, var = layer.marginals(h)
                h = mean + np.sqrt(var) * draw[s]
            mean, var = layers[place].marginals(h)
            variances = [np.mean((column - np.mean(column)) ** 2) for column in mean.T]
            signal.append(np.reshape(variances, (-1, G)).mean(axis=0))
            noise.append(np.reshape(var.mean(axis=0), (-1, G)).mean(axis=0))
        found.append((np.mean(signal, axis=0), np.mean(noise, axis=0)))
    return found
