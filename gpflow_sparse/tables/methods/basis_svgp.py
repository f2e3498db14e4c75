"""Variational inference over the weights of a finite basis, on tables."""

from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import finite_basis, options, points


@dataclass(frozen=True)
class BasisSVGP(finite_basis.BasisRecipe):
    """Options of a variational basis model, :class:`gpflow_sparse.models.BasisSVGP`."""

    name = "basis_svgp"
    title = "Basis SVGP"
    idea = "variational inference over the weights of a finite basis: any likelihood, minibatches"
    takes_weights = True

    bound: str = options.bound()
    num_steps: int = options.num_steps()
    batch_size: int = options.batch_size()
    learning_rate: float = options.learning_rate()
    schedule: str = options.schedule()
    natural_gradients: float = options.natural_gradients()

    def build(
        self, data: Any, kernel: Any, likelihood: Any, *, basis: Any = None, **given: Any
    ) -> Any:
        basis = basis or finite_basis.make_basis(self, data[0], kernel)
        given = points.variational(likelihood, data, **{"bound": self.bound, **given})
        return gs.models.BasisSVGP(basis, likelihood, **given)
