"""Shared code of methods with inducing points: arguments of their models, and sizes."""

import dataclasses
from typing import Any, TypeVar

R = TypeVar("R")


def variational(likelihood: Any, data: Any, **given: Any) -> dict[str, Any]:
    """Arguments that all variational models take."""
    return {
        "num_latent_gps": int(likelihood.latent_dim or 1),
        "num_data": len(data[0]),
        **given,
    }


def rows_repeat(num_distinct: int, num_rows: int | None) -> bool:
    """Whether rows occur twice or more on average; ``num_rows`` is None if none is repeated."""
    return num_rows is not None and 2 * num_distinct <= num_rows


def shrunk_sizes(
    recipe: Any, num_distinct: int, num_rows: int | None, num_least: int = 0
) -> dict[str, int]:
    """
    Sizes of the inducing sets, each at most a quarter of the distinct training rows.

    Where rows occur twice or more on average and the sets have room for all that are distinct, all
    are points, in the base set first: the approximation is then exact at all rows. With fewer
    repetitions the rows that remain where some are held out may be fewer than the points.

    :param num_rows: all training rows; None if none is repeated.
    :param num_least: least number of points of the orthogonal set.
    :return: sizes by option.
    """
    names = [name for name in ("num_inducing", "num_orthogonal") if hasattr(recipe, name)]
    sets = {name: getattr(recipe, name) for name in names}
    if not rows_repeat(num_distinct, num_rows) or num_distinct > sum(sets.values()):
        most = max(1, num_distinct // 4)
        return {name: min(size, most) for name, size in sets.items()}
    base = min(sets["num_inducing"], num_distinct)
    rest = max(num_distinct - base, num_least)
    return {"num_inducing": base} | ({"num_orthogonal": rest} if len(recipe.sizes) == 2 else {})


def shrunk(recipe: R, num_distinct: int, num_rows: int | None, num_least: int = 0) -> R:
    """The recipe with the sizes of :func:`shrunk_sizes`."""
    sizes: dict[str, Any] = shrunk_sizes(recipe, num_distinct, num_rows, num_least)
    found: R = dataclasses.replace(recipe, **sizes)  # type: ignore[type-var]
    return found
