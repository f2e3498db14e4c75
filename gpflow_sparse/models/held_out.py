"""Rows that training does not see, for a model whose points fit the rows they are trained on."""

import weakref
from typing import Any

import numpy as np
import tensorflow as tf

# Which rows `training.fit` has kept back, and of how many. Not a part of the model.
_KEPT_BACK: weakref.WeakKeyDictionary[Any, tuple[np.ndarray, int]] = weakref.WeakKeyDictionary()


def require_fraction(value: Any) -> None:
    """:raises ValueError: unless it is a number from 0 to below 1."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (number and 0.0 <= value < 1.0):
        raise ValueError(f"held_out must be a fraction from 0 to below 1, got {value!r}.")


def keep_back(model: Any, data: Any, seed: int) -> Any:
    """
    The rows to train on: all but the fraction ``model.held_out``, which is drawn at random.

    :param data: ``(X, Y)``. Data sets and arrays on disk are returned as they are.
    """
    _KEPT_BACK.pop(model, None)
    on_disk = isinstance(data, tuple | list) and any(isinstance(p, np.memmap) for p in data)
    if model.held_out == 0.0 or on_disk or isinstance(data, tf.data.Dataset):
        return data
    X, Y = model._require_data(data)
    order = np.random.default_rng(seed).permutation(len(X))
    kept, rest = np.split(order, [int(model.held_out * len(X))])
    if not len(kept):
        return data
    _KEPT_BACK[model] = np.sort(kept), len(X)
    return tuple(tf.gather(part, np.sort(rest)) for part in (X, Y))


def kept_back(model: Any, X: Any, Y: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """The rows of X and Y that were kept back; None unless these are as many as in training."""
    kept, num_rows = _KEPT_BACK.get(model, (None, 0))
    if kept is None or isinstance(X, tf.data.Dataset) or len(X) != num_rows:
        return None
    return np.asarray(X)[kept], np.asarray(Y)[kept]
