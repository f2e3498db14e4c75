"""Shared code of methods with a finite basis: the basis itself, and checks of its options."""

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options
from gpflow_sparse.tables.methods.base import option
from gpflow_sparse.tables.methods.rows import choose_points, random_rows

Self = TypeVar("Self", bound="BasisRecipe")
_ON_GRID = "squared_exponential"
# Options that are read with one basis only.
_BASIS_OF = {"temperature": "soft", "points_per_dimension": "grid"}


@dataclass(frozen=True)
class BasisRecipe(options.Points):
    """Options of methods whose option ``basis`` names one of several bases."""

    num_basis: int = options.num_basis()
    basis: str = option(
        "grid",
        "Eigenfunctions on a grid, random Fourier features, these beside M inducing points "
        "(hybrid), covariances with training rows, or softmax interpolation between M points.",
        choices=["grid", "fourier", "hybrid", "dictionary", "soft"],
    )
    points_per_dimension: int = options.points_per_dimension()
    temperature: float = options.temperature()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.basis == "fourier" and self.num_basis % 2:
            raise ValueError(f"num_basis must be even for fourier, got {self.num_basis}.")
        rest = self.num_basis - self.num_inducing
        if self.basis == "hybrid" and (rest < 2 or rest % 2):
            raise ValueError(
                "num_basis must be num_inducing and an even number of random features for hybrid; "
                f"got {self.num_basis} and {self.num_inducing}."
            )

    @classmethod
    def create(cls: type[Self], **chosen: Any) -> Self:
        """The recipe, with the kernel whose product is exact on a grid unless one is chosen."""
        given = chosen.get("basis", cls.basis)
        for name, basis in _BASIS_OF.items():
            if name in chosen and given != basis:
                raise ValueError(
                    f"{name} is for {cls.name} with another basis than {given} alone; leave it out."
                )
        return super().create(**({"kernel": _ON_GRID, **chosen} if given == "grid" else chosen))

    def shrunk_to(self: Self, num_distinct: int, num_rows: int | None = None) -> Self:
        """The recipe with fewer inducing points; random features beside them come in pairs."""
        count = self.shrunk_sizes(num_distinct, num_rows)["num_inducing"]
        odd = (self.num_basis - count) % 2 if self.basis == "hybrid" else 0
        if num_rows is not None and count == num_distinct < num_rows:  # all of them
            sizes: dict[str, Any] = {"num_inducing": count, "num_basis": self.num_basis - odd}
        else:
            sizes = {"num_inducing": max(1, count - odd)}
        return dataclasses.replace(self, **sizes)

    def make_basis(self, X: Any, kernel: Any) -> Any:
        """The basis that the recipe names, from training inputs [N, D]."""
        size = self.num_basis
        if self.basis == "fourier":
            return gs.bases.RandomFourier(kernel, size, seed=self.seed)
        if self.basis == "dictionary":
            return gs.bases.KernelDictionary(kernel, random_rows(X, size, self.seed))
        if self.basis == "grid":
            return gs.bases.GridEigenfunctions(kernel, X, size, self.points_per_dimension)
        (Z,) = choose_points(self, X, kernel, self.num_inducing)
        if self.basis == "soft":
            return gs.bases.SoftInterpolation(kernel, Z, temperature=self.temperature, tied=True)
        return gs.bases.Hybrid(kernel, Z, (size - len(Z)) // 2 * 2, seed=self.seed)
