"""One Gaussian site for each inducing variable, from one pass over the data."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization

from gpflow_sparse.covariances.stationary import local_covariances
from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.models import swsgp_options
from gpflow_sparse.posteriors import SitePosterior, latent_kernels

_ROWS = 4096


def lumped_sites(model: Any, X: Any, Y: Any) -> tuple[np.ndarray, np.ndarray]:
    """
    Targets and precisions ``[M, L]``: each row gives what it knows to its nearest inducing point.

    A row says ``N(t; f, 1 / lambda)`` about f: for Gaussian noise the row itself; for any other
    likelihood its first step of variational message passing, ``lambda = -2 dE/dvar``, ``t = mean +
    (dE/dmean) / lambda`` of ``E = E_q[log p(y | f)]`` under the prior. With ``f = a u_j + rest``,
    the rest of variance r given u_j, that is ``N(t / a; u_j, (1 / lambda + r) / a^2)`` about u_j.
    """
    shape = tuple(model.q_mu.shape)
    precisions, moments = np.zeros(shape), np.zeros(shape)
    latents = latent_kernels(model.kernel, model.num_latent_gps)
    for x, y in swsgp_options.blocks_of_data(model, X, Y, _ROWS):
        targets, known = _said_by_rows(model, x, y)
        for kernel, columns in latents:
            j, a, rest = _nearest(model.inducing_variable, kernel, x)
            told = known[:, columns]
            precision = told / (1.0 + told * rest)
            np.add.at(precisions[:, columns], j, a**2 * precision)
            np.add.at(moments[:, columns], j, a * precision * targets[:, columns])
    seen = precisions > 0.0
    return np.divide(moments, precisions, out=np.zeros(shape), where=seen), precisions


def site_posteriors(model: Any, sites: tuple[np.ndarray, np.ndarray]) -> list[SitePosterior]:
    """One for each latent kernel, prior mean excluded."""
    targets, precisions = (part.astype(model.dtype.name) for part in sites)
    return [
        SitePosterior(kernel, model.inducing_variable, targets[:, columns], precisions[:, columns])
        for kernel, columns in latent_kernels(model.kernel, model.num_latent_gps)
    ]


def q_from_sites(model: Any, X: Any, Y: Any) -> tuple[np.ndarray, np.ndarray]:
    """
    Means of the sites' posterior at the points, and the standard deviations that are best for
    independent variables: ``s_j^-1 = 1 / Var[u_j | its neighbors] + tau_j``. ``[M, L]`` each.
    """
    sites = lumped_sites(model, X, Y)
    Z = tf.convert_to_tensor(model.inducing_variable.Z)
    means = [p.fused_predict_f(Z)[0].numpy() for p in site_posteriors(model, sites)]
    scales = (swsgp_options.closest_scales(model) ** -2 + sites[1]) ** -0.5
    return np.concatenate(means, axis=1), scales


def require_separate_outputs(model: Any) -> None:
    """:raises ValueError: for outputs that are mixtures of latent functions."""
    if isinstance(model.kernel, LinearCoregionalization):
        raise ValueError(
            "sites need outputs that are latent functions; LinearCoregionalization mixes them."
        )


def _said_by_rows(model: Any, X: tf.Tensor, Y: tf.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """``t`` and ``lambda [n, L]``, prior mean excluded."""
    variances = [
        tf.tile(kernel(X, full_cov=False)[:, None], [1, columns.stop - columns.start])
        for kernel, columns in latent_kernels(model.kernel, model.num_latent_gps)
    ]
    var = tf.concat(variances, axis=1)
    mean = tf.zeros_like(var)
    prior = model.mean_function(X)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([mean, var])
        expected = tf.reduce_sum(model.likelihood.variational_expectations(X, mean + prior, var, Y))
    by_mean, by_var = tape.gradient(expected, [mean, var])
    known = np.maximum(-2.0 * by_var.numpy(), 0.0)
    slope = by_mean.numpy()
    return np.divide(slope, known, out=np.zeros_like(slope), where=known > 0.0), known


def _nearest(
    inducing_variable: NeighborInducingPoints, kernel: Any, X: tf.Tensor
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The nearest point j ``[n]``, and f given u_j alone: weight and variance ``[n, 1]``."""
    j = inducing_variable.closest(X, kernel, 1)[:, 0]
    places = tf.gather(tf.convert_to_tensor(inducing_variable.Z), j)[:, None]
    K, k, diagonal = (part.numpy() for part in local_covariances(kernel, X, places))
    a = k / K[:, 0]
    return j.numpy(), a, np.maximum(diagonal[:, None] - k * a, 0.0)
