"""
Likelihoods by name, their outputs as noisy observations of f, and samples of new observations
given f.
"""

import copy
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gpflow_likelihoods
from scipy.special import digamma

from gpflow_sparse import likelihoods
from gpflow_sparse.data import Dataset

BLOCK = 500
"""Rows whose draws are in memory together."""
# Outputs below this fraction of the mean output count as it; the logarithm of 0 is infinite.
_LOWEST = 1e-4
# Likelihoods by name: for outputs on the whole line, which are standardized, and for others.
STANDARDIZED = {
    "gaussian": gpflow_likelihoods.Gaussian,
    "student_t": likelihoods.StudentT,
    "laplace": likelihoods.Laplace,
    "heteroskedastic": likelihoods.HeteroskedasticGaussian,
}
COUNTS = {
    "poisson": gpflow_likelihoods.Poisson,
    "negative_binomial": likelihoods.NegativeBinomial,
    "zero_inflated_poisson": likelihoods.ZeroInflatedPoisson,
}
NOT_STANDARDIZED = {
    **COUNTS,
    "exponential": gpflow_likelihoods.Exponential,
    "gamma": gpflow_likelihoods.Gamma,
}


def make_likelihood(
    likelihood: Any, num_classes: int | None, noise_variance: float
) -> gpflow.likelihoods.Likelihood:
    """
    The likelihood with a name, a copy of the one given, or the usual one.

    :param num_classes: None for regression.
    :param noise_variance: start of the variance of Gaussian noise, and of like noise.
    :raises ValueError: for an unknown name.
    """
    if isinstance(likelihood, gpflow.likelihoods.Likelihood):
        return copy.deepcopy(likelihood)
    scale = noise_variance**0.5
    known: dict[str, Callable[[], gpflow.likelihoods.Likelihood]] = {
        "gaussian": lambda: gpflow_likelihoods.Gaussian(noise_variance),
        "student_t": lambda: likelihoods.StudentT(scale=scale),
        "laplace": lambda: likelihoods.Laplace(scale / 2**0.5),
        "heteroskedastic": lambda: likelihoods.HeteroskedasticGaussian(scale),
        **NOT_STANDARDIZED,
    }
    if num_classes is not None:
        known = {
            "softmax": lambda: likelihoods.Softmax(num_classes),
            "multiclass": lambda: gpflow_likelihoods.MultiClass(num_classes),
            "one_versus_rest": lambda: likelihoods.OneVersusRest(num_classes),
        }
    if num_classes == 2:
        known = {
            "bernoulli": gpflow_likelihoods.Bernoulli,
            "bernoulli_logit": likelihoods.BernoulliLogit,
        }
    if likelihood not in (None, *known):
        raise ValueError(
            f"likelihood must be {', '.join(known)}{' for classes' if num_classes else ''}, or in "
            f"Python a GPflow likelihood; got {likelihood!r}."
        )
    return known[likelihood or next(iter(known))]()


def is_standardized(likelihood: Any) -> bool:
    """Whether outputs are standardized for this likelihood: a name, an object or None."""
    if isinstance(likelihood, gpflow.likelihoods.Likelihood):
        return isinstance(likelihood, (*STANDARDIZED.values(), gpflow_likelihoods.StudentT))
    return likelihood is None or likelihood in STANDARDIZED


def has_heavy_tails(likelihood: Any) -> bool:
    """Whether outliers are expected of the noise: for a name, an object or None."""
    kinds = gpflow_likelihoods.StudentT, likelihoods.Laplace
    return likelihood in ("student_t", "laplace") or isinstance(likelihood, kinds)


def require_counts(likelihood: Any) -> None:
    """:raises ValueError: for a likelihood that is not one of counts, and so has no exposure."""
    if likelihood not in COUNTS and not isinstance(likelihood, tuple(COUNTS.values())):
        raise ValueError(
            f"exposure is for counts, with likelihood {', '.join(COUNTS)}; got {likelihood!r}."
        )


def exposure_map(dataset: Dataset, column: str | None) -> tuple[np.ndarray, float]:
    """
    Coefficients ``[D, 1]`` of standardized inputs, and a constant, whose sum is the logarithm of
    the exposure; 0 without exposures.

    :param column: whose values are these logarithms before they are standardized.
    :raises ValueError: for a column that the encoder has not kept as numbers.
    """
    A, names = np.zeros([len(dataset.feature_names), 1]), dataset.feature_names
    if column is None:
        return A, 0.0
    if column not in names:
        raise ValueError(
            f"exposure {column!r} must be a column of numbers that vary; leave it out where it is "
            "the same in every row."
        )
    k, scaler = names.index(column), dataset.standardizer
    if scaler is None:
        raise ValueError(
            "exposure is for the estimators and the command line, which take its logarithm; leave "
            "it out."
        )
    A[k] = scaler.x_scale.numpy()[k]
    return A, float(scaler.x_mean.numpy()[k])


