"""Gaussian conditionals of a function given its values at a few points, for each row its own.

For a row x with neighbors ``Z_I [H, D]``, ``q(u_I) = N(m_I, S_I)`` and ``p(u_I) = N(0, K_I)``:

    mean = a^T m_I,      var = [k(x, x) - k_I^T a] + a^T S_I a,      a = K_I^-1 k_I,
    KL   = ( log |K_I| - log |S_I| + tr(K_I^-1 S_I) + m_I^T K_I^-1 m_I - H ) / 2,

for a batch of n rows at once and P outputs that share K: the mean and variance of eq. (13) and the
KL in eq. (11) of Tran, Milios, Michiardi and Filippone (2020). Their gradient is written by hand,
in :mod:`gpflow_sparse.inference.local_gradients`.
"""

from functools import cached_property, partial
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.kernels import Kernel, Stationary

from gpflow_sparse.covariances.stationary import covariance, local_covariances
from gpflow_sparse.inference import local_gradients
from gpflow_sparse.inference.local_gradients import outer
from gpflow_sparse.numerics import devices, linalg

_NAME = "K_I (covariance of the neighbors of a row)"
# Numbers of neighbors whose covariances are factorized in two halves.
_LEAST, _MOST = 32, 48
# Relative to the diagonal; a covariance of rows of a long factor is definite but for rounding.
_TINY = {tf.float64: 1e-12, tf.float32: 1e-6}


