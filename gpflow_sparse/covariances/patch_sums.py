"""Covariances that are sums over the patches of images, without a number for every patch kept.

With P patches in each of N images and M inducing patches, ``[N, P, M]`` is 0.3 GB at N = 64, 28 x
28 pixels, 5 x 5 patches, M = 1000 in float64, and its gradient needs several of them. Here a few
images go through at a time, and are gone through again for the gradient.
"""

import tensorflow as tf
from gpflow.kernels import Kernel

from gpflow_sparse.covariances.patch_grids import PatchGrid
from gpflow_sparse.covariances.stationary import covariance, weighted_sums
from gpflow_sparse.numerics.recomputation import Tensors, by_chunks

# Numbers in the largest tensor of a chunk, of which the memory is a few times as many. Measured on
# two cores with 64 images of 576 patches, M = 1000, float64: a gradient takes 211 to 221 ms for
# anything from 0.6 to 10 million.
_NUMBERS = 2_500_000


def cross_sums(
    kernel: Kernel, Z: tf.Tensor, X: tf.Tensor, grid: PatchGrid, weights: tf.Tensor
) -> tf.Tensor:
    """
    ``sum_p weights[p, m] k(Z_m, x_n^[p])``.

    Time O(N P M L).

    :param kernel: of patches.
    :param Z: patches ``[M, L]``.
    :param X: images ``[N, D]``.
    :param weights: ``[P, M]``; or ``[P, 1]``, the same for all of Z.
    :return: ``[M, N]``.
    """
    P = grid.num_patches

    def sums(rows: Tensors, shared: Tensors) -> Tensors:
        Z, weights = shared
        patches = tf.reshape(grid.patches(rows[0]), [-1, grid.patch_length])
        K = tf.reshape(covariance(kernel, patches, Z), [-1, P, tf.shape(Z)[0]])
        if weights.shape[1] == 1:
            return [tf.linalg.matmul(weights, K, transpose_a=True)[:, 0]]  # [n, M]
        return [tf.reduce_sum(K * weights, axis=1)]

    M = Z.shape[0]
    if M is None:  # of as many images as come: a full covariance, which is for few
        return tf.transpose(sums([X], [Z, weights])[0])
    size = max(1, _NUMBERS // (P * M))
    (by_image,) = by_chunks(sums, [X], [Z, weights], size=size, shapes=[[M]])
    return tf.transpose(by_image)


def own_sums(kernel: Kernel, X: tf.Tensor, grid: PatchGrid, weights: tf.Tensor) -> tf.Tensor:
    """
    ``sum_pq weights[p, q] k(x_n^[p], x_n^[q])``.

    Time O(N P^2 L).

    :param kernel: of patches.
    :param X: images ``[N, D]``.
    :param weights: ``[P, P]``, symmetric.
    :return: ``[N]``.
    """

    def sums(rows: Tensors, shared: Tensors) -> Tensors:
        return [weighted_sums(kernel, grid.patches(rows[0]), shared[0])]

    size = max(1, _NUMBERS // grid.num_patches**2)
    return by_chunks(sums, [X], [weights], size=size, shapes=[[]])[0]
