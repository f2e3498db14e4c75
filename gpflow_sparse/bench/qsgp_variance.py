"""How far the gradients that QSGP's estimators give are from the exact one."""

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.bases import FiniteBasis, RandomFourier
from gpflow_sparse.data import load
from gpflow_sparse.data.datasets import ROOT_VARIABLE
from gpflow_sparse.initialization import median_lengthscales
from gpflow_sparse.initialization.hyperparameters import subset_hyperparameters
from gpflow_sparse.models import QSGP
from gpflow_sparse.numerics import linalg
from gpflow_sparse.numerics.streaming import streamed_sum
from gpflow_sparse.runs.training import print_progress

ESTIMATORS = {
    "literal": "theorems 1 and 2 as printed",
    "none": "y shared between the draws",
    "eq3": "shared, and eq. (3)",
    "anchored": "anchored projections",
    "tracked": "a batch known exactly",
}
_KIN40K = "kin40k"
# Rows of all functions at a time.
_BLOCK_ROWS = 1024


@dataclass(frozen=True)
class GradientError:
    """Root mean square error of the gradient in the mean, over touched coordinates."""

    estimator: str
    """Key of ``ESTIMATORS``."""
    at_prior_draw: float
    at_optimum: float


@dataclass(frozen=True)
class VarianceSizes:
    """What is measured."""

    num_basis: int = 10_000
    """m."""
    basis_batch_size: int = 1000
    """k, functions in a draw."""
    batch_size: int = 500
    """Rows."""
    num_support: int = 500
    """Support rows."""
    repeats: int = 20
    """Steps measured of each estimator."""


def gradient_errors(
    X: np.ndarray, Y: np.ndarray, sizes: VarianceSizes, *, seed: int = 0
) -> list[GradientError]:
    """
    Measure at a draw of the weights from the prior, and at the exact posterior mean.

    Hyperparameters are those of an exact GP on 1,000 of the rows. A step's gradient at a function
    that c of its two draws took is, times ``2 k / (c m)``, an estimate of the exact gradient there,
    which costs O(N m): the error is the difference. The optimum costs O(N m^2 + m^3).

    :param X: ``[N, D]``, standardized.
    :param Y: ``[N, 1]``, standardized.
    """
    dtype = gpflow.default_float()
    kernel = gpflow.kernels.SquaredExponential(lengthscales=median_lengthscales(X, seed=seed))
    noise = subset_hyperparameters(X, Y, kernel, seed=seed)
    gpflow.utilities.set_trainable(kernel, False)
    basis = RandomFourier(kernel, sizes.num_basis, seed=seed)
    data = tf.constant(X, dtype), tf.constant(Y, dtype)
    draw = np.random.default_rng(seed).normal(size=(sizes.num_basis, 1))
    print_progress(f"solving for {sizes.num_basis} weights")
    places = [tf.constant(draw, dtype), optimal_mean(basis, data, noise)]
    errors = []
    for mu in places:
        exact = exact_gradient(basis, data, noise, mu).numpy()[:, 0]
        errors.append([_error(name, basis, data, noise, mu, exact, sizes) for name in ESTIMATORS])
    return [GradientError(*row) for row in zip(ESTIMATORS, *errors, strict=True)]


def benchmark_rows(seed: int = 0) -> tuple[str, np.ndarray, np.ndarray]:
    """
    The first training split of kin40k where ``GPFLOW_SPARSE_DATA`` has it, else made rows like it.

    :return: which, and standardized rows.
    """
    if os.environ.get(ROOT_VARIABLE):
        try:
            dataset = load(_KIN40K).standardized()
            return _KIN40K, *dataset.train
        except ValueError:  # neither in the folder nor to be had from the network
            pass
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(36_000, 8))
    W, phases = rng.normal(size=(8, 50)) / 3.0, rng.uniform(0.0, 2.0 * np.pi, size=50)
    f = np.cos(X @ W + phases).sum(axis=1, keepdims=True)
    return "generated rows", X, f / f.std() + 0.1 * rng.normal(size=f.shape)


