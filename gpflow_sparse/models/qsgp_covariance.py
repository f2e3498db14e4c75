"""The best covariance of each shape, for Gaussian noise."""

from typing import Any

import tensorflow as tf

from gpflow_sparse.inference import chevron
from gpflow_sparse.numerics.streaming import streamed_sum


def best_covariance(model: Any, X: tf.Tensor) -> tuple[Any, Any, tf.Tensor]:
    """
    :param model: a QSGP with Gaussian noise.
    :param X: training inputs, all or a random part of them.
    :return: ``B [L, h, h]``, ``D [m - h, L, h]`` (None where the model has none) and ``log c
        [m - h, L]``.
    :raises ValueError: for a chevron over more functions than a square matrix can be made of.
    """
    h, L, noise = model.num_head, model.num_latent_gps, model.likelihood.variance
    B, D = None, None
    if model.covariance == "chevron":
        if model.basis.num_basis > chevron.MOST_DENSE:
            raise ValueError(
                "the best columns of a chevron need the precision of all weights, so at most "
                f"{chevron.MOST_DENSE} functions; the basis has {model.basis.num_basis}. Take "
                "covariance='block', or train the columns."
            )
        factor = chevron.lower_factor_of_inverse(_precision(model, X, model.basis.num_basis))
        B = tf.tile(factor[None, :h, :h], [L, 1, 1])
        D = tf.tile(factor[h:, None, :h], [1, L, 1])
    elif h:
        B = tf.tile(chevron.lower_factor_of_inverse(_precision(model, X, h))[None], [L, 1, 1])
    diagonal = _per_row(model, X) * _squares(model, X) / noise + model.basis.precision_diagonal(
        tf.range(h, model.basis.num_basis)
    )
    return B, D, tf.tile(-0.5 * tf.math.log(diagonal)[:, None], [1, L])


def _per_row(model: Any, X: tf.Tensor) -> float:
    """How many training rows each of the given ones stands for."""
    return model.num_data / X.shape[0]


def _precision(model: Any, X: tf.Tensor, size: int) -> tf.Tensor:
    """``Phi^T Phi / noise + S`` of the first ``size`` functions."""
    chosen = tf.range(size)

    def products(blocks: Any, tensors: Any) -> list[tf.Tensor]:
        Phi = model.basis(blocks[0], chosen)
        return [tf.linalg.matmul(Phi, Phi, transpose_a=True)]

    (gram,) = streamed_sum(products, [X], block_rows=chevron.chunk_size(size))
    data = _per_row(model, X) * gram / model.likelihood.variance
    return data + model.basis.prior_precision(chosen, chosen)


def _squares(model: Any, X: tf.Tensor) -> tf.Tensor:
    """``phi_r^T phi_r [m - h]``, a chunk of functions and a block of rows at a time."""
    h, m = model.num_head, model.basis.num_basis
    chunk = min(m - h, 2**14)

    def squares(chosen: tf.Tensor) -> tf.Tensor:
        def sums(blocks: Any, tensors: Any) -> list[tf.Tensor]:
            return [tf.reduce_sum(tf.square(model.basis(blocks[0], chosen)), axis=0)]

        return streamed_sum(sums, [X], block_rows=chevron.chunk_size(chunk))[0]

    starts = range(h, m, chunk)
    parts = [squares(tf.range(start, min(start + chunk, m))) for start in starts]
    return tf.concat(parts, axis=0)
