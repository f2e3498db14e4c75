"""Errors of the gradient estimators of QSGP relative to the exact gradient."""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import click
import gpflow
import numpy as np
import tensorflow as tf

from bench.steps import Row, Tables
from gpflow_sparse.bases import FiniteBasis, RandomFourier
from gpflow_sparse.data import load
from gpflow_sparse.data.datasets import ROOT_VARIABLE
from gpflow_sparse.initialization import median_lengthscales
from gpflow_sparse.initialization.hyperparameters import subset_hyperparameters
from gpflow_sparse.models import QSGP
from gpflow_sparse.models.qsgp.step import SubsampledStep
from gpflow_sparse.numerics import linalg
from gpflow_sparse.numerics.streaming import streamed_sum

ESTIMATORS = {
    "literal": "theorems 1 and 2 as printed",
    "eq3": "as printed, with the control variate of eq. (3)",
    "none": "y shared between the draws",
    "anchored": "anchored projections",
}
# Variance reduction of the model of an estimator, where its name is another; the control rows of
# eq. (3) are those of "anchored".
_MODELS = {"literal": "none", "eq3": "anchored"}
Sums = tuple[tf.Tensor, tf.Tensor]
_KIN40K = "kin40k"
# Rows of a block, for which all functions are evaluated.
_BLOCK_ROWS = 1024


def gradient_errors(
    num_basis: int,
    basis_batch_size: int,
    batch_size: int,
    num_control_rows: int,
    num_rows: int | None,
    repeats: int,
) -> Tables:
    """
    Root mean square error of each estimator of the gradient in the mean, over drawn coordinates:
    at a draw of the weights from the prior, and at the exact posterior mean; with ratios to the
    printed theorems.

    Hyperparameters are those of an exact GP on 1,000 of the rows. A step's gradient at a function
    that c of its two draws took is, times ``2 k / (c m)``, an estimate of the exact gradient there,
    which costs O(N m^2) once for all: the error is the difference. The optimum costs O(m^3) more.

    :param repeats: steps measured of each estimator.
    """
    name, X, Y = benchmark_rows()
    X, Y = X[:num_rows], Y[:num_rows]
    click.echo(f"{name}, {len(X)} rows; solving for {num_basis} weights", err=True)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=median_lengthscales(X, seed=0))
    noise = subset_hyperparameters(X, Y, kernel, seed=0)
    gpflow.utilities.set_trainable(kernel, False)
    basis, kind = RandomFourier(kernel, num_basis, seed=0), gpflow.default_float()
    data = tf.constant(X, kind), tf.constant(Y, kind)
    draw = np.random.default_rng(0).normal(size=(num_basis, 1))
    sums = weight_sums(basis, data)
    places = {
        "at_prior_draw": tf.constant(draw, kind),
        "at_optimum": optimal_mean(sums, noise),
    }
    rows: list[Row] = [
        {"estimator": key, "is": ESTIMATORS[key], "data": name} for key in ESTIMATORS
    ]
    sizes: dict[str, Any] = {
        "basis_batch_size": basis_batch_size,
        "num_control_rows": num_control_rows,
    }
    for place, mu in places.items():
        exact = exact_gradient(sums, noise, mu).numpy()[:, 0]
        for row in rows:
            estimator = str(row["estimator"])
            model = QSGP(
                basis,
                gpflow.likelihoods.Gaussian(noise),
                num_data=len(X),
                variance_reduction=_MODELS.get(estimator, estimator),
                **sizes,
            )
            model.q_mu.assign(mu)
            row[place] = gradient_error(model, data, exact, batch_size, repeats, estimator)
            row[f"{place}_to_literal"] = row[place] / rows[0][place]
    return {"rows": rows}


def gradient_error(
    model: QSGP,
    data: tuple[tf.Tensor, tf.Tensor],
    exact: np.ndarray,
    batch_size: int,
    repeats: int,
    estimator: str,
) -> float:
    """
    Error at the current mean of the model, over steps on random batches.

    :param exact: the gradient, ``[m]``.
    :param estimator: one of :data:`ESTIMATORS`.
    """
    step, squares = gradient_step(model, estimator), []
    rng = np.random.default_rng(0)
    for _ in range(repeats):
        order = rng.permutation(len(data[0]))
        support, batch = (
            tuple(tf.gather(part, order[chosen]) for part in data)
            for chosen in (slice(model.num_control_rows), slice(-batch_size, None))
        )
        model.prepare_step(0, functools.partial(tuple, support))
        gradient, counts = (part.numpy() for part in step(*batch))
        drawn = counts > 0
        scale = 2.0 * model.basis_batch_size / (model.basis.num_basis * counts[drawn])
        squares.append(np.mean((scale * gradient[drawn] - exact[drawn]) ** 2))
    return float(np.sqrt(np.mean(squares)))


