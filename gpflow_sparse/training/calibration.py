"""Calibration of predictive variances on held-out rows, by maximum likelihood."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.models import GPR, SVGP, GPModel
from scipy.special import logsumexp

from gpflow_sparse.inference import sinh_arcsinh
from gpflow_sparse.inference.calibration import Calibration, has_classes, log_probabilities
from gpflow_sparse.inference.shrinkage import Densities, best_temperature, shrunk
from gpflow_sparse.likelihoods import HeteroskedasticGaussian, Laplace, StudentT
from gpflow_sparse.models.base import SparseGPModel
from gpflow_sparse.numerics.tracing import compiled
from gpflow_sparse.posteriors.exact import posterior_of
from gpflow_sparse.training import rescaling
from gpflow_sparse.validation import checks

MIN_ROWS = 100
"""Least number of rows: with fewer the relative standard error of a variance exceeds 14 %."""
# Standard deviation of the logarithm of a factor a priori: a factor between 1 / e and e is likely.
_PRIOR_DEVIATION = 1.0
# Prior deviations of the skewness and of the logarithm of the tail; their bound: sinh overflows.
_SHAPE_DEVIATIONS, _MAX_SHAPE = np.array([0.3, 0.5]), 1.2
_CHUNK = 2048


def calibrate(
    model: GPModel,
    data: tuple[Any, Any],
    *,
    conformal: bool = False,
    row_weights: Any = None,
) -> Calibration:
    """
    Calibrate predictive variances, or probabilities of classes, on held-out rows; means of other
    observations stay as they are, bit for bit.

    The variance of f is multiplied by ``c_f`` and the variance of Gaussian noise by ``c_n``, which
    maximize

        sum_n log p(y_n | mean_n, c_f var_n, c_n s2_n) - (log^2 c_f + log^2 c_n) / 2

    over the rows: the likelihood of the marginal predictions, and independent log-normal priors
    that weigh as much as a row or two, so that few rows cannot give absurd factors, nor factors
    that the rows do not tell apart. For other likelihoods than Gaussian ``c_n`` is 1, and the
    density is ``predict_log_density``'s. All outputs share the factors.

    For classes the probabilities p become proportional to ``p^(1 / T)`` with one temperature T,
    which maximizes the log probability of the labels less ``2 log^2 T``: a normal prior of log T
    with standard deviation 0.5. Which class is most probable stays as it is.

    Then the factors are shrunk towards 1, because the few rows with the largest errors decide how
    much a narrower distribution costs, and held-out rows may not have them. With g the mean gain of
    the log density of a row by factors from other rows (ten folds), and e its standard error, ``log
    c_f``, ``log c_n`` and ``log T`` are multiplied by ``max(0, 1 - (e / g)^2)``, or by 0 if g is
    negative.

    Then the residuals in calibrated standard deviations get the shape of a sinh-arcsinh
    distribution of mean 0 and variance 1 (:mod:`gpflow_sparse.inference.sinh_arcsinh`): its
    skewness and the logarithm of its tail are found and shrunk in the same way, with normal priors
    of deviations 0.3 and 0.5. Variances are so left as they are, and central intervals of any
    probability are corrected rather than one of them. Not for deep models, whose predictions
    are mixtures of Gaussians.

    The factors are kept as ``model.calibration`` and saved with the model. They are applied in
    every prediction, draw, and export of the model, cached posteriors made from now on included,
    and in no objective: further training does not see them, and leaves them as they are. In a deep
    model ``c_f`` multiplies the variance of the last layer given draws of the others. An earlier
    calibration is replaced; if this one fails or is interrupted, the earlier one stays.

    GPflow's GPR and SVGP have no such attribute for their predictions to read. They are
    reparametrized: kernel variance and noise variance are multiplied (GPR: by one common factor,
    which leaves the mean as it is), and the variational parameters of SVGP so that the mean stays,
    up to rounding and GPflow's jitter. Their objectives change. Training after it starts from the
    changed parameters, and is kept by a second calibration, whose factors are then relative to the
    variances that training has found.

    Cost: one prediction of all rows; N means and variances are kept.

    :param model: a trained model of this package, or GPflow's GPR or SVGP.
    :param data: ``(X [N, D], Y [N, P])``, rows that the model was not trained on, as it takes them;
        at least 100, better 400, see :doc:`/calibration`.
    :param conformal: also keep the distances of these rows from their means, for the intervals of
        :class:`gpflow_sparse.estimators.SparseGPRegressor` and of the command line: these then
        cover new rows at least as often as they say if the rows are exchangeable with these and the
        model was not chosen by its scores on them, up to the two factors found on the same rows.
        Not with ``row_weights``.
    :param row_weights: positive ``[N]``, divided by their mean where it is above 1; None for 1.
    :return: ``model.calibration``.
    :raises ValueError: for fewer rows, predictions that are not finite, likelihoods without
        intervals if ``conformal``, GPflow models whose kernel has no variance to multiply, and
        mixtures of exact Gaussian processes.
    """
    if not isinstance(model, SparseGPModel | GPR | SVGP):
        raise ValueError(
            "model must be a model of gpflow_sparse, or GPflow's GPR or SVGP, got "
            f"{type(model).__name__}."
        )
    checks.require_flag(conformal, "conformal")
    if conformal and not isinstance(
        model.likelihood,
        Gaussian | HeteroskedasticGaussian | Laplace | StudentT | gpflow.likelihoods.StudentT,
    ):
        raise ValueError(
            "conformal must be False for outputs that are not on the whole line, as with "
            f"{type(model.likelihood).__name__}."
        )
    X, Y = _require_data(model, data)
    weights = checks.require_row_weights(row_weights, X)
    if conformal and weights is not None:
        raise ValueError("conformal must be False for rows of weights: residuals count equally.")
    if len(X) < MIN_ROWS:
        raise ValueError(
            f"data must hold at least {MIN_ROWS} held-out rows to calibrate on, got {len(X)}."
        )
    with _put_back_on_failure(model):
        uncalibrate(model)
        found, _ = _best(model, _predicted(model, X, Y), weights)
        if not isinstance(model, SparseGPModel):
            found.originals = rescaling.values(model)
            rescaling.rescale(model, found.function, found.noise)
            found.rescaled = rescaling.values(model)
        model.calibration = found
        if conformal:
            moments = [model.predict_y(X[i : i + _CHUNK]) for i in range(0, len(X), _CHUNK)]
            mean, var = (np.concatenate([np.asarray(m[k]) for m in moments]) for k in (0, 1))
            found.scores = np.sort(np.abs(Y.numpy() - mean) / np.sqrt(var), axis=0)
    return found


@contextlib.contextmanager
def _put_back_on_failure(model: GPModel) -> Iterator[None]:
    """Give a model back its earlier calibration if a new one fails or is interrupted."""
    earlier = getattr(model, "calibration", None)
    values = None if isinstance(model, SparseGPModel) else rescaling.values(model)
    try:
        yield
    except BaseException:
        if values is not None:
            rescaling.restore(model, values)
        model.calibration = earlier
        raise


def uncalibrate(model: GPModel) -> None:
    """
    Remove the calibration of a model, if there is one: predictions are again what they were, to the
    last bit. Parameters of GPflow's own models get back their values from before :func:`calibrate`,
    unless training has changed one of them since: then all stay as they are, because the objective
    has no calibration, and training has moved the model away from it.
    """
    found = getattr(model, "calibration", None)
    if found is None:
        return
    if found.rescaled is not None and rescaling.are_values(model, found.rescaled):
        rescaling.restore(model, found.originals)
    model.calibration = None


class HeldOutPredictions(NamedTuple):
    """Predictions of held-out rows, and what a calibration on the same rows would gain."""

    mean: np.ndarray
    """Means of the observations ``[N, P]``; for classes their probabilities ``[N, C]``."""
    log_density: np.ndarray
    """Log densities of the rows ``[N]``, without calibration."""
    gain: float
    """By how much :func:`calibrate` would raise the mean log density of a row, in nats."""


def predict_held_out(
    model: GPModel, data: tuple[Any, Any], row_weights: Any = None
) -> HeldOutPredictions:
    """
    Means and log densities of held-out rows, and the gain of a calibration, by one prediction.

    The gain is cross-validated over ten folds; 0 where the factors would be 1. The model is not
    changed.

    :param data: held-out rows, as in :func:`calibrate`; the model must not be calibrated.
    :param row_weights: as in :func:`calibrate`.
    """
    rows = _predicted(model, *_require_data(model, data))
    _, gain = _best(model, rows, checks.require_row_weights(row_weights, rows.X))
    return HeldOutPredictions(*rows.observations(model.likelihood), gain)


def _require_data(model: GPModel, data: Any) -> tuple[tf.Tensor, tf.Tensor]:
    if isinstance(model, SparseGPModel):
        model.require_one_gaussian()
        return model._require_data(data)
    latents = model.num_latent_gps
    return checks.require_data(data, likelihood=model.likelihood, num_latent_gps=latents)


class _Marginals:
    """Held-out rows with the moments of f, for a deep model given each of S draws."""

    def __init__(self, model: GPModel, X: tf.Tensor, Y: tf.Tensor) -> None:
        posterior = posterior_of(model)
        self.is_deep = hasattr(posterior, "predict_draws")
        predict = posterior.predict_draws if self.is_deep else posterior.predict_f
        size = _CHUNK // (posterior.num_samples if self.is_deep else 1)
        parts = [predict(X[i : i + size]) for i in range(0, len(X), size)]
        self.mean, self.var = (tf.concat(part, axis=0) for part in zip(*parts, strict=True))
        self.num_rows, self.num_samples = len(X), len(self.mean) // len(X)
        self.X, self.Y = (tf.repeat(part, self.num_samples, axis=0) for part in (X, Y))
        if not bool(tf.reduce_all(tf.math.is_finite(self.mean) & tf.math.is_finite(self.var))):
            raise ValueError("model cannot be calibrated: its predictions are not finite.")
        local = getattr(posterior, "noise_factors", None)
        self._factors = 1.0 if local is None else local(X)

    def observations(self, likelihood: Likelihood) -> tuple[np.ndarray, np.ndarray]:
        """Means ``[N, P]`` and log densities ``[N]`` of observations, without calibration."""
        is_gaussian = isinstance(likelihood, Gaussian)
        evaluate = self.gaussian(likelihood) if is_gaussian else self.other(likelihood)
        density, _ = evaluate(np.zeros(2 if is_gaussian else 1), np.ones(self.num_rows))
        mean, _ = likelihood.predict_mean_and_var(self.X, self.mean, self.var)
        parts = tf.reshape(mean, [self.num_rows, self.num_samples, -1])  # [N, S, P]
        return tf.reduce_mean(parts, axis=1).numpy(), density

    def _noise(self, likelihood: Gaussian) -> tf.Tensor:
        """The variance of the noise of each output ``[N S, P]``."""
        noise = likelihood.conditional_variance(self.X, self.mean)
        return self._factors * tf.cast(noise, self.var.dtype)

    def gaussian(self, likelihood: Gaussian) -> Densities:
        """Densities as a function of the logarithms of both factors."""
        squares = np.square(np.asarray(self.Y - self.mean, dtype=np.float64))  # [N S, P]
        var = np.asarray(self.var, dtype=np.float64)
        noise = np.asarray(self._noise(likelihood), dtype=np.float64)  # [N S, P]

        def evaluate(logs: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            ours, theirs = np.exp(logs[0]) * var, np.exp(logs[1]) * noise
            total = ours + theirs
            each = -0.5 * np.sum(squares / total + np.log(2.0 * np.pi * total), axis=1)
            by_draw = each.reshape(-1, self.num_samples)
            rows = logsumexp(by_draw, axis=1) - np.log(self.num_samples)  # [N]
            shares = np.exp(by_draw - rows[:, None]) / self.num_samples * weights[:, None]
            slope = 0.5 * (squares / total - 1.0) / total * shares.reshape(-1, 1)
            return rows, np.array([np.sum(slope * ours), np.sum(slope * theirs)])

        return evaluate

    def residuals(self, likelihood: Gaussian, function: float, noise: float) -> tf.Tensor:
        """Errors in standard deviations of calibrated observations, float64 ``[N, P]``."""
        total = function * self.var + noise * self._noise(likelihood)
        return tf.cast((self.Y - self.mean) / tf.sqrt(total), tf.float64)

    def other(self, likelihood: Likelihood) -> Densities:
        """Densities as a function of the logarithm of the factor of f."""

        @compiled
        def weighted(log_factor: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            with tf.GradientTape() as tape:
                tape.watch(log_factor)
                var = tf.exp(log_factor) * self.var
                each = likelihood.predict_log_density(self.X, self.mean, var, self.Y)
                rows = tf.reduce_logsumexp(tf.reshape(each, [-1, self.num_samples]), axis=1)
                value = tf.reduce_sum(weights * rows)
            return rows, tape.gradient(value, log_factor)

        def evaluate(logs: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            dtype = self.var.dtype
            rows, slope = weighted(tf.constant(logs[0], dtype), tf.constant(weights, dtype))
            return rows.numpy().astype(np.float64), np.array([float(slope)])

        return evaluate


def _shaped(residuals: tf.Tensor) -> Densities:
    """Densities of standardized residuals by the skewness, and the logarithm of the tail."""

    @compiled
    def weighted(logs: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(logs)
            each = sinh_arcsinh.log_density(residuals, logs[0], tf.exp(logs[1]))
            rows = tf.reduce_sum(each, axis=1)
            value = tf.reduce_sum(weights * rows)
        return rows, tape.gradient(value, logs)

    def evaluate(logs: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows, slope = weighted(tf.constant(logs), tf.constant(weights))
        return rows.numpy(), slope.numpy()

    return evaluate


def _best_shape(
    residuals: tf.Tensor, weights: np.ndarray | None
) -> tuple[tuple[float, float], float]:
    """Shrunk skewness and tail of standardized residuals, and the gain of a row."""
    count, evaluate = len(residuals), _shaped(residuals)
    limits = _SHAPE_DEVIATIONS, _MAX_SHAPE
    (exponential, tail), gain = shrunk(evaluate, count, 2, *limits, row_weights=weights)
    return (float(np.log(exponential)), tail), gain


class _Classes:
    """Held-out rows with the probabilities of their classes."""

    def __init__(self, model: SparseGPModel, X: tf.Tensor, Y: tf.Tensor) -> None:
        self.X, self.labels = X, np.asarray(Y)[:, 0].astype(np.int64)
        self.log_probabilities = _log_probabilities(model, X)

    def observations(self, likelihood: Likelihood) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities ``[N, C]`` and log probabilities of the labels ``[N]``."""
        logs = self.log_probabilities
        return np.exp(logs), logs[np.arange(len(logs)), self.labels]


