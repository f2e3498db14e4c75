"""What one training step costs, against other libraries' models on the same batch."""

import functools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.bench.peers import gpytorch_decoupled_step
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.models import ODVGP, SOLVEGP
from gpflow_sparse.models.solvegp import OrthogonalModel
from gpflow_sparse.runs.methods import METHODS
from gpflow_sparse.training import adam

_METHODS: dict[str, type[OrthogonalModel]] = {"solvegp": SOLVEGP, "odvgp": ODVGP}
_NUM_DATA = 100_000


@dataclass(frozen=True)
class StepTime:
    """Median wall time of one compiled value and gradient of all parameters."""

    title: str
    milliseconds: float
    ratio: float
    """To GPflow's SVGP with as many inducing points."""
    fraction: float | None
    """Of the measured matmul rate, by :func:`step_operations`; None where nothing was counted."""


def bench_step(
    method: str,
    *,
    num_inducing: int = 512,
    num_orthogonal: int = 512,
    batch_size: int = 512,
    input_dim: int = 8,
    repeats: int = 20,
    seed: int = 0,
) -> tuple[list[StepTime], float]:
    """
    Alternate the steps of several models on one batch in one process.

    The models: the method; GPflow's SVGP with all M + M2 points in one set; the same SVGP on this
    package's factorization, which shows what is the method's and what is ours; and, where GPyTorch
    is installed and TensorFlow runs on the CPU, its orthogonally decoupled strategy, whose M2
    points serve the mean only. Whitened, squared exponential with one lengthscale per column,
    Gaussian noise, all parameters trainable; ODVGP takes all columns of its penalty.

    :param repeats: timed rounds, after three that are not.
    :return: one row per model, and the measured matmul rate in GFLOP/s (square, M + M2, same
        precision).
    :raises ValueError: for a method without such a step.
    """
    if method not in _METHODS:
        hint = "; see bench grief" if method == "grief" else ""
        raise ValueError(f"method must be one of {', '.join(_METHODS)}; got {method!r}{hint}.")
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(batch_size, input_dim))
    Y = rng.normal(size=(batch_size, 1))
    total = num_inducing + num_orthogonal
    points = rng.normal(size=(total, input_dim))
    Z, O = np.split(points, [num_inducing])
    models = {
        f"{METHODS[method][0]}({num_inducing}+{num_orthogonal})": _ours(_METHODS[method], Z, O),
        f"GPflow SVGP({total})": gpflow.models.SVGP(
            _kernel(input_dim), gpflow.likelihoods.Gaussian(0.1), points, num_data=_NUM_DATA
        ),
        f"SVGP({total}) on our factorization": _ours(SOLVEGP, points),
    }
    union = step_operations((total,), batch_size)
    mine = step_operations((num_inducing, num_orthogonal), batch_size)
    operations = [mine if method == "solvegp" else None, union, union]
    data = [tf.constant(array, gpflow.default_float()) for array in (X, Y)]
    steps = {title: value_and_gradient(model, tuple(data)) for title, model in models.items()}
    steps |= _peer_step(Z, O, *data)
    times = alternate(list(steps.values()), repeats)
    matrix = tf.constant(rng.normal(size=(total, total)), gpflow.default_float())
    (matmul,) = alternate([tf.function(lambda: tf.linalg.matmul(matrix, matrix))], repeats)
    rate = 2.0 * total**3 / matmul
    rows = [
        StepTime(title, 1e3 * seconds, seconds / times[1], count and count / seconds / rate)
        for title, seconds, count in zip_longest(steps, times, operations)
    ]
    return rows, rate / 1e9


