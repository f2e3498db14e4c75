"""Shared code of methods with a finite basis: the basis itself, and checks of its options."""

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options, points
from gpflow_sparse.tables.methods.base import Recipe
from gpflow_sparse.tables.methods.rows import choose_points, random_rows

Self = TypeVar("Self", bound="BasisRecipe")
_ON_GRID = "squared_exponential"
# Options that are read with one basis only.
_BASIS_OF = {"temperature": "soft", "points_per_dimension": "grid"}


@dataclass(frozen=True)
class BasisRecipe(Recipe):
    """Options of methods whose option ``basis`` names one of several bases."""

    kernel: str = options.kernel()
    ard: bool = options.ard()
    num_subset: int = options.num_subset()
    num_basis: int = options.num_basis()
    basis: str = options.basis()
    num_inducing: int = options.num_inducing()
    points_per_dimension: int = options.points_per_dimension()
    temperature: float = options.temperature()
    initialization: str = options.initialization()

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
        count = points.shrunk_sizes(self, num_distinct, num_rows)["num_inducing"]
        odd = (self.num_basis - count) % 2 if self.basis == "hybrid" else 0
        if num_rows is not None and count == num_distinct < num_rows:  # all of them
            sizes: dict[str, Any] = {"num_inducing": count, "num_basis": self.num_basis - odd}
        else:
            sizes = {"num_inducing": max(1, count - odd)}
        return dataclasses.replace(self, **sizes)


def make_basis(recipe: Any, X: Any, kernel: Any) -> Any:
    """The basis that a recipe names, from training inputs [N, D]."""
    size = recipe.num_basis
    if recipe.basis == "fourier":
        return gs.bases.RandomFourier(kernel, size, seed=recipe.seed)
    if recipe.basis == "dictionary":
        return gs.bases.KernelDictionary(kernel, random_rows(X, size, recipe.seed))
    if recipe.basis == "grid":
        return gs.bases.GridEigenfunctions(kernel, X, size, recipe.points_per_dimension)
    (Z,) = choose_points(recipe, X, kernel, recipe.num_inducing)
    if recipe.basis == "soft":
        return gs.bases.SoftInterpolation(kernel, Z, temperature=recipe.temperature, tied=True)
    return gs.bases.Hybrid(kernel, Z, (size - len(Z)) // 2 * 2, seed=recipe.seed)
