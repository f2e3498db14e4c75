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

    num_steps: int = options.num_steps()
    batch_size: int = options.batch_size()
    learning_rate: float = options.learning_rate()
    schedule: str = options.schedule()
    natural_gradients: float = options.natural_gradients()

    def build(
        self, data: Any, kernel: Any, likelihood: Any, *, basis: Any = None, **given: Any
    ) -> Any:
        basis = basis or finite_basis.make_basis(self, data[0], kernel)
        given = points.variational(likelihood, data, **given)
        return gs.models.BasisSVGP(basis, likelihood, **given)

    def num_elements(self, num_rows: int, input_dim: int, num_latent_gps: int) -> int:
        (size,), batch = self.sizes, min(self.batch_size, num_rows)
        shape = (num_rows, input_dim, num_latent_gps)
        return finite_basis.num_elements(size, 4 * size * batch * num_latent_gps, *shape)