def step_operations(sizes: tuple[int, ...], batch_size: int) -> float:
    """
    Floating-point operations of one whitened value and gradient, to leading order.

    Three times the forward pass, since the gradient of a product is two products. Forward, for SVGP
    with M points and n rows: M^3 / 3 for the factor and 3 M^2 n for the batch. For SOLVE-GP, with
    n rows and the symmetry of ``A^T A`` used,
    ``M^3 / 3 + M^2 M2 + M M2^2 + M2^3 / 3 + (3 M^2 + 2 M M2 + 3 M2^2) n``,
    which is ``8 M^3 / 3 + 8 M^2 n`` at M2 = M. A product of ``[m, k]`` and ``[k, n]`` counts
    2 m k n operations, a triangular solve m^2 n, the factors of q as if they were full.

    :param sizes: ``(M,)`` for SVGP, ``(M, M2)`` for SOLVE-GP.
    """
    M, M2 = (*sizes, 0)[:2]
    prior = M**3 / 3 + M**2 * M2 + M * M2**2 + M2**3 / 3
    return 3.0 * (prior + (3 * M**2 + 2 * M * M2 + 3 * M2**2) * batch_size)


def _peer_step(
    Z: np.ndarray, O: np.ndarray, X: tf.Tensor, Y: tf.Tensor
) -> dict[str, Callable[[], Any]]:
    """GPyTorch's step by its title, or nothing and a note."""
    title = f"GPyTorch decoupled({len(Z)}+{len(O)}), mean only"
    if "CPU" not in X.device:
        print(f"left out: {title}, which is timed on the CPU only", file=sys.stderr)
        return {}
    try:
        step = gpytorch_decoupled_step(
            Z, O, X.numpy(), Y.numpy(), num_data=_NUM_DATA, dtype=X.dtype
        )
    except ImportError as error:
        print(f"left out: {title} ({error})", file=sys.stderr)
        return {}
    return {title: step}


def _kernel(input_dim: int) -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=np.ones(input_dim))


def _ours(kind: type[OrthogonalModel], *sets: np.ndarray) -> OrthogonalModel:
    return kind(
        _kernel(sets[0].shape[1]),
        gpflow.likelihoods.Gaussian(0.1),
        OrthogonalInducingVariables(*sets),
        num_data=_NUM_DATA,
    )


def value_and_gradient(model: gpflow.models.GPModel, data: Any) -> Callable[[], Any]:
    """A compiled function: the loss on this batch, and its gradient to all that is trainable."""
    variables = model.trainable_variables

    @tf.function(autograph=False)
    def step() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = model.training_loss(data)
        return loss, tape.gradient(loss, variables)

    return step


def alternate(steps: list[Callable[[], Any]], repeats: int) -> list[float]:
    """Median seconds of each, run in turn; three rounds are not counted."""
    seconds: list[list[float]] = [[] for _ in steps]
    for round_number in range(repeats + 3):
        for step, taken in zip(steps, seconds, strict=True):
            start = time.perf_counter()
            tf.nest.map_structure(lambda tensor: tensor.numpy(), step())
            if round_number >= 3:
                taken.append(time.perf_counter() - start)
    return [float(np.median(taken)) for taken in seconds]


def adam_step(
    model: gpflow.models.SVGP, rows: tuple[tf.Tensor, tf.Tensor], batch_size: int
) -> Callable[[], Any]:
    """A compiled training step on a random batch: value, gradient, and Adam on all parameters."""
    optimizer, variables = adam(), model.trainable_variables
    optimizer.build(variables)

    def step() -> tf.Tensor:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = model.training_loss(random_rows(rows, batch_size))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    return compiled(step)


def compiled(step: Callable[[], Any]) -> Callable[[], Any]:
    """Traced now: TensorFlow warns of functions that are traced one after the other in calls."""
    function = tf.function(step, autograph=False)
    # the function holds what the step needs
    return functools.partial(lambda _, traced: traced(), function, function.get_concrete_function())


def random_rows(rows: tuple[tf.Tensor, tf.Tensor], size: int) -> tuple[tf.Tensor, tf.Tensor]:
    """So many of the rows ``(X, Y)``, with repetition."""
    X, Y = rows
    chosen = tf.random.uniform([size], maxval=len(X), dtype=tf.int32)
    return tf.gather(X, chosen), tf.gather(Y, chosen)
