"""
Factors of the predictive variance of GPnn that depend on the input, from left-out residuals nearby.

With u_j the error of a left-out training row j in predicted standard deviations, the variances of f
and of the noise at x are multiplied by

    level ((a + sum_j |u_j| / q) / (a + c))^2,

the sum over the c of these rows among the k nearest neighbors of x, which a prediction has found
anyhow; q is the mean of |u| and level the mean of u^2. A quarter of these rows are held out
together; the others are left out one by one. With a pseudo-rows, k and a are the ones with the
largest Gaussian log likelihood of the held-out rows by factors from the others. These do not
know the held-out rows: an outlier makes the errors of its neighbors large, so that factors from
rows that were predicted with it would seem to foresee it. Absolute values, not squares: residuals
may have heavy tails.

Ours; the authors of GPnn multiply all variances by one factor from held-out rows.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import get_check_shapes
from gpflow.likelihoods import Likelihood

from gpflow_sparse.inference.calibration import density_of_observations
from gpflow_sparse.models.snapshot import Snapshot
from gpflow_sparse.models.swsgp import SitePosterior
from gpflow_sparse.numerics import devices
from gpflow_sparse.numerics.tracing import compiled
from gpflow_sparse.posteriors.base import Cache, MeanAndVariance, split_rows
from gpflow_sparse.posteriors.pathwise import in_blocks
from gpflow_sparse.validation.public_methods import public_method

# Candidates of k, as parts of H, and of a.
_PARTS, _STRENGTHS = (8, 4, 2, 1), (1.0, 2.0, 4.0, 8.0, 16.0, 64.0)
# Least gain of a held-out row that counts, in nats; less than twice its standard error does not.
_MIN_GAIN = 0.01
# One of so many left-out rows is held out, and the least number of rows.
_HELD_PART, _MIN_ROWS = 4, 8
# Entries of the covariances [n, H, H] in a block of left-out rows.
_BLOCK_ENTRIES = 2**22


_STALE = (
    "kernel, likelihood or mean_function of the model, or GPflow's default jitter, have changed "
    "since fit_local_variance: call it again, or set local_variance = None for the variances of "
    "the model."
)


class LocalVariance(tf.Module):
    """Sums of absolute left-out residuals at each distinct training row. Not to be changed."""

    def __init__(
        self,
        sums: tf.Tensor,
        counts: tf.Tensor,
        parts: Sequence[tf.Module],
        *,
        num_nearest: int,
        strength: float,
        level: float,
        gain: float,
        error: float,
    ) -> None:
        """
        :param sums: of ``|u_j| / q`` at each of the M distinct rows, ``[M]``.
        :param counts: numbers of left-out rows there, or sums of their weights, ``[M]``.
        :param parts: modules whose present parameters the residuals depend on.
        :param num_nearest: k; 0 for the level alone.
        :param strength: a.
        :param level: mean of ``u^2``.
        :param gain: mean gain of the log density of a held-out row beside a factor of 1.
        :param error: standard error of the gain.
        """
        super().__init__()
        self.sums, self.counts = sums, counts
        self.num_nearest, self.strength, self.level = (
            int(num_nearest),
            float(strength),
            float(level),
        )
        self.gain, self.error = float(gain), float(error)
        self._snapshot = Snapshot(_STALE, parts)

    def __repr__(self) -> str:
        return (
            f"LocalVariance(num_nearest={self.num_nearest}, strength={self.strength:g}, "
            f"level={self.level:.4g}, gain={self.gain:.4g})"
        )

    def require_current(self, parts: Sequence[tf.Module]) -> None:
        """
        Residuals are in predicted standard deviations: other parameters have other residuals.

        :raises ValueError: if ``parts`` have changed since; when a graph runs,
            ``tf.errors.InvalidArgumentError``.
        """
        self._snapshot.read((), parts)

    def factors(self, neighbors: tf.Tensor) -> tf.Tensor:
        """
        Factors of variances ``[n, 1]``.

        :param neighbors: rows of Z near each row, nearest first, int32 ``[n, H]``.
        """
        near = neighbors[:, : self.num_nearest]
        sums, counts = (
            tf.reduce_sum(tf.gather(part, near), axis=1, keepdims=True)
            for part in (self.sums, self.counts)
        )
        return self.level * tf.square((self.strength + sums) / (self.strength + counts))

    def add_places(self, count: int) -> None:
        """Let ``count`` more distinct rows follow, none of them left out."""
        self.sums, self.counts = (tf.pad(part, [[0, count]]) for part in (self.sums, self.counts))

    def validate_values(self, num_places: int, dtype: tf.DType) -> None:
        """:raises ValueError: for values, as a file may hold, that cannot be such sums."""
        parts = self.sums, self.counts
        numbers = self.strength, self.level
        sound = isinstance(getattr(self, "_snapshot", None), Snapshot)
        sound = sound and all(tf.is_tensor(part) and part.dtype == dtype for part in parts)
        sound = sound and all(tuple(part.shape) == (num_places,) for part in parts)
        sound = sound and all(np.all(part.numpy() >= 0.0) for part in parts)
        sound = sound and all(0.0 < number < math.inf for number in numbers)
        if not sound or type(self.num_nearest) is not int or self.num_nearest < 0:
            raise ValueError(
                f"local_variance must hold sums and counts of the {num_places} distinct rows, as "
                "fit_local_variance returns it, got others; call that again."
            )


def best_local_variance(model: Any, num_rows: int) -> LocalVariance | None:
    """
    The factors with the largest likelihood of held-out rows; the level alone where these gain
    little by factors that depend on the input, and None where they gain little by the level too,
    and for fewer than 8 rows.

    :param model: a :class:`~gpflow_sparse.models.NearestNeighborGP`.
    :param num_rows: most rows to leave out, drawn at random.
    """
    X, Y = model.data
    if len(X) < _MIN_ROWS:
        return None
    drawn = np.random.default_rng(0).permutation(len(X))[: max(_MIN_ROWS, num_rows)]
    held, others = np.split(drawn, [len(drawn) // _HELD_PART])
    kept = np.setdiff1d(np.arange(len(X)), held)
    rest, rows = model.of_rows(kept), np.asarray(np.searchsorted(kept, others))
    new = tf.gather(X, held), tf.gather(Y, held)
    residuals = left_out_residuals(rest, rows), held_out_residuals(rest, new)
    if not all(np.any(part) for part in residuals):  # outputs without noise, all predicted
        return None
    weights = _weights(model, others), _weights(model, held)
    found, gain, error = _best_pair(rest, rows, residuals, weights, new[0])
    if not _is_clear(gain, error):
        return None
    level, sizes = _scales(np.concatenate(residuals), np.concatenate(weights))
    totals = _totals(model, np.concatenate([others, held]), sizes, np.concatenate(weights))
    sums, counts = (tf.constant(total, model.dtype) for total in totals)
    k, a = found
    parts = model.variance_parts
    return LocalVariance(
        sums, counts, parts, num_nearest=k, strength=a, level=level, gain=gain, error=error
    )


def left_out_residuals(model: Any, rows: np.ndarray) -> np.ndarray:
    """
    Errors of rows that are left out one by one, in predicted standard deviations ``[n, P]``.

    :param model: a :class:`~gpflow_sparse.models.NearestNeighborGP`.
    """
    rows = tf.constant(rows, tf.int32)
    around, errors = model.others(rows), model.prior_errors()

    @compiled
    def standardized(rows: tf.Tensor, around: tf.Tensor) -> tf.Tensor:
        mean, var = model.left_out_moments(rows, around, errors)
        noise = tf.cast(model.likelihood.variance_at(model.data[0][:1]), var.dtype)
        return (tf.gather(errors, rows) - mean) / tf.sqrt(var[:, None] + noise)

    standardized = standardized.get_concrete_function(
        tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, around.shape[1]], tf.int32)
    )
    size = max(1, devices.block_entries(_BLOCK_ENTRIES) // int(around.shape[1]) ** 2)
    blocks = [slice(i, i + size) for i in range(0, len(rows), size)]
    parts = [standardized(rows[block], around[block]) for block in blocks]
    return np.concatenate(parts).astype(np.float64)


def held_out_residuals(model: Any, data: tuple[tf.Tensor, tf.Tensor]) -> np.ndarray:
    """Errors of rows that a model does not have, in predicted standard deviations ``[n, P]``."""
    X, Y = data
    mean, var = model.predict_f(X)
    noise = tf.cast(model.likelihood.variance_at(X), var.dtype)
    return np.asarray((Y - mean) / tf.sqrt(var + noise), dtype=np.float64)


def _best_pair(
    rest: Any,
    rows: np.ndarray,
    residuals: tuple[np.ndarray, np.ndarray],
    weights: tuple[np.ndarray, np.ndarray],
    X: tf.Tensor,
) -> tuple[tuple[int, float], float, float]:
    """
    k and a, the mean gain of the log density of a held-out row by them, and its standard error.

    :param rest: a model without the held-out rows.
    :param rows: left-out rows of that model.
    :param residuals: of these rows, and of the held-out ones; weights likewise.
    :param X: inputs of the held-out rows.
    """
    level, sizes = _scales(residuals[0], weights[0])
    totals = _totals(rest, rows, sizes, weights[0])
    near = rest.neighbors.neighbors(X, rest.kernel).numpy()
    num_outputs, squares = residuals[1].shape[1], np.square(residuals[1]).mean(axis=1)

    def gains(k: int, a: float) -> np.ndarray:
        """Beside the level alone."""
        sums, counts = (total[near[:, :k]].sum(axis=1) for total in totals)
        factors = np.square((a + sums) / (a + counts))
        each = squares / level * (1.0 - 1.0 / factors) - np.log(factors)
        return 0.5 * num_outputs * each  # type: ignore[no-any-return]

    candidates = [(max(1, near.shape[1] // part), a) for part in _PARTS for a in _STRENGTHS]
    found = max(candidates, key=lambda pair: np.average(gains(*pair), weights=weights[1]))
    if not _is_clear(*_mean_and_error(gains(*found), weights[1])):
        found = 0, 1.0
    of_level = 0.5 * num_outputs * (squares - squares / level - np.log(level))
    return found, *_mean_and_error(of_level + gains(*found), weights[1])


def _weights(model: Any, rows: np.ndarray) -> np.ndarray:
    """Weights of some rows, float64 ``[n]``."""
    if model.row_weights is None:
        return np.ones(len(rows))
    return model.row_weights.numpy()[rows].astype(np.float64)  # type: ignore[no-any-return]


def _scales(residuals: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
    """The mean square, and absolute residuals of rows relative to their mean ``[n]``."""
    sizes = np.abs(residuals).mean(axis=1)
    level = np.average(np.square(residuals).mean(axis=1), weights=weights)
    return float(level), sizes / np.average(sizes, weights=weights)


def _totals(
    model: Any, rows: np.ndarray, sizes: np.ndarray, weights: np.ndarray
) -> list[np.ndarray]:
    """Sums of residuals and of weights of rows at each distinct row of a model, ``[M]`` each."""
    places = rows if model.groups is None else model.groups[1].numpy()[rows]
    count = len(model.neighbors.Z)
    return [np.bincount(places, part, minlength=count) for part in (weights * sizes, weights)]


def _mean_and_error(gains: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Weighted mean of the gains of rows, and its standard error."""
    mean = np.average(gains, weights=weights)
    variance = np.average(np.square(gains - mean), weights=weights)
    return float(mean), float((variance / weights.sum()) ** 0.5)


