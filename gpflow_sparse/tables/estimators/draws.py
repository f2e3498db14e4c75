"""Joint draws and covariances of new observations, and of f without their noise."""

import warnings
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.inference.sinh_arcsinh import from_normal
from gpflow_sparse.numerics import random_draws
from gpflow_sparse.tables.estimators.arguments import require_joint
from gpflow_sparse.tables.fitting.evaluation import Observations
from gpflow_sparse.tables.fitting.observations import sample_outputs


def draw_functions(
    model: gpflow.models.GPModel, posterior: Any, observed: Observations, count: int, rng: Any
) -> np.ndarray:
    """
    Joint draws of standardized f ``[S, N, P]``.

    :param posterior: the predictor of the model.
    :param rng: of NumPy.
    """
    F = _drawn(model, posterior, observed, count, rng, with_noise=False)
    return F[:, :, : _num_outputs(model, F.shape[2])]


def draw_observations(
    model: gpflow.models.GPModel, posterior: Any, observed: Observations, count: int, rng: Any
) -> np.ndarray:
    """Joint draws of standardized observations ``[S, N, P]``, see :func:`draw_functions`."""
    F = _drawn(model, posterior, observed, count, rng, with_noise=True)
    if observed.has_known_noise:
        F = F + np.sqrt(observed.known) * rng.standard_normal(F.shape)
    if posterior.draws_observations:
        return F  # type: ignore[no-any-return]
    found = posterior.calibration
    inputs = tf.convert_to_tensor(observed.rows, gpflow.default_float())
    Y = sample_outputs(model.likelihood, F, rng, posterior.noise_factors(inputs))
    if found is None or not found.has_shape:
        return Y
    mean, deviation = observed.moments[0], np.sqrt(observed.moments[1])
    z = tf.constant((Y - mean) / deviation)  # Gaussian draws get the shape of the calibration
    return mean + deviation * from_normal(z, found.skewness, found.tail).numpy()  # type: ignore[no-any-return]


def _drawn(
    model: gpflow.models.GPModel,
    posterior: Any,
    observed: Observations,
    count: int,
    rng: Any,
    *,
    with_noise: bool,
) -> np.ndarray:
    """Joint draws of f ``[S, N, .]``; with noise where the posterior itself draws it."""
    inputs = tf.convert_to_tensor(observed.rows, gpflow.default_float())
    if posterior.draws_observations:
        draw = posterior.sample_y if with_noise else posterior.sample_f
        with random_draws.seeded(rng.randint(2**31 - 1, size=2)):
            return draw(inputs, count).numpy()  # type: ignore[no-any-return]
    mean, covariance = model.predict_f(inputs, full_cov=True)
    pairs = zip(mean.numpy().T, covariance.numpy(), strict=True)
    return np.stack([rng.multivariate_normal(m, C, count) for m, C in pairs], axis=-1)


def joint_covariance(
    model: gpflow.models.GPModel, observed: Observations, *, noise: bool
) -> np.ndarray:
    """Joint covariance of standardized observations, or of f without ``noise``, ``[N, N, P]``."""
    require_joint(observed.rows)
    X = tf.convert_to_tensor(observed.rows, gpflow.default_float())
    of_f = model.predict_f(X, full_cov=True)[1].numpy()
    covariance = np.moveaxis(of_f[: _num_outputs(model, len(of_f))], 0, -1).copy()
    if noise:
        covariance[np.arange(len(X)), np.arange(len(X))] = observed.moments[1]
    return covariance


def _num_outputs(model: gpflow.models.GPModel, num_latent_gps: int) -> int:
    """Outputs, which are fewer than latent functions where the noise is a function too."""
    mean = model.standardizer.y_mean
    return num_latent_gps if mean is None else int(mean.shape[0])


def warn_of_means(observed: Observations) -> None:
    """Warn of means outside of the central 99 % intervals of their observations."""
    mean, (low, high) = observed.original.mean, observed.interval(0.99)
    if count := int(np.sum((mean < low) | (mean > high))):
        warnings.warn(
            f"{count} of {mean.size} means lie outside of the central 99 % intervals of their "
            "observations, since the outputs were transformed; leave out point for medians.",
            stacklevel=4,
        )
