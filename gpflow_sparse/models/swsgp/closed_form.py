"""q of SWSGP without an optimizer: its optimum for Gaussian noise, natural steps, and sites.

All functions without a leading underscore are methods of SWSGP, which take the model first.
"""

import itertools
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization
from scipy.sparse import coo_array, csr_array, diags_array
from scipy.sparse.linalg import LinearOperator, cg

from gpflow_sparse.covariances.stationary import local_covariances
from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.inference import neighborhoods
from gpflow_sparse.inference.neighborhoods import NeighborPrior
from gpflow_sparse.initialization.row_observations import (
    likelihood_of_starts,
    row_observations,
    row_posteriors,
)
from gpflow_sparse.models.swsgp.counts import require_counted
from gpflow_sparse.models.swsgp.posterior import point_blocks
from gpflow_sparse.models.swsgp.site_posterior import SitePosterior
from gpflow_sparse.models.swsgp.starting import closest_scales
from gpflow_sparse.models.training_data import keep_training_data
from gpflow_sparse.numerics import devices
from gpflow_sparse.validation import checks, component_checks
from gpflow_sparse.validation.public_methods import public_method

# Entries of one block of the sparse system: some 100 MiB with their coordinates.
_ENTRIES = 2**22
_TOLERANCE, _MAX_ITERATIONS = 1e-10, 1000
# Rows of a block in the sums of the sites.
_ROWS = 4096


def update_posterior(model: Any, data: Any) -> None:
    """
    Set q to the optimum for Gaussian noise and the current hyperparameters, for "diag": the
    gradient of the elbo on all rows is zero there.

    With ``a_i = K_I^-1 k_i`` and noise s2 the means solve the sparse system

        (sum_i a_i a_i^T / s2 + w_i K_I^-1) m = sum_i a_i y_i / s2,

    by conjugate gradients preconditioned by its diagonal; and, over the rows i with neighbor j,

        s_j = sum_i w_i / sum_i (a_ij^2 / s2 + w_i (K_I^-1)_jj).

    With "chain" ``w_i = 0``, and each term of the chain adds ``b b^T / v`` with ``b = (1, -a)``.
    Not in the paper. q of points that are not a neighbor of any row stays as it is.

    Adding up takes O(N H^2) time, and memory in proportion to the number of pairs of points that
    are neighbors of one row. 36,000 rows, M = 10,000, H = 64: 11 million pairs; 13 to 22 s with two
    cores to itself, 97 to 146 s beside other work.

    :param data: all training data ``(X [N, D], Y [N, P])``, arrays or memory maps; or a
        ``tf.data.Dataset`` of batches ``(X, Y)``.
    :raises ValueError: for other likelihoods and covariances, and data that do not fit.
    """
    component_checks.require_one_variance(model.likelihood, "update_posterior")
    if isinstance(model.kernel, LinearCoregionalization):
        raise ValueError(
            "update_posterior needs outputs that are latent functions; LinearCoregionalization "
            "mixes them. Take natural_step."
        )
    if model.union is not None or model.covariance != "diag":
        raise ValueError(
            "update_posterior needs covariance='diag' and union=None, got "
            f"{model.covariance!r} and {model.union}."
        )
    require_counted(model)
    means, scales = model.q_mu.numpy().astype(np.float64), np.exp(model.q_log_scale.numpy())
    for place, (prior, columns) in enumerate(model.priors):
        blocks = _row_blocks(model, data, prior, place, columns)
        if model.kl_weighting == "chain":
            blocks = itertools.chain(blocks, _chain_blocks(model.points, prior))
        system, rhs, precisions, entropies = _add_up(blocks, len(means), columns)
        means[:, columns] = solve(system, rhs, means[:, columns])
        used = precisions > 0.0
        scales[used, columns] = np.sqrt(entropies[used] / precisions[used])[:, None]
    model.q_mu.assign(means)
    model.q_log_scale.assign(np.log(scales))


class _Block(NamedTuple):
    """Contributions of some rows, or of some points of a chain, to the system and the variances."""

    indices: np.ndarray
    """Indices of inducing points, ``[n, H]``."""
    matrices: np.ndarray
    """``[n, H, H]``"""
    vectors: np.ndarray
    """Right-hand sides ``[n, H, P]``, or zeros ``[n, H, 1]``."""
    precisions: np.ndarray
    """Coefficients of the variances in the objective, ``[n, H]``."""
    entropies: np.ndarray
    """Coefficients of their logarithms, ``[n, H]``."""


