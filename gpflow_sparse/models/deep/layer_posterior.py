"""Posterior of a layer of a deep model, from which inputs of the next layer are drawn."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.kernels import MultioutputKernel

from gpflow_sparse.covariances.patch_grids import PatchGrid
from gpflow_sparse.inference.blocks import draws, root
from gpflow_sparse.numerics import devices, linalg
from gpflow_sparse.numerics.streaming import Tensors, by_chunks
from gpflow_sparse.posteriors.base import (
    BlockPosterior,
    Cache,
    MeanAndVariance,
    SparsePosterior,
    group_columns,
)

SAMPLING = ("marginal", "shared_inducing", "joint")
# Entries of the largest tensor of a chunk.
_CHUNK_ENTRIES = 4_000_000


class LayerMoments(NamedTuple):
    """
    Moments of a layer at n inputs, S times each: ``[n, S, p, G]``, for the p rows of an input and
    the G functions of the layer.
    """

    mean: tf.Tensor
    """Mean of f, mean function included."""
    variance: tf.Tensor
    """Variance of f."""
    prior_mean: tf.Tensor
    """The mean function alone."""


class LayerPosterior(tf.Module):
    """
    A posterior over rows, with one row for each input of the layer, or one for each of its patches.

    Draws of the rows of one input: "marginal" is independent; "shared_inducing" draws
    the inducing variables once for all of them, and the residual independently; "joint" draws from
    their covariance. With one row these are equal.
    """

    def __init__(
        self, posterior: SparsePosterior, num_outputs: int, grid: PatchGrid | None = None
    ) -> None:
        """
        :param num_outputs: G, columns of f.
        :param grid: the patches of an input that is an image; None where an input is a row.
        """
        super().__init__()
        self.posterior = posterior
        self.num_outputs = num_outputs
        # a plain tuple: TensorFlow wraps named tuples in a proxy
        self._image: Any = None if grid is None else tuple(grid)

    @property
    def grid(self) -> PatchGrid | None:
        """The patches of an input that is an image."""
        return None if self._image is None else PatchGrid(*self._image)

    @property
    def num_rows(self) -> int:
        """p, the number of rows of an input."""
        return 1 if self.grid is None else self.grid.num_patches

    @property
    def output_dim(self) -> int:
        """Columns of an output: p G."""
        return self.num_rows * self.num_outputs

    def noise_size(self, sampling: str) -> int:
        """Number of standard normal variables in one draw for one input."""
        if sampling in ("marginal", "joint") or self.num_rows == 1:
            return self.output_dim
        return self.output_dim + self.num_outputs * sum(self._block_posterior.block_sizes)

    @property
    def _block_posterior(self) -> BlockPosterior:
        """:raises ValueError: for a posterior without variables that all rows share."""
        if not isinstance(self.posterior, BlockPosterior):
            raise ValueError(
                "sampling must be 'marginal' or 'joint' with a "
                f"{type(self.posterior).__name__} in a layer: it has no variables that all patches "
                "of an image share."
            )
        return self.posterior

    def draw(self, cache: Cache, X: tf.Tensor, noise: tf.Tensor, sampling: str) -> tf.Tensor:
        """
        Outputs for n inputs, in chunks that bound the memory.

        Time O(n S (p M^2 G)) for "marginal" and "joint", and p^3 G more for "joint"; O(n S (M^2 + p
        M) G) for "shared_inducing".

        :param cache: cache of the posterior.
        :param X: ``[n, S, D]``, or ``[n, 1, D]`` for several draws from the same input.
        :param noise: standard normal, ``[n, S, noise_size]``; or ``[1, S, noise_size]``, the same
            for all inputs.
        :return: ``[n, S, p G]``
        """
        own = noise.shape[0] != 1  # noise for each input; otherwise it is held once

        def of_some(rows: Tensors, shared: Tensors) -> tf.Tensor:
            eps, tensors = (rows[1], shared) if own else (shared[0], shared[1:])
            return self._draw(tensors, rows[0], eps, sampling)

        size = self._chunk_size(cache, X, sampling)
        rows, shared = ([X, noise], cache) if own else ([X], [noise, *cache])
        return by_chunks(of_some, rows, [tf.convert_to_tensor(t) for t in shared], size=size)

    def moments(self, cache: Cache, X: tf.Tensor) -> LayerMoments:
        """
        Moments of every row by itself, from which "marginal" draws are made; time O(n S p M^2 G).

        :param cache: cache of the posterior.
        :param X: ``[n, S, D]``.
        """

        def of_some(rows: Tensors, shared: Tensors) -> tf.Tensor:
            patches = self.rows(rows[0])
            mean, var = self._moments(shared, patches)
            return tf.concat([mean, var, self._prior_mean(patches)], axis=-1)

        shared = [tf.convert_to_tensor(t) for t in cache]
        size = self._chunk_size(cache, X, "marginal")
        found = by_chunks(of_some, [X], shared, size=size)  # [n, S, p, 3 G]
        return LayerMoments(*tf.split(found, 3, axis=-1))

    def draw_together(self, cache: Cache, X: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """
        Joint draws of the outputs for N inputs, O((N p)^3).

        :param X: ``[S, N, D]``, or ``[1, N, D]`` for several draws from the same inputs.
        :param noise: standard normal, ``[S, N p, G]``.
        :return: ``[S, N, p G]``
        """
        rows = self.rows(X)  # [S, N, p, L]
        together = tf.reshape(rows, [1, tf.shape(X)[0], -1, rows.shape[-1]])
        drawn = self._draw_jointly(cache, together, noise[None])
        return tf.reshape(drawn, [-1, tf.shape(X)[1], self.output_dim])

    def rows(self, X: tf.Tensor) -> tf.Tensor:
        """The rows of each input, ``[..., p, L]`` for inputs ``[..., D]``."""
        return X[..., None, :] if self.grid is None else self.grid.patches(X)

    def _draw(self, cache: Cache, X: tf.Tensor, noise: tf.Tensor, sampling: str) -> tf.Tensor:
        rows = self.rows(X)  # [n, S, p, L]
        shape = [tf.shape(X)[0], noise.shape[1], self.output_dim]
        split = tf.reshape(
            noise[..., : self.output_dim], [-1, noise.shape[1], self.num_rows, self.num_outputs]
        )
        if self.num_rows == 1 or sampling == "marginal":
            mean, var = self._moments(cache, rows)
            return tf.reshape(mean + root(var) * split, shape)
        if sampling == "joint":
            return tf.reshape(self._draw_jointly(cache, rows, split), shape)
        return tf.reshape(self._draw_inducing(cache, rows, noise, split), shape)

    def _moments(self, cache: Cache, rows: tf.Tensor) -> MeanAndVariance:
        """Mean and variance of every row by itself, ``[n, S, p, G]``."""
        flat = tf.reshape(rows, [-1, rows.shape[-1]])
        mean, var = self.posterior.predict(cache, flat)
        shape = tf.concat([tf.shape(rows)[:-1], [self.num_outputs]], axis=0)
        return tf.reshape(mean, shape), tf.reshape(var, shape)

    def _draw_jointly(self, cache: Cache, rows: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """``[n, S, p, G]`` from the covariance over p, ``noise [n, S, p, G]``."""
        mean, cov = self.posterior.predict(cache, rows, full_cov=True)
        jittered = linalg.add_jitter(cov, self._row_jitter(rows))
        L = linalg.cholesky(jittered, "the covariance of a hidden layer's outputs")
        columns = tf.linalg.matrix_transpose(noise)[..., None]  # [n, S, G, p, 1]
        return mean + tf.linalg.matrix_transpose(tf.linalg.matmul(L, columns)[..., 0])

    def _row_jitter(self, rows: tf.Tensor) -> tf.Tensor:
        """
        Jitter ``[n, S, G, p]`` for ``rows [n, S, p, L]``, relative to the prior variance of a row
        itself: kernels that are not stationary may have variances of any size beside each other.
        """
        kernel, flat = self.posterior.kernel, tf.reshape(rows, [-1, rows.shape[-1]])
        if isinstance(kernel, MultioutputKernel):
            prior = kernel(flat, full_cov=False, full_output_cov=False)  # [n S p, G]
        else:
            prior = tf.repeat(kernel(flat, full_cov=False)[:, None], self.num_outputs, axis=1)
        prior = tf.reshape(prior, tf.concat([tf.shape(rows)[:-1], [self.num_outputs]], axis=0))
        relative = linalg.relative_jitter(prior.dtype, self.posterior.jitter)
        # f is known where its variance is zero, as of a linear kernel at the origin
        least = np.finfo(prior.dtype.as_numpy_dtype).tiny ** 0.5
        return relative * tf.linalg.matrix_transpose(prior) + tf.constant(least, prior.dtype)

    def _draw_inducing(
        self, cache: Cache, rows: tf.Tensor, noise: tf.Tensor, own: tf.Tensor
    ) -> tf.Tensor:
        """Draws ``[n, S, p, G]`` with inducing variables shared by the p rows of an input."""
        shape, G = tf.shape(rows)[:-1], self.num_outputs  # n, S, p
        flat = tf.reshape(rows, [-1, rows.shape[-1]])
        posterior = self._block_posterior
        blocks, sizes = posterior.blocks(cache, flat), posterior.block_sizes
        prior = posterior._prior_variances(flat, blocks)
        pieces = tf.split(noise[..., self.output_dim :], [G * M for M in sizes], axis=-1)
        block_noise = [
            tf.reshape(piece, [-1, noise.shape[1], M, G])
            for piece, M in zip(pieces, sizes, strict=True)
        ]
        grouped = [b._replace(A=group_columns(b.A, shape)) for b in blocks]
        drawn = draws(tf.reshape(prior, shape), grouped, own, block_noise)
        return drawn + self._prior_mean(rows)

    def _prior_mean(self, rows: tf.Tensor) -> tf.Tensor:
        """The mean function at ``rows [n, S, p, L]``, ``[n, S, p, G]``; zero if there is none."""
        flat = tf.reshape(rows, [-1, rows.shape[-1]])
        zero = tf.zeros([tf.shape(flat)[0], self.num_outputs], flat.dtype)
        value = self.posterior._add_mean_function(flat, zero)
        return tf.reshape(value, tf.concat([tf.shape(rows)[:-1], [self.num_outputs]], axis=0))

    def _chunk_size(self, cache: Cache, X: tf.Tensor, sampling: str) -> int:
        """Number of inputs ``[S, D]`` of X whose tensors fit into a chunk."""
        largest = max((int(t.shape[-1]) for t in cache if t.shape.rank), default=1)
        per_input = int(X.shape[1]) * self.output_dim * largest
        if sampling == "joint":
            per_input = max(per_input, int(X.shape[1]) * self.output_dim * self.num_rows)
        return max(1, devices.block_entries(_CHUNK_ENTRIES) // per_input)
