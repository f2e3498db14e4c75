r"""Laplace's approximation with a function at every row, by the solver of exact GP regression.

For a likelihood with one latent function, ``psi(f) = log p(y | f) - (f - m)^T K^-1 (f - m) / 2``
has its maximum at the mode of the posterior. With ``g`` and ``-W`` the first and second derivatives
of ``log p(y_i | f_i)`` in each row, a Newton step is regression on *sites*: Gaussian observations
``z = f + g / W`` with noise variances ``1 / W``,

    a = (K + W^-1)^-1 (z - m),        f = m + K a = z - a / W.

At the mode the posterior given the sites is Laplace's approximation, ``N(f, (K^-1 + W)^-1)``.
Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), section 3.4; there with a
dense factorization in each step.
"""

from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.likelihoods import ScalarLikelihood

from gpflow_sparse.models.dual import solver
from gpflow_sparse.models.dual.solver import DualOptions
from gpflow_sparse.validation import checks, component_checks

# Smallest curvature -d2 log p / df2 of a site, also where a likelihood is not log-concave.
_LEAST_CURVATURE = 1e-8
# Halvings of a step that does not increase psi.
_HALVINGS = 10
# Relative decrease of psi that may be due to the tolerance of the solver.
_ROUNDING = 1e-6


class Sites(NamedTuple):
    """Gaussian observations in place of others."""

    targets: np.ndarray
    """z, ``[N, 1]``."""
    noise: np.ndarray
    """``1 / W``, ``[N]``."""
    num_steps: int
    """Newton steps that were taken."""
    change: float
    """Largest change of a latent value in the last of them."""


def laplace_sites(
    data: tuple[Any, Any],
    kernel: Kernel,
    likelihood: ScalarLikelihood,
    *,
    mean_function: MeanFunction | None = None,
    options: DualOptions | None = None,
    max_steps: int = 20,
    tolerance: float = 1e-2,
) -> Sites:
    """
    Sites of Laplace's approximation at the mode, for :class:`gpflow_sparse.models.DualGPR`:

        DualGPR((X, sites.targets), kernel, noise_variance=1e-5, row_noise=sites.noise)

    whose latent predictions are those of the approximation; ``likelihood.predict_mean_and_var``
    makes predictions of observations of them. Each Newton step solves for one right-hand side, from
    the weights of the step before. Steps that do not increase psi are halved.

    Hyperparameters are taken as they are, such as those of an ``SVGP`` with the same kernel.

    :param data: ``(X [N, D], Y [N, 1])``.
    :param likelihood: of GPflow, with one latent function.
    :param mean_function: m; zero by default.
    :param options: of the block solver; its defaults if None.
    :param max_steps: most Newton steps.
    :param tolerance: change of the latent values, the largest of all rows, at which to stop.
    :raises ValueError: for data or a likelihood of another number of columns, and blocks that do
        not converge.
    """
    options = solver.require_options(options, "laplace_sites")
    checks.require_count(max_steps, "max_steps")
    component_checks.require_kind(
        likelihood,
        ScalarLikelihood,
        "likelihood",
        "a likelihood of one latent function, gpflow.likelihoods.ScalarLikelihood",
    )
    X, Y = (tf.cast(checks.as_tensor(part, "data"), tf.float64) for part in data)
    if Y.shape.rank != 2 or Y.shape[1] != 1 or X.shape.rank != 2 or len(X) != len(Y):
        raise ValueError(
            f"data must be (X [N, D], Y [N, 1]), got shapes {tuple(X.shape)} and {tuple(Y.shape)}."
        )
    m = tf.zeros_like(Y) if mean_function is None else tf.cast(mean_function(X), tf.float64)
    f, a = tf.identity(m), tf.zeros_like(m)  # [N, 1]
    change, step = np.inf, 0
    while step < max_steps and change > tolerance:
        step += 1
        targets, noise = _sites(likelihood, X, f, Y)
        solution = solver.solve(kernel, X, noise[:, 0], targets - m, options, weights=a)
        weights = tf.constant(solution.state.weights)
        d_f, d_a = targets - noise * weights - f, weights - a
        before, scale = _objective(likelihood, X, f, Y, a, m), 1.0
        least = before - _ROUNDING * abs(before)
        for _ in range(_HALVINGS):
            if _objective(likelihood, X, f + scale * d_f, Y, a + scale * d_a, m) >= least:
                break
            scale *= 0.5
        f, a = f + scale * d_f, a + scale * d_a
        change = float(tf.reduce_max(tf.abs(scale * d_f)))
    targets, noise = _sites(likelihood, X, f, Y)
    return Sites(targets.numpy(), noise.numpy()[:, 0], step, change)


def _sites(
    likelihood: ScalarLikelihood, X: tf.Tensor, f: tf.Tensor, Y: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Targets and noise variances ``[N, 1]`` of the quadratic approximation at ``f [N, 1]``."""
    with tf.GradientTape() as outer:
        outer.watch(f)
        with tf.GradientTape() as inner:
            inner.watch(f)
            total = tf.reduce_sum(_log_density(likelihood, X, f, Y))
        g = inner.gradient(total, f)
        slope = tf.reduce_sum(g)  # rows are independent
    W = tf.maximum(-outer.gradient(slope, f), _LEAST_CURVATURE)
    return f + g / W, 1.0 / W


def _objective(
    likelihood: ScalarLikelihood,
    X: tf.Tensor,
    f: tf.Tensor,
    Y: tf.Tensor,
    a: tf.Tensor,
    m: tf.Tensor,
) -> float:
    """psi, with ``a = K^-1 (f - m)``."""
    return float(
        tf.reduce_sum(_log_density(likelihood, X, f, Y)) - 0.5 * tf.reduce_sum(a * (f - m))
    )


def _log_density(
    likelihood: ScalarLikelihood, X: tf.Tensor, f: tf.Tensor, Y: tf.Tensor
) -> tf.Tensor:
    """``log p(y | f)`` of each row, in the likelihood's float type."""
    X, f, Y = (tf.cast(part, gpflow.default_float()) for part in (X, f, Y))
    return tf.cast(likelihood.log_prob(X, f, Y), tf.float64)
