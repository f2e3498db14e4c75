"""Exact regression with a finite basis on tables."""

import math
from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import finite_basis, options, rounds


@dataclass(frozen=True)
class BasisGPR(finite_basis.BasisRecipe):
    """Options of regression with a basis, :class:`gpflow_sparse.models.BasisGPR`."""

    name = "basis_gpr"
    title = "Basis regression"
    idea = "exact regression with a finite basis, streamed over rows"
    for_classes = "basis_svgp"
    holds_data = True

    num_steps: int = options.num_steps(600, "Iterations of L-BFGS.")

    def build(
        self, data: Any, kernel: Any, likelihood: Any, *, basis: Any = None, **given: Any
    ) -> Any:
        basis = basis or finite_basis.make_basis(self, data[0], kernel)
        given = {"noise_variance": likelihood.variance.numpy(), **given}
        return gs.models.BasisGPR(data, basis, **given)

    def train(self, model: Any, rows: Any, *, until: float = math.inf, **options: Any) -> Any:
        return rounds.fit_with_basis_refresh(self, model, options)