def error_table(
    errors: Sequence[GradientError],
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows, with ratios to the printed theorems."""
    header = ("estimator", "", "at a prior draw", "to literal", "at the optimum", "to literal")
    first, rows = errors[0], []
    for row in errors:
        pairs = (
            (row.at_prior_draw, first.at_prior_draw),
            (row.at_optimum, first.at_optimum),
        )
        cells = [text for own, base in pairs for text in (f"{own:.4g}", f"{own / base:.3f}")]
        rows.append((row.estimator, ESTIMATORS[row.estimator], *cells))
    return header, rows


def optimal_mean(basis: FiniteBasis, data: tuple[tf.Tensor, tf.Tensor], noise: float) -> tf.Tensor:
    """``(Phi^T Phi + noise I)^-1 Phi^T y``, ``[m, 1]``."""

    def sums(blocks: Sequence[Any], _: Sequence[Any]) -> list[tf.Tensor]:
        Phi = basis(blocks[0])
        return [tf.linalg.matmul(Phi, part, transpose_a=True) for part in (Phi, blocks[1])]

    gram, target = streamed_sum(sums, list(data), [], block_rows=_BLOCK_ROWS)
    factor = linalg.cholesky(linalg.add_jitter(gram, noise), "the precision of the weights")
    return tf.linalg.cholesky_solve(factor, target)


def exact_gradient(
    basis: FiniteBasis, data: tuple[tf.Tensor, tf.Tensor], noise: float, mu: tf.Tensor
) -> tf.Tensor:
    """Of the negative elbo in the mean: ``Phi^T (Phi mu - y) / noise + mu``, ``[m, 1]``."""

    def pulled_back(blocks: Sequence[Any], tensors: Sequence[Any]) -> list[tf.Tensor]:
        Phi = basis(blocks[0])
        residual = tf.linalg.matmul(Phi, tensors[0]) - blocks[1]
        return [tf.linalg.matmul(Phi, residual, transpose_a=True)]

    (total,) = streamed_sum(pulled_back, list(data), [mu], block_rows=_BLOCK_ROWS)
    return total / noise + mu


def _error(
    name: str,
    basis: FiniteBasis,
    data: tuple[tf.Tensor, tf.Tensor],
    noise: float,
    mu: tf.Tensor,
    exact: np.ndarray,
    sizes: VarianceSizes,
) -> float:
    model = QSGP(
        basis,
        gpflow.likelihoods.Gaussian(noise),
        num_data=len(data[0]),
        basis_batch_size=sizes.basis_batch_size,
        variance_reduction=name,
        num_support=sizes.num_support,
    )
    model.q_mu.assign(mu)
    step, squares = gradient_step(model), []
    rng = np.random.default_rng(0)
    for _ in range(sizes.repeats):
        rows = rng.permutation(len(data[0]))
        support, batch = (
            tuple(tf.gather(part, rows[chosen]) for part in data)
            for chosen in (slice(sizes.num_support), slice(-sizes.batch_size, None))
        )
        known = batch if name == "tracked" else support
        model.prepare_step(0, functools.partial(tuple, known))
        gradient, counts = (part.numpy() for part in step(*batch))
        seen = counts > 0
        scale = 2.0 * sizes.basis_batch_size / (sizes.num_basis * counts[seen])
        squares.append(np.mean((scale * gradient[seen] - exact[seen]) ** 2))
    return float(np.sqrt(np.mean(squares)))


def gradient_step(model: QSGP) -> Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """A compiled ``(X, Y) -> (gradient of -elbo in q_mu [m], how often each was drawn [m])``."""
    size = model.basis.num_basis

    @tf.function(autograph=False)
    def step(X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        draws = model._draw()
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(model.q_mu)
            loss = -model._elbo_from(X, Y, draws, anchored=True)
        gradient = tf.convert_to_tensor(tape.gradient(loss, model.q_mu))[:, 0]
        counts = tf.math.bincount(tf.concat(draws[:2], axis=0), minlength=size, maxlength=size)
        return gradient, tf.cast(counts, gradient.dtype)

    return step
