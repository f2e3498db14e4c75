"""Exact regression by dual blocks on tables."""

import math
from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.recipes import options
from gpflow_sparse.recipes.base import Recipe
from gpflow_sparse.recipes.rows import EXACT_SUBSET

# Draws of the posterior, and elements of a block of their cosines and of covariances.
_DRAWS, _BLOCK = 64, 62_500_000


@dataclass(frozen=True)
class Dual(Recipe):
    """Options of dual blocks, :class:`gpflow_sparse.models.DualGPR`."""

    name = "dual"
    title = "Exact GP by dual blocks"
    idea = (
        "exact regression for tens of thousands of rows, by block Gauss-Seidel on the weights of "
        "all rows"
    )
    for_classes = "solvegp"
    by_minibatches = False
    least_subset = EXACT_SUBSET
    min_noise = 0.0

    kernel: str = options.kernel()
    ard: bool = options.ard()
    num_subset: int = options.num_subset()
    num_steps: int = options.num_steps(10, "Steps on hyperparameters before the passes.")
    learning_rate: float = options.learning_rate(0.1)

    def baseline_options(self) -> dict[str, Any]:
        """The shared options, without the learning rate and the number of these few steps."""
        shared = super().baseline_options()
        return {n: v for n, v in shared.items() if n not in ("num_steps", "learning_rate")}

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        noise_variance = likelihood.variance.numpy()
        given = {"seed": self.seed, "noise_variance": noise_variance, **given}
        return gs.models.DualGPR(data, kernel, **given)

    def train(self, model: Any, rows: Any, *, until: float = math.inf, **options: Any) -> Any:
        """Steps on hyperparameters, then passes over the weights, each an entry of the history."""
        from gpflow_sparse.recipes.methods.dual_solving import solve

        names = ("checkpoint_dir", "resume", "progress")
        given = {name: options[name] for name in names if name in options}
        steps = {n: getattr(self, n) for n in ("num_steps", "learning_rate", "seed")}
        return solve(model, **steps, **given)

    def num_elements(self, num_rows: int, input_dim: int, num_latent_gps: int) -> int:
        """Eight for each draw and row, and blocks of the draws' cosines and of covariances."""
        return num_rows * (8 * _DRAWS * num_latent_gps + 4 * input_dim) + _BLOCK
