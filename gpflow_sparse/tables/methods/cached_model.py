"""The predictions of a model from one posterior that is computed once."""

from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.inference.calibration import Calibration, quantiles_of_observations
from gpflow_sparse.numerics.tracing import compiled
from gpflow_sparse.posteriors.exact import posterior_of
from gpflow_sparse.validation import checks

_DEEP_ROWS = 256
# Calls of at most so many rows, from which on they are compiled for one row: a call takes 40 ms,
# tracing 200 to 600 ms, and a compiled call 1 to 2 ms a row.
_FEW_ROWS, _FEW_CALLS = 8, 5
# Negative variances, relative to the prior variance, that are rounding.
_ROUNDING = 1e-6


class CachedModel:
    """
    The predictions of a model for observations, from one posterior computed once.

    The posterior of a deep model is a mixture, not one Gaussian per row: it averages densities over
    draws of its hidden layers. These take memory, so it predicts 256 rows at a time.
    """

    def __init__(self, model: gpflow.models.GPModel, posterior: Any = None) -> None:
        """:param posterior: predicts in place of the model's own."""
        self._model = model
        self._posterior = posterior_of(model) if posterior is None else posterior
        self._compiled: dict[str, Callable[[tf.Tensor], Any]] = {}
        self._few_calls = 0
        self._has_numpy = getattr(self._posterior, "has_numpy", False)

    def takes_single_rows(self, num_rows: int) -> bool:
        """Whether a call of so many rows, which is counted, is to be compiled for one row."""
        if num_rows > _FEW_ROWS or self._has_numpy or hasattr(self._model, "layers"):
            return False
        self._few_calls += 1
        return self._few_calls >= _FEW_CALLS

    def compiled(self, method: str) -> Callable[[tf.Tensor], Any]:
        """
        A method compiled for a fixed number of rows, which takes half the time; of a deep
        model the method itself, whose graph would repeat it for every 256 rows.
        """
        if hasattr(self._model, "layers"):
            return getattr(self, method)
        if method not in self._compiled:
            self._compiled[method] = compiled(getattr(self, method))
        return self._compiled[method]

    @property
    def likelihood(self) -> gpflow.likelihoods.Likelihood:
        """The likelihood of the model."""
        return self._model.likelihood

    @property
    def calibration(self) -> Calibration | None:
        """The calibration of the model, which its predictions have."""
        return getattr(self._model, "calibration", None)

    def noise_factors(self, X: tf.Tensor) -> Any:
        """Factors of the variance of Gaussian noise beside the likelihood's; ``[N, 1]`` or one."""
        found, local = self.calibration, getattr(self._posterior, "noise_factors", None)
        factor = 1.0 if found is None else found.noise_beyond_likelihood
        return factor if local is None else factor * local(X).numpy()

    def predict_f(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of f, equal to the model's but for rounding to variances below 0."""
        if (found := self._in_numpy(X, with_noise=False)) is not None:
            return found
        mean, var = self._posterior.predict_f(X)
        if isinstance(self._model, gpflow.models.SVGP):  # GPflow's own, whose caches lose digits
            largest = tf.reduce_max(self._model.kernel(X, full_cov=False))
            is_rounding = (var < 0.0) & (var > -_ROUNDING * largest)
            var = tf.where(is_rounding, tf.zeros_like(var), var)
        return mean, var

    def predict_y(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of new observations, equal to the model's."""
        if (found := self._in_numpy(X, with_noise=True)) is not None:
            return found
        likelihood = self._model.likelihood
        if not hasattr(self._posterior, "predict_y"):
            return likelihood.predict_mean_and_var(X, *self.predict_f(X))
        parts = [self._posterior.predict_y(X[rows], likelihood) for rows in self._slices(X)]
        mean, variance = (tf.concat(part, axis=0) for part in zip(*parts, strict=True))
        return mean, variance

    def _in_numpy(self, X: Any, with_noise: bool) -> tuple[tf.Tensor, tf.Tensor] | None:
        """Mean and variance where the posterior has them without operations of TensorFlow."""
        if not (self._has_numpy and tf.executing_eagerly()):
            return None
        mean, variance = self._posterior.moments_in_numpy(np.asarray(X), with_noise=with_noise)
        return tf.constant(mean), tf.constant(variance)

    def predict_log_density(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """Log density of each row, equal to the model's."""
        likelihood, num_latent_gps = self._model.likelihood, self._model.num_latent_gps
        X, Y = checks.require_data(data, likelihood=likelihood, num_latent_gps=num_latent_gps)
        checks.require_range(Y, "Y")
        if not hasattr(self._posterior, "predict_log_density"):
            mean, variance = self.predict_f(X)
            return likelihood.predict_log_density(X, mean, variance, Y)
        density = self._posterior.predict_log_density
        return tf.concat(
            [density((X[rows], Y[rows]), likelihood) for rows in self._slices(X)], axis=0
        )

    @property
    def has_quantiles(self) -> bool:
        """Whether the distribution of an observation is known, and is not one Gaussian."""
        shaped = self.calibration is not None and self.calibration.has_shape
        return shaped or hasattr(self._posterior, "predict_quantiles")

    def predict_quantiles(self, X: tf.Tensor, levels: Sequence[float]) -> tf.Tensor:
        """Quantiles of new observations at probabilities ``[L]``, ``[L, N, P]``."""
        own = hasattr(self._posterior, "predict_quantiles")
        moments = None if own else self.predict_y(X)
        return quantiles_of_observations(self._posterior, self.calibration, X, moments, levels)

    def predict_distribution(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """The probability of a new observation at ``X`` below ``Y``, ``[N, P]``."""
        if hasattr(self._posterior, "predict_distribution"):
            return self._posterior.predict_distribution(data)
        assert self.calibration is not None
        return self.calibration.distribution(self.predict_y(data[0]), data[1])

    @property
    def draws_observations(self) -> bool:
        """Whether :meth:`sample_y` is the only way to joint draws of observations."""
        return hasattr(self._posterior, "sample_y")

    def sample_y(self, X: tf.Tensor, num_samples: int) -> tf.Tensor:
        """Joint draws of new observations ``[S, N, P]``."""
        return self._posterior.sample_y(X, num_samples)

    def sample_f(self, X: tf.Tensor, num_samples: int) -> tf.Tensor:
        """Joint draws of f ``[S, N, P]``, where :attr:`draws_observations`."""
        return self._posterior.sample_f(X, num_samples)

    def _slices(self, X: tf.Tensor) -> list[slice]:
        """Rows whose predictions fit into memory together."""
        num_rows = int(X.shape[0])
        most = _DEEP_ROWS if hasattr(self._model, "layers") else num_rows
        return [slice(i, i + most) for i in range(0, num_rows, most)]
