"""Warnings for searches that end at their starting point although it is not the optimum."""

import warnings

import numpy as np

# Largest entry of a gradient that counts as zero, per unit of the searched vector.
_FLAT = 1e-3


class OutOfTimeError(Exception):
    """The time of a search has passed."""


def warn_without_time(what: str, start: np.ndarray, end: np.ndarray) -> None:
    """Warn if a search whose time has passed kept its starting point ``[p]``."""
    if np.array_equal(start, end):
        warnings.warn(
            f"no time was left for the search for {what}: the starting values are kept. Allow "
            "more time.",
            stacklevel=3,
        )


def warn_if_unmoved(what: str, start: np.ndarray, end: np.ndarray, gradient: np.ndarray) -> None:
    """
    Warn that a search kept its starting point, where that point is not stationary.

    :param what: what was searched for: "hyperparameters".
    :param start: the starting point ``[p]``.
    :param end: the result ``[p]``.
    :param gradient: the gradient of the objective at the starting point ``[p]``.
    """
    slope = float(np.max(np.abs(gradient), initial=0.0))
    if np.array_equal(start, end) and not slope <= _FLAT:
        warnings.warn(
            f"the search for {what} ended where it began, although the objective has a slope of "
            f"{slope:.2g} there: the starting values are kept. Standardize X and Y, or start from "
            "other values.",
            stacklevel=3,
        )
