"""Markov chains for any log density of a vector; nothing here knows what is sampled.

All samplers work in the coordinates ``u = (z - start) / scales``, in which one step size serves
every coordinate, and run all chains at once in one compiled loop. The step size is adapted in
burn-in only, so that what is kept is a chain with the target as its stationary distribution.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_sparse.validation import checks

LogDensity = Callable[[tf.Tensor], tf.Tensor]
"""From ``z [C, n]`` to the log density, up to a constant, ``[C]``; minus infinity or NaN where it
is none."""

# Acceptance probabilities to aim at. That of MALA is the best one in high dimensions, Roberts and
# Rosenthal (1998); for HMC that is 0.651 at least, and more costs little; NUTS is as in Stan.
_MALA_TARGET, _HMC_TARGET, _NUTS_TARGET = 0.574, 0.75, 0.8
# Share of burn-in in which TFP's samplers adapt; they settle in the rest.
_ADAPTING = 0.8


class Samples(NamedTuple):
    """What a sampler returns."""

    values: tf.Tensor
    """``[S, C, n]``: S kept states of each of C chains, in the order they came."""
    acceptance: tf.Tensor
    """Mean probability of acceptance of each chain, ``[C]``: over all steps after burn-in, or (HMC
    and NUTS) over those that led to the kept states."""
    step_size: tf.Tensor
    """The step size after burn-in, in units of ``scales``."""


class _State(NamedTuple):
    position: tf.Tensor
    value: tf.Tensor
    gradient: tf.Tensor


def mala(
    log_density: LogDensity,
    start: tf.Tensor,
    scales: tf.Tensor,
    *,
    num_samples: int = 180,
    num_burnin: int = 1000,
    thin: int = 50,
    seed: int = 0,
) -> Samples:
    """
    The Metropolis-adjusted Langevin algorithm with a scale for every coordinate.

    With ``M = diag(scales^2)``, gradient ``g`` and step size ``e``, from z propose

        z' = z + e^2 M g / 2 + e M^(1/2) xi,      xi ~ N(0, I),

    and accept with the ratio of densities times that of proposals. Girolami and Calderhead (2011)
    with a constant metric. In burn-in ``log e`` follows the acceptance probability,
    averaged over chains, to 0.574 (Robbins and Monro); its average over the second half of burn-in
    is then kept. The defaults are the 10,000 iterations of Evans and Nair (2018), section 6.

    :param start: ``[C, n]``.
    :param scales: standard deviations ``[n]``, roughly those of the target.
    :param num_samples: S, states kept of each chain.
    :param num_burnin: steps before the first.
    :param thin: steps per kept state.
    :param seed: from 0 to 2^32 - 1; the same seed, the same chain.
    :raises ValueError: for counts or a seed that are none, or a start without a density.
    """
    _require_counts(num_samples, num_burnin, thin, seed)
    _require_start(log_density, start)
    target = _value_and_gradient(log_density, start, scales)
    origin = tf.zeros_like(start)

    def run() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        state, log_step = _adapt(target, _State(origin, *target(origin)), num_burnin, seed)
        positions, acceptance = _collect(
            target, state, tf.exp(log_step), (num_samples, num_burnin, thin), seed
        )
        return start + scales * positions, acceptance, tf.exp(log_step)

    return Samples(*tf.function(run, autograph=False)())


def hmc(
    log_density: LogDensity,
    start: tf.Tensor,
    scales: tf.Tensor,
    *,
    num_samples: int = 1000,
    num_burnin: int = 1000,
    thin: int = 1,
    num_leapfrog_steps: int = 10,
    seed: int = 0,
) -> Samples:
    """
    Hamiltonian Monte Carlo by TensorFlow Probability, with dual averaging of the step size to an
    acceptance of 0.75 in the first four fifths of burn-in.

    :param num_leapfrog_steps: gradients per step. The path is that many step sizes long; where it
        is near a period of the target, the chain moves little: :func:`nuts` chooses its length.
    :raises ValueError: as :func:`mala`.
    """
    checks.require_count(num_leapfrog_steps, "num_leapfrog_steps")

    def kernel(target: LogDensity, step_size: tf.Tensor) -> Any:
        return tfp.mcmc.HamiltonianMonteCarlo(target, step_size, num_leapfrog_steps)

    counts = (num_samples, num_burnin, thin)
    return _adaptive_chain(kernel, _HMC_TARGET, log_density, start, scales, counts, seed)


def nuts(
    log_density: LogDensity,
    start: tf.Tensor,
    scales: tf.Tensor,
    *,
    num_samples: int = 1000,
    num_burnin: int = 1000,
    thin: int = 1,
    seed: int = 0,
) -> Samples:
    """
    The No-U-Turn sampler by TensorFlow Probability, with dual averaging of the step size to an
    acceptance of 0.8 in the first four fifths of burn-in.

    :raises ValueError: as :func:`mala`.
    """

    def kernel(target: LogDensity, step_size: tf.Tensor) -> Any:
        return tfp.mcmc.NoUTurnSampler(target, step_size)

    counts = (num_samples, num_burnin, thin)
    return _adaptive_chain(kernel, _NUTS_TARGET, log_density, start, scales, counts, seed)


def _adapt(
    target: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
    state: _State,
    num_burnin: int,
    seed: int,
) -> tuple[_State, tf.Tensor]:
    """Burn-in: the state at its end, and the logarithm of the step size."""
    dtype = state.position.dtype
    settled = num_burnin // 2  # from here on, steps count in the average

    def body(t: tf.Tensor, state: _State, log_step: tf.Tensor, total: tf.Tensor) -> Any:
        state, probability = _mala_step(target, state, tf.exp(log_step), seed, t)
        gain = tf.cast(t + 1, dtype) ** -0.6
        log_step += gain * (tf.reduce_mean(probability) - _MALA_TARGET)
        return t + 1, state, log_step, total + tf.where(t >= settled, log_step, 0.0)

    # the best step for independent coordinates in n dimensions: Roberts and Rosenthal (1998)
    first = tf.constant(math.log(1.65 * state.position.shape[1] ** (-1 / 6)), dtype)
    _, state, _, total = tf.while_loop(
        lambda t, *_: t < num_burnin,
        body,
        (tf.constant(0, tf.int64), state, first, tf.zeros([], dtype)),
        parallel_iterations=1,
    )
    return state, total / tf.cast(num_burnin - settled, dtype)


def _collect(
    target: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
    state: _State,
    step: tf.Tensor,
    counts: tuple[int, int, int],
    seed: int,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Kept positions ``[S, C, n]``, and the mean acceptance ``[C]``."""
    num_samples, num_burnin, thin = counts

    def advance(t: tf.Tensor, state: _State, total: tf.Tensor) -> Any:
        state, probability = _mala_step(target, state, step, seed, t)
        return t + 1, state, total + probability

    def keep(s: tf.Tensor, state: _State, total: tf.Tensor, kept: tf.TensorArray) -> Any:
        first = num_burnin + tf.cast(s, tf.int64) * thin
        _, state, total = tf.while_loop(
            lambda t, *_: t < first + thin, advance, (first, state, total), parallel_iterations=1
        )
        return s + 1, state, total, kept.write(s, state.position)

    kept = tf.TensorArray(state.position.dtype, num_samples, element_shape=state.position.shape)
    _, _, total, kept = tf.while_loop(
        lambda s, *_: s < num_samples,
        keep,
        (tf.constant(0), state, tf.zeros_like(state.value), kept),
        parallel_iterations=1,
    )
    return kept.stack(), total / (num_samples * thin)


