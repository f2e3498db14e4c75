"""Factors of predictive variances and noise, and quantiles of residuals, from held-out rows."""

import math
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Gaussian, Likelihood


class Calibration(tf.Module):
    """
    Corrections of a trained model's predictive variances, which leave its means as they are: the
    (co)variances of f are multiplied by one factor, the variance of Gaussian noise by another.

    Found by :func:`gpflow_sparse.calibrate` and kept as ``model.calibration``. Not to be changed.
    """

    def __init__(
        self,
        function: float = 1.0,
        noise: float = 1.0,
        *,
        num_rows: int = 0,
        scores: np.ndarray | None = None,
    ) -> None:
        """
        :param function: factor of the variance of f.
        :param noise: factor of the variance of Gaussian noise; 1 for other likelihoods.
        :param num_rows: held-out rows that the factors were found on.
        :param scores: conformal scores ``[n, P]``, in ascending order: distances of the held-out
            observations from their means, in standard deviations of calibrated predictions. None
            for intervals of the predictive distribution.
        :raises ValueError: for factors that are not positive, or another shape of scores.
        """
        super().__init__()
        for name, value in (("function", function), ("noise", noise)):
            if not 0.0 < value < math.inf:
                raise ValueError(f"{name} must be a positive factor, got {value!r}.")
        if scores is not None and np.ndim(scores) != 2:
            raise ValueError(f"scores must have shape [n, P], got {np.shape(scores)}.")
        self.function, self.noise = float(function), float(noise)
        self.num_rows, self.scores = int(num_rows), scores
        # of GPflow's own models: unconstrained values of the parameters that were changed
        self.originals: list[np.ndarray] | None = None

    def __repr__(self) -> str:
        return f"Calibration(function={self.function:.4g}, noise={self.noise:.4g})"

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
        return var + (self.noise - 1.0) * likelihood.variance_at(X)

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


def observed(
    calibration: Calibration | None, likelihood: Likelihood, X: tf.Tensor, moments: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Moments of f to give to the trained likelihood, so that noise is calibrated too.

    :param moments: mean and calibrated variance of f.
    """
    mean, var = moments
    return mean, var if calibration is None else calibration.with_noise(likelihood, X, var)
