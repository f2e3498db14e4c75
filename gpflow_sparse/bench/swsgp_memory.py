"""What a process grows by when it trains SWSGP; no TensorFlow until one has been started."""

from dataclasses import dataclass
from typing import Any

from gpflow_sparse.bench.qsgp_memory import in_own_process, megabytes
from gpflow_sparse.runs.session import session


@dataclass(frozen=True)
class NeighborMemory:
    """In units of 2^20 bytes, above a process that has loaded TensorFlow and the rows."""

    num_inducing: int
    """M."""
    num_neighbors: int
    """H."""
    held: float
    """Inducing points, means, scales, and the optimizer's memory of both."""
    grown: float
    """Resident memory after the steps."""
    peak: float
    """The most on the way: model, search for all rows, tracing and steps."""


def neighbor_memory(
    *,
    num_inducing: int = 100_000,
    num_neighbors: int = 100,
    batch_size: int = 64,
    input_dim: int = 8,
    float32: bool,
    surface: bool = False,
    num_steps: int = 20,
) -> NeighborMemory:
    """
    Make a model with a diagonal covariance and take steps in a process of their own.

    :raises ValueError: where the system does not say how much memory a process has.
    """
    return in_own_process(
        _measure, num_inducing, num_neighbors, batch_size, input_dim, float32, surface, num_steps
    )


def _measure(
    num_inducing: int,
    num_neighbors: int,
    batch_size: int,
    input_dim: int,
    float32: bool,
    surface: bool,
    num_steps: int,
) -> NeighborMemory:
    with session(float32, None):
        import gpflow
        import tensorflow as tf

        from gpflow_sparse.bench.swsgp_steps import made_rows, swsgp_step

        kind: Any = gpflow.default_float()
        X, Y = made_rows(10_000, input_dim, surface, 0)
        rows = tf.constant(X, kind), tf.constant(Y, kind)
        Z = made_rows(num_inducing, input_dim, surface, 1)[0].astype(kind)
        before = megabytes("VmRSS")
        step = swsgp_step(Z, num_neighbors, rows, batch_size)
        for _ in range(num_steps):
            step()
        # two numbers of q a point, and for each two moments and a count
        held = num_inducing * (input_dim + 8.0) * rows[0].dtype.size / 2**20
        grown, peak = megabytes("VmRSS") - before, megabytes("VmHWM") - before
        return NeighborMemory(num_inducing, num_neighbors, held, grown, peak)
