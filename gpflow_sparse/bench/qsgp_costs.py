"""What a step of QSGP costs, against the numbers of functions and of rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.bases import RandomFourier
from gpflow_sparse.bench.papers.tables import grid
from gpflow_sparse.bench.qsgp_sizes import StepMemory, StepSizes
from gpflow_sparse.bench.steps import adam_step, alternate, compiled, random_rows
from gpflow_sparse.models import QSGP
from gpflow_sparse.persistence import files
from gpflow_sparse.training import SparseAdagrad

# Where only one of the two sizes varies, the other stays here.
_NUM_BASIS, _NUM_DATA = 100_000, 100_000
_OWN = "QSGP"


@dataclass(frozen=True)
class StepCost:
    """Median wall time of a whole training step: batch, draws, gradient, update."""

    title: str
    num_basis: int | None
    """m; None where all functions are in every step."""
    num_data: int
    """N."""
    milliseconds: float


def step_costs(
    num_basis: Sequence[int],
    num_data: Sequence[int],
    sizes: StepSizes,
    *,
    repeats: int = 20,
    seed: int = 0,
) -> list[StepCost]:
    """
    Alternate the steps of all models in one process.

    Random Fourier features of a squared exponential with one lengthscale per column, Gaussian
    noise, "diag", "anchored", Adagrad; hyperparameters fixed, and once more learned. For scale
    GPflow's SVGP on as many rows, all its parameters by Adam.

    :param num_basis: values of m, at N = 100,000.
    :param num_data: values of N, at m = 100,000.
    :param repeats: timed rounds, after three that are not.
    """
    grid = dict.fromkeys([(m, _NUM_DATA) for m in num_basis] + [(_NUM_BASIS, N) for N in num_data])
    rows: dict[int, tuple[tf.Tensor, tf.Tensor]] = {
        N: made_rows(sizes.input_dim, N, seed) for N in {N for _, N in grid} | {_NUM_DATA}
    }
    steps: dict[tuple[str, int | None, int], Callable[[], Any]] = {
        (_OWN, m, N): qsgp_step(m, rows[N], sizes) for m, N in grid
    }
    steps[f"{_OWN}, hyperparameters learned", _NUM_BASIS, _NUM_DATA] = qsgp_step(
        _NUM_BASIS, rows[_NUM_DATA], sizes, learned=True
    )
    model = _svgp(rows[_NUM_DATA], sizes)
    svgp = adam_step(model, rows[_NUM_DATA], sizes.batch_size)
    steps[f"GPflow SVGP({sizes.num_inducing})", None, _NUM_DATA] = svgp
    seconds = alternate(list(steps.values()), repeats)
    return [StepCost(*key, 1e3 * value) for key, value in zip(steps, seconds, strict=True)]


def qsgp_step(
    num_basis: int, data: tuple[tf.Tensor, tf.Tensor], sizes: StepSizes, *, learned: bool = False
) -> Callable[[], Any]:
    """A compiled step on a random batch of these rows."""
    X, Y = data
    kernel = _kernel(sizes.input_dim)
    gpflow.utilities.set_trainable(kernel, learned)
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    gpflow.utilities.set_trainable(likelihood, learned)
    model = QSGP(
        RandomFourier(kernel, num_basis),
        likelihood,
        num_data=len(X),
        basis_batch_size=min(sizes.basis_batch_size, num_basis),
        support=X[: sizes.num_support],
    )
    optimizer = SparseAdagrad(0.1)
    model.prepare_step(0, lambda: (X[: sizes.num_support], Y[: sizes.num_support]))
    optimizer.build(model.long_variables, model.small_variables)
    return compiled(lambda: model.sparse_step(random_rows(data, sizes.batch_size), optimizer))


def cost_table(
    costs: Sequence[StepCost], memory: Sequence[StepMemory]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows."""
    header = ("model", "m", "N", "ms per step", "MB of weights and accumulators", "MB of the rest")
    grown = {row.num_basis: row for row in memory}
    rows: list[tuple[str, ...]] = []
    for cost in costs:
        known = grown.get(cost.num_basis or 0) if cost.title == _OWN else None
        cells = (f"{known.held:.0f}", f"{known.peak - known.held:.0f}") if known else ("", "")
        size = "" if cost.num_basis is None else str(cost.num_basis)
        rows.append((cost.title, size, str(cost.num_data), f"{cost.milliseconds:.1f}", *cells))
    return header, rows


def write_costs(folder: Path, costs: Sequence[StepCost], memory: Sequence[StepMemory]) -> None:
    """
    Write the table, ``step-qsgp.md``, and a picture of the times, ``step-qsgp.png``.

    :raises ValueError: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError(
            'drawing needs matplotlib: python -m pip install "gpflow_sparse[plot]".'
        ) from error
    folder.mkdir(parents=True, exist_ok=True)
    files.write_text(folder / "step-qsgp.md", grid(*cost_table(costs, memory)) + "\n")
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    own = [cost for cost in costs if cost.title == _OWN]
    (svgp,) = (cost for cost in costs if cost.num_basis is None)
    at_one_n = [cost for cost in own if cost.num_data == _NUM_DATA]
    at_one_m = [cost for cost in own if cost.num_basis == _NUM_BASIS]
    series = (
        (f"functions m, at N = {_NUM_DATA}", "num_basis", at_one_n),
        (f"rows N, at m = {_NUM_BASIS}", "num_data", at_one_m),
    )
    for axis, (label, size, shown) in zip(axes, series, strict=True):
        points = sorted((getattr(cost, size), cost.milliseconds) for cost in shown)
        axis.plot(*zip(*points, strict=True), "o-", label=_OWN)
        axis.axhline(svgp.milliseconds, color="0.5", ls="--", label=svgp.title)
        axis.set(xscale="log", xlabel=label)
    axes[0].set_ylim(0.0, 1.1 * max(cost.milliseconds for cost in [*own, svgp]))
    axes[0].set_ylabel("ms per step")
    axes[0].legend()
    figure.savefig(folder / "step-qsgp.png", dpi=130)


def _svgp(rows: tuple[tf.Tensor, tf.Tensor], sizes: StepSizes) -> gpflow.models.SVGP:
    Z = rows[0][: sizes.num_inducing].numpy()
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    return gpflow.models.SVGP(_kernel(sizes.input_dim), likelihood, Z, num_data=len(rows[0]))


def _kernel(input_dim: int) -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=np.full(input_dim, input_dim**0.5))


def made_rows(
    input_dim: int, num_rows: int = _NUM_DATA, seed: int = 0
) -> tuple[tf.Tensor, tf.Tensor]:
    """Normal inputs, and a wave with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(num_rows, input_dim))
    Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(num_rows, 1))
    return tf.constant(X, gpflow.default_float()), tf.constant(Y, gpflow.default_float())