def log_rates(
    likelihood: gpflow.likelihoods.Likelihood, dataset: Dataset, exposure: str | None
) -> Any:
    """
    Estimates ``[N, P]`` of f at standardized training rows, each from its own output, and the mean
    of f ``[P]``, both without the logarithm of the exposure.

    Exponential and gamma outputs y of the scale exp(f) have ``E[log y] = f + digamma(shape)``;
    counts have nearly ``E[log(y + 1/2)] = f`` unless they are few. With these estimates starting
    hyperparameters are found as for regression, and a prior mean makes them independent of the unit
    of Y.

    :param exposure: the column of the exposures of counts.
    :return: None for other likelihoods and links.
    """
    if getattr(likelihood, "invlink", tf.exp) is not tf.exp:
        return None
    X, Y = dataset.train
    if isinstance(likelihood, tuple(COUNTS.values())):
        A, constant = exposure_map(dataset, exposure)
        sizes = np.exp(X @ A + constant) * float(getattr(likelihood, "binsize", 1.0))
        estimates = np.log((Y + 0.5) / sizes)
        least = np.maximum(Y.sum(axis=0), 0.5) / sizes.sum()
        return estimates, np.minimum(estimates.mean(axis=0), np.log(least))
    if not isinstance(likelihood, gpflow_likelihoods.Exponential | gpflow_likelihoods.Gamma):
        return None
    shape = likelihood.shape.numpy() if isinstance(likelihood, gpflow_likelihoods.Gamma) else 1.0
    estimates = np.log(np.maximum(Y, _LOWEST * Y.mean(axis=0))) - digamma(shape)
    return estimates, estimates.mean(axis=0)


def blocks(num_rows: int) -> list[slice]:
    """Slices of rows whose draws fit into memory together."""
    return [slice(i, i + BLOCK) for i in range(0, num_rows, BLOCK)]


def can_sample(likelihood: gpflow.likelihoods.Likelihood) -> bool:
    """Whether :func:`sample_outputs` draws observations of this likelihood."""
    known = *STANDARDIZED.values(), *NOT_STANDARDIZED.values(), gpflow_likelihoods.StudentT
    return isinstance(likelihood, known)


def sample_outputs(
    likelihood: gpflow.likelihoods.Likelihood,
    F: np.ndarray,
    rng: np.random.RandomState,
    noise_factor: Any = 1.0,
) -> np.ndarray:
    """
    One observation for each value of f, of the same shape; for input-dependent noise, whose last
    column of F is its logarithm, without that column.

    :param noise_factor: factor of the variance of Gaussian noise, or one for each row ``[N, 1]``.
    :raises ValueError: for a likelihood whose observations cannot be drawn here.
    """
    if isinstance(likelihood, gpflow_likelihoods.Gaussian):
        noise = noise_factor * _noise_variance(likelihood)
        return F + np.sqrt(noise) * rng.standard_normal(F.shape)
    if isinstance(likelihood, gpflow_likelihoods.StudentT):
        freedom = np.asarray(likelihood.df)
        return F + likelihood.scale.numpy() * rng.standard_t(freedom, F.shape)
    if isinstance(likelihood, likelihoods.HeteroskedasticGaussian):
        noise = likelihood.noise_variance(F[..., 1:]).numpy()
        return F[..., :1] + np.sqrt(noise) * rng.standard_normal(noise.shape)
    if isinstance(likelihood, likelihoods.Laplace):
        return rng.laplace(F, likelihood.scale.numpy())
    if isinstance(likelihood, gpflow_likelihoods.Poisson):
        return rng.poisson(likelihood.invlink(F).numpy() * likelihood.binsize).astype(np.float64)
    if isinstance(likelihood, likelihoods.NegativeBinomial):
        dispersion = likelihood.dispersion.numpy()
        return rng.poisson(rng.gamma(1.0 / dispersion, dispersion * np.exp(F))).astype(np.float64)
    if isinstance(likelihood, likelihoods.ZeroInflatedPoisson):
        is_zero = rng.random_sample(F.shape) < likelihood.zero_probability.numpy()
        return np.where(is_zero, 0.0, rng.poisson(np.exp(F)))
    if isinstance(likelihood, gpflow_likelihoods.Exponential):
        return rng.exponential(likelihood.invlink(F).numpy())
    if isinstance(likelihood, gpflow_likelihoods.Gamma):
        return rng.gamma(likelihood.shape.numpy(), likelihood.invlink(F).numpy())
    raise ValueError(
        f"observations of {type(likelihood).__name__} cannot be drawn; draw f from "
        "model_.predict_f_samples instead."
    )


def _noise_variance(likelihood: gpflow_likelihoods.Gaussian) -> np.ndarray:
    if not isinstance(likelihood.variance, gpflow.Parameter):
        raise ValueError(
            "likelihood must have one noise variance for intervals and samples; call "
            "model_.predict_y for noise that depends on the inputs."
        )
    return np.asarray(likelihood.variance)
