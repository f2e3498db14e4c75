"""Solvers of ``(K + s2 I) A = B`` side by side, and the cost of a pass of block Gauss-Seidel."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import gpflow
import numpy as np
import scipy.linalg
import tensorflow as tf

from bench.papers.data_splits import published
from bench.papers.models import score_test_rows
from bench.papers.tables import grid
from bench.qsgp_variance import benchmark_rows
from bench.steps import Row, Tables, table_of
from gpflow_sparse import models
from gpflow_sparse.covariances.stationary import covariance, jittered_covariance
from gpflow_sparse.initialization import local_hyperparameters, median_lengthscales
from gpflow_sparse.models.dual.solver import DualOptions, System, partition
from gpflow_sparse.numerics import linalg
from gpflow_sparse.persistence import files
from gpflow_sparse.recipes.methods.dual_solving import STEP_ROWS
from gpflow_sparse.runs import plots

# Relative residuals, the largest of all right-hand sides, until which seconds are reported.
_LEVELS = (1e-1, 1e-2, 1e-3)
_TITLES = {
    "blocks": "blocks of neighbors",
    "cg": "conjugate gradients",
    "pcg": "the same, Nystrom preconditioner",
}
Trace = list[tuple[float, float]]
"""Seconds of the processor since the start, and relative residual after each pass."""


class _Problem(NamedTuple):
    kernel: gpflow.kernels.Kernel
    X: np.ndarray
    noise: np.ndarray
    B: np.ndarray
    options: DualOptions


def solvers(
    num_rows: int, num_paths: int, num_inducing: int, max_passes: int, output: Path | None
) -> Tables:
    """
    Block Gauss-Seidel, conjugate gradients and a dense Cholesky factorization on rows of kin40k.

    Matern 3/2 and noise of local subsets of these rows. Right-hand sides are the outputs and
    standard normal columns. All products with K are tiles in float32; conjugate gradients have a
    step size for each column. The Cholesky factor is in float32 too. Seconds are those of the
    processor, of all threads.

    :param num_paths: number of right-hand sides beside the outputs.
    :param num_inducing: rank of the preconditioner.
    :param max_passes: most passes of a solver, each of which multiplies by K once.
    :param output: folder for the table, ``dual.md``, and a picture, ``dual.png``.
    """
    name, X, Y = benchmark_rows()
    X, Y = X[:num_rows], Y[:num_rows]
    kernel = gpflow.kernels.Matern32(lengthscales=median_lengthscales(X, seed=0))
    noise = local_hyperparameters(X, Y, kernel)
    click.echo(f"{name}, {len(X)} rows, noise variance {noise:.2g}", err=True)
    normal = np.random.default_rng(0).normal(size=(len(X), num_paths))
    options = DualOptions(max_passes=max_passes, tolerance=_LEVELS[-1])
    problem = _Problem(kernel, X, np.full(len(X), noise), np.hstack([Y, normal]), options)
    runs: dict[str, Callable[[], Trace]] = {
        "blocks": lambda: _blocks(problem),
        "cg": lambda: _conjugate_gradients(problem, None),
        "pcg": lambda: _conjugate_gradients(problem, num_inducing),
    }
    traces = {}
    for key, run in runs.items():
        traces[key] = run()
        click.echo(f"{_TITLES[key]}: {len(traces[key])} passes", err=True)
    seconds, residual = _cholesky(problem)
    rows = [_row(_TITLES[key], trace) for key, trace in traces.items()]
    rows.append({"solver": "Cholesky, float32", "residual": residual, "seconds": seconds})
    tables = {"solvers": rows}
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        text = grid(*table_of(rows))
        files.write_text(output / "dual.md", f"{name}, {len(X)} rows\n\n{text}\n")
        _draw(output / "dual.png", traces, (seconds, residual))
    return tables


def scaling(num_data: list[int], input_dim: int, num_paths: int, repeats: int) -> Tables:
    """
    Seconds of a pass of block Gauss-Seidel, from some of its blocks; those of the processor leave
    out the time in which other processes had it.

    :param num_data: numbers of rows, standard normal ones.
    :param repeats: blocks that are timed, after two others.
    """
    rows: list[Row] = []
    for count in num_data:
        rng = np.random.default_rng(0)
        X, B = rng.normal(size=(count, input_dim)), rng.normal(size=(count, 1 + num_paths))
        kernel = gpflow.kernels.Matern32(lengthscales=np.ones(input_dim))
        options = DualOptions()
        system = System(kernel, X, B.shape[1], options)
        system.assign(kernel, np.ones(count), B)
        system.R.assign(B)
        blocks = partition(X, options, 0)
        size = len(blocks[0])
        same = [tf.constant(rows, tf.int32) for rows in blocks if len(rows) == size]
        chosen = [same[i % len(same)] for i in range(2 + repeats)]
        for block in chosen[:2]:
            system.step(block)
        start = time.perf_counter(), time.process_time()
        for block in chosen[2:]:
            system.step(block)
        share = len(blocks) / repeats
        rows.append(
            {
                "rows": count,
                "blocks": len(blocks),
                "seconds of a pass": share * (time.perf_counter() - start[0]),
                "processor seconds": share * (time.process_time() - start[1]),
            }
        )
    return {"scaling": rows}


def passes(num_passes: list[int], num_paths: int, dataset: str = "flights2013_delay") -> Tables:
    """
    Scores of test rows after so many passes of :class:`gpflow_sparse.models.DualGPR`.

    Matern 3/2, from hyperparameters of local subsets and ten steps on at most 8,000 rows, as
    ``gpflow-sparse fit --method dual`` takes. Residuals are not computed anew in float64.

    :param num_passes: numbers of passes, increasing.
    :param dataset: a published split, as in ``python docs/benchmarks/run.py paper``.
    """
    data = published(dataset, 0)
    X, Y = data.train
    kernel = gpflow.kernels.Matern32(lengthscales=median_lengthscales(X, seed=0))
    noise, start = local_hyperparameters(X, Y, kernel), time.process_time()
    model = models.DualGPR((X, Y), kernel, noise_variance=noise, num_paths=num_paths)
    model.fit_hyperparameters(10, num_rows=min(STEP_ROWS, len(X)))
    click.echo(f"{len(X)} rows, steps: {time.process_time() - start:.0f} s", err=True)
    rows: list[Row] = []
    state, seconds = None, 0.0
    for count in num_passes:
        start, options = time.process_time(), DualOptions(max_passes=count, tolerance=1e-4)
        system = System(kernel, X, model.num_columns, options, refine=False)
        state = model.find_weights(options, state=state, system=system).state
        seconds += time.process_time() - start
        scores = score_test_rows(model, data)
        rows.append(
            {
                "passes": count,
                "relative residual": state.relative_residual,
                "processor seconds": seconds,
                **{name: scores[name] for name in ("rmse_standardized", "nlpd_standardized")},
                "coverage": scores["coverage_95"],
            }
        )
        click.echo(str(rows[-1]), err=True)
    return {"passes": rows}


def _blocks(problem: _Problem) -> Trace:
    start = time.process_time()
    trace: Trace = []
    kernel, X, noise, B, options = problem
    system = System(kernel, X, B.shape[1], options)
    system.solve(
        kernel,
        noise,
        B,
        callback=lambda state: trace.append((time.process_time() - start, state.relative_residual)),
    )
    return trace


def _conjugate_gradients(problem: _Problem, rank: int | None) -> Trace:
    """Preconditioned by the Nystrom approximation from ``rank`` random rows, if given."""
    start = time.process_time()
    trace: Trace = []
    kernel, X, noise, B, options = problem
    system = System(kernel, X, B.shape[1], options, refine=False)
    system.assign(kernel, noise, B)
    inverse = _preconditioner(problem, rank)
    norms = np.linalg.norm(B, axis=0)
    R = tf.constant(B)  # [N, c]
    Z = inverse(R)
    direction, product = Z, tf.reduce_sum(R * Z, axis=0)
    while len(trace) < options.max_passes and (not trace or trace[-1][1] > options.tolerance):
        system.A.assign(direction)
        image = system.times_weights()  # (K + s2 I) P
        size = product / tf.reduce_sum(direction * image, axis=0)
        R = R - size * image
        Z = inverse(R)
        after = tf.reduce_sum(R * Z, axis=0)
        direction, product = Z + after / product * direction, after
        residual = float(np.max(np.linalg.norm(R.numpy(), axis=0) / norms))
        trace.append((time.process_time() - start, residual))
    return trace


def _preconditioner(problem: _Problem, rank: int | None) -> Callable[[tf.Tensor], tf.Tensor]:
    """``R -> (Q + s2 I)^-1 R`` with ``Q = Kfu Kuu^-1 Kuf``, by the Woodbury identity."""
    if rank is None:
        return lambda R: R
    X, noise = tf.constant(problem.X), float(problem.noise[0])
    chosen = np.random.default_rng(0).permutation(len(problem.X))[:rank]
    Z = tf.gather(X, chosen)
    Luu = linalg.cholesky(jittered_covariance(problem.kernel, Z), "Kuu")
    A = linalg.solve_triangular(Luu, covariance(problem.kernel, Z, X))  # [m, N]
    inner = linalg.add_jitter(tf.linalg.matmul(A, A, transpose_b=True), tf.constant(noise, A.dtype))
    L = linalg.cholesky(inner, "A A^T + s2 I")

    def apply(R: tf.Tensor) -> tf.Tensor:
        inside = tf.linalg.cholesky_solve(L, tf.linalg.matmul(A, R))
        return (R - tf.linalg.matmul(A, inside, transpose_a=True)) / noise

    return apply


def _cholesky(problem: _Problem) -> tuple[float, float]:
    """Seconds, and the relative residual in float64 of the weights."""
    kernel, X, noise, B, options = problem
    start = time.process_time()
    K = np.empty((len(X), len(X)), np.float32, order="F")  # factorized in place: 4 N^2 bytes
    rows = tf.constant(X)
    for begin in range(0, len(X), 1000):
        K[begin : begin + 1000] = covariance(kernel, rows[begin : begin + 1000], rows).numpy()
    K[np.diag_indices(len(X))] += noise
    factor = scipy.linalg.cho_factor(K, lower=True, overwrite_a=True, check_finite=False)
    A = scipy.linalg.cho_solve(factor, B.astype(np.float32), check_finite=False)
    seconds = time.process_time() - start
    system = System(kernel, X, B.shape[1], options)
    system.assign(kernel, noise, B)
    system.A.assign(tf.cast(A, tf.float64))
    error = B - system.times_weights().numpy()
    return seconds, float(np.max(np.linalg.norm(error, axis=0) / np.linalg.norm(B, axis=0)))


def _row(title: str, trace: Trace) -> Row:
    """Passes, seconds and last residual, and seconds to each level."""
    row: dict[str, Any] = {"solver": title, "passes": len(trace)}
    row |= {"residual": trace[-1][1], "seconds": trace[-1][0]}
    for level in _LEVELS:
        reached = [seconds for seconds, residual in trace if residual <= level]
        row[f"to {level:g}"] = reached[0] if reached else None
    return row


def _draw(path: Path, traces: dict[str, Trace], factored: tuple[float, float]) -> None:
    figure = plots.new_figure(6.0, 3.6)
    axes = figure.subplots()
    for key, trace in traces.items():
        axes.plot(*zip(*trace, strict=True), label=_TITLES[key])
    axes.plot(*factored, "k*", label="Cholesky, float32")
    axes.set(xscale="log", yscale="log", xlabel="processor seconds", ylabel="relative residual")
    figure.legend(loc="outside upper center", ncols=2)
    figure.savefig(path, dpi=130)
