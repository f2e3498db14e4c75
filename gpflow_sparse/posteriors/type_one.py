"""From the sums of a regression with weighted functions to a mixture posterior, by any method."""

from typing import Any

import tensorflow as tf
from gpflow.functions import MeanFunction

from gpflow_sparse.bases import FiniteBasis
from gpflow_sparse.inference import sampling
from gpflow_sparse.inference.collapsed import RowSums
from gpflow_sparse.inference.quadrature import quadrature
from gpflow_sparse.inference.rotation import Rotation
from gpflow_sparse.inference.type_one import (
    Prior,
    log_posterior,
    lognormal_from_mode_variance,
    start_and_scales,
    weights_and_noise,
)
from gpflow_sparse.posteriors.components import (
    Components,
    RotatedComponents,
    WeightedComponents,
)
from gpflow_sparse.posteriors.mixture import MixturePosterior
from gpflow_sparse.validation import checks

METHODS = ("mala", "hmc", "nuts", "quadrature")
_SAMPLERS = {"mala": sampling.mala, "hmc": sampling.hmc, "nuts": sampling.nuts}
_THIN = {"mala": 50, "hmc": 1, "nuts": 1}


def make_prior(weight_prior: Any, noise_prior: Any) -> Prior:
    """
    :param weight_prior: mode and variance of the log-normal prior of every weight.
    :param noise_prior: of the noise variance.
    :raises ValueError: unless both are pairs of positive numbers.
    """
    priors = []
    for name, pair in (("weight_prior", weight_prior), ("noise_prior", noise_prior)):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(f"{name} must be (mode, variance), got {pair!r}.")
        mode, variance = checks.as_array(list(pair), name, tf.float64).tolist()
        priors.append(lognormal_from_mode_variance(mode, variance))
    return Prior(*priors)


def type_one_posterior(
    basis: FiniteBasis,
    sums: RowSums | Rotation,
    prior: Prior,
    *,
    method: str,
    num_samples: int,
    num_burnin: int,
    thin: int | None,
    num_chains: int,
    seed: int,
    residual: bool,
    mean_function: MeanFunction | None,
) -> MixturePosterior:
    """
    :param sums: of the features, for weights on them; or their rotation, for weights on that.
    :param method: one of ``METHODS``; "quadrature" needs a rotation, and none of the numbers.
    :raises ValueError: for a method or numbers that are none.
    """
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {method!r}.")
    rest: dict[str, Any] = {"residual": residual, "mean_function": mean_function}
    if method == "quadrature":
        if not isinstance(sums, Rotation):
            raise ValueError(
                "method must be mala, hmc or nuts for weights on the eigenfunctions: given the "
                "noise they depend on each other, and have no quadrature. reweighted='rotated' has."
            )
        result = quadrature(sums, prior)
        components: Components = RotatedComponents.integrated(sums, result)
        return MixturePosterior(basis, components, log_evidence=result.log_evidence, **rest)
    checks.require_count(num_chains, "num_chains")
    start, scales = start_and_scales(prior, sums, num_chains)
    samples = _SAMPLERS[method](
        log_posterior(sums, prior),
        start,
        scales,
        num_samples=num_samples,
        num_burnin=num_burnin,
        thin=_THIN[method] if thin is None else thin,
        seed=seed,
    )
    weights, noise = weights_and_noise(samples.values)
    if isinstance(sums, Rotation):
        components = RotatedComponents.sampled(sums, noise, weights)
    else:
        components = WeightedComponents(sums, noise, weights)
    return MixturePosterior(basis, components, acceptance=samples.acceptance, **rest)
