"""What one training step costs, against GPflow's SVGP on the same batch."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.experiments.config import METHODS
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.models import SOLVEGP


@dataclass(frozen=True)
class StepTime:
    """Median wall time of one compiled value and gradient of all parameters."""

    title: str
    milliseconds: float
    ratio: float
    """To GPflow's SVGP with as many inducing points."""


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
    Alternate the steps of three models on one batch in one process.

    The models: the method; GPflow's SVGP with all M + M2 points in one set; the same SVGP on this
    package's factorization, which shows what is the method's and what is ours. Whitened, squared
    exponential with one lengthscale per column, Gaussian noise, all parameters trainable.

    :param repeats: timed rounds, after three that are not.
    :return: one row per model, and the measured matmul rate in GFLOP/s (square, M + M2, same
        precision).
    :raises ValueError: for a method without such a step.
    """
    if method != "solvegp":
        raise ValueError(f"method must be solvegp, got {method!r}; known: {', '.join(METHODS)}.")
    rng = np.random.default_rng(seed)
    float_type = gpflow.default_float()
    X = rng.normal(size=(batch_size, input_dim))
    Y = rng.normal(size=(batch_size, 1))
    points = rng.normal(size=(num_inducing + num_orthogonal, input_dim))
    sets = np.split(points, [num_inducing])
    total = num_inducing + num_orthogonal
    models = {
        f"SOLVE-GP({num_inducing}+{num_orthogonal})": _solvegp(*sets),
        f"GPflow SVGP({total})": gpflow.models.SVGP(
            _kernel(input_dim), gpflow.likelihoods.Gaussian(0.1), points, num_data=100_000
        ),
        f"SVGP({total}) on our factorization": _solvegp(points),
    }
    steps = [
        _compiled_step(model, (tf.constant(X, float_type), tf.constant(Y, float_type)))
        for model in models.values()
    ]
    times = _alternate(steps, repeats)
    matrix = tf.constant(rng.normal(size=(total, total)), float_type)
    (matmul,) = _alternate([tf.function(lambda: tf.linalg.matmul(matrix, matrix))], repeats)
    rows = [
        StepTime(title, 1e3 * seconds, seconds / times[1])
        for title, seconds in zip(models, times, strict=True)
    ]
    return rows, 2.0 * total**3 / matmul / 1e9


def _kernel(input_dim: int) -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=np.ones(input_dim))


def _solvegp(*sets: np.ndarray) -> SOLVEGP:
    return SOLVEGP(
        _kernel(sets[0].shape[1]),
        gpflow.likelihoods.Gaussian(0.1),
        OrthogonalInducingVariables(*sets),
        num_data=100_000,
    )


def _compiled_step(model: gpflow.models.GPModel, data: Any) -> Callable[[], Any]:
    variables = model.trainable_variables

    @tf.function(autograph=False)
    def step() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = model.training_loss(data)
        return loss, tape.gradient(loss, variables)

    return step


def _alternate(steps: list[Callable[[], Any]], repeats: int) -> list[float]:
    seconds: list[list[float]] = [[] for _ in steps]
    for round_number in range(repeats + 3):
        for step, taken in zip(steps, seconds, strict=True):
            start = time.perf_counter()
            tf.nest.map_structure(lambda tensor: tensor.numpy(), step())
            if round_number >= 3:
                taken.append(time.perf_counter() - start)
    return [float(np.median(taken)) for taken in seconds]
