"""
Methods as the command line and the estimators train them, for users of GPflow.

``gs.recipes.softki(X, Y)`` returns a trained model of SoftKI. What the class alone does not do is
done here: starting hyperparameters and inducing points from the data, tuned defaults of all
options, closed forms before and after the steps, the best of several evaluations on held-out rows,
and calibration. There is a function for every method of ``gpflow-sparse methods``, and ``auto``
for the one that predicts held-out rows best::

    model = gs.recipes.swsgp(X, Y, num_inducing=20_000, num_steps=1000)
    mean, variance = model.predict_y(new_X)

``help(gs.recipes.swsgp)`` lists the options of a method.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from gpflow_sparse import _names
from gpflow_sparse.tables.methods import automatic, base, registry

_KINDS: dict[str, type[base.Recipe]] = {
    name.replace("-", "_"): kind
    for name, kind in (registry.RECIPES | {"auto": automatic.Auto}).items()
}
# made by __getattr__
__all__ = [  # noqa: F822
    "auto",
    "basis_gpr",
    "basis_svgp",
    "conv_solvegp",
    "conv_svgp",
    "deep",
    "dirichlet_gpnn",
    "exact",
    "gpnn",
    "grief",
    "mixture",
    "odvgp",
    "qsgp",
    "rvm",
    "site_vgp",
    "softki",
    "solvegp",
    "solvegpr",
    "svgp",
    "swsgp",
]


def __getattr__(name: str) -> Any:
    if name not in _KINDS:
        return _names.attribute("gpflow_sparse.recipes", {}, name)
    return _trainer(_KINDS[name])


def __dir__() -> list[str]:
    return __all__


def _trainer(kind: type[base.Recipe]) -> Callable[..., Any]:
    """The function that trains a method on arrays."""

    def train(
        X: Any,
        Y: Any,
        *,
        num_classes: int | None = None,
        kernel: Any = None,
        likelihood: Any = None,
        seconds: float | None = None,
        report: Callable[[str], Any] = lambda line: None,
        **options: Any,
    ) -> Any:
        from gpflow_sparse.tables.fitting.path import train_arrays

        return train_arrays(
            kind.name,
            (X, Y),
            num_classes=num_classes,
            kernel=kernel,
            likelihood=likelihood,
            seconds=seconds,
            report=report,
            **options,
        )

    train.__name__ = train.__qualname__ = kind.name.replace("-", "_")
    train.__doc__ = _DOCUMENTATION.format(
        title=kind.title, idea=kind.idea, options="\n".join(_described(kind))
    )
    return train


_DOCUMENTATION = """
Train {title} on arrays: {idea}.

:param X: inputs [N, D].
:param Y: outputs [N, P], standardized for noise on the whole line: starting values and defaults
    are for a mean near 0 and a variance near 1, see :class:`gpflow_sparse.Standardizer`. For
    classes labels 0 to C - 1, [N, 1].
:param num_classes: C; None for regression.
:param kernel: a GPflow kernel, which is copied and whose values are the start; or a name, see
    below.
:param likelihood: a GPflow likelihood or the name of one; None for the usual one.
:param seconds: time after which no training step begins; None for the number of steps.
:param report: called with lines of progress.
:return: the trained GPflow model.
:raises ValueError: for rows or options that the method does not take.

Options:

{options}
"""


def _described(kind: type[base.Recipe]) -> list[str]:
    """A line for each option of a method."""
    others = {"likelihood"} if kind.takes_conformal else {"likelihood", "conformal"}
    return [
        f":param {field.name}: {field.metadata['help']} Default {field.default!r}."
        for field in dataclasses.fields(kind)
        if "help" in field.metadata and field.name not in others
    ]
