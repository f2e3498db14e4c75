"""The posterior of a mixture: one Gaussian for each draw of the hyperparameters."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.likelihoods import Likelihood
from gpflow.posteriors import PrecomputeCacheType

from gpflow_sparse.inference.calibration import Calibration
from gpflow_sparse.initialization.repeated_rows import Rows
from gpflow_sparse.kernels.function import KernelFunction
from gpflow_sparse.models.mixture.component import Component, States, copy_with_parameters
from gpflow_sparse.models.mixture.paths import ComponentPaths, MixturePaths
from gpflow_sparse.models.mixture.prediction import ClosedFormPrediction
from gpflow_sparse.models.mixture.transform import YeoJohnson
from gpflow_sparse.numerics import linalg, random_draws
from gpflow_sparse.numerics.threads import one_thread
from gpflow_sparse.posteriors.base import (
    Cache,
    MeanAndVariance,
    SparsePosterior,
    by_batches,
    by_rows,
)
from gpflow_sparse.posteriors.pathwise import FunctionDraws, Sampler
from gpflow_sparse.validation import checks
from gpflow_sparse.validation.public_methods import public_method

# Largest number of steps of the search for a quantile, and standard deviations from the outermost
# means between which it begins.
_MOST, _REACH = 60, 12.0
# Entries of covariances with predicted rows at once, 64 MiB of float64; and the number of rows that
# is taken for an unknown one.
_GROUP_ENTRIES, _UNKNOWN_ROWS = 2**23, 4096
_FIXED_PARTS = 4  # tensors of States beside the values of the kernel's parameters


class Gaussians(NamedTuple):
    """Predictions of the draws of one component, in the units of its transformed outputs."""

    log_weights: tf.Tensor
    """Share of each draw in the whole mixture ``[S]``."""
    mean: tf.Tensor
    """Means of f ``[S, n, P]``."""
    var: tf.Tensor
    """Variances of f ``[S, n, P]``, calibrated."""
    noise: tf.Tensor
    """Noise variances ``[S, 1, 1]``, calibrated."""
    transform: YeoJohnson | None

    def moments(self, with_noise: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """Means and variances of outputs, or of f, ``[S, n, P]``, in the units of the data."""
        var = self.var + self.noise if with_noise else self.var
        return (
            (self.mean, var) if self.transform is None else self.transform.moments(self.mean, var)
        )

    def log_density(self, Y: tf.Tensor) -> tf.Tensor:
        """Log densities of the outputs of each row ``[S, n]``, weighted."""
        log_slope = tf.zeros_like(Y)
        if self.transform is not None:
            log_slope, Y = self.transform.log_derivative(Y), self.transform.forward(Y)
        var = self.var + self.noise
        each = log_slope - 0.5 * (tf.square(Y - self.mean) / var + tf.math.log(2.0 * np.pi * var))
        return tf.reduce_sum(each, axis=2) + self.log_weights[:, None]

    def distribution(self, Y: tf.Tensor) -> tf.Tensor:
        """Weighted sum of the distribution functions at outputs ``[L, n, P]``."""
        Y = Y if self.transform is None else self.transform.forward(Y)
        z = (Y[:, None] - self.mean) / tf.sqrt(self.var + self.noise)  # [L, S, n, P]
        below = 0.5 * tf.math.erfc(-z / np.sqrt(2.0))
        return tf.einsum("s,lsnp->lnp", tf.exp(self.log_weights), below)

    def reach(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Values ``[n, P]`` below and above which each output is with probability near 0."""
        spread = _REACH * tf.sqrt(self.var + self.noise)
        ends = tf.reduce_min(self.mean - spread, axis=0), tf.reduce_max(self.mean + spread, axis=0)
        if self.transform is None:
            return ends
        return self.transform.inverse(ends[0]), self.transform.inverse(ends[1])