def _row_blocks(
    model: Any, data: Any, prior: NeighborPrior, place: int, columns: slice
) -> Iterator[_Block]:
    s2 = model.likelihood.variance
    rows = max(1, devices.block_entries(_ENTRIES) // int(model.points.num_neighbors) ** 2)
    needed = model.kl_weighting == "paper" and model.num_data is None  # a block is not all the data
    num_rows = sum(len(x) for x, _ in _data_blocks(model, data, rows)) if needed else None
    for x, y in _data_blocks(model, data, rows):
        errors = (y - model.mean_function(x))[:, columns]
        neighbors = model.points.training_neighbors(x, prior.kernel)
        K, k, _ = prior.covariances(x, neighbors)
        inverse, _ = neighborhoods.inverse_of(K)
        a = tf.linalg.matvec(inverse, k)
        if model.kl_weighting == "chain":
            w = tf.zeros_like(x[:, 0])
        else:
            w = model._kl_weights(neighbors, place, num_rows)
        matrices = a[:, :, None] * a[:, None, :] / s2 + w[:, None, None] * inverse
        precisions = tf.square(a) / s2 + w[:, None] * tf.linalg.diag_part(inverse)
        vectors = a[:, :, None] * errors[:, None, :] / s2
        entropies = tf.tile(w[:, None], [1, a.shape[1]])
        yield _Block(*(t.numpy() for t in (neighbors, matrices, vectors, precisions, entropies)))


def _chain_blocks(points: NeighborInducingPoints, prior: NeighborPrior) -> Iterator[_Block]:
    for drawn in point_blocks(prior, points.num_neighbors):
        links = points.links(drawn, prior.kernel)
        a, v = prior.point_conditional(drawn, links[:, 1:])
        b = tf.concat([tf.ones_like(a[:, :1]), -a], axis=1) / tf.sqrt(v)[:, None]
        own = tf.one_hot(tf.zeros_like(drawn), links.shape[1], dtype=a.dtype)
        matrices = b[:, :, None] * b[:, None, :]
        yield _Block(*(t.numpy() for t in (links, matrices, b[:, :, None] * 0, b**2, own)))


def prior_precision(points: NeighborInducingPoints, prior: NeighborPrior) -> csr_array:
    """Precision ``[M, M]`` of ``prod_j p(u_j | its H nearest predecessors)``, O(M H^3)."""
    return _add_up(_chain_blocks(points, prior), int(points.Z.shape[0]), slice(0, 1))[0]


def _add_up(
    blocks: Iterator[_Block], M: int, columns: slice
) -> tuple[csr_array, np.ndarray, np.ndarray, np.ndarray]:
    """The system, its right-hand sides ``[M, P]``, and the sums for the scales, ``[M]`` each."""
    parts: list[csr_array] = []
    rhs = np.zeros((M, columns.stop - columns.start))
    precisions, entropies = np.zeros(M), np.zeros(M)
    for block in blocks:
        parts.append(_sparse(block, M))
        # parts of like size are added up, so that few are kept and none is added often
        while len(parts) > 1 and parts[-2].nnz <= 2 * parts[-1].nnz:
            last = parts.pop()
            parts[-1] = parts[-1] + last
        flat = block.indices.ravel()
        for p in range(rhs.shape[1]):
            column = block.vectors[:, :, min(p, block.vectors.shape[2] - 1)]
            rhs[:, p] += np.bincount(flat, column.ravel(), minlength=M)
        precisions += np.bincount(flat, block.precisions.ravel(), minlength=M)
        entropies += np.bincount(flat, block.entropies.ravel(), minlength=M)
    return sum(parts[1:], parts[0]), rhs, precisions, entropies


def _sparse(block: _Block, M: int) -> csr_array:
    shape = block.matrices.shape
    rows = np.broadcast_to(block.indices[:, :, None], shape).ravel()
    columns = np.broadcast_to(block.indices[:, None, :], shape).ravel()
    values = block.matrices.astype(np.float64).ravel()
    return coo_array((values, (rows, columns)), shape=(M, M)).tocsr()


def solve(system: csr_array, rhs: np.ndarray, start: np.ndarray) -> np.ndarray:
    """
    ``system^-1 rhs`` by conjugate gradients; where the system is zero, ``start``.

    :param system: symmetric ``[M, M]``.
    :param rhs: ``[M, P]``, as ``start``.
    :raises ValueError: if they do not converge.
    """
    diagonal = system.diagonal()
    empty = diagonal <= 0.0
    system = system + diags_array(empty.astype(np.float64))
    rhs = np.where(empty[:, None], start, rhs)
    scaled = LinearOperator(system.shape, matvec=lambda x: x / np.where(empty, 1.0, diagonal))
    found = np.empty_like(rhs)
    for p in range(rhs.shape[1]):
        found[:, p], left = cg(
            system, rhs[:, p], start[:, p], rtol=_TOLERANCE, maxiter=_MAX_ITERATIONS, M=scaled
        )
        if left:
            raise ValueError(
                f"the means were not found in {_MAX_ITERATIONS} iterations: inducing points "
                "coincide or nearly so. Raise model.jitter, or thin them out."
            )
    return found


@public_method()
def natural_step(model: Any, data: tuple[tf.Tensor, tf.Tensor], gamma: float = 0.1) -> tf.Tensor:
    """
    A natural-gradient step of the means and variances of a batch's neighbors, for "diag".

    With ``W_j`` the sum of the KL weights of the rows with neighbor j, and gradients of the loss,

        1 / s_j <- 1 / s_j + 2 gamma (dLoss/ds_j) / W_j,
        m_j     <- m_j - gamma s_j (dLoss/dm_j) / W_j:

    gamma = 1 on all rows is the closed form of s for Gaussian noise, and a Jacobi step of the
    means, for which gamma of about 0.5 is safe. On a minibatch each row stands for all rows that
    share its neighbors: take gamma near one over their number in the batch. Where the likelihood is
    not log-concave, 1 / s_j shrinks by at most ``1 - gamma``.

    :param data: ``(X [n, D], Y [n, P])``.
    :param gamma: above 0, at most 1.
    :return: the loss before the step.
    :raises ValueError: for another covariance, "chain" or a union.
    """
    if model.covariance != "diag" or model.kl_weighting == "chain" or model.union is not None:
        raise ValueError(
            "natural_step needs covariance='diag', kl_weighting 'counts' or 'paper' and "
            f"union=None; got {model.covariance!r}, {model.kl_weighting!r} and {model.union}."
        )
    if not (checks.is_number(gamma) and 0.0 < gamma <= 1.0):
        raise ValueError(f"gamma must be above 0 and at most 1, got {gamma!r}.")
    require_counted(model)
    update = model._row_update(*data)
    loss, (by_mean, by_log_scale), _ = update.gradients([])
    taken = update.row_indices[0][1]
    weights = tf.gather(_summed_weights(model, data[0]), taken)
    log_scale = tf.gather(model.q_log_scale, taken)
    # d/dlog sigma = 2 s d/ds
    factor = 1.0 + gamma * tf.maximum(by_log_scale / weights, -1.0)
    log_scale -= 0.5 * tf.math.log(tf.maximum(factor, 1e-6))
    change = gamma * tf.exp(2.0 * log_scale) * by_mean / weights
    component_checks.require_finite_result(model, "the natural step", log_scale, change)
    model.q_log_scale.scatter_update(tf.IndexedSlices(log_scale, taken))
    model.q_mu.scatter_sub(tf.IndexedSlices(change, taken))
    return loss


def _summed_weights(model: Any, X: tf.Tensor) -> tf.Tensor:
    """``W [M, L]``: sums over the batch, each row weighted by ``num_data / batch``."""
    columns, num_rows = [], tf.shape(X)[0]
    for place, (neighbors,) in enumerate(model._index_sets(X)):
        w = model._weight(X, X.dtype) * model._kl_weights(neighbors, place, num_rows)
        each = tf.repeat(w, tf.shape(neighbors)[1])
        flat = tf.reshape(neighbors, [-1])
        columns.append(tf.math.unsorted_segment_sum(each, flat, model.q_mu.shape[0]))
    widths = [of.stop - of.start for _, of in model._latents]
    return tf.repeat(tf.stack(columns, axis=1), widths, axis=1)


def start_from_sites(model: Any, data: Any) -> None:
    """
    Set q near the posterior, by one pass over the data and without an optimizer. Every inducing
    variable gets one Gaussian site from the rows nearest to it. Means are
    a :class:`SitePosterior`'s at the inducing points, standard deviations the best for independent
    variables, ``s_j^-1 = 1 / Var[u_j | its neighbors] + tau_j``. For "dense" only means.

    Training starts much closer to the optimum than from zero means: unwhitened means are slow to
    learn. `training.fit` calls this before the first step unless the model has ``start="prior"``.

    :param data: as :meth:`update_posterior`; any likelihood.
    :raises ValueError: for data that do not fit the model.
    """
    if isinstance(model.kernel, LinearCoregionalization):
        raise ValueError(
            "sites need outputs that are latent functions; LinearCoregionalization mixes them."
        )
    priors = model.priors
    sites = _sites(model, data, priors)
    Z = tf.convert_to_tensor(model.points.Z)
    means = []
    for prior, columns in priors:
        targets, precisions = (part[:, columns].astype(model.dtype.name) for part in sites)
        found = SitePosterior(prior.kernel, model.points, targets, precisions)
        means.append(found.fused_predict_f(Z)[0])
    model.q_mu.assign(tf.concat(means, axis=1))
    if model.q_log_scale is not None:
        scales = (closest_scales(model.points, priors) ** -2 + sites[1]) ** -0.5
        model.q_log_scale.assign(np.log(scales))


def start_training(model: Any, data: Any) -> None:
    """
    :meth:`start_from_sites` if the model has ``start="sites"`` and its means are trainable and
    still zero; else nothing. `training.fit` calls it before the first step of a run.

    :param data: as `training.fit` was given them. The first ``num_data`` rows are
        read of a data set that may be endless.
    """
    mixed = isinstance(model.kernel, LinearCoregionalization)
    if model.start != "sites" or mixed or not model.q_mu.trainable:
        return
    if bool(tf.reduce_any(model.q_mu != 0.0)):
        return
    if isinstance(data, tf.data.Dataset) and int(data.cardinality()) < 0:
        data = data.unbatch().take(int(model.num_data)).batch(1024)
    try:
        model.start_from_sites(data)
    except ValueError as error:  # of rows too that no step may come to read
        warnings.warn(f"training starts from the prior: {error}", stacklevel=3)


def _sites(
    model: Any, data: Any, priors: Sequence[tuple[NeighborPrior, slice]]
) -> tuple[np.ndarray, np.ndarray]:
    """
    Targets and precisions ``[M, L]`` of the sites: sums of one Gaussian factor for each row, about
    the value at its nearest inducing point.

    A row is an observation ``N(t; f, 1 / lambda)`` of f
    (:mod:`~gpflow_sparse.initialization.row_observations`): for Gaussian noise the row itself; for
    counts, positive outputs and noise with heavy tails at the posterior of each f_n given its own
    output alone; for any other likelihood at the prior. With
    ``f = a u_j + rest``, the rest of variance r given u_j, that is
    ``N(t / a; u_j, (1 / lambda + r) / a^2)``.
    """
    shape, iv = tuple(model.q_mu.shape), model.points
    precisions, moments = np.zeros(shape), np.zeros(shape)
    for x, y in _data_blocks(model, data, _ROWS):
        targets, known = _observations(model, x, y, priors)
        for prior, columns in priors:
            j = iv.closest(x, prior.kernel, 1)
            K, k, diagonal = local_covariances(prior.kernel, x, tf.gather(prior.Z, j))
            # a linear kernel vanishes at zero
            a = (k / tf.maximum(K[:, 0], prior.nugget)).numpy()  # [n, 1]
            rest = np.maximum(diagonal[:, None] - k * a, 0.0)
            precision = known[:, columns] / (1.0 + known[:, columns] * rest)
            np.add.at(precisions[:, columns], j[:, 0].numpy(), a**2 * precision)
            np.add.at(moments[:, columns], j[:, 0].numpy(), a * precision * targets[:, columns])
    used = precisions > 0.0
    return np.divide(moments, precisions, out=np.zeros(shape), where=used), precisions


def _observations(
    model: Any, X: tf.Tensor, Y: tf.Tensor, priors: Sequence[tuple[NeighborPrior, slice]]
) -> tuple[np.ndarray, np.ndarray]:
    """``t`` and ``lambda [n, L]`` of the rows, t relative to the prior mean of f."""
    variances = [
        tf.repeat(prior.kernel(X, full_cov=False)[:, None], of.stop - of.start, axis=1)
        for prior, of in priors
    ]
    var = tf.concat(variances, axis=1)
    mean = model.mean_function(X) + tf.zeros_like(var)
    likelihood = likelihood_of_starts(model.likelihood)
    if likelihood is None:
        return row_observations(model.likelihood, X, Y, mean, var)
    m, v = row_posteriors(likelihood, X, Y, mean, var)
    targets, known = row_observations(likelihood, X, Y, m, v)
    return (m - mean).numpy() + targets, known


def _data_blocks(model: Any, data: Any, rows: int) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    """Checked ``(X [n, D], Y [n, P])``, some rows at a time."""
    model._require_parts(model.input_dim, model.dtype)
    data = keep_training_data(data, batches=True, dtype=model.dtype)
    if isinstance(data, tf.data.Dataset):
        blocks = data.rebatch(rows)
    else:
        X, Y = model._require_data(data)
        starts = range(0, len(X), rows)
        blocks = ((X[start : start + rows], Y[start : start + rows]) for start in starts)
    for block in blocks:
        yield model._require_data(block)
