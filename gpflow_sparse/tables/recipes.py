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
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from gpflow_sparse import _names
from gpflow_sparse.tables.methods import base, registry

_KINDS: dict[str, type[base.Recipe]] = {
    name.replace("-", "_"): kind
    for name, kind in (registry.RECIPES | {"auto": registry.Auto}).items()
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
    "simple",
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
        from gpflow_sparse.data import Dataset
        from gpflow_sparse.tables.fitting.observations import is_standardized
        from gpflow_sparse.tables.fitting.path import fit_task
        from gpflow_sparse.tables.fitting.task import Task
        from gpflow_sparse.validation import checks

        if isinstance(kernel, str):
            options, kernel = {**options, "kernel": kernel}, None
        registry.recipe_of(kind.name, **options)  # refuses options and values that it lacks
        X, Y = (np.asarray(part, dtype=np.float64) for part in checks.require_data((X, Y)))
        if num_classes is None and is_standardized(likelihood):
            _warn_of_units(Y)
        names = tuple(f"x{i}" for i in range(X.shape[1]))
        dataset = Dataset("the data", (X, Y), (X[:0], Y[:0]), names, "y", num_classes)
        task = Task(dataset, kernel, likelihood, options)
        return fit_task(task, kind.name, seconds, report)[1]

    train.__name__ = train.__qualname__ = kind.name.replace("-", "_")
    train.__doc__ = _DOCUMENTATION.format(
        title=kind.title, idea=kind.idea, options="\n".join(_described(kind))
    )
    return train


def _warn_of_units(Y: np.ndarray) -> None:
    """Warn of outputs for which starting values and defaults are wrong."""
    mean, deviation = float(np.abs(Y.mean(axis=0)).max()), Y.std(axis=0)
    if mean > 1.0 or deviation.max() > 10.0 or deviation.min() < 0.1:
        warnings.warn(
            "Y is not standardized, for which starting values and defaults are made: its mean is "
            f"{mean:.3g} and its standard deviation {deviation.max():.3g}; see "
            "gpflow_sparse.Standardizer.",
            stacklevel=3,
        )


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
    others = {"likelihood", "exposure", "noise_column"}
    others |= set() if kind.takes_conformal else {"conformal"}
    return [
        f":param {field.name}: {field.metadata['help']} Default {field.default!r}."
        for field in dataclasses.fields(kind)
        if "help" in field.metadata and field.name not in others
    ]
