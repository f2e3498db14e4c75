"""Variational inference over the weights of a finite basis, on tables."""

from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.recipes import finite_basis, options, points
from gpflow_sparse.recipes.base import Recipe


@dataclass(frozen=True)
class BasisSVGP(Recipe):
    """Options of a variational basis model, :class:`gpflow_sparse.models.BasisSVGP`."""

    name = "basis_svgp"
    title = "Basis SVGP"
    idea = "variational inference over the weights of a finite basis: any likelihood, minibatches"
    starts_locally = False

    kernel: str = options.kernel()
    ard: bool = options.ard()
    num_subset: int = options.num_subset()
    num_basis: int = options.num_basis()
    basis: str = options.basis()
    num_inducing: int = options.num_inducing()
    points_per_dimension: int = options.points_per_dimension()
    temperature: float = options.temperature()
    initialization: str = options.initialization()
    bound: str = options.bound()
    num_steps: int = options.num_steps()
    batch_size: int = options.batch_size()
    learning_rate: float = options.learning_rate()
    schedule: str = options.schedule()
    natural_gradients: float = options.natural_gradients()

    def __post_init__(self) -> None:
        super().__post_init__()
        finite_basis.require_sizes(self)

    @classmethod
    def create(cls, **chosen: Any) -> "BasisSVGP":
        return super().create(**finite_basis.with_default_kernel(chosen, "grid"))

    @property
    def on_grid(self) -> bool:
        return self.basis == "grid"

    @property
    def sizes(self) -> tuple[int, ...]:
        return finite_basis.sizes(self)

    def unread(self) -> dict[str, str]:
        return finite_basis.unread(self)

    def shrunk_to(self, num_distinct: int, num_rows: int | None = None) -> "BasisSVGP":
        return finite_basis.shrunk(self, num_distinct, num_rows)

    def build(
        self, data: Any, kernel: Any, likelihood: Any, *, basis: Any = None, **given: Any
    ) -> Any:
        basis = basis or finite_basis.make_basis(self, data[0], kernel)
        given = points.variational(likelihood, data, **{"bound": self.bound, **given})
        return gs.models.BasisSVGP(basis, likelihood, **given)

    def num_elements(self, num_rows: int, input_dim: int, num_latent_gps: int) -> int:
        (size,), batch = self.sizes, min(self.batch_size, num_rows)
        shape = (num_rows, input_dim, num_latent_gps)
        return finite_basis.num_elements(size, 4 * size * batch * num_latent_gps, *shape)