class GaussianRows(NamedTuple):
    """
    ``q(u) = N(mean, S)`` of M inducing variables with ``S = diag(scales^2) + factors factors^T``,
    stored by rows, one for each variable: q of some variables is these rows.
    """

    mean: tf.Tensor
    """``[M, P]``"""
    scales: tf.Tensor | None
    """``[M, P]``; None for no diagonal part."""
    factors: tf.Tensor | None
    """``[M, P, R]``; None for a diagonal covariance."""

    def take(self, indices: tf.Tensor, columns: slice | None = None) -> "GaussianRows":
        """
        q of some variables: each part with the axes of ``indices`` in place of M.

        :param columns: outputs to keep; None for all.
        """
        parts = (part if part is None or columns is None else part[:, columns] for part in self)
        return GaussianRows(*(None if part is None else tf.gather(part, indices) for part in parts))

    def covariances(self) -> tuple[tf.Tensor, tf.Tensor]:
        """
        S of each set of variables, after :meth:`take` with indices ``[n, H]``.

        :return: variances ``[n, H, P]`` or covariances ``[n, P, H, H]``, and ``log |S_I| / 2  [n]``
            summed over outputs.
        """
        if self.factors is None:
            return tf.square(self.scales), tf.reduce_sum(tf.math.log(self.scales), axis=[1, 2])
        rows = tf.transpose(self.factors, [0, 2, 1, 3])  # [n, P, H, R]
        S = tf.linalg.matmul(rows, rows, transpose_b=True)
        diagonal = tf.linalg.diag_part(S)
        if self.scales is None:
            S = tf.linalg.set_diag(S, diagonal * (1.0 + _TINY[S.dtype]))
        else:
            own = tf.square(tf.linalg.matrix_transpose(self.scales))
            S = tf.linalg.set_diag(S, diagonal + own)
        L = linalg.cholesky(S, "S_I (covariance of q at the neighbors)")
        return S, tf.reduce_sum(tf.math.log(tf.linalg.diag_part(L)), axis=[1, 2])

    def project(self, a: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Mean and variance of ``a^T u_I``, after :meth:`take` with indices ``[n, H]``; O(n H P R).

        :param a: ``[n, H]``.
        :return: ``[n, P]`` each.
        """
        mean = tf.linalg.matvec(self.mean, a, transpose_a=True)
        var = tf.zeros([], a.dtype)
        if self.scales is not None:
            var += tf.reduce_sum(tf.square(self.scales * a[:, :, None]), axis=1)
        if self.factors is not None:
            halves = tf.einsum("nhpr,nh->npr", self.factors, a)
            var += tf.reduce_sum(tf.square(halves), axis=2)
        return mean, var


class DenseGaussian(NamedTuple):
    """``q(u) = N(mean, S)`` with S in full, for predictions from small sets."""

    mean: tf.Tensor
    """``[M, P]``"""
    S: tf.Tensor
    """``[P, M, M]``"""

    @classmethod
    def of(cls, q: GaussianRows) -> "DenseGaussian":
        """O(P M^2 R), of rows without a diagonal part."""
        factors = tf.transpose(q.factors, [1, 0, 2])  # [P, M, R]
        return cls(q.mean, tf.linalg.matmul(factors, factors, transpose_b=True))

    def take(self, indices: tf.Tensor) -> "DenseGaussian":
        """q of sets ``[n, H]`` of variables: mean ``[n, H, P]`` and S ``[P, n, H, H]``."""
        size = tf.shape(self.S)[-1]
        flat = indices[:, :, None] * size + indices[:, None, :]  # [n, H, H]
        S = tf.gather(tf.reshape(self.S, [tf.shape(self.S)[0], -1]), flat, axis=1)
        return DenseGaussian(tf.gather(self.mean, indices), S)

    def project(self, a: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance as in :meth:`GaussianRows.project`, O(n P H^2)."""
        mean = tf.linalg.matvec(self.mean, a, transpose_a=True)
        Sa = tf.linalg.matvec(self.S, a[None])  # [P, n, H]; an einsum of three takes thrice as long
        return mean, tf.transpose(tf.reduce_sum(Sa * a, axis=2))


class NeighborPrior:
    """
    The prior of f at rows and at the inducing points near them, and conditionals of it under q(u).

    Index arrays are int32 and count rows of Z; ``q`` is always the distribution of the indexed
    points, as :meth:`GaussianRows.take` returns it. The mean function is left to the caller.
    """

    def __init__(self, kernel: Kernel, Z: tf.Tensor, jitter: float | None) -> None:
        """
        :param Z: all inducing points ``[M, D]``.
        :param jitter: smallest relative jitter; None for the default.
        """
        self.kernel, self.Z = kernel, tf.convert_to_tensor(Z)
        self._jitter = jitter

    @cached_property
    def nugget(self) -> tf.Tensor:
        """Jitter of every point, the same in every set that it is in: a part of the prior of u."""
        Z = self.Z[:1] if isinstance(self.kernel, Stationary) else self.Z
        return linalg.jitter(self.kernel(Z, full_cov=False), self._jitter)

    def covariances(
        self, X: tf.Tensor, neighbors: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """``K_I [n, H, H]``, jitter included, ``k_I [n, H]`` and ``k(x, x) [n]``."""
        K, k, diagonal = local_covariances(self.kernel, X, tf.gather(self.Z, neighbors))
        return linalg.add_jitter(K, self.nugget), k, diagonal

    def conditional(
        self, X: tf.Tensor, neighbors: tf.Tensor, q: GaussianRows | DenseGaussian
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """
        Mean and variance of f at every row, ``[n, P]`` each, prior mean excluded, and variance of f
        given u_I ``[n]``; each from neighbors ``[n, H]`` of its own.
        """
        a, residual = conditional_weights(*self.covariances(X, neighbors))
        mean, spread = q.project(a)
        return mean, residual[:, None] + spread, residual

    def conditional_and_kl(
        self, X: tf.Tensor, neighbors: tf.Tensor, q: GaussianRows
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """:meth:`conditional`, and ``KL[q(u_I) || p(u_I)] [n]``, summed over outputs."""
        K, k, kdiag = self.covariances(X, neighbors)
        S, half_log_det = q.covariances()
        mean, residual, spread, kl = local_terms(K, k, kdiag, q.mean, S)
        residual = tf.maximum(residual, 0.0)
        return mean, residual[:, None] + spread, residual, kl - half_log_det

    def point_conditional(self, drawn: tf.Tensor, others: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """
        ``u_j`` given ``u_others`` under the prior: weights ``[n, H]`` and variances ``[n]``.

        :param drawn: the points j, ``[n]``.
        :param others: ``[n, H]``; j itself stands for no point, and has weight zero.
        """
        exists = others != drawn[:, None]
        K, k, diagonal = self.covariances(tf.gather(self.Z, drawn), others)
        mask = tf.cast(exists, K.dtype)
        # missing points are independent of all others, and of u_j
        own = tf.where(exists, tf.linalg.diag_part(K), tf.ones_like(k))
        K = tf.linalg.set_diag(K * mask[:, :, None] * mask[:, None, :], own)
        a, residual = conditional_weights(K, k * mask, diagonal)
        return a, residual + self.nugget

    def chain_terms(self, links: tf.Tensor, q: GaussianRows) -> tf.Tensor:
        """
        Terms of ``KL[q(u) || prod_j p(u_j | u_before(j))]``, one for each j drawn, ``[n]``; their
        sum over all j is that KL.

        Factors without a diagonal part must be rows of a lower triangular matrix, whose diagonal
        has ``log |S| / 2``; with both parts there is no such sum.

        :param links: j and some points before it, ``[n, 1 + H]``; j stands for a missing one.
        """
        drawn = links[:, 0]
        a, v = self.point_conditional(drawn, links[:, 1:])
        v = v[:, None]
        contrast = tf.concat([tf.ones_like(v), -a], axis=1)  # u_j - a^T u_before
        error, spread = q.project(contrast)
        terms = 0.5 * (tf.math.log(v) + (tf.square(error) + spread) / v - 1.0)
        if q.scales is not None:
            scales = q.scales[:, 0]
        else:
            factors = tf.convert_to_tensor(q.factors)
            scales = tf.abs(tf.gather(factors[:, 0], drawn, axis=2, batch_dims=1))
        return tf.reduce_sum(terms - tf.math.log(scales), axis=1)

    def joint(self, X: tf.Tensor, active: tf.Tensor, q: GaussianRows) -> "JointConditional":
        """All rows conditioned on one set of points, ``active [m]``."""
        Z = tf.gather(self.Z, active)  # [m, D]
        L = self.factor(Z)
        A = linalg.solve_triangular(L, covariance(self.kernel, Z, X))  # [m, n]
        W = linalg.solve_triangular(L, A, adjoint=True)  # K_A^-1 k_A
        return JointConditional(L, A, W, q)

    def factor(self, Z: tf.Tensor) -> tf.Tensor:
        """Cholesky factor ``[m, m]`` of the prior covariance at some points, jitter included."""
        K = linalg.add_jitter(covariance(self.kernel, Z), self.nugget)
        return linalg.cholesky(K, "K_A (covariance of the active inducing points)")


class JointConditional(NamedTuple):
    """``q(f)`` at n rows, conditioned on one set of m points, the prior mean excluded."""

    L: tf.Tensor
    """Cholesky factor of ``K_A [m, m]``."""
    A: tf.Tensor
    """``L^-1 k_A [m, n]``"""
    W: tf.Tensor
    """``K_A^-1 k_A [m, n]``"""
    q: GaussianRows
    """q of these points."""

    def mean(self) -> tf.Tensor:
        """``[n, P]``"""
        return tf.linalg.matmul(self.W, self.q.mean, transpose_a=True)

    def covariance(self, prior: tf.Tensor) -> tf.Tensor:
        """``[P, n, n]``, from ``k(X, X) [n, n]``."""
        residual = prior - tf.linalg.matmul(self.A, self.A, transpose_a=True)
        spread = [tf.linalg.matmul(half, half, transpose_a=True) for half in self.halves()]
        return residual + tf.add_n(spread)

    def halves(self) -> list[tf.Tensor]:
        """Tensors ``[P, ., n]`` whose products ``half^T half`` are the parts of ``W^T S W``."""
        halves = []
        if self.q.scales is not None:
            halves.append(tf.transpose(self.q.scales)[:, :, None] * self.W)  # [P, m, n]
        if self.q.factors is not None:
            factors = tf.transpose(self.q.factors, [1, 2, 0])  # [P, R, m]
            halves.append(tf.linalg.matmul(factors, self.W[None]))
        return halves


@tf.custom_gradient
def local_terms(K: tf.Tensor, k: tf.Tensor, kdiag: tf.Tensor, m: tf.Tensor, S: tf.Tensor) -> Any:
    """
    The equations at the top of this file: ``a^T m_I [n, P]``, ``k(x, x) - k_I^T a [n]``, ``a^T S_I
    a [n, P]``, and ``KL + log |S_I| / 2  [n]``, summed over outputs: the KL without the only term
    that depends on how S is parametrized.

    Time O(n H^2 (H + P)), and O(n P H^2) more for S in full.

    :param K: ``[n, H, H]``, jitter included.
    :param k: ``[n, H]``.
    :param kdiag: ``k(x, x) [n]``.
    :param m: ``[n, H, P]``.
    :param S: variances ``[n, H, P]``, or covariances ``[n, P, H, H]``.
    """
    diagonal = S.shape.rank == 3
    inverse, half_log_det = inverse_of(K)
    a = tf.linalg.matvec(inverse, k)  # K^-1 k  [n, H]
    alpha = tf.linalg.matmul(inverse, m)  # K^-1 m  [n, H, P]
    Sa = S * a[:, :, None] if diagonal else tf.einsum("nphg,ng->nhp", S, a)  # [n, H, P]

    mean = tf.linalg.matvec(m, a, transpose_a=True)
    residual = kdiag - tf.reduce_sum(k * a, axis=1)
    spread = tf.linalg.matvec(Sa, a, transpose_a=True)

    total = tf.reduce_sum(S, axis=2 if diagonal else 1)  # over outputs
    needed = tf.linalg.diag_part(inverse) if diagonal else inverse
    trace = tf.reduce_sum(needed * total, axis=range(1, total.shape.rank))
    fit = tf.reduce_sum(m * alpha, axis=[1, 2])
    H, P = (tf.cast(tf.shape(m)[axis], m.dtype) for axis in (1, 2))
    kl = P * half_log_det + 0.5 * (trace + fit - P * H)

    values = inverse, a, alpha, Sa, total, m
    return (mean, residual, spread, kl), partial(local_gradients.of_terms, values)


def conditional_weights(
    K: tf.Tensor, k: tf.Tensor, kdiag: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    ``a = K^-1 k  [n, H]`` and ``k(x, x) - k^T a  [n]``: the conditional given u_I, without q.

    Arguments as :func:`local_terms`, gradient by hand. Time O(n H^3) for the factor only.
    """

    @tf.custom_gradient
    def solve(K: tf.Tensor, k: tf.Tensor, kdiag: tf.Tensor) -> Any:
        factor = _factorize(K)
        a = _solve(factor, k)
        residual = kdiag - tf.reduce_sum(k * a, axis=1)

        def gradient(ga: tf.Tensor, gr: tf.Tensor) -> tuple[tf.Tensor, ...]:
            by_a = _solve(factor, ga)
            total = gr[:, None]
            return outer(total * a - by_a, a), by_a - 2.0 * total * a, gr

        return (a, residual), gradient

    a, residual = solve(K, k, kdiag)
    return a, tf.maximum(residual, 0.0)


def _factorize(K: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """
    The lower factor of ``K [n, H, H]``; or, of some sizes, ``L``, ``L^-1 K_12`` and the factor of
    the Schur complement for two blocks. Of 1,000 rows with 32 neighbors the factors and solves so
    take 6.8 microseconds a row for 9.0, with 48 15.4 for 17.3; but with 24 5.3 for 4.6.
    """
    size = K.shape[-1]
    if size is None or not _LEAST <= size <= _MOST or devices.sees_gpu():
        return (linalg.cholesky(K, _NAME),)
    half = size // 2
    L = linalg.cholesky(K[:, :half, :half], _NAME)
    R = tf.linalg.triangular_solve(L, K[:, :half, half:])
    schur = K[:, half:, half:] - tf.linalg.matmul(R, R, transpose_a=True)
    return L, R, linalg.cholesky(schur, _NAME)


def _solve(factor: tuple[tf.Tensor, ...], k: tf.Tensor) -> tf.Tensor:
    """``K^-1 k [n, H]`` of ``k [n, H]``, from :func:`_factorize`."""
    k = k[:, :, None]
    if len(factor) == 1:
        return tf.linalg.cholesky_solve(factor[0], k)[:, :, 0]
    L, R, last = factor
    half = L.shape[-1]
    first = tf.linalg.triangular_solve(L, k[:, :half])
    lower = k[:, half:] - tf.linalg.matmul(R, first, transpose_a=True)
    lower = tf.linalg.cholesky_solve(last, lower)
    upper = tf.linalg.triangular_solve(L, first - tf.linalg.matmul(R, lower), adjoint=True)
    return tf.concat([upper, lower], axis=1)[:, :, 0]


def inverse_of(K: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """``K^-1 [n, H, H]`` and ``log |K| / 2  [n]``."""
    L = linalg.cholesky(K, _NAME)
    eye = tf.eye(tf.shape(K)[-1], batch_shape=tf.shape(K)[:1], dtype=K.dtype)
    half = tf.linalg.triangular_solve(L, eye)
    inverse = tf.linalg.matmul(half, half, transpose_a=True)
    return inverse, tf.reduce_sum(tf.math.log(tf.linalg.diag_part(L)), axis=1)
