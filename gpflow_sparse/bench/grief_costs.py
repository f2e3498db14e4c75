"""What GRIEF costs: the search, the pass over the rows, and the likelihood after it."""

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.bases import GridEigenfunctions
from gpflow_sparse.bases.grid_eigenfunctions import top_products
from gpflow_sparse.bases.product import percentile_grid
from gpflow_sparse.bench.steps import alternate
from gpflow_sparse.models import GRIEF, BasisGPR

# Columns and nodes per column of the searches that are timed.
_SEARCHES = ((33, 10), (100, 100))
_FEW_ROWS = 10_000


@dataclass(frozen=True)
class GriefCosts:
    """Times in seconds, medians where repeated."""

    searches: dict[str, float]
    """Choosing p eigenfunctions, by columns and nodes."""
    stream_seconds: float
    """One compiled pass over all rows for the sums."""
    rows_per_second: float
    matmul_fraction: float
    """Of the measured rate of a matmul, ``2 N p^2`` operations in all; half are done, for the
    product is symmetric."""
    stream_megabytes: float
    """Peak memory of the pass above the process with its data."""
    setup_seconds: float
    """Everything until a model with rotated weights is there, tracing included."""
    likelihood_seconds: float
    """Compiled log likelihood and gradient of all weights and the noise, at N rows."""
    likelihood_ratio: float
    """The same over that of a model of 10,000 rows."""


def grief_costs(
    *,
    num_rows: int = 1_000_000,
    input_dim: int = 8,
    num_basis: int = 1000,
    repeats: int = 200,
    seed: int = 0,
) -> GriefCosts:
    """
    Measure on made rows: normal inputs, a wave with noise.

    :param repeats: timed rounds of what takes milliseconds.
    """
    X, Y = _made_rows(num_rows, input_dim, seed)
    few = GRIEF((X[:_FEW_ROWS], Y[:_FEW_ROWS]), _kernel(input_dim), **_options(num_basis))
    idle = _peak_megabytes()
    basis = GridEigenfunctions(_kernel(input_dim), X, num_basis)
    held = BasisGPR((X, Y), basis)
    stream = tf.function(held.compute_qu, autograph=False)
    start = time.perf_counter()
    stream()
    tracing = time.perf_counter() - start
    stream_seconds = min(_seconds(stream), tracing)
    stream_megabytes = _peak_megabytes() - idle
    start = time.perf_counter()
    many = GRIEF((X, Y), _kernel(input_dim), **_options(num_basis))
    setup_seconds = time.perf_counter() - start
    slow, fast = alternate([_likelihood_step(many), _likelihood_step(few)], repeats)
    matrix = tf.constant(np.random.default_rng(seed).normal(size=(2048, 2048)))
    (matmul,) = alternate([tf.function(lambda: tf.linalg.matmul(matrix, matrix))], 10)
    rate = 2.0 * 2048**3 / matmul
    return GriefCosts(
        searches={f"{d} x {m}": _search_seconds(d, m, num_basis, seed) for d, m in _SEARCHES},
        stream_seconds=stream_seconds,
        rows_per_second=num_rows / stream_seconds,
        matmul_fraction=2.0 * num_rows * held.basis.num_basis**2 / stream_seconds / rate,
        stream_megabytes=stream_megabytes,
        setup_seconds=setup_seconds,
        likelihood_seconds=slow,
        likelihood_ratio=slow / fast,
    )


def _options(num_basis: int) -> dict[str, Any]:
    return {"num_eigenfunctions": num_basis, "reweighted": "rotated", "objective": "likelihood"}


def _kernel(input_dim: int) -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=np.full(input_dim, 2.0 * input_dim**0.5))


def _made_rows(num_rows: int, input_dim: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(num_rows, input_dim))
    return X, np.sin(X[:, :1]) + 0.1 * rng.normal(size=(num_rows, 1))


def _likelihood_step(model: GRIEF) -> Callable[[], Any]:
    variables = model.trainable_variables

    @tf.function(autograph=False)
    def step() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = model.training_loss()
        return loss, tape.gradient(loss, variables)

    return step


def _search_seconds(num_columns: int, num_nodes: int, count: int, seed: int) -> float:
    """The search alone, given the spectra: what :meth:`GridEigenfunctions.refresh` does."""
    rng = np.random.default_rng(seed)
    spectra = []
    for _ in range(num_columns):
        u = percentile_grid(rng.normal(size=1000), num_nodes)
        K = np.exp(-0.5 * (u[:, None] - u) ** 2 / num_columns)
        lam = np.linalg.eigvalsh(K)[::-1]
        kept = lam > num_nodes * np.finfo(float).eps * lam[0]
        spectra.append(np.where(kept, np.log(np.where(kept, lam, 1.0)), -np.inf))
    return float(np.median([_seconds(lambda: top_products(spectra, count)) for _ in range(21)]))


def _seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _peak_megabytes() -> float:
    """Of this process since it began."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