def _is_clear(gain: float, error: float) -> bool:
    return gain > max(_MIN_GAIN, 2.0 * error)


class LocallyScaledPosterior(SitePosterior):
    """
    The posterior of sites with a :class:`LocalVariance`: variances of f, and of the noise of
    observations, are multiplied by its factors, joint covariances by their roots at both rows.

    Functions drawn do not have them.
    """

    def __init__(self, *arguments: Any, local_variance: LocalVariance, **options: Any) -> None:
        self.local_variance = local_variance
        super().__init__(*arguments, **options)

    def noise_factors(self, X: tf.Tensor) -> tf.Tensor:
        """Factors of the variance of noise ``[..., N, 1]``, calibration excluded."""
        rows = tf.reshape(X, [-1, X.shape[-1]])
        found = self.local_variance.factors(self.X_data.neighbors(rows, self.kernel))
        return split_rows(found, tf.shape(X)[:-1])

    @public_method("the prediction", prediction=True)
    @get_check_shapes(SitePosterior.predict_y)
    def predict_y(self, Xnew: tf.Tensor, likelihood: Likelihood) -> MeanAndVariance:
        """Mean and variance of new observations, ``[N, P]``; from the cache if there is one."""
        return self._observations(Xnew, likelihood)

    @public_method("the log density", prediction=True)
    @get_check_shapes(SitePosterior.predict_log_density)
    def predict_log_density(
        self, data: tuple[tf.Tensor, tf.Tensor], likelihood: Likelihood
    ) -> tf.Tensor:
        """Log density of new observations, one per row; from the cache if there is one."""
        X, Y = data
        return density_of_observations(self.calibration, self._observations(X, likelihood), Y)

    def _observations(self, X: tf.Tensor, likelihood: Likelihood) -> MeanAndVariance:
        """Mean and variance of observations at ``X [..., N, D]``, by one search of neighbors."""
        rows = tf.reshape(X, [-1, X.shape[-1]])
        mean, var, factors = self._with_factors(self.cache, rows)
        noise = factors * tf.cast(likelihood.variance_at(rows), var.dtype)
        if self.calibration is not None:
            var, noise = self.calibration.function * var, self.calibration.noise * noise
        moments = self._add_mean_function(rows, mean), var + noise
        mean, var = (split_rows(part, tf.shape(X)[:-1]) for part in moments)
        return mean, var

    def _marginals(self, cache: Cache | None, X: tf.Tensor) -> MeanAndVariance:
        mean, var, _ = self._with_factors(cache, X)
        return mean, var

    def _with_factors(
        self, cache: Cache | None, X: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Mean and variance of f, and factors that the variance has, ``[n, P]`` each."""
        sites = self._current_q() if cache is None else cache

        def moments(X: tf.Tensor) -> tf.Tensor:
            neighbors = self.X_data.neighbors(X, self.kernel)
            mean, var = self._near(sites, X, neighbors)
            factors = self.local_variance.factors(neighbors)
            return tf.stack([mean, factors * var, factors + tf.zeros_like(var)])

        mean, var, factors = tf.unstack(in_blocks(moments, X, self._row_size(sites)))
        return mean, var, factors

    def _joint(self, cache: Cache | None, X: tf.Tensor) -> MeanAndVariance:
        mean, cov = super()._joint(cache, X)  # [..., N, P] and [..., P, N, N]
        roots = tf.sqrt(self.noise_factors(X))[..., None, :, :]  # [..., 1, N, 1]
        return mean, roots * cov * tf.linalg.matrix_transpose(roots)
