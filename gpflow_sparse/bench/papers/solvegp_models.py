"""Models of the papers' tables at their start."""

from collections.abc import Sequence

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.covariances import Kuu
from gpflow.inducing_variables import InducingPoints

from gpflow_sparse import initialization
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.models import ODVGP, SOLVEGP
from gpflow_sparse.numerics import linalg

_LENGTHSCALE, _VARIANCE, _NOISE_VARIANCE = 1.0, 1.0, 0.1


def orthogonal_regression(
    X: np.ndarray,
    *,
    method: str,
    points: Sequence[int],
    whiten: bool,
    seed: int,
    num_columns: int | None = None,
) -> gpflow.models.GPModel:
    """
    A row of the table of Shi, Titsias and Mnih (2020): Matern 3/2, one lengthscale, q at the prior.

    :param X: standardized training inputs ``[N, D]``.
    :param method: "svgp" (GPflow's), "odvgp" or "solvegp".
    :param points: M, or M and M2.
    :param whiten: parametrize q relative to the prior.
    :param seed: of the inducing points.
    :param num_columns: columns of the penalty that ODVGP samples in a step; None takes all.
    :raises FactorizationError: if Kuu has no Cholesky factor.
    """
    kernel = gpflow.kernels.Matern32(variance=_VARIANCE, lengthscales=_LENGTHSCALE)
    likelihood = gpflow.likelihoods.Gaussian(_NOISE_VARIANCE)
    if method == "svgp":
        return _svgp(kernel, likelihood, X, points[0], whiten, seed)
    if method == "solvegp":
        sets = initialization.split_orthogonal(X, *points, seed=seed)
        inducing = OrthogonalInducingVariables(*sets)
        return SOLVEGP(kernel, likelihood, inducing, whiten=whiten, num_data=len(X))
    Z = initialization.kmeans(X, points[0], seed=seed)
    O = initialization.random_subset(X, points[1], seed=seed)
    return ODVGP(
        kernel,
        likelihood,
        OrthogonalInducingVariables(Z, O),
        num_columns=num_columns,
        whiten=whiten,
        num_data=len(X),
    )


def _svgp(
    kernel: gpflow.kernels.Kernel,
    likelihood: gpflow.likelihoods.Likelihood,
    X: np.ndarray,
    num_inducing: int,
    whiten: bool,
    seed: int,
) -> gpflow.models.SVGP:
    Z = initialization.kmeans(X, num_inducing, seed=seed)
    q_sqrt = None
    if not whiten:
        # GPflow starts at the identity, whitened or not; the prior's factor is that of its own Kuu.
        covariance = Kuu(InducingPoints(Z), kernel, jitter=gpflow.config.default_jitter())
        q_sqrt = tf.linalg.band_part(linalg.cholesky(covariance, "Kuu"), -1, 0)[None].numpy()
    return gpflow.models.SVGP(kernel, likelihood, Z, whiten=whiten, q_sqrt=q_sqrt, num_data=len(X))
