"""The guards on the options of a GRIEF model, which can be assigned at any time."""

from typing import Any

from gpflow_sparse.models.fixed_statistics import FixedStatistics
from gpflow_sparse.validation import checks

_OBJECTIVES = ("bound", "likelihood", "corrected")
_REWEIGHTED = (None, "original", "rotated")


def require_options(reweighted: Any, objective: Any) -> None:
    """:raises ValueError: for options that there are not, or not together."""
    checks.require_choice(reweighted, "reweighted", _REWEIGHTED)
    checks.require_choice(objective, "objective", _OBJECTIVES)
    if objective == "corrected" and reweighted is not None:
        raise ValueError(
            "objective must be 'bound' or 'likelihood' with reweighted: the correction depends on "
            "the weights at every row, so each evaluation would read all data."
        )


def require_statistics(
    statistics: FixedStatistics | None, reweighted: str | None, weights: Any
) -> None:
    """
    Refuse weights that do not go with the statistics that a model was built with.

    :raises ValueError: if ``reweighted`` says other ones, or the weights have another shape.
    """
    built = None if statistics is None else ("original", "rotated")[statistics.is_rotated]
    if reweighted != built:
        raise ValueError(
            f"reweighted must be {built!r}, as the model was built; got {reweighted!r}. Make a new "
            "GRIEF model for another."
        )
    if statistics is None:
        return
    shape, wanted = getattr(weights, "shape", None), statistics.sums.AAT.shape[:1]
    if shape != wanted:
        raise ValueError(
            f"weights must be a gpflow.Parameter of shape {tuple(wanted)}, got "
            f"{type(weights).__name__} of shape {shape}."
        )
