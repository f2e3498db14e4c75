"""Corrections of predictions from held-out rows: factors of variances, temperature, quantiles."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import logdensities
from gpflow.likelihoods import Bernoulli, Gaussian, Likelihood
from scipy import stats

from gpflow_sparse.inference import sinh_arcsinh


def quantiles_of_observations(
    posterior: Any, calibration: "Calibration | None", X: Any, moments: Any, levels: Any
) -> tf.Tensor:
    """
    Quantiles of new observations ``[L, N, P]``: of the posterior's own distribution where it is not
    one Gaussian, else of the calibrated shape, else of Gaussians.

    :param X: standardized inputs ``[N, D]``.
    :param moments: mean and variance of the observations ``[N, P]``.
    :param levels: probabilities ``[L]``.
    """
    if hasattr(posterior, "predict_quantiles"):
        return posterior.predict_quantiles(X, levels)
    return (calibration or Calibration()).quantiles(moments, levels)


class Calibration(tf.Module):
    """
    Corrections of a trained model's predictive distributions.

    The (co)variances of f are multiplied by one factor, the variance of Gaussian noise by another,
    which leaves means as they are. Probabilities p of classes become proportional to ``p^(1 / T)``
    with one temperature T, which leaves their order as it is. Observations with Gaussian noise may
    get the shape of a sinh-arcsinh distribution, which leaves their means and variances as they
    are: see :mod:`gpflow_sparse.inference.sinh_arcsinh`.

    Found by :func:`gpflow_sparse.calibrate` and kept as ``model.calibration``. Not to be changed.
    """

    originals: list[np.ndarray] | None = None
    """For GPflow's own models: unconstrained values of the changed parameters before the change."""
    rescaled: list[np.ndarray] | None = None
    """The same after it; training may have changed the parameters again."""

    def __init__(
        self,
        function: float = 1.0,
        noise: float = 1.0,
        *,
        temperature: float = 1.0,
        skewness: float = 0.0,
        tail: float = 1.0,
        num_rows: int = 0,
        scores: np.ndarray | None = None,
    ) -> None:
        """
        :param function: factor of the variance of f.
        :param noise: factor of the variance of Gaussian noise; 1 for other likelihoods.
        :param temperature: T, above 1 for probabilities that are less certain than the model's.
        :param skewness: of observations; 0 for a symmetric distribution.
        :param tail: of observations; below 1 for a narrower peak and heavier tails than a Gaussian
            with the same variance.
        :param num_rows: held-out rows that the factors were found on.
        :param scores: conformal scores ``[n, P]``, in ascending order: distances of the held-out
            observations from their means, in standard deviations of calibrated predictions. None
            for intervals of the predictive distribution.
        :raises ValueError: for factors that are not positive, or another shape of scores.
        """
        super().__init__()
        given = {"function": function, "noise": noise, "temperature": temperature, "tail": tail}
        for name, value in given.items():
            if not 0.0 < value < math.inf:
                raise ValueError(f"{name} must be a positive factor, got {value!r}.")
        if not math.isfinite(skewness):
            raise ValueError(f"skewness must be finite, got {skewness!r}.")
        if scores is not None and np.ndim(scores) != 2:
            raise ValueError(f"scores must have shape [n, P], got {np.shape(scores)}.")
        self.function, self.noise = float(function), float(noise)
        self.temperature = float(temperature)
        self.skewness, self.tail = float(skewness), float(tail)
        self.num_rows, self.scores = int(num_rows), scores

    def __repr__(self) -> str:
        values = f"function={self.function:.4g}, noise={self.noise:.4g}"
        temperature = "" if self.temperature == 1.0 else f", temperature={self.temperature:.4g}"
        shape = f", skewness={self.skewness:.4g}, tail={self.tail:.4g}" if self.has_shape else ""
        return f"Calibration({values}{temperature}{shape})"

    @property
    def has_shape(self) -> bool:
        """Whether observations are not Gaussian."""
        return (self.skewness, self.tail) != (0.0, 1.0)

    def quantiles(self, moments: Any, levels: Sequence[float]) -> tf.Tensor:
        """
        Quantiles ``[L, N, P]`` of observations with Gaussian noise.

        :param moments: calibrated mean and variance of observations ``[N, P]``.
        """
        mean, var = moments
        z = tf.constant(stats.norm.ppf(levels), mean.dtype)[:, None, None]
        return mean + tf.sqrt(var) * sinh_arcsinh.from_normal(z, self.skewness, self.tail)

    def distribution(self, moments: Any, Y: tf.Tensor) -> tf.Tensor:
        """The probability ``[N, P]`` of observations below Y; arguments as :meth:`quantiles`."""
        mean, var = moments
        z, _ = sinh_arcsinh.to_normal((Y - mean) / tf.sqrt(var), self.skewness, self.tail)
        return 0.5 * tf.math.erfc(-z / np.sqrt(2.0))

    @property
    def noise_beyond_likelihood(self) -> float:
        """The factor of the noise that the variance in the model's likelihood does not have yet."""
        return self.noise if self.originals is None else 1.0

    def with_noise(self, likelihood: Likelihood, X: tf.Tensor, var: tf.Tensor) -> tf.Tensor:
        """
        A variance of f for which the trained likelihood gives predictions with calibrated noise.

        With Gaussian noise s2 predictions depend on ``var + s2`` only, so that the difference
        between the calibrated and the trained noise can be moved into the variance. The trained
        parameter stays as it is, since collapsed models compute q from it. The result may be
        negative, its sum with the trained noise variance may not.

        :param X: ``[..., N, D]``, for noise that depends on the inputs.
        :param var: calibrated variance of f ``[..., N, P]``.
        """
        if self.noise == 1.0 or not isinstance(likelihood, Gaussian):
            return var
        return var + (self.noise - 1.0) * likelihood.conditional_variance(X, var)

    def radius(self, coverage: float) -> np.ndarray | None:
        """
        Half widths ``[P]`` of central intervals, in standard deviations of an observation.

        ``mean +- radius * standard deviation`` contains a new observation, exchangeable with the n
        held-out ones, with probability ``coverage`` at least (split conformal prediction).

        :return: None without scores.
        :raises ValueError: if n rows cannot bound so large a fraction of observations.
        """
        if self.scores is None:
            return None
        count = len(self.scores)
        place = math.ceil((count + 1) * coverage)
        if place > count:
            raise ValueError(
                f"coverage must be at most {count / (count + 1):.4g} for conformal intervals from "
                f"{count} held-out rows, got {coverage!r}."
            )
        return np.asarray(self.scores[place - 1])

    def conformal_levels(self, distances: np.ndarray) -> np.ndarray:
        """
        The coverages ``[n, P]`` above which intervals of :meth:`radius` hold observations.

        :param distances: of these from their means, in standard deviations ``[n, P]``.
        """
        assert self.scores is not None
        pairs = zip(self.scores.T, distances.T, strict=True)
        places = [np.searchsorted(scores, distance) for scores, distance in pairs]
        return np.stack(places, axis=1) / (len(self.scores) + 1.0)


