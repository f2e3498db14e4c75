"""GPflow's exact regression on tables."""

from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options
from gpflow_sparse.tables.methods.base import option
from gpflow_sparse.tables.methods.mixture import Mixture
from gpflow_sparse.tables.methods.rows import EXACT_SUBSET

MAX_ROWS = 10_000
"""Rows of the largest exact GP: its covariance takes 8 N^2 bytes, its factor N^3 / 3 operations."""


@dataclass(frozen=True)
class Exact(options.KnownNoise, options.ComparedKernel):
    """Options of exact regression, :class:`gpflow.models.GPR`."""

    name = "exact"
    title = "Exact GP"
    idea = "GPflow's exact regression, for at most 10,000 rows"
    for_classes = "solvegp"

    ard: bool = option(
        True,
        "One lengthscale per input column, or one for all; with at most 1,000 rows the more "
        "probable of the two, or one for all.",
    )
    num_subset: int = EXACT_SUBSET

    @classmethod
    def reason_against(cls, task: Any) -> str:
        if task.is_long or not task.is_gaussian:
            return f"it is tried on at most {task.few_rows} rows with Gaussian noise"
        return "" if Mixture.reason_against(task) else "a mixture of exact GPs is"

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        import gpflow

        if len(data[0]) > MAX_ROWS:
            raise ValueError(
                f"method exact takes at most {MAX_ROWS} rows, got {len(data[0])}; take gpnn or "
                "auto."
            )
        X, Y = map(gpflow.utilities.to_default_float, data)
        noise_variance = likelihood.variance.numpy()
        if given.keys() & {"row_weights", "known_variance"}:
            # GPR has one noise variance for all rows; a mixture of one kernel is the same model
            return gs.models.GPMixture((X, Y), [kernel], noise_variance=noise_variance, **given)
        return gpflow.models.GPR((X, Y), kernel, noise_variance=noise_variance, **given)
