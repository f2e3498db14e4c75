"""Shared code of methods with a finite basis: the basis itself, and checks of its options."""

import dataclasses
from typing import Any, TypeVar

import gpflow_sparse as gs
from gpflow_sparse.recipes import points
from gpflow_sparse.recipes.base import Recipe
from gpflow_sparse.recipes.rows import choose_points, random_rows

R = TypeVar("R", bound=Recipe)
_ON_GRID = "squared_exponential"


def with_default_kernel(chosen: dict[str, Any], basis: str) -> dict[str, Any]:
    """Chosen options, with the kernel whose product is exact on a grid unless one is chosen."""
    grid = chosen.get("basis", basis) == "grid"
    return {"kernel": _ON_GRID, **chosen} if grid else chosen


def require_sizes(recipe: Any) -> None:
    """:raises ValueError: for a number of functions that the basis cannot have."""
    if recipe.basis == "fourier" and recipe.num_basis % 2:
        raise ValueError(f"num_basis must be even for fourier, got {recipe.num_basis}.")
    rest = recipe.num_basis - recipe.num_inducing
    if recipe.basis == "hybrid" and (rest < 2 or rest % 2):
        raise ValueError(
            "num_basis must be num_inducing and an even number of random features for hybrid; "
            f"got {recipe.num_basis} and {recipe.num_inducing}."
        )


def unread(recipe: Any) -> dict[str, str]:
    """Options that are read only with another basis."""
    reason = f"with another basis than {recipe.basis} alone"
    names = {"temperature": "soft", "points_per_dimension": "grid"}
    return {name: reason for name, basis in names.items() if recipe.basis != basis}


def sizes(recipe: Any) -> tuple[int, ...]:
    """Number of basis functions."""
    return (recipe.num_inducing if recipe.basis == "soft" else recipe.num_basis,)


def shrunk(recipe: R, num_distinct: int, num_rows: int | None) -> R:
    """The recipe with fewer inducing points; random features beside them come in pairs."""
    before: Any = recipe
    count = points.shrunk_sizes(recipe, num_distinct, num_rows)["num_inducing"]
    odd = (before.num_basis - count) % 2 if before.basis == "hybrid" else 0
    if num_rows is not None and count == num_distinct < num_rows:  # all of them
        sizes: dict[str, Any] = {"num_inducing": count, "num_basis": before.num_basis - odd}
    else:
        sizes = {"num_inducing": max(1, count - odd)}
    return dataclasses.replace(recipe, **sizes)


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


def num_elements(m: int, features: int, num_rows: int, input_dim: int, num_latent_gps: int) -> int:
    """
    Tensor elements of m functions: data, about twelve matrices m x m, and a block of features.

    :param features: elements of the features of a block of rows.
    """
    return int(num_rows * (input_dim + 1) + 12 * m**2 * num_latent_gps + features)


STREAMED = 4 * 2**23
"""Elements of the features of a block of rows, where all rows are streamed."""
