"""All methods, each by its recipe, and the choice among them; TensorFlow is not imported."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from gpflow_sparse.tables.methods.base import Recipe
from gpflow_sparse.tables.methods.basis_gpr import BasisGPR
from gpflow_sparse.tables.methods.basis_svgp import BasisSVGP
from gpflow_sparse.tables.methods.convolutional import ConvolutionalSolveGP, ConvolutionalSVGP
from gpflow_sparse.tables.methods.deep import Deep
from gpflow_sparse.tables.methods.dirichlet_gpnn import DirichletGPnn
from gpflow_sparse.tables.methods.exact import Exact
from gpflow_sparse.tables.methods.gpnn import GPnn
from gpflow_sparse.tables.methods.grief import GRIEF
from gpflow_sparse.tables.methods.mixture import Mixture
from gpflow_sparse.tables.methods.odvgp import ODVGP
from gpflow_sparse.tables.methods.qsgp import QSGP
from gpflow_sparse.tables.methods.rvm import RVM
from gpflow_sparse.tables.methods.simple import Simple
from gpflow_sparse.tables.methods.site_vgp import SiteVGP
from gpflow_sparse.tables.methods.softki import SoftKI
from gpflow_sparse.tables.methods.solvegp import SolveGP
from gpflow_sparse.tables.methods.solvegpr import SolveGPR
from gpflow_sparse.tables.methods.svgp import SVGP
from gpflow_sparse.tables.methods.swsgp import SWSGP

# In the order in which they are listed, and in which the automatic choice tries methods that suit a
# table: first the method without steps, for a budget of time that ends before others are trained;
# then methods whose start takes least time.
_LISTED: tuple[type[Recipe], ...] = (
    GPnn,
    DirichletGPnn,
    SoftKI,
    SolveGP,
    SWSGP,
    Mixture,
    Exact,
    SiteVGP,
    GRIEF,
    ODVGP,
    SolveGPR,
    QSGP,
    RVM,
    BasisGPR,
    BasisSVGP,
    Deep,
    ConvolutionalSolveGP,
    SVGP,
    ConvolutionalSVGP,
    Simple,
)


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
    takes_weights = True
    takes_noise = True

    options: dict[str, Any] = dataclasses.field(default_factory=dict)


RECIPES = {recipe.name: recipe for recipe in _LISTED}
"""Recipes by the name of their method on the command line."""
AUTO = Auto.name
"""The choice of a method by its predictions of held-out rows."""
_ALL: dict[str, type[Recipe]] = {AUTO: Auto, **RECIPES}
COMMON = [field.name for field in dataclasses.fields(Recipe)]
"""Options of all methods."""
OF_METHODS = frozenset(name for kind in _LISTED for name in kind.own_options())
"""Options that not all methods have."""


def kind_of(method: str) -> type[Recipe]:
    """
    The recipe of a method, or of the automatic choice.

    :raises ValueError: for an unknown name.
    """
    if method not in _ALL:
        near = get_close_matches(method, RECIPES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ValueError(f"method must be one of {', '.join(_ALL)}; got {method!r}{hint}")
    return _ALL[method]


def stored_recipe(method: str, options: Mapping[str, Any]) -> Recipe:
    """
    The recipe in the record of a run.

    :raises ValueError: naming an option with a wrong value.
    """
    return kind_of(method)(**read_options(method, options))


def recipe_of(method: str, **chosen: Any) -> Recipe:
    """
    The recipe of a method, with its defaults for all options that are not chosen.

    :param chosen: options of the method; for the automatic choice of any method.
    :raises ValueError: for an unknown method, an option that it does not have, or a value that the
        option does not take.
    """
    kind = kind_of(method)
    if kind is not Auto:
        require_options(kind.name, chosen)
        return kind.create(**chosen)
    own = {name: value for name, value in chosen.items() if name in (*COMMON, *kind.own_options())}
    others = {name: value for name, value in chosen.items() if name not in own}
    for name, value in others.items():
        _require_taken(name, value)
    return Auto(**own, options=others)


def _require_taken(name: str, value: Any) -> None:
    """:raises ValueError: for an option that no method has, or a value that none takes."""
    error = ValueError(f"{name} is not an option of any method.")
    for method in takers(name):
        try:
            _ALL[method](**{name: value})
        except ValueError as found:
            error = found
        else:
            return
    raise error


def takers(name: str) -> list[str]:
    """The methods that have an option."""
    return [method for method, kind in _ALL.items() if name in (*COMMON, *kind.own_options())]


def read_options(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The given options that a method has."""
    return {name: value for name, value in options.items() if method in takers(name)}


def require_options(method: str, options: Mapping[str, Any]) -> None:
    """:raises ValueError: naming the first option that a method does not have, and who does."""
    for name in sorted(options.keys() - read_options(method, options)):
        help = f"`gpflow-sparse fit {method} --help` lists the options of {method}."
        own = kind_of(method).own_options()
        near = [n for n in get_close_matches(name, own, n=1) if n != name]
        hint = f"; {method} has {near[0]}" if near else ""
        others = [m for m in takers(name) if m != AUTO] or takers(name)
        if not others:
            raise ValueError(f"{name} is not an option of any method{hint}. {help}")
        who: list[str] = others if len(others) < 4 else [*others[:3], "others"]
        known = " and ".join([", ".join(who[:-1]), who[-1]] if len(who) > 1 else who)
        raise ValueError(f"{name} is not for {method}, but for {known}{hint}. {help}")
