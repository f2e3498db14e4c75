"""The log evidence of a batch of rows under an interpolated kernel, in the float type of the batch.

``log N(e | 0, W K W^T + noise I)`` with weights ``W [N, m]`` and the covariance ``K [m, m]`` at the
points between which they interpolate, for training by gradients. Its quadratic term is taken as
``|e - W u|^2 / noise + |v|^2``, with the posterior mean v of whitened weights and ``u = L v``. It
is stationary in v, so that an error in v enters it squared, where the usual difference ``|e|^2 -
...`` cancels. The gradient is written by hand and goes to K itself, not through its Cholesky
factor: that saves work and half of the digits that an ill-conditioned K costs.
:mod:`gpflow_sparse.inference.collapsed` has the same evidence from sums over rows, in float64.
"""

import math
from typing import Any, NamedTuple

import tensorflow as tf

from gpflow_sparse.numerics import linalg


class _Factors(NamedTuple):
    """``K = L L^T``, ``G = W^T W``, ``H = I + L^T G L / noise = c c^T``."""

    L: tf.Tensor
    G: tf.Tensor
    c: tf.Tensor


def log_density(
    W: tf.Tensor,
    K: tf.Tensor,
    errors: tf.Tensor,
    noise: tf.Tensor,
    probes: tf.Tensor | None = None,
) -> tf.Tensor:
    r"""
    ``log N(errors | 0, Sigma)``, ``Sigma = W K W^T + noise I``, over all outputs, in nats; time
    O(m^2 N + m^3); two products have N in them.

    With ``b = Sigma^-1 e`` the gradient at Sigma is ``(b b^T - P Sigma^-1) / 2``. With ``probes``
    its second part, which comes from the log determinant, is replaced by the unbiased estimate ``P
    sum_j (a_j b_j^T + b_j a_j^T) / (4 S)``, ``b_j = Sigma^-1 a_j``: that is the gradient of the
    Hutchinson pseudo-loss

        b^T Sigma b / 2 - sum_j a_j^T Sigma b_j / (2 S),    all a, b held constant,

    which the paper of SoftKI has with the opposite sign and with probes of unit length (eqs. (19)
    to (23)). The value is always the log density: the value of the pseudo-loss has no meaning.

    :param W: ``[N, m]``.
    :param K: positive definite, ``[m, m]``, jitter included.
    :param errors: ``[N, P]``.
    :param noise: a scalar of the same type.
    :param probes: ``a [N, S]`` with ``E a a^T = I``; None for the exact gradient.
    """

    @tf.custom_gradient
    def evidence(W: tf.Tensor, K: tf.Tensor, errors: tf.Tensor, noise: tf.Tensor) -> Any:
        factors = _factorize(W, K, noise)
        given = errors if probes is None else tf.concat([errors, probes], axis=1)
        v, u, b = _solve(W, factors, given, noise)
        num_outputs = tf.shape(errors)[1]
        outputs = tf.cast(num_outputs, W.dtype)
        mine = [part[:, :num_outputs] for part in (v, u, b)]
        log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factors.c)))
        log_det += tf.cast(tf.shape(W)[0], W.dtype) * tf.math.log(2.0 * math.pi * noise)
        quadratic = noise * tf.reduce_sum(tf.square(mine[2])) + tf.reduce_sum(tf.square(mine[0]))

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            _, u_e, b_e = mine
            share = -outputs * upstream  # factor of the gradients of log_det / 2
            if probes is None:
                left, right, by_K, trace = _log_det_slopes(W, factors, noise, share)
            else:
                others = u[:, num_outputs:], b[:, num_outputs:]
                left, right, by_K, trace = _estimated_slopes(W, K, probes, *others, share)
            scaled = upstream * b_e
            # both parts in one product: a pass over an [N, m] matrix costs as much as some products
            left, right = tf.concat([left, scaled], axis=1), tf.concat([right, u_e], axis=1)
            dW = tf.linalg.matmul(left, right, transpose_b=True)
            Wb, W_scaled = (tf.linalg.matmul(W, x, transpose_a=True) for x in (0.5 * b_e, scaled))
            dK = by_K + tf.linalg.matmul(Wb, W_scaled, transpose_b=True)
            dnoise = 0.5 * (tf.reduce_sum(scaled * b_e) + share * trace)
            return dW, dK, -scaled, dnoise

        return -0.5 * (outputs * log_det + quadratic), gradient

    return evidence(W, K, errors, noise)


