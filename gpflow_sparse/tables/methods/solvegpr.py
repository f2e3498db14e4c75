"""SOLVE-GP regression with a collapsed bound on tables."""

from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options
from gpflow_sparse.tables.methods.base import option
from gpflow_sparse.tables.methods.steps import Steps


@dataclass(frozen=True)
class SolveGPR(options.KnownNoise, Steps, options.Points):
    """Options of the collapsed bound, :class:`gpflow_sparse.models.SOLVEGPR`."""

    name = "solvegpr"
    title = "SOLVE-GP regression"
    idea = "SOLVE-GP with the best q in closed form: all rows in every step, Gaussian noise"
    for_classes = "solvegp"
    holds_data = True

    num_orthogonal: int = options.num_orthogonal()
    bound: str = option(
        "standard",
        "The objective; log is tighter at the same cost, block tighter still.",
        choices=["standard", "log", "block"],
    )

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        sets = self.take_sets(given, data[0], kernel)
        variables = gs.inducing_variables.OrthogonalInducingVariables(*sets)
        noise_variance = likelihood.variance.numpy()
        given = {"noise_variance": noise_variance, "bound": self.bound, **given}
        return gs.models.SOLVEGPR(data, kernel, variables, **given)
