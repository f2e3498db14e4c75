"""What a training step of SoftKI costs, beside GPflow's models on the same batch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.bench.steps import alternate
from gpflow_sparse.models import SoftKI

_NUM_DATA = 100_000


@dataclass(frozen=True)
class SoftKIStep:
    """Median wall time of one compiled value and gradient of all parameters."""

    title: str
    milliseconds: float
    ratio: float
    """To GPflow's SGPR on the same rows with as many inducing points."""


def softki_steps(
    *,
    num_inducing: int = 512,
    batch_size: int = 1024,
    input_dim: int = 10,
    repeats: int = 20,
    seed: int = 0,
) -> list[SoftKIStep]:
    """
    Alternate the steps of several models on one batch in one process.

    The models: SoftKI by its exact objective; by its pseudo-loss with ten probes, drawn in every
    step; GPflow's SGPR whose data are the batch; and GPflow's SVGP. All have the same m points,
    squared exponential with one lengthscale per column, noise variance 0.1; all parameters are
    trainable, SoftKI's temperature, which is tied, with them.

    :param repeats: timed rounds, after three that are not.
    """
    rng = np.random.default_rng(seed)
    X, Z = (rng.normal(size=(n, input_dim)) for n in (batch_size, num_inducing))
    Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(batch_size, 1))
    data = (tf.constant(X, gpflow.default_float()), tf.constant(Y, gpflow.default_float()))
    steps = {
        f"SoftKI({num_inducing})": _step(_softki(Z, "exact"), data),
        f"SoftKI({num_inducing}), pseudo-loss": _step(_softki(Z, "pseudo"), data),
        f"GPflow SGPR({num_inducing})": _step(_sgpr(Z, data)),
        f"GPflow SVGP({num_inducing})": _step(_svgp(Z), data),
    }
    seconds = alternate(list(steps.values()), repeats)
    return [
        SoftKIStep(title, 1e3 * value, value / seconds[2])
        for title, value in zip(steps, seconds, strict=True)
    ]


def _softki(Z: np.ndarray, objective: str) -> SoftKI:
    return SoftKI(
        _kernel(Z.shape[1]),
        Z,
        noise_variance=0.1,
        temperature=0.3,
        tied=True,
        objective=objective,
        num_data=_NUM_DATA,
    )


def _sgpr(Z: np.ndarray, data: tuple[tf.Tensor, tf.Tensor]) -> gpflow.models.SGPR:
    return gpflow.models.SGPR(data, _kernel(Z.shape[1]), Z, noise_variance=0.1)


def _svgp(Z: np.ndarray) -> gpflow.models.SVGP:
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    return gpflow.models.SVGP(_kernel(Z.shape[1]), likelihood, Z, num_data=_NUM_DATA)


def _kernel(input_dim: int) -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=np.full(input_dim, input_dim**0.5))


def _step(model: gpflow.models.GPModel, *data: tuple[tf.Tensor, tf.Tensor]) -> Callable[[], Any]:
    variables = model.trainable_variables

    @tf.function(autograph=False)
    def step() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = model.training_loss(*data)
        return loss, tape.gradient(loss, variables)

    return step