def _factorize(W: tf.Tensor, K: tf.Tensor, noise: tf.Tensor) -> _Factors:
    L = linalg.cholesky(K, "Kzz (covariance of the interpolation points)")
    G = linalg.gram(tf.linalg.matrix_transpose(W))
    # of L^T G L the factorization reads the lower triangle, and that needs only G L's
    GL = linalg.lower_outer(G, tf.linalg.matrix_transpose(L))
    LGL = linalg.lower_adjoint_product(L, GL)
    H = linalg.add_jitter(LGL / noise, tf.ones([], W.dtype))
    return _Factors(L, G, linalg.cholesky(H, "I + L^T W^T W L / noise"))


def _solve(
    W: tf.Tensor, factors: _Factors, given: tf.Tensor, noise: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """
    ``v [m, S]``, ``u = L v = K W^T b`` and ``b = Sigma^-1 given [N, S]``.

    With one step of iterative refinement, by the residual of ``v = L^T W^T b``. In float32 with
    1,024 rows, 512 points and noise 1e-3 it reduces the error of the gradients from 7e-4 to 7e-6.
    """

    def project(x: tf.Tensor) -> tf.Tensor:  # L^T W^T x
        Wx = tf.linalg.matmul(W, x, transpose_a=True)
        return tf.linalg.matmul(factors.L, Wx, transpose_a=True)

    v = tf.linalg.cholesky_solve(factors.c, project(given / noise))
    u = tf.linalg.matmul(factors.L, v)
    b = (given - tf.linalg.matmul(W, u)) / noise
    dv = tf.linalg.cholesky_solve(factors.c, project(b) - v)
    du = tf.linalg.matmul(factors.L, dv)
    return v + dv, u + du, b - tf.linalg.matmul(W, du) / noise


def _log_det_slopes(
    W: tf.Tensor, factors: _Factors, noise: tf.Tensor, share: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """
    Gradients of the log determinant: ``share Sigma^-1 W K`` as a product ``left right^T``, ``share
    W^T Sigma^-1 W / 2`` and ``tr Sigma^-1``.
    """
    L, G, c = factors
    R = linalg.solve_triangular(c, tf.linalg.matrix_transpose(L))
    C = linalg.gram(tf.linalg.matrix_transpose(R)) / noise  # L H^-1 L^T / noise
    RG = tf.linalg.matmul((0.5 * share / noise) * R, G)
    # L^-T H^-1 L^T G / noise: a product of two triangles and one solve in place of two solves
    by_K = linalg.solve_triangular(linalg.lower_matmul(L, c), RG, adjoint=True)
    rows = tf.cast(tf.shape(W)[0], W.dtype)
    return W, share * C, by_K, (rows - tf.reduce_sum(C * G)) / noise  # C is symmetric


def _estimated_slopes(
    W: tf.Tensor, K: tf.Tensor, probes: tf.Tensor, u: tf.Tensor, b: tf.Tensor, share: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Hutchinson's estimates of :func:`_log_det_slopes`, from ``b [N, S]`` and ``u = K W^T b``."""
    count = tf.cast(tf.shape(probes)[1], W.dtype)
    weight = share / (2.0 * count)
    Wa, Wb = (tf.linalg.matmul(W, part, transpose_a=True) for part in (probes, b))
    left = tf.concat([probes, b], axis=1)  # [N, 2 S]
    right = tf.concat([u, tf.linalg.matmul(K, Wa)], axis=1)  # [m, 2 S]
    by_K = tf.linalg.matmul(0.5 * weight * Wa, Wb, transpose_b=True)
    by_K = by_K + tf.linalg.matrix_transpose(by_K)
    return left, weight * right, by_K, tf.reduce_sum(probes * b) / count
