"""New rows for SWSGP: its old posterior in the place of the prior of the points, see
:mod:`gpflow_sparse.models.conditioning`.

``q_old(u_j) = N(m_j, s_j^2)`` of independent variables is the best for any posterior with these
means and a precision of diagonal ``1 / s_j^2``. The one taken is the prior of the points, here
``prod_j p(u_j | its H nearest predecessors)`` of precision P, with Gaussian sites of precision
``1 / s_j^2 - P_jj``, which stand for the old rows: unlike q_old it has correlations, which decide
how far new rows move the means.

With ``u_j = m_j + s_j w_j`` a row has the features ``B_ij = s_j a_ij`` of its neighbors j alone,
``a_i = K_I^-1 k_i``, so that all is sparse: means are found by conjugate gradients, and the best
variances need diagonals only. A dense q is its own posterior.
"""

from typing import Any

import numpy as np
import tensorflow as tf
from scipy.sparse import csr_array, diags_array

from gpflow_sparse.inference.neighborhoods import conditional_weights
from gpflow_sparse.models.conditioning import OldPosterior, Weights, dense_solver, update
from gpflow_sparse.models.swsgp.closed_form import prior_precision, solve


def add_rows(model: Any, data: tuple[tf.Tensor, tf.Tensor]) -> None:
    """
    Condition q, and the counts of neighbors, on new rows ``(X [n, D], Y [n, P])``; for "diag" in
    O((n + M) H^3) time and O((n + M) H^2) memory and some passes of conjugate gradients.
    """
    X, q = data[0], model._whole_q
    M, dense = int(q.mean.shape[0]), q.factors is not None
    parts, usage = [], model.usage.numpy()
    for place, (prior, of) in enumerate(model.priors):
        neighbors = model.points.neighbors(X, prior.kernel)
        a, residual = conditional_weights(*prior.covariances(X, neighbors))
        mean, spread = q.take(neighbors, of).project(a)
        rows = np.repeat(np.arange(len(X)), a.shape[1])
        at = neighbors.numpy().ravel()
        A = csr_array((a.numpy().astype(np.float64).ravel(), (at, rows)), shape=(M, len(X)))
        columns = range(of.start, of.stop)
        P = None if dense else prior_precision(model.points, prior)
        features = [_features(A, q, column, P) for column in columns]
        parts.append(OldPosterior(mean, residual[:, None] + spread, residual, features))
        if usage.any():  # where they have been counted
            usage[:, place] += np.bincount(
                model.points.training_neighbors(X, prior.kernel).numpy().ravel(), minlength=M
            )
    found = update(model, data, parts, dense_solver([M]) if dense else _solve)
    means = np.stack([np.asarray(w.mean).reshape(M) for w in found], axis=1)
    if dense:
        R = tf.convert_to_tensor(model.q_sqrt)  # [L, M, M]
        factors = R @ tf.cast(tf.stack([w.factor[0] for w in found]), R.dtype)
        change = tf.linalg.matvec(R, tf.cast(means.T, R.dtype))
        model.q_factor.assign(tf.transpose(factors, [1, 0, 2]))
    else:
        scales, ratios = q.scales.numpy(), np.stack([w.factor for w in found], axis=1)
        change = (scales * means).T
        model.q_log_scale.assign(np.log(scales * ratios))
    model.q_mu.assign_add(tf.transpose(tf.cast(change, model.dtype)))
    model.usage.assign(usage)
    model._count_rows(data)


def _features(A: csr_array, q: Any, column: int, P: csr_array | None) -> Any:
    """
    For one latent function ``R^T A`` with a dense q; else B, and the precision of w under the old
    posterior, which has a diagonal of 1: where ``P_jj`` is above ``1 / s_j^2`` it is scaled down.
    """
    if P is None:
        return tf.constant((A.T @ q.factors.numpy()[:, column]).T, tf.float64)
    scales = q.scales.numpy()[:, column].astype(np.float64)
    D = diags_array(np.minimum(scales, P.diagonal() ** -0.5))
    of_prior = D @ P @ D
    return diags_array(scales) @ A, of_prior + diags_array(1.0 - of_prior.diagonal())


def _solve(features: Any, precision: tf.Tensor, linear: tf.Tensor) -> Weights:
    """The best independent weights."""
    B, old = features
    weighted = B @ diags_array(precision.numpy())
    system = old + weighted @ B.T
    mean = solve(system.tocsr(), (B @ linear.numpy())[:, None], np.zeros((B.shape[0], 1)))[:, 0]
    squares = B.multiply(B)
    ratios = (1.0 + squares @ precision.numpy()) ** -0.5
    kl = 0.5 * mean @ (old @ mean) + np.sum(0.5 * (ratios**2 - 1.0) - np.log(ratios))
    change, spread = B.T @ mean, squares.T @ ratios**2
    return Weights(mean, ratios, tf.constant(change), tf.constant(spread), tf.constant(kl))
