"""The guards at public doors: rank, finiteness, dtype, label sets, matching N, D and P.

GPflow's own shape checks are off inside ``tf.function``, where a rank-1 ``Y`` broadcasts to N x N
without a word; these guards are plain Python on static shapes and so hold when tracing too. Values
(NaN, labels) can be looked at only eagerly.
"""

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import likelihoods

_INTEGERS = "integers"
_ROWS = "X and Y must have the same number of rows, got {} and {}."


def as_tensor(value: Any, name: str, dtype: tf.DType | None = None) -> tf.Tensor:
    """
    A finite real tensor from arrays, lists of numbers, data frames or tensors.

    :param value: what the caller passed.
    :param name: the argument's name, for errors.
    :param dtype: wanted float type; ``gpflow.default_float()`` by default. Numbers of another type
        are cast.
    :return: tensor of ``dtype``; its shape is not checked.
    :raises ValueError: for objects, strings, ragged lists, sparse tensors, NaN or infinity.
    """
    dtype = gpflow.default_float() if dtype is None else dtype
    if isinstance(value, tf.SparseTensor | tf.RaggedTensor):
        raise ValueError(f"{name} must be a dense array of numbers, got {type(value).__name__}.")
    if not tf.is_tensor(value):
        value = _numeric_array(value, name)
    tensor = tf.convert_to_tensor(value)
    if not (tensor.dtype.is_floating or tensor.dtype.is_integer or tensor.dtype == tf.bool):
        raise ValueError(f"{name} must hold real numbers, got a tensor of {tensor.dtype.name}.")
    tensor = tf.cast(tensor, dtype)
    _require_finite(tensor, name)
    return tensor


def require_matrix(value: Any, name: str, dtype: tf.DType | None = None) -> tf.Tensor:
    """
    ``value`` as a finite tensor ``[N, D]`` with at least one row.

    :raises ValueError: see :func:`as_tensor`; and if the rank is not 2 or there is no row.
    """
    tensor = as_tensor(value, name, dtype)
    if tensor.shape.rank is None:
        raise ValueError(
            f"{name} must be a matrix, but its rank is unknown while tracing: give the function an "
            "input_signature of rank 2, or set_shape([None, None])."
        )
    if tensor.shape.rank != 2:
        hint = f" Use {name}[:, None] for a single column." if tensor.shape.rank == 1 else ""
        raise ValueError(f"{name} must be a matrix, got shape {_shape(tensor)}.{hint}")
    _require_rows(tensor, name)
    return tensor


def require_inputs(
    Xnew: Any, input_dim: int | None, dtype: tf.DType | None = None, name: str = "Xnew"
) -> tf.Tensor:
    """
    Inputs for prediction, ``[..., N, D]``.

    :param input_dim: expected D, or None where any D is right.
    :raises ValueError: see :func:`as_tensor`; and if the rank is below 2, D does not match, or
        there is no row.
    """
    tensor = as_tensor(Xnew, name, dtype)
    if tensor.shape.rank is not None and tensor.shape.rank < 2:
        raise ValueError(
            f"{name} must have shape [..., N, D], got {_shape(tensor)}. "
            f"Use {name}[:, None] if D = 1, {name}[None, :] for one input."
        )
    if tensor.shape.rank is not None:
        _require_columns(tensor, input_dim, name)
        _require_rows(tensor, name)
    return tensor