def _predicted(model: GPModel, X: tf.Tensor, Y: tf.Tensor) -> _Marginals | _Classes:
    """Held-out rows with their predictions, which are made once."""
    if isinstance(model, SparseGPModel) and has_classes(model.likelihood):
        return _Classes(model, X, Y)
    return _Marginals(model, X, Y)


def _best(
    model: GPModel, rows: _Marginals | _Classes, row_weights: tf.Tensor | None
) -> tuple[Calibration, float]:
    """The shrunk corrections, and the gain of a row."""
    likelihood = model.likelihood
    weights = None if row_weights is None else row_weights.numpy().astype(np.float64)
    find = functools.partial(shrunk, prior_deviation=_PRIOR_DEVIATION, row_weights=weights)
    if isinstance(rows, _Classes):
        temperature, gain = best_temperature(rows.log_probabilities, rows.labels, weights)
        return Calibration(temperature=temperature, num_rows=len(rows.labels)), gain
    count = rows.num_rows
    if isinstance(model, GPR):  # one factor of both
        both = rows.gaussian(likelihood)

        def common(logs: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            densities, gradient = both(np.repeat(logs, 2), weights)
            return densities, gradient.sum(keepdims=True)

        (found,), gain = find(common, count, 1)
        return Calibration(found, found, num_rows=count), gain
    if isinstance(likelihood, Gaussian):
        (function, noise), gain = find(rows.gaussian(likelihood), count, 2)
        skewness, tail, more = 0.0, 1.0, 0.0
        if isinstance(model, SparseGPModel) and not rows.is_deep:
            residuals = rows.residuals(likelihood, function, noise)
            (skewness, tail), more = _best_shape(residuals, weights)
        found = Calibration(function, noise, skewness=skewness, tail=tail, num_rows=count)
        return found, gain + more
    (function,), gain = find(rows.other(likelihood), count, 1)
    return Calibration(function, num_rows=count), gain


def _log_probabilities(model: SparseGPModel, X: tf.Tensor) -> np.ndarray:
    """
    Log probabilities of all classes without calibration, float64 ``[N, C]``.

    :raises ValueError: for predictions that are not finite.
    """
    posterior, likelihood = model.posterior(), model.likelihood
    parts = [
        posterior.predict_y(X[i : i + _CHUNK], likelihood)[0] for i in range(0, len(X), _CHUNK)
    ]
    found = log_probabilities(likelihood, tf.concat(parts, axis=0)).numpy().astype(np.float64)
    if not np.all(np.isfinite(found)):
        raise ValueError("model cannot be calibrated: its predictions are not finite.")
    return found
