"""Exact regression with a finite basis on tables."""

import math
from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.recipes import finite_basis, options, points, rounds
from gpflow_sparse.recipes.base import Recipe


@dataclass(frozen=True)
class BasisGPR(Recipe):
    """Options of regression with a basis, :class:`gpflow_sparse.models.BasisGPR`."""

    name = "basis_gpr"
    title = "Basis regression"
    idea = "exact regression with a finite basis, streamed over rows"
    for_classes = "basis_svgp"
    by_minibatches = False
    iterations = rounds.ROUND
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
    num_steps: int = options.num_steps(600, "Iterations of L-BFGS.")

    def __post_init__(self) -> None:
        super().__post_init__()
        finite_basis.require_sizes(self)

    @classmethod
    def create(cls, **chosen: Any) -> "BasisGPR":
        return super().create(**finite_basis.with_default_kernel(chosen, "grid"))

    @property
    def on_grid(self) -> bool:
        return self.basis == "grid"

    @property
    def sizes(self) -> tuple[int, ...]:
        return finite_basis.sizes(self)

    def unread(self) -> dict[str, str]:
        return finite_basis.unread(self)

    def shrunk_to(self, num_distinct: int, num_rows: int | None = None) -> "BasisGPR":
        return finite_basis.shrunk(self, num_distinct, num_rows)

    def build(
        self, data: Any, kernel: Any, likelihood: Any, *, basis: Any = None, **given: Any
    ) -> Any:
        basis = basis or finite_basis.make_basis(self, data[0], kernel)
        given = {"noise_variance": likelihood.variance.numpy(), **given}
        return gs.models.BasisGPR(data, basis, **given)

    def train(self, model: Any, rows: Any, *, until: float = math.inf, **options: Any) -> Any:
        return rounds.fit_with_basis_refresh(self, model, options)

    def num_elements(self, num_rows: int, input_dim: int, num_latent_gps: int) -> int:
        (size,), shape = self.sizes, (num_rows, input_dim, num_latent_gps)
        batch = min(points.BATCH, num_rows)
        features = max(finite_basis.STREAMED, 4 * size * batch * num_latent_gps)
        return finite_basis.num_elements(size, features, *shape)
