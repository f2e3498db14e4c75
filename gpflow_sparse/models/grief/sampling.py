"""Markov chain Monte Carlo for a log density, by TensorFlow Probability.

All samplers work in the coordinates ``u = (z - start) / scales``, in which one step size serves
every coordinate, and run all chains at once in one compiled loop. The step size is adapted by dual
averaging in the first four fifths of burn-in only, so that the states kept afterwards are a Markov
chain whose stationary distribution is the target.

The Metropolis-adjusted Langevin algorithm is Hamiltonian Monte Carlo with one leapfrog step.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_sparse._names import keep_old
from gpflow_sparse.numerics.tracing import compiled
from gpflow_sparse.validation import checks

LogDensity = Callable[[tf.Tensor], tf.Tensor]
"""A function of ``z [C, n]`` that returns the log density up to a constant, ``[C]``; minus infinity
or NaN outside the support."""

# Share of burn-in in which the step size is adapted; the chains settle in the rest.
_ADAPTING = 0.8


class _Method(NamedTuple):
    """Acceptance to which the step size is adapted; its first value in n dimensions, ``a n^b``."""

    acceptance: float
    a: float
    b: float


# The acceptance of MALA is optimal in high dimensions, and its first step best for independent
# coordinates: Roberts and Rosenthal (1998); for HMC 0.651 is optimal, and more costs little; that
# of NUTS is Stan's.
METHODS = {
    "mala": _Method(0.574, 1.65, -1 / 6),
    "hmc": _Method(0.75, 1.0, -1 / 4),
    "nuts": _Method(0.8, 1.0, -1 / 4),
}


class Samples(NamedTuple):
    """States of Markov chains after burn-in, with the acceptance rate and the step size."""

    values: tf.Tensor
    """``[S, C, n]``: S kept states of each of C chains, in the order of the chain."""
    acceptance: tf.Tensor
    """Mean probability of acceptance of the steps to the kept states, for each chain: ``[C]``."""
    step_size: tf.Tensor
    """The step size after burn-in, in units of ``scales``."""


def sample(
    log_density: LogDensity,
    start: tf.Tensor,
    scales: tf.Tensor,
    *,
    method: str = "mala",
    num_samples: int = 180,
    num_burnin: int = 1000,
    thin: int = 50,
    num_leapfrog_steps: int = 10,
    seed: int = 0,
) -> Samples:
    """
    Markov chains by MALA, Hamiltonian Monte Carlo, or the No-U-Turn sampler.

    "mala" is the Metropolis-adjusted Langevin algorithm with a scale for every coordinate: with ``M
    = diag(scales^2)``, gradient ``g`` and step size ``e``, from z propose

        z' = z + e^2 M g / 2 + e M^(1/2) xi,      xi ~ N(0, I),

    and accept with the ratio of densities times that of proposals. Girolami and Calderhead (2011)
    with a constant metric. The defaults are the 10,000 iterations of Evans and Nair (2018),
    section 6; states of "hmc" and "nuts" need no thinning.

    :param start: ``[C, n]``.
    :param scales: standard deviations ``[n]``, roughly those of the target.
    :param method: "mala", "hmc" or "nuts", with the step size adapted to an acceptance of 0.574,
        0.75 and 0.8.
    :param num_samples: S, states kept of each chain.
    :param num_burnin: steps before the first.
    :param thin: steps per kept state.
    :param num_leapfrog_steps: gradients per step of "hmc". If the length of a path, the product of
        this and the step size, is near a period of the target, the chain moves little: "nuts"
        chooses the length.
    :param seed: from 0 to 2^32 - 1; equal seeds give equal chains.
    :raises ValueError: for another method, counts that are not positive integers, a seed out of
        range, or a start without a finite log density.
    """
    checks.require_choice(method, "method", tuple(METHODS))
    checks.require_count(num_samples, "num_samples")
    checks.require_count(num_burnin, "num_burnin")
    checks.require_count(thin, "thin")
    checks.require_count(num_leapfrog_steps, "num_leapfrog_steps")
    checks.require_seed(seed)
    value = log_density(start)
    if not bool(tf.reduce_all(tf.math.is_finite(value))):
        raise ValueError(
            f"start must have a finite log density in every chain, got {value.numpy().tolist()}; "
            "start elsewhere."
        )

    def trace(_: tf.Tensor, results: Any) -> tuple[tf.Tensor, tf.Tensor]:
        log_ratio = results.inner_results.log_accept_ratio  # [C]
        return tf.exp(tf.minimum(log_ratio, 0.0)), results.new_step_size

    def run() -> Any:
        kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
            _kernel(lambda u: log_density(start + scales * u), start, method, num_leapfrog_steps),
            num_adaptation_steps=int(_ADAPTING * num_burnin),
            target_accept_prob=tf.constant(METHODS[method].acceptance, start.dtype),
        )
        return tfp.mcmc.sample_chain(
            num_samples,
            tf.zeros_like(start),
            kernel=kernel,
            num_burnin_steps=num_burnin,
            num_steps_between_results=thin - 1,
            trace_fn=trace,
            seed=tf.constant([seed % 2**31, seed // 2**31], tf.int32),  # TFP takes no int64
        )

    positions, (probability, step_size) = compiled(run)()
    return Samples(start + scales * positions, tf.reduce_mean(probability, axis=0), step_size[-1])


def _kernel(
    log_density: LogDensity, start: tf.Tensor, method: str, num_leapfrog_steps: int
) -> tfp.mcmc.TransitionKernel:
    _, a, b = METHODS[method]
    first_step = tf.constant(a * start.shape[1] ** b, start.dtype)
    if method == "nuts":
        return tfp.mcmc.NoUTurnSampler(log_density, first_step)
    steps = 1 if method == "mala" else num_leapfrog_steps
    return tfp.mcmc.HamiltonianMonteCarlo(log_density, first_step, steps)


keep_old(
    __name__,
    {
        "mala": ("sample(method='mala')", sample),
        "hmc": ("sample(method='hmc')", partial(sample, method="hmc", num_samples=1000, thin=1)),
        "nuts": ("sample(method='nuts')", partial(sample, method="nuts", num_samples=1000, thin=1)),
    },
)