def has_classes(likelihood: Likelihood) -> bool:
    """Whether observations are labels whose probabilities a likelihood predicts."""
    return isinstance(likelihood, Bernoulli) or hasattr(likelihood, "num_classes")


def log_probabilities(likelihood: Likelihood, mean: tf.Tensor) -> tf.Tensor:
    """
    Logarithms of the probabilities of all classes ``[..., C]`` from the predicted mean of labels;
    no probability counts as less than the rounding of 1.

    :param mean: ``[..., 1]`` for two classes, the probability of label 1, or ``[..., C]``.
    """
    P = tf.concat([1.0 - mean, mean], axis=-1) if isinstance(likelihood, Bernoulli) else mean
    least = float(np.finfo(P.dtype.as_numpy_dtype).eps)
    return tf.math.log(tf.maximum(P / tf.reduce_sum(P, axis=-1, keepdims=True), least))


def tempered(
    calibration: Calibration | None, likelihood: Likelihood, moments: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Mean and variance of labels at the temperature of a calibration; others as they are.

    :param moments: predicted mean and variance of observations.
    """
    if calibration is None or calibration.temperature == 1.0 or not has_classes(likelihood):
        return moments  # type: ignore[no-any-return]
    P = tf.nn.softmax(log_probabilities(likelihood, moments[0]) / calibration.temperature)
    if isinstance(likelihood, Bernoulli):
        return P[..., 1:], P[..., 1:] * P[..., :1]
    return P, P * (1.0 - P)


def observations(
    calibration: Calibration | None, likelihood: Likelihood, X: tf.Tensor, moments: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Calibrated mean and variance of observations.

    :param moments: mean and calibrated variance of f.
    """
    trained = observed(calibration, likelihood, X, moments)
    return tempered(calibration, likelihood, likelihood.predict_mean_and_var(X, *trained))


def log_density(
    calibration: Calibration | None,
    likelihood: Likelihood,
    X: tf.Tensor,
    moments: Any,
    Y: tf.Tensor,
) -> tf.Tensor:
    """Calibrated log density of observations ``[N]``; arguments as in :func:`observations`."""
    if calibration is not None and calibration.has_shape and isinstance(likelihood, Gaussian):
        of_y = observations(calibration, likelihood, X, moments)
        return density_of_observations(calibration, of_y, Y)
    if calibration is None or calibration.temperature == 1.0 or not has_classes(likelihood):
        trained = observed(calibration, likelihood, X, moments)
        return likelihood.predict_log_density(X, *trained, Y)
    return of_labels(likelihood, observations(calibration, likelihood, X, moments)[0], Y)


def density_of_observations(
    calibration: Calibration | None, moments: Any, Y: tf.Tensor
) -> tf.Tensor:
    """
    Log density ``[N]`` of observations with Gaussian noise, with the shape of the calibration.

    :param moments: their calibrated mean and variance.
    """
    mean, var = moments
    if calibration is None or not calibration.has_shape:
        return tf.reduce_sum(logdensities.gaussian(Y, mean, var), axis=-1)
    residual, shape = (Y - mean) / tf.sqrt(var), (calibration.skewness, calibration.tail)
    each = sinh_arcsinh.log_density(residual, *shape) - 0.5 * tf.math.log(var)
    return tf.reduce_sum(each, axis=-1)


def of_labels(likelihood: Likelihood, mean: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
    """Log probabilities ``[...]`` of labels ``Y [..., 1]``, from the predicted mean of labels."""
    every = log_probabilities(likelihood, mean)
    chosen = tf.one_hot(tf.cast(Y[..., 0], tf.int32), every.shape[-1], dtype=every.dtype)
    return tf.reduce_sum(every * chosen, axis=-1)


def observed(
    calibration: Calibration | None, likelihood: Likelihood, X: tf.Tensor, moments: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Moments of f to give to the trained likelihood, so that noise is calibrated too.

    :param moments: mean and calibrated variance of f.
    """
    mean, var = moments
    return mean, var if calibration is None else calibration.with_noise(likelihood, X, var)
