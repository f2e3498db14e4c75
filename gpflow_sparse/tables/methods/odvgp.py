"""ODVGP on tables."""

from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options
from gpflow_sparse.tables.methods.base import option
from gpflow_sparse.tables.methods.rows import variational
from gpflow_sparse.tables.methods.steps import NaturalSteps


@dataclass(frozen=True)
class ODVGP(NaturalSteps, options.Points):
    """Options of the orthogonally decoupled GP, :class:`gpflow_sparse.models.ODVGP`."""

    name = "odvgp"
    title = "ODVGP"
    idea = "orthogonally decoupled: M points for mean and covariance, M2 more for the mean alone"
    takes_weights = True
    least_orthogonal = 1

    num_orthogonal: int = options.num_orthogonal()
    num_penalty_samples: int = option(
        256, "Columns of the penalty drawn in a step; 0 for all.", least=0
    )
    bound: str = options.bound()
    whiten: bool = options.whiten()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_orthogonal == 0:
            raise ValueError("num_orthogonal must be positive for odvgp; 0 makes it an SVGP.")

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        sets = self.take_sets(given, data[0], kernel)
        if not len(sets[1]):
            # All distinct rows are in the base set. ODVGP needs another point, and one far from
            # them changes nothing there.
            sets = sets[0], sets[0].max(axis=0, keepdims=True) + 1.0
        variables = gs.inducing_variables.OrthogonalInducingVariables(*sets)
        num_penalty_samples = min(self.num_penalty_samples, sum(variables.sizes[1:])) or None
        given = {
            "whiten": self.whiten,
            "bound": self.bound,
            "num_penalty_samples": num_penalty_samples,
            **given,
        }
        given = variational(likelihood, data, **given)
        return gs.models.ODVGP(kernel, likelihood, variables, **given)
