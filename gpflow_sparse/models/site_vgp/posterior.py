"""The posterior of a Gaussian process given one Gaussian site for each training row."""

from collections.abc import Sequence
from functools import partial

import tensorflow as tf
from check_shapes import inherit_check_shapes

from gpflow_sparse.covariances.stationary import covariance
from gpflow_sparse.inference.gaussian_sites import Conditioned, Sites, condition, moments
from gpflow_sparse.numerics import linalg
from gpflow_sparse.posteriors.base import Cache, MeanAndVariance, SparsePosterior, by_batches
from gpflow_sparse.posteriors.pathwise import Paths, PriorPaths, Sampler, in_blocks, unstack


class SiteVGPPosterior(SparsePosterior):
    r"""
    The posterior of P latent functions with one kernel, given Gaussian sites at N rows X:

        mean(x) = m(x) + k(x, X) alpha_p,
        cov(x, z) = k(x, z) - k(x, X) S_p B_p^-1 S_p k(X, z),

    see :mod:`gpflow_sparse.inference.gaussian_sites`. A cache has ``alpha [N, P]``, the diagonals
    of ``S [P, N]`` and the factors of ``B [P, N, N]``. A prediction takes O(P N^2) time a row.

    ``inducing_variable`` is ``X [N, D]``. ``q_mu`` is a function that returns the present
    precisions and linear terms of the sites, ``[N, P]`` each. ``q_sqrt``, ``whiten`` and ``jitter``
    are not used: B has no eigenvalue below 1.
    """

    @inherit_check_shapes
    def prior_kl(self, X: tf.Tensor | None = None, cache: Cache | None = None) -> tf.Tensor:
        """KL divergence from q(f) at the training rows to the prior, a scalar."""
        K, prior_mean = self._prior()
        return moments(K, prior_mean, self._sites(), self._conditioned(cache))[2]

    def training_moments(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Uncalibrated mean and variance of q at the training rows ``[N, P]``, and the KL."""
        K, prior_mean = self._prior()
        sites = self._sites()
        return moments(K, prior_mean, sites, condition(K, prior_mean, sites))

    def _sites(self) -> Sites:
        return Sites(*(tf.convert_to_tensor(part) for part in self._current_q()))

    def _prior(self) -> tuple[tf.Tensor, tf.Tensor]:
        """``K [N, N]`` and the prior mean ``[N, P]`` at the training rows."""
        X = tf.convert_to_tensor(self.X_data)
        zeros = tf.zeros_like(self._sites().linear)
        return covariance(self.kernel, X), zeros + self._add_mean_function(X, zeros)

    def _conditioned(self, cache: Cache | None) -> Conditioned:
        return condition(*self._prior(), self._sites()) if cache is None else Conditioned(*cache)

    def _tensors(self) -> Sequence[tf.Tensor]:
        return self._conditioned(None)

    def _marginals(self, cache: Cache | None, X: tf.Tensor) -> MeanAndVariance:
        found = self._conditioned(cache)

        def evaluate(X: tf.Tensor) -> tf.Tensor:
            mean, A = self._projected(found, X)
            explained = tf.transpose(tf.reduce_sum(tf.square(A), axis=-2))  # [n, P]
            var = tf.maximum(self.kernel(X, full_cov=False)[:, None] - explained, 0.0)
            return tf.stack([mean, var])

        mean, var = tf.unstack(in_blocks(evaluate, X, found.L.shape[0] * found.L.shape[1]))
        return mean, var

    def _joint(self, cache: Cache | None, X: tf.Tensor) -> MeanAndVariance:
        return by_batches(partial(self._joint_moments, self._conditioned(cache)), X)

    def _joint_moments(self, found: Conditioned, X: tf.Tensor) -> MeanAndVariance:
        """Mean ``[n, P]`` and covariance ``[P, n, n]`` at ``X [n, D]``."""
        mean, A = self._projected(found, X)
        return mean, covariance(self.kernel, X) - tf.linalg.matmul(A, A, transpose_a=True)

    def _projected(self, found: Conditioned, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """``k(X, .) alpha [n, P]``, and ``L^-1 S k(., X) [P, N, n]``."""
        k = covariance(self.kernel, self.X_data, X)  # [N, n]
        A = linalg.solve_triangular(found.L, found.root[:, :, None] * k)
        return tf.linalg.matmul(k, found.alpha, transpose_a=True), A

    def _draw_paths(self, sampler: Sampler) -> Paths:
        """Draws of the prior, conditioned on noisy draws of themselves."""
        alpha, root, L = self._conditioned(None)
        X, P = tf.convert_to_tensor(self.X_data), alpha.shape[1]
        prior = PriorPaths(self.kernel, P, int(X.shape[1]), sampler)
        values = tf.transpose(prior(X), [2, 1, 0])  # g(X)  [P, N, S]
        noise = sampler.normal(values.shape, alpha.dtype)
        white = linalg.solve_triangular(L, root[:, :, None] * values + noise)
        change = root[:, :, None] * linalg.solve_triangular(L, white, adjoint=True)  # [P, N, S]
        return SitePaths(prior, X, alpha[:, None] - tf.transpose(change, [1, 2, 0]))


class SitePaths(Paths):
    """``g(x) + k(x, X) w``: draws of a prior and their updates."""

    def __init__(self, prior: PriorPaths, X: tf.Tensor, weights: tf.Tensor) -> None:
        """
        :param X: ``[N, D]``.
        :param weights: w, ``[N, S, P]``.
        """
        super().__init__(prior.dtype, max(prior.entries_per_row, int(X.shape[0])))
        self.prior, self.X, self.kernel = prior, X, prior.kernel
        self.weights = tf.reshape(weights, [X.shape[0], -1])

    def evaluate(self, X: tf.Tensor) -> tf.Tensor:
        update = covariance(self.kernel, X, self.X) @ self.weights  # [n, S P]
        return self.prior.evaluate(X) + unstack(update, self.prior.shape)