def require_data(
    data: Any,
    *,
    input_dim: int | None = None,
    likelihood: likelihoods.Likelihood | None = None,
    num_latent_gps: int | None = None,
    dtype: tf.DType | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    A pair ``(X [N, D], Y [N, P])`` that pairs up and that the likelihood can take.

    :param data: tuple or list of two.
    :param input_dim: expected D, or None where any D is right.
    :param likelihood: decides P (see :func:`num_outputs`) and which values ``Y`` may take.
    :param num_latent_gps: number of latent functions the likelihood will see.
    :raises ValueError: naming the argument, what was expected, what came and what to do.
    """
    if not isinstance(data, Sequence) or isinstance(data, str) or len(data) != 2:
        raise ValueError(
            f"data must be a tuple (X [N, D], Y [N, P]), got {_describe_container(data)}."
        )
    X = require_matrix(data[0], "X", dtype)
    Y = require_matrix(data[1], "Y", dtype)
    _require_columns(X, input_dim, "X")
    _require_equal(X.shape[0], Y.shape[0], tf.shape(X)[0], tf.shape(Y)[0], _ROWS)
    if likelihood is not None:
        columns = num_outputs(likelihood, num_latent_gps)
        if columns is not None:
            text = (
                f"Y must have {columns} column(s) for {type(likelihood).__name__} with "
                f"num_latent_gps={num_latent_gps}, got shape {_shape(Y)}."
            )
            _require_equal(Y.shape[1], columns, tf.shape(Y)[1], columns, text)
        require_labels(likelihood, Y)
        if isinstance(likelihood, likelihoods.Softmax):
            Y = tf.cast(Y, tf.int64)  # the one likelihood of GPflow that refuses float labels
    return X, Y


def require_count(value: Any, name: str) -> int:
    """
    ``value`` as a positive integer.

    :raises ValueError: for anything else, 10.0 and True included.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}.")
    return int(value)


def num_outputs(likelihood: likelihoods.Likelihood, num_latent_gps: int | None) -> int | None:
    """
    How many columns ``Y`` has for this likelihood; None if nothing is known.

    One per latent function, except that class likelihoods take one column of labels, likelihoods
    with several latent functions take what they observe, and a switched likelihood carries the
    index of the likelihood in a last column.
    """
    if isinstance(likelihood, likelihoods.MultiClass | likelihoods.Softmax):
        return 1
    if isinstance(likelihood, likelihoods.SwitchedLikelihood):
        return None if num_latent_gps is None else num_latent_gps + 1
    if likelihood.observation_dim is not None:
        return int(likelihood.observation_dim)
    return num_latent_gps


def require_latents(likelihood: likelihoods.Likelihood, num_latent_gps: int) -> None:
    """
    Refuse a number of latent functions that the likelihood cannot take.

    :raises ValueError: for instance, ten classes and ``num_latent_gps=1``.
    """
    wanted = likelihood.latent_dim
    if wanted is not None and int(wanted) != num_latent_gps:
        raise ValueError(
            f"num_latent_gps must be {int(wanted)} for this {type(likelihood).__name__} "
            f"likelihood, got {num_latent_gps}; pass num_latent_gps={int(wanted)}."
        )


def require_labels(likelihood: likelihoods.Likelihood, Y: tf.Tensor) -> None:
    """
    Refuse values of ``Y`` outside the likelihood's support; looked at eagerly only.

    :param Y: ``[N, P]``.
    :raises ValueError: naming the first offending values.
    """
    support = _support(likelihood)
    if support is None or not tf.executing_eagerly():
        return
    kind, low, high, text = support
    values = np.asarray(Y)
    if isinstance(likelihood, likelihoods.SwitchedLikelihood):
        values = values[:, -1]
    wrong = (values < low) | (values > high)
    if kind == _INTEGERS:
        wrong |= values != np.round(values)
    if wrong.any():
        found = np.unique(values[wrong])[:5]
        raise ValueError(
            f"Y must hold {text} for {type(likelihood).__name__}, but has {wrong.sum()} other "
            f"value(s), such as {', '.join(f'{v:g}' for v in found)}. Recode Y."
        )


