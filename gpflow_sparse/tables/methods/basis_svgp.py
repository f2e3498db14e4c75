"""Variational inference over the weights of a finite basis, on tables."""

from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import finite_basis, options
from gpflow_sparse.tables.methods.rows import variational
from gpflow_sparse.tables.methods.steps import NaturalSteps


@dataclass(frozen=True)
class BasisSVGP(NaturalSteps, finite_basis.BasisRecipe):
    """Options of a variational basis model, :class:`gpflow_sparse.models.BasisSVGP`."""

    name = "basis_svgp"
    title = "Basis SVGP"
    idea = "variational inference over the weights of a finite basis: any likelihood, minibatches"
    takes_weights = True

    bound: str = options.bound()

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        basis = given.pop("basis", None) or self.make_basis(data[0], kernel)
        given = variational(likelihood, data, **{"bound": self.bound, **given})
        return gs.models.BasisSVGP(basis, likelihood, **given)
