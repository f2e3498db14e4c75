"""Closed forms of q of :class:`gpflow_sparse.models.QSGP` for Gaussian noise."""

from typing import Any

import tensorflow as tf

from gpflow_sparse.inference import chevron
from gpflow_sparse.models.qsgp import options
from gpflow_sparse.validation import component_checks


def update_covariance(model: Any, X: Any) -> None:
    """
    Set C to the optimum of its structure for Gaussian noise, which does not depend on the mean.

    Proposition 1 for the diagonal, ``c_r = (phi_r^T phi_r / noise + s_r)^-1/2``; a block is the
    factor of its precision's inverse; the columns of a chevron need the factor for all m weights,
    so m is limited to 4,096 there. O(n m + n h^2 + h^3) for n rows, or O(n m^2 + m^3).

    :param X: training inputs ``[n, D]``: all, or a random subset, each of which then has weight
        ``num_data / n``. A block needs several times h of them.
    :raises ValueError: for another likelihood, or a chevron over too many functions.
    """
    X = options.require_matrix(X, "X", model.basis)
    model._require_parts(X.shape[1], model.dtype)
    component_checks.require_one_variance(model.likelihood)
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


def update_mean(model: Any, data: tuple[Any, Any]) -> None:
    """
    Set mu to the optimum for Gaussian noise, which does not depend on the covariance.

    ``mu = (Phi^T Phi / noise + S)^-1 Phi^T (y - mean) / noise`` over all functions: steps on
    functions that overlap, such as kernel functions around training rows, take long to find
    it. O(n m^2 + m^3) for n rows, so m is limited to 4,096.

    :param data: training rows ``(X [n, D], Y [n, P])``: all, or a random subset, each of which
        then has weight ``num_data / n``.
    :raises ValueError: for another likelihood or too many functions.
    """
    X, Y = model._require_data(data)
    model._require_parts(int(X.shape[1]), model.dtype)
    component_checks.require_one_variance(model.likelihood)
    weight = model.num_data / int(X.shape[0]) / model.likelihood.variance
    model.q_mu.assign(chevron.best_mean(model.basis, X, Y - model.mean_function(X), weight))
    if model.anchors is not None and not model.anchors.is_empty:
        model.anchors.refresh(model.basis, model.tail)