def _support(likelihood: likelihoods.Likelihood) -> tuple[str, float, float, str] | None:
    """Kind, lower and upper end, and words for the set of values an observation may take."""
    # a chain of ifs, not `match`: AutoGraph cannot read that statement and warns
    if isinstance(likelihood, likelihoods.Bernoulli):
        return _INTEGERS, 0, 1, "labels 0 or 1 (not -1 and 1)"
    if isinstance(likelihood, likelihoods.MultiClass | likelihoods.Softmax):
        last = int(likelihood.latent_dim or 0) - 1
        return _INTEGERS, 0, last, f"integer class labels from 0 to {last}"
    if isinstance(likelihood, likelihoods.Ordinal):
        last = int(likelihood.num_bins) - 1
        return _INTEGERS, 0, last, f"integer levels from 0 to {last}"
    if isinstance(likelihood, likelihoods.SwitchedLikelihood):
        last = len(likelihood.likelihoods) - 1
        return _INTEGERS, 0, last, f"an index from 0 to {last} in the last column"
    if isinstance(likelihood, likelihoods.Poisson):
        return _INTEGERS, 0, np.inf, "counts 0, 1, 2, ..."
    if isinstance(likelihood, likelihoods.Exponential):
        return "reals", 0, np.inf, "non-negative numbers"
    if isinstance(likelihood, likelihoods.Gamma):
        return "reals", float(np.finfo(np.float32).tiny), np.inf, "positive numbers"
    if isinstance(likelihood, likelihoods.Beta):
        below_one = float(np.nextafter(1.0, 0.0))
        return "reals", float(np.finfo(np.float32).tiny), below_one, "numbers inside (0, 1)"
    return None


def _numeric_array(value: Any, name: str) -> np.ndarray:
    if isinstance(value, tf.Variable | gpflow.Parameter):
        return value
    if np.ma.is_masked(value):  # np.asarray would bring the hidden values back
        raise ValueError(f"{name} has masked entries. Drop or fill these rows.")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} must be a rectangular array of numbers: {error}") from error
    if array.dtype.kind not in "fiub":
        kind = "Python objects" if array.dtype.kind == "O" else f"dtype {array.dtype}"
        raise ValueError(
            f"{name} must hold real numbers, got {kind}. Encode text and drop or fill missing "
            f"entries, then convert with np.asarray({name}, dtype=float)."
        )
    return array


def _require_finite(tensor: tf.Tensor, name: str) -> None:
    if not tf.executing_eagerly():
        return
    finite = tf.math.is_finite(tensor)
    if not bool(tf.reduce_all(finite)):
        bad = np.argwhere(~finite.numpy())
        where = ", ".join(str(tuple(int(i) for i in index)) for index in bad[:3])
        raise ValueError(
            f"{name} must be finite, but {len(bad)} of its {tf.size(tensor)} entries are NaN or "
            f"infinite, the first at {where}. Drop or fill these rows."
        )


def _require_equal(
    static: int | None, other: int | None, dynamic: Any, dynamic_other: Any, text: str
) -> None:
    """Compare two sizes while tracing where they are known, else when the graph runs."""
    if static is None or other is None:
        tf.debugging.assert_equal(dynamic, dynamic_other, message=text.split(", got")[0])
    elif static != other:
        raise ValueError(text.format(static, other))


def _require_columns(tensor: tf.Tensor, input_dim: int | None, name: str) -> None:
    if input_dim is not None and tensor.shape[-1] not in (None, input_dim):
        raise ValueError(
            f"{name} must have {input_dim} column(s), as the inducing inputs have; "
            f"got shape {_shape(tensor)}."
        )


def _require_rows(tensor: tf.Tensor, name: str) -> None:
    if tensor.shape.rank is not None and 0 in tensor.shape[-2:]:
        raise ValueError(f"{name} is empty: shape {_shape(tensor)}.")


def _shape(tensor: tf.Tensor) -> tuple[int | None, ...]:
    return tuple(tensor.shape)


def _describe_container(data: Any) -> str:
    length = f" of length {len(data)}" if hasattr(data, "__len__") else ""
    return f"{type(data).__name__}{length}"
