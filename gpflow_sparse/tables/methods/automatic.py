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
    baseline_name = ""
    is_choice = True

    minutes: float = option(
        5.0,
        "Time for the choice and the training, unless the number of steps is given; with --method "
        "for the training, in place of a number of steps.",
        positive=True,
    )
    trees: bool = option(
        False,
        "Score boosted trees alone on the held-out rows, for comparison only. Methods about trees, "
        "such as gpnn with trees, are tried without this option too.",
    )
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def for_candidates(self) -> dict[str, Any]:
        """The options that were chosen, for the candidates that have them."""
        common = {f.name: f.default for f in dataclasses.fields(Recipe)} | {"trees": False}
        del common["minutes"]
        given = {name: getattr(self, name) for name in common}
        chosen = {name: value for name, value in given.items() if value != common[name]}
        return {**self.options, **chosen}

    @classmethod
    def own_options(cls) -> list[str]:
        return ["trees"]
