"""Exact regression with a finite basis on tables."""

from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import finite_basis
from gpflow_sparse.tables.methods.steps import Rounds


@dataclass(frozen=True)
class BasisGPR(Rounds, finite_basis.BasisRecipe):
    """Options of regression with a basis, :class:`gpflow_sparse.models.BasisGPR`."""

    name = "basis_gpr"
    title = "Basis regression"
    idea = "exact regression with a finite basis, streamed over rows"
    for_classes = "basis_svgp"

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        basis = given.pop("basis", None) or self.make_basis(data[0], kernel)
        given = {"noise_variance": likelihood.variance.numpy(), **given}
        return gs.models.BasisGPR(data, basis, **given)
