"""What a training step of SWSGP costs, beside GPflow's SVGP and GPyTorch's nearest neighbors."""

import functools
import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.bench.peers import gpytorch_neighbor_step
from gpflow_sparse.bench.steps import adam_step, alternate
from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.models import SWSGP
from gpflow_sparse.training import SparseAdam
from gpflow_sparse.training.ahead import Ahead
from gpflow_sparse.training.feed import data_guard, open_feed

OURS, DENSE, SVGP, PEER = "SWSGP", "SWSGP, dense", "GPflow SVGP", "GPyTorch nearest neighbors"
REMEMBERED = "SWSGP, neighbors remembered"

# M and H of what is timed.
_DIAGONAL = ((1000, 100), (100_000, 100), (1000, 16), (10_000, 16), (100_000, 16))
_MOST = 100_000
_DENSE, _SVGP = (1024, 4), 1024
# Steps that are taken one after the other: neighbors are found a step ahead.
_TOGETHER = 5
# Rows that batches are drawn from.
_NUM_DATA = 10_000
_SURFACE = 3

Rows = tuple[tf.Tensor, tf.Tensor]


@dataclass(frozen=True)
class NeighborStep:
    """Median wall time of a whole training step: batch, neighbors, gradient, update."""

    title: str
    num_inducing: int
    """M."""
    num_neighbors: int | None
    """H; None where every row sees all points."""
    milliseconds: float

    @property
    def name(self) -> str:
        """Title and sizes."""
        seen = "" if self.num_neighbors is None else f", H = {self.num_neighbors}"
        return f"{self.title}({self.num_inducing}{seen})"


def swsgp_steps(
    *,
    batch_size: int = 64,
    input_dim: int = 8,
    repeats: int = 20,
    surface: bool = False,
    seed: int = 0,
) -> list[NeighborStep]:
    """
    Alternate the steps of all models in one process.

    SWSGP has fixed points, the default weighting, everything else trained by SparseAdam. Neighbors
    are found in a thread, for a step while the one before it is taken, and are all waited for; or
    all rows have been seen before and are remembered, as GPyTorch keeps them. Beside it GPflow's
    SVGP, whitened with a dense covariance, all its parameters by Adam; and, where GPyTorch is
    installed and TensorFlow runs on the CPU, its ``NNVariationalStrategy`` with the same M and H.
    Squared exponential with one lengthscale per column, Gaussian noise. Five steps of a model are
    taken together.

    :param repeats: timed rounds, after three that are not.
    :param surface: inputs near a surface of 3 dimensions, not normal in all columns.
    """
    X, Y = made_rows(_NUM_DATA, input_dim, surface, seed)
    rows = tf.constant(X, gpflow.default_float()), tf.constant(Y, gpflow.default_float())
    most = max(_SVGP, _DENSE[0], *(M for M, _ in _DIAGONAL))
    Z, targets = made_rows(most, input_dim, surface, seed + 1)
    steps: dict[tuple[str, int, int | None], Callable[[], Any]] = {}
    for M, H in _DIAGONAL:
        steps[OURS, M, H] = swsgp_step(Z[:M], H, rows, batch_size)
    for M, H in (sizes for sizes in _DIAGONAL if sizes[0] == _MOST):
        made = swsgp_step(Z[:M], H, rows, batch_size, num_remembered=len(X))
        steps[REMEMBERED, M, H] = made
    M, H = _DENSE
    steps[DENSE, M, H] = swsgp_step(Z[:M], H, rows, batch_size, covariance="dense")
    svgp = gpflow.models.SVGP(
        _kernel(input_dim), gpflow.likelihoods.Gaussian(0.1), Z[:_SVGP], num_data=len(X)
    )
    steps[SVGP, _SVGP, None] = adam_step(svgp, rows, batch_size)
    steps |= _peer_steps(Z, targets, batch_size, rows[0])
    runs = [
        step if key[0] in (OURS, REMEMBERED, DENSE) else functools.partial(_several, step)
        for key, step in steps.items()
    ]
    each = [1e3 * value / _TOGETHER for value in alternate(runs, repeats)]
    return [NeighborStep(*key, value) for key, value in zip(steps, each, strict=True)]


