"""The posterior of an exact GP from solved linear systems: the mean, and draws for the rest."""

from collections.abc import Callable, Sequence
from functools import partial

import gpflow
import tensorflow as tf
from gpflow.kernels import Kernel

from gpflow_sparse.covariances.stationary import covariance
from gpflow_sparse.posteriors.base import Cache, MeanAndVariance, SparsePosterior, by_batches
from gpflow_sparse.posteriors.pathwise import (
    Paths,
    Sampler,
    in_blocks,
    single_precision_sums,
    sums_of_cosines,
    unstack,
)

# Cosines of a row, 64 draws of 512, from which they are computed in single precision, and how much
# smaller the blocks of rows then are, which so stay in the caches of a processor.
_FROM, _SMALLER = 2**15, 8


class DualPosterior(SparsePosterior):
    r"""
    The exact posterior given noisy observations at N rows, by pathwise conditioning:

        mean(x) = m(x) + k(x, X) a_y,           a_y = (K + Sigma)^-1 (y - m(X)),
        f_s(x)  = mean(x) + d_s(x),
        d_s(x)  = g_s(x) - k(x, X) a_s,         a_s = (K + Sigma)^-1 (g_s(X) + Sigma^1/2 zeta_s)

    with S draws ``g_s`` of the prior and ``zeta_s ~ N(0, I)``. The deviations ``d_s`` have mean
    zero and the posterior covariance, for which their mean products are an unbiased estimate.
    Outputs have the same covariance, so that all S P deviations are averaged: the standard error
    of a variance is the fraction ``sqrt(2 / (S P))`` of it, 18 % with 64. A joint covariance has
    the rank of their number at most.

    With 64 draws of 1,024 features or more, their priors are evaluated in single precision, where
    predictions spent most of their time: variances change by some 1e-6 of themselves at rows where
    the standard deviation is a tenth of the prior's, far less than the standard error above.

    Predictions take O(N D + S P (N + F D)) time per row with F cosines in each draw of the prior.

    ``inducing_variable`` is ``X [N, D]``. ``q_mu`` is a function that returns the weights ``[N, P +
    S P]``, first ``a_y``, and the frequencies ``[S, P, D, F]``, phases and amplitudes ``[S, P, F]``
    of the draws of the prior. There is no KL: it needs the log determinant of ``K + Sigma``, which
    the block solver does not compute. ``q_sqrt``, ``whiten`` and ``jitter`` are not used.
    """

    def _tensors(self) -> Sequence[tf.Tensor]:
        weights, cosines = self._current_q()
        return [weights, *cosines]

    def _marginals(self, cache: Cache | None, X: tf.Tensor) -> MeanAndVariance:
        mean, deviations = self._mean_and_deviations(cache, X)
        var = tf.reduce_mean(tf.square(deviations), axis=[0, 2])  # [n]
        return mean, var[:, None] + tf.zeros_like(mean)

    def _joint(self, cache: Cache | None, X: tf.Tensor) -> MeanAndVariance:
        tensors = self._tensors() if cache is None else cache
        return by_batches(partial(self._joint_moments, tensors), X)

    def _joint_moments(self, cache: Cache, X: tf.Tensor) -> MeanAndVariance:
        """Mean ``[N, P]`` and covariance ``[P, N, N]`` at ``X [N, D]``."""
        mean, deviations = self._mean_and_deviations(cache, X)
        S, P = deviations.shape[0], deviations.shape[2]
        cov = tf.einsum("snp,smp->nm", deviations, deviations) / (S * P)
        return mean, tf.repeat(cov[None], P, axis=0)

    def _mean_and_deviations(
        self, cache: Cache | None, X: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean ``[n, P]`` without the mean function, and deviations ``[S, n, P]``."""
        weights, *cosines = self._tensors() if cache is None else cache
        S, P, _, F = cosines[0].shape
        places = tf.convert_to_tensor(self.X_data)
        size = S * P * F
        draws: Callable[[tf.Tensor], tf.Tensor] = partial(_sums, cosines)
        if size >= _FROM:
            draws = single_precision_sums(tf.reduce_mean(places, axis=0), *cosines)
            size *= _SMALLER

        def evaluate(X: tf.Tensor) -> tf.Tensor:
            values = covariance(self.kernel, X, places) @ weights  # [n, P + S P]
            return unstack(values, (1 + S, P))

        values = in_blocks(evaluate, X, max(int(places.shape[0]), (1 + S) * P))
        return values[0], in_blocks(draws, X, size) - values[1:]

    def _draw_paths(self, sampler: Sampler) -> Paths:
        """Posterior paths from some of the draws for which the weights were solved."""
        weights, *cosines = self._tensors()
        S, P, _, F = cosines[0].shape
        if sampler.num_samples > S:
            raise ValueError(
                f"num_samples must be at most num_paths={S}, the number of draws for which the "
                f"weights were solved; got {sampler.num_samples}. Build DualGPR with more."
            )
        if sampler.num_features != 2 * F:
            raise ValueError(
                f"num_features must be {2 * F}, as DualGPR was built; got {sampler.num_features}."
            )
        chosen = sampler.generator.choice(S, size=sampler.num_samples, replace=False)
        frequencies, phases, amplitudes = (tf.gather(part, chosen) for part in cosines)
        own = tf.gather(tf.reshape(weights[:, P:], [-1, S, P]), chosen, axis=1)  # [N, S', P]
        total = weights[:, None, :P] - sampler.scale * own
        amplitudes = sampler.scale * amplitudes
        return DualPaths(self.kernel, self.X_data, total, (frequencies, phases, amplitudes))


def _sums(cosines: Sequence[tf.Tensor], X: tf.Tensor) -> tf.Tensor:
    return sums_of_cosines(X, *cosines)


class DualPaths(Paths):
    """``g(x) + k(x, X) a``: draws of a prior and their updates."""

    def __init__(
        self,
        kernel: Kernel,
        X: tf.Tensor,
        weights: tf.Tensor,
        cosines: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
    ) -> None:
        """
        :param kernel: copied.
        :param X: ``[N, D]``.
        :param weights: a, ``[N, S, P]``.
        :param cosines: frequencies ``[S, P, D, F]``, phases and amplitudes ``[S, P, F]`` of g.
        """
        S, P, _, F = cosines[0].shape
        super().__init__(weights.dtype, max(int(X.shape[0]), S * P * F))
        self.kernel, self.X, self.shape = gpflow.utilities.freeze(kernel), X, (S, P)
        self.weights, self.cosines = tf.reshape(weights, [-1, S * P]), cosines

    def evaluate(self, X: tf.Tensor) -> tf.Tensor:
        update = covariance(self.kernel, X, self.X) @ self.weights  # [n, S P]
        return sums_of_cosines(X, *self.cosines) + unstack(update, self.shape)
