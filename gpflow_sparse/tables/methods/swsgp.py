"""SWSGP on tables."""

from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options
from gpflow_sparse.tables.methods.base import option
from gpflow_sparse.tables.methods.rows import variational
from gpflow_sparse.tables.methods.steps import Batches


@dataclass(frozen=True)
class SWSGP(Batches, options.Points):
    """Options of sparse within sparse GPs, :class:`gpflow_sparse.models.SWSGP`."""

    name = "swsgp"
    title = "SWSGP"
    idea = "each row uses its nearest of up to 100,000 points: steps cost the same for any number"
    takes_weights = True

    num_inducing: int = 10_000
    num_neighbors: int = option(32, "H, inducing points that a row uses.", least=1)
    kl_weighting: str = option(
        "counts", "Weights of the KL terms of neighborhoods.", choices=["counts", "paper", "chain"]
    )
    covariance: str = option("diag", "Covariance of q.", choices=["diag", "dense"])
    bound: str = options.bound()
    initialization: str = "random"
    num_steps: int = 3000
    batch_size: int = 128

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        (Z,) = self.take_sets(given, data[0], kernel)
        H = min(self.num_neighbors, len(Z))
        variables = gs.inducing_variables.NeighborInducingPoints(Z, H)
        names = ("covariance", "kl_weighting", "bound")
        given = {name: getattr(self, name) for name in names} | given
        given = variational(likelihood, data, **given)
        return gs.models.SWSGP(kernel, likelihood, variables, **given)

    def optimizer(self) -> Any:
        """Adam on the rows of q that a batch uses, and on hyperparameters."""
        return gs.training.SparseAdam(self.rate(), dense=self.adam())
