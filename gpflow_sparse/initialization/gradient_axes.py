"""Directions of the inputs along which a model's mean changes."""

from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_sparse.validation import checks

Array = np.ndarray

_BLOCK = 125  # rows whose gradients are in memory together


def gradient_axes(
    model: Any, X: Array, *, max_rows: int = 2000, seed: int = 0
) -> tuple[Array, Array]:
    """
    Orthogonal directions of the inputs, in decreasing order of how much a model's mean changes
    along each: the eigenvectors of the average outer product of its gradients,

        G = mean_n  grad mu(x_n) grad mu(x_n)^T.

    Such a metric is learned in recursive feature machines: Radhakrishnan, Beaglehole, Pandit and
    Belkin, "Mechanism for feature learning in neural networks and backpropagation-free machine
    learning models", Science 383 (2024), and Beaglehole, Holzmueller, Radhakrishnan and Belkin,
    "xRFM", arXiv:2508.10053. There a power of G is the metric; here its axes are those along which
    a kernel has lengthscales, ``gs.kernels.LinearMap(kernel, axes)``.

    :param model: a trained GPflow model; gradients are summed over its outputs.
    :param X: inputs ``[N, D]`` where gradients are taken, such as the training rows.
    :param max_rows: largest number of these, drawn at random.
    :return: the directions, rows of an orthogonal matrix ``[D, D]``, and the root mean squared
        derivative along each ``[D]``.
    :raises ValueError: X is not a finite matrix, or gradients are not finite.
    """
    X = checks.require_matrix(X, "X").numpy()
    most = checks.require_count(max_rows, "max_rows")
    rows = np.random.default_rng(checks.require_seed(seed)).permutation(len(X))[:most]
    product = np.zeros([X.shape[1]] * 2)
    for start in range(0, len(rows), _BLOCK):
        inputs = tf.constant(X[rows[start : start + _BLOCK]])
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(inputs)
            total = tf.reduce_sum(model.predict_f(inputs)[0])
        gradients = tape.gradient(total, inputs).numpy().astype(np.float64)  # [n, D]
        product += gradients.T @ gradients
    if not np.isfinite(product).all():
        raise ValueError(
            "model must have a finite gradient of its mean at all rows of X, got NaN or infinity; "
            "check its parameters."
        )
    squares, axes = np.linalg.eigh(product / len(rows))  # in increasing order
    return axes.T[::-1].copy(), np.sqrt(np.maximum(squares[::-1], 0.0))
