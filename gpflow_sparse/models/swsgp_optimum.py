"""The q that maximizes the objective of a model with neighbors, where that is a formula."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization
from gpflow.likelihoods import Gaussian
from scipy.sparse import coo_array, csr_array, diags_array
from scipy.sparse.linalg import LinearOperator, cg

from gpflow_sparse.models import swsgp_options
from gpflow_sparse.models.held_data import count_rows
from gpflow_sparse.posteriors import latent_kernels
from gpflow_sparse.posteriors.neighbor_terms import NeighborTerms

# Entries of one block of the system on their way: some 100 MiB with their coordinates.
_ENTRIES = 2**22
_TOLERANCE, _MOST_ITERATIONS = 1e-10, 1000


class _Block(NamedTuple):
    """What some rows, or some points of a chain, add to the system."""

    places: np.ndarray
    """Which inducing variables, ``[n, H]``."""
    matrices: np.ndarray
    """``[n, H, H]``"""
    vectors: np.ndarray
    """Right-hand sides ``[n, H, P]``."""
    precisions: np.ndarray
    """What the variances pay, ``[n, H]``."""
    entropies: np.ndarray
    """What their logarithms earn, ``[n, H]``."""


def optimal_q(model: Any, X: Any, Y: Any) -> tuple[np.ndarray, np.ndarray]:
    """
    Means and standard deviations ``[M, L]`` where the gradient of the elbo on all rows is zero.

    With ``a_i = K_I^-1 k_i`` and noise s2 the means solve the sparse system

        (sum_i a_i a_i^T / s2 + w_i K_I^-1) m = sum_i a_i y_i / s2,

    by conjugate gradients preconditioned by its diagonal; and, over the rows i that see j,

        s_j = sum_i w_i / sum_i (a_ij^2 / s2 + w_i (K_I^-1)_jj).

    With "chain" ``w_i = 0``, and each term of the chain adds ``b b^T / v`` with ``b = (1, -a)``.
    Not in the paper. Points that no row sees stay as they are.
    """
    means, scales = model.q_mu.numpy().astype(np.float64), np.exp(model.q_log_scale.numpy())
    for i, (kernel, columns) in enumerate(latent_kernels(model.kernel, model.num_latent_gps)):
        terms = NeighborTerms(kernel, model.inducing_variable, model.jitter)
        blocks = _of_rows(model, X, Y, terms, (i, columns))
        if model.kl_weighting == "chain":
            blocks = _both(blocks, _of_chain(model, terms))
        system, rhs, precisions, entropies = _add_up(blocks, len(means), columns)
        means[:, columns] = _solve(system, rhs, means[:, columns])
        seen = precisions > 0.0
        scales[seen, columns] = np.sqrt(entropies[seen] / precisions[seen])[:, None]
    return means, scales


def require_conjugate(model: Any) -> None:
    """:raises ValueError: for models whose optimum is no formula."""
    if not isinstance(model.likelihood, Gaussian) or model.likelihood.variance is None:
        raise ValueError(
            "update_posterior needs a Gaussian likelihood with a constant variance, got "
            f"{type(model.likelihood).__name__}: train by gs.training.fit, or take natural_step."
        )
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


def _of_rows(
    model: Any, X: Any, Y: Any, terms: NeighborTerms, latent: tuple[int, slice]
) -> Iterator[_Block]:
    place, columns = latent
    s2 = model.likelihood.variance
    rows = max(1, _ENTRIES // model.inducing_variable.num_neighbors**2)
    needed = model.kl_weighting == "paper" and model.num_data is None  # a block is not all the data
    num_rows = count_rows(X) if needed else None
    for x, y in swsgp_options.blocks_of_data(model, X, Y, rows):
        errors = (y - model.mean_function(x))[:, columns]
        neighbors = model.inducing_variable.neighbors(x, terms.kernel)
        a, inverse = terms.inverse(x, neighbors)
        if model.kl_weighting == "chain":
            w = tf.zeros_like(x[:, 0])
        else:
            w = model._kl_weights(x, neighbors, place, num_rows)
        matrices = a[:, :, None] * a[:, None, :] / s2 + w[:, None, None] * inverse
        precisions = tf.square(a) / s2 + w[:, None] * tf.linalg.diag_part(inverse)
        vectors = a[:, :, None] * errors[:, None, :] / s2
        entropies = tf.tile(w[:, None], [1, a.shape[1]])
        yield _Block(*(t.numpy() for t in (neighbors, matrices, vectors, precisions, entropies)))


def _of_chain(model: Any, terms: NeighborTerms) -> Iterator[_Block]:
    M, H = model.q_mu.shape[0], model.inducing_variable.num_neighbors
    rows = max(1, _ENTRIES // H**2)
    for start in range(0, M, rows):
        drawn = tf.range(start, min(start + rows, M))
        before = model.inducing_variable.predecessors(drawn, terms.kernel)
        a, v = terms.conditional(drawn, before)
        others = tf.where(before >= 0, before, drawn[:, None])
        places = tf.concat([drawn[:, None], others], axis=1)
        b = tf.concat([tf.ones_like(a[:, :1]), -a], axis=1) / tf.sqrt(v)[:, None]
        own = tf.one_hot(tf.zeros_like(drawn), H + 1, dtype=a.dtype)
        matrices = b[:, :, None] * b[:, None, :]
        yield _Block(*(t.numpy() for t in (places, matrices, b[:, :, None] * 0, b**2, own)))


def _both(first: Iterator[_Block], second: Iterator[_Block]) -> Iterator[_Block]:
    yield from first
    yield from second


def _add_up(
    blocks: Iterator[_Block], M: int, columns: slice
) -> tuple[csr_array, np.ndarray, np.ndarray, np.ndarray]:
    """The system, its right-hand sides ``[M, P]``, and what scales depend on, ``[M]`` each."""
    parts: list[csr_array] = []
    rhs = np.zeros((M, columns.stop - columns.start))
    precisions, entropies = np.zeros(M), np.zeros(M)
    for block in blocks:
        flat = block.places.ravel()
        parts.append(_sparse(block, M))
        # parts of like size are added up, so that few are kept and none is added often
        while len(parts) > 1 and parts[-2].nnz <= 2 * parts[-1].nnz:
            last = parts.pop()
            parts[-1] = parts[-1] + last
        for p in range(rhs.shape[1]):
            column = block.vectors[:, :, min(p, block.vectors.shape[2] - 1)]
            rhs[:, p] += np.bincount(flat, column.ravel(), minlength=M)
        precisions += np.bincount(flat, block.precisions.ravel(), minlength=M)
        entropies += np.bincount(flat, block.entropies.ravel(), minlength=M)
    return sum(parts[1:], parts[0]), rhs, precisions, entropies


def _sparse(block: _Block, M: int) -> csr_array:
    shape = block.matrices.shape
    rows = np.broadcast_to(block.places[:, :, None], shape).ravel()
    columns = np.broadcast_to(block.places[:, None, :], shape).ravel()
    values = block.matrices.astype(np.float64).ravel()
    return coo_array((values, (rows, columns)), shape=(M, M)).tocsr()


def _solve(system: csr_array, rhs: np.ndarray, start: np.ndarray) -> np.ndarray:
    """``system^-1 rhs``; where the system is zero, ``start``."""
    diagonal = system.diagonal()
    empty = diagonal <= 0.0
    system = system + diags_array(empty.astype(np.float64))
    rhs = np.where(empty[:, None], start, rhs)
    scaled = LinearOperator(system.shape, matvec=lambda x: x / np.where(empty, 1.0, diagonal))
    found = np.empty_like(rhs)
    for p in range(rhs.shape[1]):
        found[:, p], left = cg(
            system, rhs[:, p], start[:, p], rtol=_TOLERANCE, maxiter=_MOST_ITERATIONS, M=scaled
        )
        if left:
            raise ValueError(
                f"the means were not found in {_MOST_ITERATIONS} iterations: inducing points "
                "coincide or nearly so. Raise model.jitter, or thin them out."
            )
    return found
