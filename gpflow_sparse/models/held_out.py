"""Held-out rows, since learned interpolation points overfit the rows they are trained on."""

from typing import Any

import numpy as np
import tensorflow as tf


def require_fraction(value: Any) -> None:
    """:raises ValueError: unless it is a number from 0 to below 1."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (number and 0.0 <= value < 1.0):
        raise ValueError(f"held_out must be a fraction from 0 to below 1, got {value!r}.")


def keep_back(model: Any, data: Any, seed: int) -> Any:
    """
    The rows to train on: all but the fraction ``model.held_out``, which is drawn at random.

    ``model._kept_back`` then holds the numbers of the held-out rows and the number of all rows.

    :param data: ``(X, Y)``. Data sets and arrays on disk are returned unchanged.
    """
    model._kept_back = None
    on_disk = isinstance(data, tuple | list) and any(isinstance(p, np.memmap) for p in data)
    if model.held_out == 0.0 or on_disk or isinstance(data, tf.data.Dataset):
        return data
    X, Y = model._require_data(data)
    order = np.random.default_rng(seed).permutation(len(X))
    kept, rest = np.split(order, [int(model.held_out * len(X))])
    if not len(kept):
        return data
    model._kept_back = np.sort(kept), len(X)
    return tuple(tf.gather(part, np.sort(rest)) for part in (X, Y))


def kept_back(model: Any, X: Any, Y: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """The held-out rows of X and Y; None unless X has as many rows as in training."""
    if model._kept_back is None or isinstance(X, tf.data.Dataset):
        return None
    kept, num_rows = model._kept_back
    return None if len(X) != num_rows else (np.asarray(X)[kept], np.asarray(Y)[kept])


def require_kept_back(value: Any) -> None:
    """:raises ValueError: unless it is None or a value set by :func:`keep_back`."""
    if value is None:
        return
    kept: Any = None
    num_rows: Any = None
    if isinstance(value, tuple) and len(value) == 2:
        kept, num_rows = value
    sound = isinstance(kept, np.ndarray) and kept.ndim == 1 and kept.dtype.kind == "i"
    sound = sound and type(num_rows) is int and kept.size > 0 and len(np.unique(kept)) == kept.size
    if not (sound and kept.min() >= 0 and kept.max() < num_rows):
        raise ValueError(
            "model._kept_back must be None or distinct row numbers and a count of rows above them"
        )
