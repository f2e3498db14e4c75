"""GPflow's exact regression on tables."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options
from gpflow_sparse.tables.methods.base import Recipe, option
from gpflow_sparse.tables.methods.rows import EXACT_SUBSET
from gpflow_sparse.tables.methods.untrained import evaluate_once

MAX_ROWS = 10_000
"""Rows of the largest exact GP: its covariance takes 8 N^2 bytes, its factor N^3 / 3 operations."""
# Fraction of the time left in which hyperparameters are fitted to more rows.
_FRACTION = 0.6


@dataclass(frozen=True)
class Exact(Recipe):
    """Options of exact regression, :class:`gpflow.models.GPR`."""

    name = "exact"
    title = "Exact GP"
    idea = "GPflow's exact regression, for at most 10,000 rows"
    takes_weights = True
    for_classes = "solvegp"
    is_trained = False
    by_minibatches = False
    least_subset = EXACT_SUBSET
    compares_ard = True
    min_noise = 0.0

    kernel: str = options.kernel("auto")
    ard: bool = option(
        True,
        "One lengthscale per input column, or one for all; with at most 1,000 rows the more "
        "probable of the two, or one for all.",
    )
    metric: str = options.metric()
    num_subset: int = options.num_subset()

    @classmethod
    def suits(cls, task: Any) -> str:
        if task.num_rows > MAX_ROWS:
            return f"it takes at most {MAX_ROWS} rows"
        return ""

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        import gpflow

        if len(data[0]) > MAX_ROWS:
            raise ValueError(
                f"method exact takes at most {MAX_ROWS} rows, got {len(data[0])}; take gpnn or "
                "auto."
            )
        X, Y = map(gpflow.utilities.to_default_float, data)
        noise_variance = likelihood.variance.numpy()
        if "row_weights" in given:
            # GPR has one noise variance for all rows; a mixture of one kernel is the same model
            return gs.models.GPMixture((X, Y), [kernel], noise_variance=noise_variance, **given)
        return gpflow.models.GPR((X, Y), kernel, noise_variance=noise_variance, **given)

    def train(self, model: Any, rows: Any, *, until: float = math.inf, **options: Any) -> Any:
        return evaluate_once(model)

    def more_rows(self, num_rows: int, seconds: float, start_seconds: float) -> tuple["Exact", str]:
        if not start_seconds:  # no hyperparameters were fitted
            return self, ""
        # the time grows as the cube of the rows; the factors of all rows and the scores need some
        growth = (_FRACTION * max(0.0, seconds) / start_seconds) ** (1 / 3)
        subset = min(int(EXACT_SUBSET * growth), num_rows)
        if subset <= EXACT_SUBSET:
            return self, ""
        found = dataclasses.replace(self, num_subset=subset)
        return found, f" Its hyperparameters are fitted to {subset} rows."

    def num_elements(self, num_rows: int, input_dim: int, num_latent_gps: int) -> int:
        """Three matrices N x N; seven for rows with weights, which are a mixture of one kernel."""
        return 5 * num_rows**2
