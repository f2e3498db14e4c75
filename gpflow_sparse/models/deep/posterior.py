"""The posterior of a deep model: a mixture over draws of the outputs of its hidden layers."""

import itertools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.likelihoods import Likelihood
from gpflow.posteriors import PrecomputeCacheType

from gpflow_sparse.inference.blocks import root
from gpflow_sparse.inference.calibration import (
    Calibration,
    has_classes,
    observed,
    of_labels,
    tempered,
)
from gpflow_sparse.inference.residual_bounds import Terms
from gpflow_sparse.models.deep.layer_posterior import LayerMoments, LayerPosterior
from gpflow_sparse.numerics import random_draws
from gpflow_sparse.posteriors.base import (
    Cache,
    MeanAndVariance,
    SparsePosterior,
    by_batches,
    by_rows,
    split_rows,
)
from gpflow_sparse.posteriors.pathwise import FunctionDraws, Paths, Sampler
from gpflow_sparse.validation import checks, component_checks
from gpflow_sparse.validation.public_methods import public_method


class DeepPosterior(SparsePosterior):
    """
    ``f = f_L(...(f_1(x)))``, each layer with a posterior of its own.

    Given draws of the hidden layers f is Gaussian, so predictions are mixtures of S Gaussians
    for every x: means, densities and class probabilities are averaged; variances are averaged, plus
    the variance of the means. Salimbeni and Deisenroth, "Doubly Stochastic Variational Inference
    for Deep Gaussian Processes" (2017, arXiv:1705.08933).

    The S draws are made from noise that is the same at every call and for every x, so that a
    prediction is a function of x, whatever rows come with it. With ``full_cov`` hidden layers are
    drawn jointly for all x, from other noise.
    """

    def __init__(
        self,
        layers: Sequence[LayerPosterior],
        *,
        sampling: str = "marginal",
        num_samples: int = 10,
        seed: int = 0,
        precompute_cache: PrecomputeCacheType | str | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        """
        :param layers: first to last; the last layer is not sampled, but Gaussian.
        :param sampling: kind of draws of hidden layers, one of ``layer.SAMPLING``.
        :param num_samples: S.
        :param seed: seed of the draws.
        :param calibration: factors of predictive variances; the last layer's posterior applies the
            factor of f, to the variance given draws of the hidden layers.
        """
        last = layers[-1].posterior
        self.layers = tuple(layers)
        self.sampling = sampling
        self.num_samples = num_samples if len(layers) > 1 else 1
        self.seed = seed
        self._sizes: tuple[int, ...] = ()
        super().__init__(
            last.kernel,
            last.X_data,
            precompute_cache=precompute_cache,
            jitter=last.jitter,
            calibration=calibration,
        )

    @property
    def input_dim(self) -> int | None:
        first = self.layers[0]
        return first.posterior.input_dim if first.grid is None else first.grid.num_pixels

    @property
    def variance_factor(self) -> float:
        """1: the posterior of the last layer is calibrated itself."""
        return 1.0

    @inherit_check_shapes
    def prior_kl(self, X: tf.Tensor | None = None, cache: Cache | None = None) -> tf.Tensor:
        """Sum of the layers' KL; X is not used."""
        own = zip(self.layers, self._caches(cache), strict=True)
        return tf.add_n([layer.posterior.prior_kl(cache=part) for layer, part in own])

    def sampled_terms(self, X: tf.Tensor, noise: Sequence[tf.Tensor]) -> Terms:
        """
        Moments of the last layer given draws of the hidden layers, and the KL: the terms of an
        ELBO. The moments of :meth:`terms`, of the mixture, are for predictions.

        :param X: ``[N, D]``.
        :param noise: standard normal, for each hidden layer ``[N or 1, S, noise_size]``.
        :return: of the last layer ``[N S, P]``, the S draws of a row side by side, but the KL of
            all layers.
        """
        hidden = [layer.posterior for layer in self.layers[:-1]]
        caches = [part._tensors() for part in hidden]
        inputs = self._propagate(caches, X, noise)  # [N S, D_L]
        terms = self.layers[-1].posterior.terms(inputs)
        kls = [part.prior_kl(cache=cache) for part, cache in zip(hidden, caches, strict=True)]
        return terms._replace(kl=tf.add_n([terms.kl, *kls]))

    def noise(self, X: tf.Tensor, num_samples: int) -> list[tf.Tensor]:
        """New standard normal noise for :meth:`sampled_terms` at ``X [N, D]``."""
        return [
            random_draws.normal_of_rows(X, [num_samples, size], X.dtype)
            for size in self.noise_sizes
        ]

    def frozen_noise(self, X: tf.Tensor, num_samples: int) -> list[tf.Tensor]:
        """Noise that is the same at every call and for every row, ``[1, S, noise_size]`` each."""
        return [
            self._frozen([1, num_samples, size], place, X.dtype)
            for place, size in enumerate(self.noise_sizes)
        ]

    def hidden_moments(self, X: tf.Tensor) -> list[LayerMoments]:
        """
        Mean and variance of each hidden layer, given :meth:`frozen_noise` in the layers before it.

        :param X: ``[N, D]``.
        :return: of the first hidden layer ``[N, 1, p, G]``, of the others ``[N, S, p, G]``, with
            the :attr:`num_samples` draws of predictions.
        """
        found, H = [], X[:, None, :]  # [N, 1, D], then [N, S, D_l]
        hidden, noise = self.layers[:-1], self.frozen_noise(X, self.num_samples)
        for place, (layer, eps) in enumerate(zip(hidden, noise, strict=True)):
            cache = layer.posterior._tensors()
            found.append(layer.moments(cache, H))
            if place + 1 < len(hidden):
                H = layer.draw(cache, H, eps, self.sampling)
        return found

    @property
    def noise_sizes(self) -> list[int]:
        """Number of standard normal variables in a draw for one row, for each hidden layer."""
        return [layer.noise_size(self.sampling) for layer in self.layers[:-1]]

    @public_method("the prediction", prediction=True)
    @check_shapes(
        "Xnew: [batch..., N, D]", "return[0]: [batch..., N, P]", "return[1]: [batch..., N, P]"
    )
    def predict_y(self, Xnew: tf.Tensor, likelihood: Likelihood) -> MeanAndVariance:
        def predict(X: tf.Tensor) -> MeanAndVariance:
            rows = tf.repeat(X, self.num_samples, axis=0)
            moments = observed(self.calibration, likelihood, rows, self.predict_draws(X))
            mixed = self._mixed_by_row(*likelihood.predict_mean_and_var(rows, *moments))
            return tempered(self.calibration, likelihood, mixed)

        return by_rows(predict, Xnew)

    @public_method("the log density", prediction=True)
    @check_shapes("data[0]: [batch..., N, D]", "data[1]: [batch..., N, P]", "return: [batch..., N]")
    def predict_log_density(
        self, data: tuple[tf.Tensor, tf.Tensor], likelihood: Likelihood
    ) -> tf.Tensor:
        found = self.calibration
        if found is not None and found.temperature != 1.0 and has_classes(likelihood):
            return of_labels(likelihood, self.predict_y(data[0], likelihood)[0], data[1])
        latents = self.layers[-1].num_outputs
        data = checks.require_data(data, likelihood=likelihood, num_latent_gps=latents)
        X, Y = (tf.repeat(part, self.num_samples, axis=0) for part in data)
        moments = observed(self.calibration, likelihood, X, self.predict_draws(data[0]))
        each = likelihood.predict_log_density(X, *moments, Y)
        count = tf.constant(self.num_samples, each.dtype)
        return tf.reduce_logsumexp(self._by_sample(each), axis=1) - tf.math.log(count)

    def draw(self, X: tf.Tensor, num_samples: int, full_cov: bool) -> tf.Tensor:
        """
        Fresh draws of f itself, ``[S, N, P]``.

        :param X: ``[N, D]``.
        :param full_cov: jointly over all rows, O(N^3) in every layer.
        """
        caches, last = self._caches(self.cache), self.layers[-1]
        if full_cov:
            shapes = [[num_samples, *tail] for tail in self._joint_shapes(X)]
            noise = [random_draws.normal(shape, X.dtype) for shape in shapes]
            inputs = self._propagate_together(caches[:-1], X, noise)  # [S or 1, N, D_L]
            eps = random_draws.normal([num_samples, tf.shape(X)[0], last.num_outputs], X.dtype)
            return last.draw_together(caches[-1], inputs, eps)
        moments = self._last_layer(caches, X, self.noise(X, num_samples))
        mean, var = (tf.reshape(m, [tf.shape(X)[0], -1, m.shape[-1]]) for m in moments)
        shape = [tf.shape(X)[0], num_samples, mean.shape[-1]]
        drawn = mean + root(var) * random_draws.normal(shape, mean.dtype)
        return tf.transpose(drawn, [1, 0, 2])

    def _conditional_with_precompute(
        self,
        cache: Cache | None,
        Xnew: tf.Tensor,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> MeanAndVariance:
        caches, last = self._caches(cache), self.layers[-1].posterior

        def marginals(X: tf.Tensor) -> MeanAndVariance:
            noise = self.frozen_noise(X, self.num_samples)
            return self._mixed_by_row(*self._last_layer(caches, X, noise, full_output_cov))

        def joint(X: tf.Tensor) -> MeanAndVariance:
            shapes = [[self.num_samples, *tail] for tail in self._joint_shapes(X)]
            noise = [self._frozen(shape, place, X.dtype) for place, shape in enumerate(shapes)]
            inputs = self._propagate_together(caches[:-1], X, noise)  # [S, N, D_L]
            return _mixed(*last.predict(caches[-1], inputs, True, full_output_cov), 0)

        return by_batches(joint if full_cov else marginals, Xnew)

    def _tensors(self) -> list[tf.Tensor]:
        """The caches of all layers, one after the other."""
        caches = [layer.posterior._tensors() for layer in self.layers]
        self._sizes = tuple(len(cache) for cache in caches)
        return [tensor for cache in caches for tensor in cache]

    def _caches(self, cache: Cache | None) -> list[Cache]:
        """The cache of each layer, computed now if there is none."""
        if cache is None:
            return [layer.posterior._tensors() for layer in self.layers]
        rest = iter(cache)
        return [tuple(itertools.islice(rest, size)) for size in self._sizes]

    def _propagate(
        self, caches: Sequence[Any], X: tf.Tensor, noise: Sequence[tf.Tensor]
    ) -> tf.Tensor:
        """Inputs of the last layer ``[N S, D_L]``, the S draws of a row side by side."""
        H = X[:, None, :]  # [N, 1, D]: the first layer is conditioned once for all draws
        for layer, cache, eps in zip(self.layers[:-1], caches, noise, strict=True):
            H = layer.draw(cache, H, eps, self.sampling)  # [N, S, D_l]
        return tf.reshape(H, [-1, H.shape[-1]])

    def _propagate_together(
        self, caches: Sequence[Any], X: tf.Tensor, noise: Sequence[tf.Tensor]
    ) -> tf.Tensor:
        """Inputs of the last layer ``[S, N, D_L]``, drawn jointly; X for one layer."""
        H = X[None]
        for layer, cache, eps in zip(self.layers[:-1], caches, noise, strict=True):
            H = layer.draw_together(cache, H, eps)
        return H

    def _last_layer(
        self,
        caches: Sequence[Cache],
        X: tf.Tensor,
        noise: Sequence[tf.Tensor],
        full_output_cov: bool = False,
    ) -> MeanAndVariance:
        """Moments of the last layer ``[N S, ...]`` given draws of the hidden layers."""
        inputs = self._propagate(caches[:-1], X, noise)
        last = self.layers[-1].posterior
        return last.predict(caches[-1], inputs, full_output_cov=full_output_cov)

    def predict_draws(self, X: tf.Tensor) -> MeanAndVariance:
        """Mean and variance of the last layer ``[N S, P]`` at ``X [N, D]``, from the cache."""
        noise = self.frozen_noise(X, self.num_samples)
        return self._last_layer(self._caches(self.cache), X, noise)

    def _by_sample(self, value: tf.Tensor) -> tf.Tensor:
        """``[N, S, ...]`` of ``[N S, ...]``."""
        return split_rows(value, tf.constant([-1, self.num_samples]))

    def _mixed_by_row(self, mean: tf.Tensor, cov: tf.Tensor) -> MeanAndVariance:
        """Moments of the mixtures ``[N, ...]``, from the moments of the draws ``[N S, ...]``."""
        return _mixed(self._by_sample(mean), self._by_sample(cov), 1)

    def _joint_shapes(self, X: tf.Tensor) -> list[list[Any]]:
        """``[N p, G]`` of each hidden layer."""
        rows = tf.shape(X)[0]
        return [[rows * layer.num_rows, layer.num_outputs] for layer in self.layers[:-1]]

    def _frozen(self, shape: Any, place: int, dtype: tf.DType) -> tf.Tensor:
        # named algorithm, since its default depends on the device, and one float type for all
        drawn = tf.random.stateless_normal(
            shape, seed=[self.seed, place], dtype=tf.float64, alg="philox"
        )
        return tf.cast(drawn, dtype)

    def _draw_paths(self, sampler: Sampler) -> Paths:
        """One function of every layer for each draw, S times the time of one."""
        one, parts = sampler._replace(num_samples=1), [layer.posterior for layer in self.layers]
        chains = [
            [part._draw_functions(one._replace(scale=part.variance_factor**0.5)) for part in parts]
            for _ in range(sampler.num_samples)
        ]
        return ComposedPaths(self.layers, chains)

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        """Refuse inputs that the first kernel cannot read; the model checks the other layers."""
        if self.layers[0].grid is None:
            component_checks.require_kernel(self.layers[0].posterior.kernel, num_columns)


class ComposedPaths(Paths):
    """``f_L(...(f_1(x)))``, every draw with functions of its own in all layers."""

    def __init__(
        self, layers: Sequence[LayerPosterior], chains: Sequence[Sequence[FunctionDraws]]
    ) -> None:
        """
        :param layers: layers, which define the rows of an input: itself, or its patches.
        :param chains: for each draw one function per layer, first to last.
        """
        super().__init__(chains[0][0].paths[0].dtype, 1)
        self._layers = tuple(layers)
        self._chains = tuple(tuple(chain) for chain in chains)

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        return tf.stack([self._evaluate(chain, X) for chain in self._chains])

    def _evaluate(self, chain: Sequence[FunctionDraws], X: tf.Tensor) -> tf.Tensor:
        for layer, function in zip(self._layers, chain, strict=True):
            rows = layer.rows(X)  # [N, p, D']
            values = function(tf.reshape(rows, [-1, rows.shape[-1]]))[0]  # [N p, G]
            X = tf.reshape(values, [-1, layer.output_dim])
        return X


def _mixed(mean: tf.Tensor, cov: tf.Tensor, axis: int) -> MeanAndVariance:
    """
    Mean and covariance of equally probable Gaussians.

    :param mean: ``[S, N, P]``, S at ``axis``; or ``[N, S, P]``.
    :param cov: with S at ``axis``: variances as the means, or covariances in GPflow's shapes.
    """
    middle = tf.reduce_mean(mean, axis=axis)  # [N, P]
    errors = mean - tf.expand_dims(middle, axis)
    within = tf.reduce_mean(cov, axis=axis)
    count = tf.cast(tf.shape(mean)[axis], mean.dtype)
    if axis == 1:
        errors = tf.transpose(errors, [1, 0, 2])  # [S, N, P]
    rules = {(2, 1): "snp,snp->np", (3, 1): "snp,snq->npq", (3, 0): "snp,smp->pnm"}
    rules |= {(4, 0): "snp,smq->npmq"}
    rule = rules[(cov.shape.rank - 1, axis)]
    return middle, within + tf.einsum(rule, errors, errors) / count
