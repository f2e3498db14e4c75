"""Options of the automatic choice of a method."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from gpflow_sparse.tables.methods.base import Recipe, option


@dataclass(frozen=True)
class Auto(Recipe):
    """
    The method that predicts held-out rows best, see
    :func:`gpflow_sparse.tables.fitting.choice.choose`.

    ``options`` are options of methods, for the candidates that have them.
    """

    name = "auto"
    title = "Automatic choice"
    idea = "the method that predicts held-out rows best, of those that suit the table"

    trees: bool = option(
        False,
        "Score boosted trees alone on the held-out rows, for comparison only. Methods about trees, "
        "such as gpnn with trees, are tried without this option too.",
    )
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
