"""Closed forms of q of :class:`gpflow_sparse.models.QSGP` for Gaussian noise."""

from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_sparse.bases import KernelDictionary
from gpflow_sparse.inference import chevron
from gpflow_sparse.models.dual import (
    DualOptions,
    require_options,
    solve,
    warn_unless_converged,
)
from gpflow_sparse.models.qsgp import options as qsgp_options


def update_covariance(model: Any, X: Any) -> None:
    """
    Set C to the optimum of its structure for Gaussian noise, which does not depend on the mean.

    Proposition 1 for the diagonal, ``c_r = (phi_r^T phi_r / noise + s_r)^-1/2``; a block is the
    factor of its precision's inverse; the columns of a chevron need that of all m weights, so
    m is limited to 4,096 there. O(n m + n h^2 + h^3) for n rows, or O(n m^2 + m^3).

    :param X: training inputs ``[n, D]``: all, or a random subset, each of which then has weight
        ``num_data / n``. A block needs several times h of them.
    :raises ValueError: for another likelihood, or a chevron over too many functions.
    """
    X = qsgp_options.require_matrix(X, "X", model.basis)
    model._require_parts(X.shape[1], model.dtype)
    qsgp_options.require_conjugate(model.likelihood)
    B, D, log_c = chevron.best_factor(
        model.basis,
        X,
        model.num_data / X.shape[0] / model.likelihood.variance,
        num_head=model.num_head,
        with_columns=model.covariance == "chevron",
    )
    L = model.num_latent_gps
    model.q_log_scale.assign(tf.tile(log_c[:, None], [1, L]))
    if model.q_block is not None:
        model.q_block.assign(tf.tile(B[None], [L, 1, 1]))
    if model.q_columns is not None:
        model.q_columns.assign(tf.tile(D[:, None], [1, L, 1]))
        if model.anchors is not None and not model.anchors.is_empty:
            model.anchors.refresh(model.basis, model.tail)


def update_mean(model: Any, data: tuple[Any, Any], options: DualOptions | None = None) -> None:
    """
    Set mu to the optimum for Gaussian noise, which does not depend on the covariance.

    ``mu = (Phi^T Phi / noise + S)^-1 Phi^T (y - mean) / noise`` over all functions: steps on
    functions that overlap, such as kernel functions around training rows, take long to find
    it. O(n m^2 + m^3) for n rows, so m is limited to 4,096.

    Where :func:`has_function_at_every_row`, ``mu = (K + noise I)^-1 (y - mean)``, the weights
    of exact GP regression, for any m: blocks of rows are solved in turn, starting from the
    present mu, in O(N^2) per pass; see :mod:`gpflow_sparse.models.dual.solver`.

    :param data: training rows ``(X [n, D], Y [n, P])``: all, or a random subset, each of which
        then has weight ``num_data / n``.
    :param options: of the solver by blocks; its defaults if None.
    :raises ValueError: for another likelihood, too many functions, or blocks that do not
        converge.
    """
    X, Y = model._require_data(data)
    model._require_parts(int(X.shape[1]), model.dtype)
    qsgp_options.require_conjugate(model.likelihood)
    errors, noise = Y - model.mean_function(X), model.likelihood.variance
    if has_function_at_every_row(model, X):
        options = require_options(options, "update_mean")
        kernel, noises = model.basis.kernel, tf.fill([model.num_data], noise)
        solution = solve(kernel, X, noises, errors, options, weights=model.q_mu)
        warn_unless_converged(solution, options, "update_mean")
        model.q_mu.assign(tf.cast(solution.state.weights, model.dtype))
    else:
        weight = model.num_data / int(X.shape[0]) / noise
        model.q_mu.assign(chevron.best_mean(model.basis, X, errors, weight))
    if model.anchors is not None and not model.anchors.is_empty:
        model.anchors.refresh(model.basis, model.tail)


def has_function_at_every_row(model: Any, X: Any) -> bool:
    """
    Whether the functions are those of the exact GP: ``KernelDictionary(kernel, X)``.

    :param X: all training inputs ``[N, D]``.
    """
    basis = model.basis
    if not (isinstance(basis, KernelDictionary) and basis.precision == "dense"):
        return False
    rows, centers = np.asarray(X), np.asarray(basis.centers)
    return len(rows) == model.num_data and np.array_equal(rows.astype(centers.dtype), centers)
