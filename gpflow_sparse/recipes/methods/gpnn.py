"""Nearest-neighbor GPs on tables."""

import math
from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.recipes import options
from gpflow_sparse.recipes.base import Recipe, option
from gpflow_sparse.recipes.untrained import evaluate_once

# Entries of the covariances of a block of rows with their neighbors.
_BLOCK = 2**22


@dataclass(frozen=True)
class GPnn(Recipe):
    """Options of nearest neighbors, :class:`gpflow_sparse.models.NearestNeighborGP`."""

    name = "gpnn"
    title = "GPnn"
    idea = (
        "an exact GP on the nearest training rows of each predicted row; hyperparameters of local "
        "subsets"
    )
    for_classes = "dirichlet_gpnn"
    is_trained = False
    by_minibatches = False
    improves_start = True
    min_noise = 0.0

    kernel: str = options.kernel("auto")
    ard: bool = options.ard()
    metric: str = options.metric()
    num_subset: int = options.num_subset()
    num_neighbors: int = option(
        128, "Nearest training rows from which a row is predicted.", least=1
    )

    @classmethod
    def suits(cls, task: Any) -> str:
        if not task.is_long:
            return f"a table of at most {task.few_rows} rows has an exact GP of all rows"
        return ""

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        noise_variance = likelihood.variance.numpy()
        given = {"num_neighbors": self.num_neighbors, "noise_variance": noise_variance, **given}
        return gs.models.NearestNeighborGP(data, kernel, **given)

    def train(self, model: Any, rows: Any, *, until: float = math.inf, **options: Any) -> Any:
        return evaluate_once(model)

    def num_elements(self, num_rows: int, input_dim: int, num_latent_gps: int) -> int:
        """Data, and eight times the covariances of a block of rows."""
        return num_rows * (input_dim + 1) + 8 * _BLOCK