class MixturePosterior(SparsePosterior):
    """
    The weighted average of the predictive distributions of all draws of all components.

    Given one draw of the hyperparameters f is an exact Gaussian process, so predictions are
    mixtures of Gaussians, on the scale of the transformed outputs where a component has a
    transform: means, densities and distribution functions are averaged; variances are averaged,
    plus the variance of the means. f of a component with a transform T is ``T^-1(g)`` for its
    Gaussian process g, and a new output ``T^-1(g + noise)``; their moments are computed by
    Gauss-Hermite quadrature, and joint covariances by Mehler's formula with 11 terms.

    Time O(K n N^2) for K draws in all, N distinct training rows and n predicted rows.
    """

    def __init__(
        self,
        components: Sequence[Component],
        rows: Sequence[Rows],
        log_shares: Any,
        *,
        mean_function: Any = None,
        precompute_cache: PrecomputeCacheType | str | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        """
        :param rows: for each component distinct rows, outputs less the prior mean.
        :param log_shares: logarithms of the weights of the components.
        """
        self.components, self.rows = tuple(components), tuple(rows)
        self._log_shares = log_shares
        self._kernels = [KernelFunction(component.kernel) for component in components]
        # a SavedModel needs every variable as an attribute of a module
        self._fixed = [function.kernel for function in self._kernels]
        self._counts = [len(function.kernel.trainable_parameters) for function in self._kernels]
        pairs = list(zip(self._fixed, self.rows, strict=True))
        self._has_mean = type(mean_function) not in (type(None), gpflow.functions.Zero)
        self._closed = None
        if all(ClosedFormPrediction.takes(*pair) for pair in pairs):
            self._closed = [ClosedFormPrediction(*pair) for pair in pairs]
        super().__init__(
            components[0].kernel,
            rows[0].X,
            mean_function=mean_function,
            precompute_cache=precompute_cache,
            calibration=calibration,
        )

    __deepcopy__ = copy_with_parameters

    @public_method("the log density", prediction=True)
    @check_shapes("data[0]: [batch..., N, D]", "data[1]: [batch..., N, P]", "return: [batch..., N]")
    def predict_log_density(
        self, data: tuple[tf.Tensor, tf.Tensor], likelihood: Likelihood
    ) -> tf.Tensor:
        X, Y = data
        parts = [part.log_density(Y) for part in self.gaussians(self.cache, X)]
        return tf.reduce_logsumexp(tf.concat(parts, axis=0), axis=0)

    @public_method("the prediction", prediction=True)
    @check_shapes(
        "Xnew: [batch..., N, D]", "return[0]: [batch..., N, P]", "return[1]: [batch..., N, P]"
    )
    def predict_y(self, Xnew: tf.Tensor, likelihood: Likelihood) -> MeanAndVariance:
        return by_rows(lambda X: self.moments(self.cache, X, with_noise=True), Xnew)

    @public_method("the quantiles", prediction=True)
    @check_shapes("Xnew: [batch..., N, D]", "return: [L, batch..., N, P]")
    def predict_quantiles(self, Xnew: tf.Tensor, levels: Sequence[float]) -> tf.Tensor:
        """Quantiles of new observations ``[L, ..., N, P]`` at probabilities ``[L]``."""
        levels = _require_levels(levels)
        found = self.quantiles(self.cache, tf.reshape(Xnew, [-1, Xnew.shape[-1]]), levels)
        shape = tf.concat([[len(levels)], tf.shape(Xnew)[:-1], tf.shape(found)[2:]], axis=0)
        return tf.reshape(found, shape)

    @public_method(prediction=True)
    @check_shapes("return: [S, N, P]")
    def sample_y(self, Xnew: tf.Tensor, num_samples: int) -> tf.Tensor:
        """Joint draws of new observations ``[S, n, P]``."""
        return self.samples(self.cache, Xnew, num_samples, full_cov=True, with_noise=True)

    @public_method(prediction=True)
    @check_shapes("return: [S, N, P]")
    def sample_f(self, Xnew: tf.Tensor, num_samples: int) -> tf.Tensor:
        """Joint draws of f ``[S, n, P]``."""
        return self.samples(self.cache, Xnew, num_samples, full_cov=True)

    @public_method("the distribution function", prediction=True)
    @check_shapes("data[0]: [N, D]", "data[1]: [N, P]", "return: [N, P]")
    def predict_distribution(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """Probability of a new observation below ``Y [n, P]`` at ``X [n, D]``, ``[n, P]``."""
        X, Y = data
        return tf.add_n([part.distribution(Y[None])[0] for part in self.gaussians(self.cache, X)])

    def moments(self, cache: Cache | None, X: tf.Tensor, *, with_noise: bool) -> MeanAndVariance:
        """Mean and variance of f or of new observations at ``X [n, D]``, ``[n, P]`` each."""
        parts = list(self.gaussians(cache, X))
        found = [part.moments(with_noise) for part in parts]
        weights = tf.exp(tf.concat([part.log_weights for part in parts], axis=0))[:, None, None]
        means, variances = (tf.concat(side, axis=0) for side in zip(*found, strict=True))
        mean = tf.reduce_sum(weights * means, axis=0)
        return mean, tf.reduce_sum(weights * (variances + tf.square(means - mean)), axis=0)

    @property
    def has_numpy(self) -> bool:
        """Whether there is a cache, all kernels have a closed form, and training rows are few."""
        return self._closed is not None and self.cache is not None

    def moments_in_numpy(self, X: np.ndarray, *, with_noise: bool) -> tuple[np.ndarray, np.ndarray]:
        """:meth:`moments` from the cache for valid rows where :attr:`has_numpy`; no gradients."""
        assert self._closed is not None
        known, parts = dict[Any, np.ndarray](), []
        with one_thread():
            for number, states in enumerate(self._states(self.cache)):
                values = tuple(value.numpy() for value in states.values)
                arrays = States._make((*(part.numpy() for part in states[:-1]), values))
                mean, var = self._closed[number](arrays, X, known)
                if self._has_mean:
                    mean += self._prior_mean(number, tf.constant(X)).numpy()
                noise = self._noise_factor * arrays.noise[:, None] if with_noise else 0.0
                var = (self._factor * var + noise)[..., None] + np.zeros_like(mean)
                transform = self.components[number].transform
                if transform is not None:
                    mean, var = transform.moments_in_numpy(mean, var)
                weights = np.exp(arrays.log_weights + self._log_shares[number])[:, None, None]
                parts.append((weights, mean, var))
        weights, means, variances = map(np.concatenate, zip(*parts, strict=True))
        center = np.sum(weights * means, axis=0)
        return center, np.sum(weights * (variances + np.square(means - center)), axis=0)

    def quantiles(self, cache: Cache | None, X: tf.Tensor, levels: Sequence[float]) -> tf.Tensor:
        """Quantiles of new observations ``[L, n, P]``, by Chandrupatla's method."""
        parts = list(self.gaussians(cache, X))
        lows, highs = zip(*(part.reach() for part in parts), strict=True)
        low, high = tf.reduce_min(tf.stack(lows), axis=0), tf.reduce_max(tf.stack(highs), axis=0)

        wanted = tf.reshape(tf.constant(levels, X.dtype), [-1, 1, 1])  # [L, 1, 1]

        def excess(t: tf.Tensor) -> tf.Tensor:
            return tf.add_n([part.distribution(tf.sinh(t)) for part in parts]) - wanted

        # the ends may be e^12 deviations apart, since a transform may be a logarithm
        ends = (tf.asinh(end) + tf.zeros_like(wanted) for end in (low, high))
        found = tfp.math.find_root_chandrupatla(excess, *ends, max_iterations=_MOST)
        return tf.sinh(found.estimated_root)

    def samples(
        self,
        cache: Cache | None,
        X: tf.Tensor,
        num_samples: int,
        *,
        full_cov: bool,
        with_noise: bool = False,
    ) -> tf.Tensor:
        """
        Draws of f, or of observations, at ``X [n, D]``, ``[num_samples, n, P]``: each of one draw
        of one component.
        """
        all_states = list(self._states(cache))
        logs = [
            states.log_weights + tf.cast(share, X.dtype)
            for states, share in zip(all_states, self._log_shares, strict=True)
        ]
        number = random_draws.categorical(tf.concat(logs, axis=0), num_samples)
        found, places, start = [], [], 0
        for index, states in enumerate(all_states):
            end = start + int(states.noise.shape[0])
            own = tf.where((number >= start) & (number < end))[:, 0]
            chosen = tf.gather(number, own) - start
            # a state is conditioned once, however many of the draws are of it
            drawn, of_drawn = tf.unique(chosen)
            picked = tf.nest.map_structure(partial(tf.gather, indices=drawn), states)
            found.append(self._samples_of(index, picked, of_drawn, X, full_cov, with_noise))
            places.append(own)
            start = end
        order = tf.argsort(tf.concat(places, axis=0))
        return tf.gather(tf.concat(found, axis=0), order)

    def _samples_of(
        self,
        number: int,
        states: States,
        chosen: tf.Tensor,
        X: tf.Tensor,
        full_cov: bool,
        with_noise: bool,
    ) -> tf.Tensor:
        """Draws of states of a component, whose indices are ``chosen [S]``: ``[S, n, P]``."""
        mean, cov = self._by_draw(number, states, X, joint=full_cov)
        mean, factor = tf.gather(mean, chosen), self._factor**0.5
        shape = tf.shape(mean)
        standard = random_draws.normal(shape, mean.dtype)
        if full_cov:
            amount = linalg.jitter(tf.linalg.diag_part(cov))
            L = linalg.cholesky(linalg.add_jitter(cov, amount), "the covariance of the samples")
            drawn = mean + factor * tf.linalg.matmul(tf.gather(L, chosen), standard)
        else:
            drawn = mean + factor * tf.gather(tf.sqrt(cov), chosen)[..., None] * standard
        if with_noise:
            noise = self._noise_factor * tf.gather(states.noise, chosen)[:, None, None]
            drawn += tf.sqrt(noise) * random_draws.normal(shape, mean.dtype)
        transform = self.components[number].transform
        return drawn if transform is None else transform.inverse(drawn)

    def gaussians(self, cache: Cache | None, X: tf.Tensor) -> Iterator[Gaussians]:
        """Predictions of f by the draws of each component, prior mean included."""
        for number, states in enumerate(self._states(cache)):
            mean, var = self._by_draw(number, states, X, joint=False)
            yield Gaussians(
                states.log_weights + tf.cast(self._log_shares[number], mean.dtype),
                mean,
                self._factor * var[..., None] + tf.zeros_like(mean),
                self._noise_factor * states.noise[:, None, None],
                self.components[number].transform,
            )

    def _draw_functions(self, sampler: Sampler) -> FunctionDraws:
        sampler = sampler._replace(scale=self._factor**0.5)  # within each draw of hyperparameters
        all_states = list(self._states(None))
        logs = [s.log_weights + w for s, w in zip(all_states, self._log_shares, strict=True)]
        counts = [len(log) for log in logs]
        owner = np.repeat(np.arange(len(counts)), counts)
        weights = np.exp(np.concatenate([log.numpy() for log in logs]).astype(np.float64))
        size = sampler.num_samples
        chosen, places = np.unique(
            sampler.generator.choice(len(owner), size, p=weights / weights.sum()),
            return_inverse=True,
        )
        first = np.cumsum([0, *counts])
        functions = [
            self._draw_function(k, all_states[k], i - first[k], sampler._replace(num_samples=n))
            for k, i, n in zip(owner[chosen], chosen, np.bincount(places), strict=True)
        ]
        order = np.argsort(np.argsort(places, kind="stable"))  # of the functions as they are drawn
        # a prior mean is added in the units of a component
        return FunctionDraws([MixturePaths(functions, order)], None, self.input_dim)

    def _draw_function(
        self, number: int, states: States, draw: int, sampler: Sampler
    ) -> ComponentPaths:
        """Functions given one draw of the hyperparameters of one component."""
        component, rows = self.components[number], self.rows[number]
        kernel = gpflow.utilities.deepcopy(component.kernel)
        for parameter, values in zip(kernel.trainable_parameters, states.values, strict=True):
            parameter.assign(values[draw])
        noises = rows.noises(states.noise[draw]) + tf.zeros_like(rows.X[:, 0])
        given = rows.X, rows.Y, noises
        mean = self.mean_function
        return ComponentPaths(kernel, given, states.L[draw], component.transform, mean, sampler)

    @property
    def _factor(self) -> float:
        """The calibration's factor of the variance of each draw."""
        return super().variance_factor

    @property
    def _noise_factor(self) -> float:
        return 1.0 if self.calibration is None else self.calibration.noise

    def _marginals(self, cache: Cache | None, X: tf.Tensor) -> MeanAndVariance:
        return self.moments(cache, X, with_noise=False)

    def _joint(self, cache: Cache | None, X: tf.Tensor) -> MeanAndVariance:
        return by_batches(partial(self._joint_moments, cache), X)

    def _joint_moments(self, cache: Cache | None, X: tf.Tensor) -> MeanAndVariance:
        """Mean ``[n, P]`` and covariance ``[P, n, n]`` of f at ``X [n, D]``."""
        center, _ = self._marginals(cache, X)
        total = tf.zeros([], center.dtype)
        for number, states in enumerate(self._states(cache)):
            weights = tf.exp(states.log_weights + tf.cast(self._log_shares[number], center.dtype))
            means, covs = self._by_draw(number, states, X, joint=True)
            transform = self.components[number].transform
            for weight, mean, cov in zip(*map(tf.unstack, (weights, means, covs)), strict=True):
                total += weight * _about(center, mean, self._factor * cov, transform)
        return center, total

    def _by_draw(
        self, number: int, states: States, X: tf.Tensor, *, joint: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Means ``[S, n, P]`` and variances ``[S, n]``, or covariances ``[S, n, n]``, of draws."""
        kernel, rows = self._kernels[number], self.rows[number]
        with_rows, with_itself = kernel.between(rows.X, X), kernel.between(X) if joint else None
        prior, found = self._prior_mean(number, X), []
        for group in _groups(states, X):
            L, weights = states.L[group], states.weights[group]
            values = [value[group] for value in states.values]
            Kuf = with_rows(values)  # [S, N, n]
            A = linalg.solve_triangular(L, Kuf)  # [S, N, n]
            mean = prior + tf.linalg.matmul(Kuf, weights, transpose_a=True)
            if with_itself is None:
                var = kernel.diagonal(values, X) - tf.reduce_sum(tf.square(A), axis=1)
                found.append((mean, tf.maximum(var, 0.0)))
            else:
                found.append((mean, with_itself(values) - tf.linalg.matmul(A, A, transpose_a=True)))
        means, variances = (tf.concat(side, axis=0) for side in zip(*found, strict=True))
        return means, variances

    def _prior_mean(self, number: int, X: tf.Tensor) -> tf.Tensor:
        """The prior mean ``[n, P]`` of a component, in its units."""
        zero = tf.zeros([tf.shape(X)[0], self.rows[number].Y.shape[1]], X.dtype)
        return super()._add_mean_function(X, zero)

    def _add_mean_function(self, Xnew: tf.Tensor, mean: tf.Tensor) -> tf.Tensor:
        return mean  # each component has added it in its own units

    @property
    def variance_factor(self) -> float:
        """1: variances of draws are calibrated before the variance of their means is added."""
        return 1.0

    def _states(self, cache: Cache | None) -> Iterator[States]:
        """Draws with their factorizations, for each component."""
        if cache is None:
            for component, rows, kernel in zip(
                self.components, self.rows, self._kernels, strict=True
            ):
                yield component.states(rows, kernel)
            return
        start = 0
        for count in self._counts:
            fixed = start + _FIXED_PARTS
            end = fixed + count
            log_weights, noise, L, weights = cache[start:fixed]
            yield States(log_weights, noise, L, weights, tuple(cache[fixed:end]))
            start = end

    def _tensors(self) -> Sequence[tf.Tensor]:
        return [
            tensor for states in self._states(None) for tensor in (*states[:-1], *states.values)
        ]


def _about(
    center: tf.Tensor, mean: tf.Tensor, cov: tf.Tensor, transform: YeoJohnson | None
) -> tf.Tensor:
    """
    ``E[(f - center)(f - center)^T] [P, n, n]`` of one draw.

    :param mean: ``[n, P]``, in the units of the component.
    :param cov: ``[n, n]``, likewise.
    """
    if transform is None:
        error = tf.transpose(mean - center)  # [P, n]
        return cov + error[:, :, None] * error[:, None, :]
    deviation = tf.sqrt(tf.maximum(tf.linalg.diag_part(cov), 1e-300))
    correlation = cov / (deviation[:, None] * deviation[None, :])
    marginal = mean, tf.square(deviation)[:, None] + tf.zeros_like(mean)
    coefficients = transform.hermite(*marginal)
    error = tf.transpose(coefficients[0] - center)
    total, power = error[:, :, None] * error[:, None, :], tf.ones_like(correlation)
    for coefficient in tf.unstack(coefficients)[1:]:
        power *= correlation
        c = tf.transpose(coefficient)
        total += c[:, :, None] * c[:, None, :] * power
    # what the terms beyond these add to variances, and next to nothing where r is below 1
    beyond = transform.moments(*marginal)[1] - tf.reduce_sum(tf.square(coefficients[1:]), axis=0)
    return total + tf.linalg.diag(tf.transpose(beyond))


def _groups(states: States, X: tf.Tensor) -> list[slice]:
    """Slices of draws whose covariances with the predicted rows are in memory together."""
    num_draws, num_rows = states.L.shape[:2]
    if not num_draws:  # no draw of the component was sampled, or their number is not known
        return [slice(None)]
    size = max(1, _GROUP_ENTRIES // ((X.shape[0] or _UNKNOWN_ROWS) * num_rows))
    return [slice(i, min(i + size, num_draws)) for i in range(0, num_draws, size)]


def _require_levels(levels: Any) -> list[float]:
    """:raises ValueError: for probabilities that are not between 0 and 1."""
    given = np.atleast_1d(checks.as_array(levels, "levels", tf.float64))
    if given.ndim != 1 or not np.all((given > 0.0) & (given < 1.0)):
        raise ValueError(f"levels must be probabilities between 0 and 1, got {levels!r}.")
    return [float(level) for level in given]