def benchmark_rows(seed: int = 0) -> tuple[str, np.ndarray, np.ndarray]:
    """
    The first training split of kin40k if it is in ``GPFLOW_SPARSE_DATA``, else similar generated
    rows.

    :return: name of the data, and standardized rows.
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


def weight_sums(basis: FiniteBasis, data: tuple[tf.Tensor, tf.Tensor]) -> Sums:
    """``Phi^T Phi [m, m]`` and ``Phi^T y [m, 1]``."""

    def sums(blocks: Sequence[Any], _: Sequence[Any]) -> list[tf.Tensor]:
        Phi = basis(blocks[0])
        return [tf.linalg.matmul(Phi, part, transpose_a=True) for part in (Phi, blocks[1])]

    gram, target = streamed_sum(sums, list(data), [], block_rows=_BLOCK_ROWS)
    return gram, target


def optimal_mean(sums: Sums, noise: float) -> tf.Tensor:
    """``(Phi^T Phi + noise I)^-1 Phi^T y``, ``[m, 1]``."""
    factor = linalg.cholesky(linalg.add_jitter(sums[0], noise), "the precision of the weights")
    return tf.linalg.cholesky_solve(factor, sums[1])


def exact_gradient(sums: Sums, noise: float, mu: tf.Tensor) -> tf.Tensor:
    """Gradient of -elbo in the mean: ``Phi^T (Phi mu - y) / noise + mu``, ``[m, 1]``."""
    return (tf.linalg.matmul(sums[0], mu) - sums[1]) / noise + mu


def gradient_step(
    model: QSGP, estimator: str
) -> Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """A compiled ``(X, Y) -> (gradient of -elbo in q_mu [m], how often each was drawn [m])``."""
    size = model.basis.num_basis

    @tf.function(autograph=False)
    def step(X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        sampled = SubsampledStep(model, model._draw(), unique=False)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(model.q_mu)
            if estimator in _MODELS:
                loss = 0.5 * printed_theorem_1(model, X, Y, sampled.draws)
                if estimator == "eq3":
                    loss += 0.5 * printed_equation_3(model, X.shape[1], sampled.draws)
            else:
                values = [tf.gather(variable, indices) for variable, indices in sampled.row_indices]
                loss = -model._estimate(X, Y, *sampled.read(values), model.anchors)[0]
        gradient = tf.convert_to_tensor(tape.gradient(loss, model.q_mu))[:, 0]
        counts = tf.math.bincount(tf.concat(sampled.draws, axis=0), minlength=size, maxlength=size)
        return gradient, tf.cast(counts, gradient.dtype)

    return step


def printed_theorem_1(
    model: QSGP, X: tf.Tensor, Y: tf.Tensor, draws: Sequence[tf.Tensor]
) -> tf.Tensor:
    """
    Theorem 1 of Evans and Nair (2020) as it is printed: the mean's part of -2 elbo.

    Unbiased, with a variance that the estimators of QSGP do not have: y stands in one of the two
    factors, and the penalty counts only functions that are in both draws.

    :param draws: i and j of the paper, ``[k]`` each.
    """
    it, jt = draws
    scale = tf.constant(model.basis.num_basis / model.basis_batch_size, X.dtype)
    F_i, F_j = (
        scale * tf.linalg.matmul(model.basis(X, i), tf.gather(model.q_mu, i)) for i in draws
    )
    per_row = model.num_data / tf.cast(tf.shape(X)[0], X.dtype) / model.likelihood.variance
    both = tf.cast(tf.reduce_any(it[:, None] == jt, axis=1), X.dtype)
    s = model.basis.precision_diagonal(it)
    penalty = scale**2 * tf.reduce_sum((both * s)[:, None] * tf.gather(model.q_mu, it) ** 2)
    return per_row * tf.reduce_sum(F_i * F_j - 2.0 * Y * F_i) + penalty


def printed_equation_3(
    model: QSGP, num_columns: int | None, draws: Sequence[tf.Tensor]
) -> tf.Tensor:
    """
    Eq. (3) of the paper, which is added to theorem 1, in the control rows of the model.

    ``N / (noise p) (a^T a - G_i^T G_j)``, ``a = Phi_p mu``; the gradient of ``a^T a`` is taken at
    the functions drawn, as appendix F.1 describes, with its factors as ``docs/errata.md`` has them.

    :param num_columns: D.
    :param draws: i and j of the paper, ``[k]`` each.
    """
    rows: Any = model.anchors
    X, a = rows.inputs(num_columns), tf.convert_to_tensor(rows.values)  # [p, D], [p, 1]
    scale = tf.constant(model.basis.num_basis / model.basis_batch_size, X.dtype)
    G_i, G_j = (
        scale * tf.linalg.matmul(model.basis(X, i), tf.gather(model.q_mu, i)) for i in draws
    )
    slope = tf.reduce_sum(a * (G_i + G_j))
    square = tf.reduce_sum(a * a) + slope - tf.stop_gradient(slope)
    per_row = model.num_data / tf.cast(tf.shape(X)[0], X.dtype) / model.likelihood.variance
    return per_row * (square - tf.reduce_sum(G_i * G_j))