def _mala_step(
    target: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
    state: _State,
    step: tf.Tensor,
    seed: int,
    t: tf.Tensor,
) -> tuple[_State, tf.Tensor]:
    """One step of all chains, and the probabilities ``[C]`` with which they were to move."""
    shape, dtype = state.position.shape, state.position.dtype
    xi = tf.random.stateless_normal(shape, [seed, 2 * t], dtype=dtype)
    proposal = state.position + 0.5 * step**2 * state.gradient + step * xi  # [C, n]
    value, gradient = target(proposal)
    # the noise that would lead back
    reverse = (state.position - proposal - 0.5 * step**2 * gradient) / step
    log_ratio = value - state.value - 0.5 * tf.reduce_sum(reverse**2 - xi**2, axis=1)  # [C]
    log_ratio = tf.where(tf.math.is_finite(log_ratio), log_ratio, -math.inf)
    probability = tf.exp(tf.minimum(log_ratio, 0.0))
    moves = tf.random.stateless_uniform(shape[:1], [seed, 2 * t + 1], dtype=dtype) < probability
    moved = _State(
        tf.where(moves[:, None], proposal, state.position),
        tf.where(moves, value, state.value),
        tf.where(moves[:, None], gradient, state.gradient),
    )
    return moved, probability


def _adaptive_chain(
    make_kernel: Callable[[LogDensity, tf.Tensor], Any],
    acceptance: float,
    log_density: LogDensity,
    start: tf.Tensor,
    scales: tf.Tensor,
    counts: tuple[int, int, int],
    seed: int,
) -> Samples:
    """A sampler of TFP with its step size adapted."""
    num_samples, num_burnin, thin = counts
    _require_counts(num_samples, num_burnin, thin, seed)
    _require_start(log_density, start)

    def target(u: tf.Tensor) -> tf.Tensor:
        return log_density(start + scales * u)

    def trace(_: tf.Tensor, results: Any) -> tuple[tf.Tensor, tf.Tensor]:
        log_ratio = results.inner_results.log_accept_ratio  # [C]
        return tf.exp(tf.minimum(log_ratio, 0.0)), results.new_step_size

    def run() -> Any:
        kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
            make_kernel(target, tf.constant(start.shape[1] ** -0.25, start.dtype)),
            num_adaptation_steps=int(_ADAPTING * num_burnin),
            target_accept_prob=tf.constant(acceptance, start.dtype),
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

    positions, (probability, step_size) = tf.function(run, autograph=False)()
    return Samples(start + scales * positions, tf.reduce_mean(probability, axis=0), step_size[-1])


def _value_and_gradient(
    log_density: LogDensity, start: tf.Tensor, scales: tf.Tensor
) -> Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    def target(u: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(u)
            value = log_density(start + scales * u)  # [C]
        return value, tape.gradient(value, u)

    return target


def _require_counts(num_samples: int, num_burnin: int, thin: int, seed: int) -> None:
    checks.require_count(num_samples, "num_samples")
    checks.require_count(num_burnin, "num_burnin")
    checks.require_count(thin, "thin")
    checks.require_seed(seed)


def _require_start(log_density: LogDensity, start: tf.Tensor) -> None:
    value = log_density(start)
    if not bool(tf.reduce_all(tf.math.is_finite(value))):
        raise ValueError(
            f"start must have a finite log density in every chain, got {value.numpy().tolist()}; "
            "start elsewhere."
        )
