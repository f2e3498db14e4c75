"""Markov chains for a log density, by TensorFlow Probability's No-U-Turn sampler.

It works in the coordinates ``u = (z - start) / scales``, in which one step size serves every
coordinate, and runs all chains at once in one compiled loop. The step size is adapted by dual
averaging in the first four fifths of burn-in only, so that the states kept afterwards are a Markov
chain whose stationary distribution is the target.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_sparse.numerics.tracing import compiled
from gpflow_sparse.validation import checks

LogDensity = Callable[[tf.Tensor], tf.Tensor]
"""A function of ``z [C, n]`` that returns the log density up to a constant, ``[C]``; minus infinity
or NaN outside the support."""

# Share of burn-in in which the step size is adapted, and the acceptance that it is adapted to,
# which is Stan's.
_ADAPTING, _ACCEPTANCE = 0.8, 0.8


def sample(
    log_density: LogDensity,
    start: tf.Tensor,
    scales: tf.Tensor,
    *,
    num_samples: int = 180,
    num_burnin: int = 200,
    seed: int = 0,
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    States of C Markov chains after burn-in.

    :param start: ``[C, n]``.
    :param scales: standard deviations ``[n]``, roughly the target's.
    :param num_samples: S, states kept of each chain.
    :param num_burnin: steps before the first.
    :param seed: from 0 to 2^32 - 1; equal seeds give equal chains.
    :return: ``[S, C, n]``, in the order of the chain, and the mean probability of acceptance of the
        steps to them, for each chain, ``[C]``.
    :raises ValueError: for counts that are not positive integers, a seed out of range, or a start
        without a finite log density.
    """
    checks.require_count(num_samples, "num_samples")
    checks.require_count(num_burnin, "num_burnin")
    checks.require_seed(seed)
    value = log_density(start)
    if not bool(tf.reduce_all(tf.math.is_finite(value))):
        raise ValueError(
            f"start must have a finite log density in every chain, got {value.numpy().tolist()}; "
            "start elsewhere."
        )

    def run() -> Any:
        first_step = tf.constant(start.shape[1] ** -0.25, start.dtype)
        sampler = tfp.mcmc.NoUTurnSampler(lambda u: log_density(start + scales * u), first_step)
        return tfp.mcmc.sample_chain(
            num_samples,
            tf.zeros_like(start),
            kernel=tfp.mcmc.DualAveragingStepSizeAdaptation(
                sampler,
                num_adaptation_steps=int(_ADAPTING * num_burnin),
                target_accept_prob=tf.constant(_ACCEPTANCE, start.dtype),
            ),
            num_burnin_steps=num_burnin,
            trace_fn=lambda _, results: results.inner_results.log_accept_ratio,
            seed=tf.constant([seed % 2**31, seed // 2**31], tf.int32),  # TFP takes no int64
        )

    positions, log_ratios = compiled(run)()
    acceptance = tf.reduce_mean(tf.exp(tf.minimum(log_ratios, 0.0)), axis=0)
    return start + scales * positions, acceptance
