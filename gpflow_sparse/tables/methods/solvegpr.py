"""SOLVE-GP regression with a collapsed bound on tables."""

from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options
from gpflow_sparse.tables.methods.base import Recipe, option
from gpflow_sparse.tables.methods.rows import choose_points


@dataclass(frozen=True)
class SolveGPR(Recipe):
    """Options of the collapsed bound, :class:`gpflow_sparse.models.SOLVEGPR`."""

    name = "solvegpr"
    title = "SOLVE-GP regression"
    idea = "SOLVE-GP with the best q in closed form: all rows in every step, Gaussian noise"
    for_classes = "solvegp"
    holds_data = True

    kernel: str = options.kernel()
    ard: bool = options.ard()
    num_subset: int = options.num_subset()
    num_inducing: int = options.num_inducing()
    num_orthogonal: int = options.num_orthogonal()
    bound: str = option(
        "standard",
        "The objective; log is tighter at the same cost, block tighter still.",
        choices=["standard", "log", "block"],
    )
    initialization: str = options.initialization()
    num_steps: int = options.num_steps()
    learning_rate: float = options.learning_rate()
    schedule: str = options.schedule()

    def build(
        self, data: Any, kernel: Any, likelihood: Any, *, sets: Any = None, **given: Any
    ) -> Any:
        sets = sets or choose_points(self, data[0], kernel, *self.sizes)
        variables = gs.inducing_variables.OrthogonalInducingVariables(*sets)
        noise_variance = likelihood.variance.numpy()
        given = {"noise_variance": noise_variance, "bound": self.bound, **given}
        return gs.models.SOLVEGPR(data, kernel, variables, **given)