def swsgp_step(
    Z: np.ndarray,
    num_neighbors: int,
    rows: Rows,
    batch_size: int,
    *,
    covariance: str = "diag",
    num_remembered: int = 0,
) -> Callable[[], Any]:
    """Several steps on batches of these rows, as `training.fit` takes them."""
    model = SWSGP(
        _kernel(Z.shape[1]),
        gpflow.likelihoods.Gaussian(0.1),
        NeighborInducingPoints(
            Z.astype(gpflow.default_float()), num_neighbors, num_remembered=num_remembered
        ),
        covariance=covariance,
        num_data=len(rows[0]),
    )
    model.update_neighbors(rows[0])
    optimizer = SparseAdam()
    optimizer.build(model.long_variables, model.small_variables)
    feed = open_feed(rows, batch_size, 0, data_guard(model))
    ahead, numbers = Ahead.of(model, feed), itertools.count()
    step = tf.function(lambda *at: model.sparse_step(feed.lookup(*at), optimizer), autograph=False)

    def run() -> Any:
        for number in itertools.islice(numbers, _TOGETHER):
            if ahead is not None:
                ahead.begin(number + 1)
            found = step(*feed.at(number))
        if ahead is not None:
            ahead.wait()
        return found

    return run


def step_ratios(steps: Sequence[NeighborStep]) -> dict[str, float]:
    """Of the times that are to be compared, by what is compared."""
    found = {}
    ours = [step for step in steps if step.title == OURS]
    for H in sorted({step.num_neighbors or 0 for step in ours}):
        same = sorted((s.num_inducing, s.milliseconds) for s in ours if s.num_neighbors == H)
        (few, least), (many, most) = same[0], same[-1]
        found[f"{OURS}, H = {H}: M = {many} over M = {few}"] = most / least
    others = [step for step in steps if step.title in (SVGP, PEER)]
    for step in steps:
        for other in others:
            alike = other.name.removeprefix(PEER) == step.name.removeprefix(step.title)
            if step.title in (OURS, REMEMBERED, DENSE) and (other.title == SVGP or alike):
                found[f"{step.name} over {other.name}"] = step.milliseconds / other.milliseconds
    return found


def made_rows(
    num_rows: int, input_dim: int, surface: bool, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """
    Normal inputs ``[N, D]``, and a wave with noise ``[N, 1]``.

    :param surface: bend three normal columns into all, with a little noise; the surface does not
        depend on the seed.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(num_rows, input_dim))
    if surface:
        bend = np.random.default_rng(0).normal(size=(_SURFACE, input_dim))
        X = np.sin(rng.normal(size=(num_rows, _SURFACE)) @ bend) + 0.01 * X
    return X, np.sin(X[:, :1]) + 0.1 * rng.normal(size=(num_rows, 1))


def _several(step: Callable[[], Any]) -> Any:
    return [step() for _ in range(_TOGETHER)][-1]


def _peer_steps(
    Z: np.ndarray, Y: np.ndarray, batch_size: int, X: tf.Tensor
) -> dict[tuple[str, int, int | None], Callable[[], Any]]:
    """GPyTorch's steps, or none and a note."""
    if "CPU" not in X.device:
        print(f"left out: {PEER}, which is timed on the CPU only", file=sys.stderr)
        return {}
    steps: dict[tuple[str, int, int | None], Callable[[], Any]] = {}
    for M, H in _DIAGONAL:
        try:
            step = gpytorch_neighbor_step(
                Z[:M], Y[:M], num_neighbors=H, batch_size=batch_size, dtype=X.dtype
            )
        except ImportError as error:
            print(f"left out: {PEER} ({error})", file=sys.stderr)
            return {}
        steps[PEER, M, H] = step
    return steps


def _kernel(input_dim: int) -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=np.full(input_dim, input_dim**0.5))
