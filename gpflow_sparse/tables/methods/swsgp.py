"""SWSGP on tables."""

import math
from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options, points, steps
from gpflow_sparse.tables.methods.base import Recipe, option
from gpflow_sparse.tables.methods.rows import choose_points


@dataclass(frozen=True)
class SWSGP(Recipe):
    """Options of sparse within sparse GPs, :class:`gpflow_sparse.models.SWSGP`."""

    name = "swsgp"
    title = "SWSGP"
    idea = "each row uses its nearest of up to 100,000 points: steps cost the same for any number"
    takes_weights = True

    kernel: str = options.kernel()
    ard: bool = options.ard()
    num_subset: int = options.num_subset()
    num_inducing: int = options.num_inducing(10_000)
    num_neighbors: int = option(32, "H, inducing points that a row uses.", least=1)
    kl_weighting: str = options.kl_weighting()
    covariance: str = option("diag", "Covariance of q.", choices=["diag", "dense"])
    bound: str = options.bound()
    initialization: str = options.initialization("random")
    num_steps: int = options.num_steps(3000)
    batch_size: int = options.batch_size(128)
    learning_rate: float = options.learning_rate()
    schedule: str = options.schedule()

    def build(
        self, data: Any, kernel: Any, likelihood: Any, *, sets: Any = None, **given: Any
    ) -> Any:
        (Z,) = sets or choose_points(self, data[0], kernel, *self.sizes)
        H = min(self.num_neighbors, len(Z))
        variables = gs.inducing_variables.NeighborInducingPoints(Z, H)
        names = ("covariance", "kl_weighting", "bound")
        given = {name: getattr(self, name) for name in names} | given
        given = points.variational(likelihood, data, **given)
        return gs.models.SWSGP(kernel, likelihood, variables, **given)

    def train(self, model: Any, rows: Any, *, until: float = math.inf, **options: Any) -> Any:
        """Adam on the rows of q that a batch uses, and on hyperparameters."""
        optimizer = gs.training.SparseAdam(steps.rate(self), dense=steps.adam(self))
        return steps.fit_steps(self, model, rows, until, options, optimizer)
