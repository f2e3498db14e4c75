"""Checks of arguments: rank, finiteness, dtype, labels and likelihood, and matching N, D and P.

GPflow's own shape checks are off inside ``tf.function``, where a Y of rank 1 broadcasts to N x N
silently. These checks are plain Python on static shapes and so work when tracing too. Values (NaN,
labels) are checked eagerly, and while tracing in arrays that the graph captures; of the arguments
of a traced function only inputs for prediction are checked, when the graph runs.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import likelihoods

# Whether observations are integers, their lower and upper limit, and a description.
Support = tuple[bool, float, float, str]


def as_tensor(
    value: Any, name: str, dtype: tf.DType | None = None, missing: bool = False
) -> tf.Tensor:
    """
    A finite real tensor from arrays, lists of numbers, data frames or tensors.

    Values are checked where they are known (see the module); their squares must not overflow.

    :param value: argument of the caller.
    :param name: the argument's name, for errors.
    :param dtype: wanted float type, to which values are cast; by default
        ``gpflow.default_float()``.
    :param missing: whether entries may be NaN.
    :return: tensor of ``dtype``; its shape is not checked.
    :raises ValueError: for objects, strings, ragged lists, sparse tensors, NaN, infinity, and
        entries whose squares overflow.
    """
    dtype = tf.as_dtype(gpflow.default_float() if dtype is None else dtype)
    if isinstance(value, tf.SparseTensor | tf.RaggedTensor):
        raise ValueError(f"{name} must be a dense array of numbers, got {type(value).__name__}.")
    if not (tf.is_tensor(value) or isinstance(value, tf.Variable)):
        value = as_array(value, name, dtype)
    tensor = tf.convert_to_tensor(value)
    if not (tensor.dtype.is_floating or tensor.dtype.is_integer or tensor.dtype == tf.bool):
        raise ValueError(f"{name} must hold real numbers, got a tensor of {tensor.dtype.name}.")
    tensor = tf.cast(tensor, dtype)
    require_range(tensor, name, missing)
    return tensor


def as_array(value: Any, name: str, dtype: tf.DType) -> np.ndarray:
    """An array of real numbers, finite or not; refused are objects, text, and masked entries."""
    if np.ma.is_masked(value):  # np.asarray would return the masked values
        raise ValueError(f"{name} has masked entries. Drop or fill these rows.")
    try:
        array = np.asarray(value)
    except Exception as error:  # `__array__` of the caller's object may raise anything
        raise ValueError(f"{name} must be a rectangular array of numbers: {error}") from error
    if array.dtype.kind not in "fiub":
        kind = "Python objects" if array.dtype.kind == "O" else f"dtype {array.dtype}"
        raise ValueError(
            f"{name} must hold real numbers, got {kind}. Encode text and drop or fill missing "
            f"entries, then convert with np.asarray({name}, dtype=float)."
        )
    # NumPy has types that TensorFlow lacks, such as long double
    with np.errstate(over="ignore"):
        return array.astype(dtype.as_numpy_dtype, copy=False)


def require_matrix(
    value: Any, name: str, dtype: tf.DType | None = None, missing: bool = False
) -> tf.Tensor:
    """``value`` as a finite tensor ``[N, D]`` with at least one row, see :func:`as_tensor`."""
    tensor = as_tensor(value, name, dtype, missing)
    _require_known_rank(tensor, name, "be a matrix")
    if tensor.shape.rank != 2:
        hint = f" Use {name}[:, None] for a single column." if tensor.shape.rank == 1 else ""
        raise ValueError(f"{name} must be a matrix, got shape {_shape(tensor)}.{hint}")
    if 0 in tensor.shape:
        raise ValueError(f"{name} is empty: shape {_shape(tensor)}.")
    return tensor


def require_inputs(
    Xnew: Any, input_dim: int | None, dtype: tf.DType | None = None, name: str = "Xnew"
) -> tf.Tensor:
    """
    Inputs for prediction, ``[..., N, D]``; while tracing, with a static D where ``input_dim`` is
    given, and with any N that is not static, zero included.

    :param input_dim: expected D, or None where any D is right.
    :raises ValueError: see :func:`as_tensor`; and if the rank is unknown or below 2, D does not
        match, or there is no row.
    """
    tensor = as_tensor(Xnew, name, dtype)
    _require_known_rank(tensor, name, "have shape [..., N, D]")
    shape = tensor.shape
    if shape.rank < 2:
        raise ValueError(
            f"{name} must have shape [..., N, D], got {_shape(tensor)}. "
            f"Use {name}[:, None] if D = 1, {name}[None, :] for one input."
        )
    if input_dim is not None and shape[-1] not in (None, input_dim):
        raise ValueError(
            f"{name} must have {input_dim} column(s), as the inducing inputs have; "
            f"got shape {_shape(tensor)}."
        )
    if 0 in shape[-2:]:
        raise ValueError(f"{name} is empty: shape {_shape(tensor)}.")
    if input_dim is not None and shape[-1] is None:
        return tf.ensure_shape(tensor, [*shape[:-1], input_dim])  # which raises in the graph
    return tensor


def require_data(
    data: Any,
    *,
    input_dim: int | None = None,
    likelihood: likelihoods.Likelihood | None = None,
    num_latent_gps: int | None = None,
    dtype: tf.DType | None = None,
    missing: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    A pair ``(X [N, D], Y [N, P])`` with as many rows each and outputs valid for the likelihood.

    :param data: tuple or list of two.
    :param input_dim: expected D, or None where any D is right.
    :param likelihood: determines P (see :func:`num_outputs`) and the valid values of ``Y``.
    :param num_latent_gps: number of latent functions.
    :param missing: whether entries of Y may be NaN, as for a likelihood that says so.
    :raises ValueError: naming the argument, what was expected, what was passed and what to do.
    """
    if not isinstance(data, Sequence) or isinstance(data, str) or len(data) != 2:
        got = type(data).__name__
        with contextlib.suppress(TypeError):
            got += f" of length {len(data)}"
        raise ValueError(f"data must be a tuple (X [N, D], Y [N, P]), got {got}.")
    missing = missing or getattr(likelihood, "takes_missing", False)
    X, Y = require_matrix(data[0], "X", dtype), require_matrix(data[1], "Y", dtype, missing)
    if input_dim not in (None, X.shape[1]):
        X = require_inputs(X, input_dim, dtype, "X")
    if X.shape[0] is None or X.shape[0] != Y.shape[0]:
        text = "X and Y must have the same number of rows, got {} and {}."
        _require_equal(X.shape[0], Y.shape[0], tf.shape(X)[0], tf.shape(Y)[0], text)
    if likelihood is not None:
        columns = num_outputs(likelihood, num_latent_gps)
        if columns is not None and Y.shape[1] != columns:
            text = (
                f"Y must have {columns} column(s) for {type(likelihood).__name__} with "
                f"num_latent_gps={num_latent_gps}, got shape {_shape(Y)}."
            )
            _require_equal(Y.shape[1], columns, tf.shape(Y)[1], columns, text)
        require_labels(likelihood, Y)
        if isinstance(likelihood, likelihoods.Softmax):
            Y = tf.cast(Y, tf.int64)  # the one likelihood of GPflow that refuses float labels
    return X, Y


def require_row_weights(value: Any, X: tf.Tensor) -> tf.Tensor | None:
    """
    Weights of the rows of ``X [N, D]``, in its type and with a mean of at most 1; None as it is.

    :raises ValueError: unless there is a positive number for each row.
    """
    if value is None:
        return None
    with tf.init_scope():  # checked again where a model is first called while tracing
        weights = as_tensor(value, "row_weights", tf.float64).numpy()
    if weights.shape != X.shape[:1] or not np.all(np.isfinite(weights) & (weights > 0.0)):
        raise ValueError(
            f"row_weights must be {X.shape[0]} positive numbers, one for each row, got "
            f"{type(value).__name__} of shape {weights.shape}; leave out rows of weight 0."
        )
    return tf.constant(mean_at_most_one(weights), X.dtype)


def require_known_variance(value: Any, X: Any) -> tf.Tensor | None:
    """
    Known noise variances of the rows of ``X [N, D]``, in its type; None as it is.

    :raises ValueError: unless there is a number of at least 0 for each row of a tensor.
    """
    if value is None:
        return None
    if isinstance(X, tf.Tensor):
        with tf.init_scope():
            known = as_tensor(value, "known_variance", X.dtype)
            if known.shape == X.shape[:1] and np.all(known >= 0.0):
                return known
    raise ValueError(
        "known_variance must be a number of at least 0 for each row of data, which must be arrays; "
        f"got {type(value).__name__} of shape {np.shape(value)} for X of shape {tuple(X.shape)}."
    )


def mean_at_most_one(weights: np.ndarray) -> np.ndarray:
    """
    Weights of rows divided by their mean where that is above 1: a weight compares a row with
    others. As a number of measurements with equal results it would be evidence for a noise of zero.
    """
    return weights / max(1.0, float(np.mean(weights)))


def num_outputs(likelihood: likelihoods.Likelihood, num_latent_gps: int | None) -> int | None:
    """
    Number of columns of ``Y`` for a likelihood; None if not known.

    One per latent function, except that classification has one column of labels, likelihoods
    of several latent functions have ``observation_dim`` columns, and a switched likelihood has the
    index of the likelihood in an additional last column.
    """
    if isinstance(likelihood, likelihoods.MultiClass | likelihoods.Softmax):
        return 1
    if isinstance(likelihood, likelihoods.SwitchedLikelihood):
        return None if num_latent_gps is None else num_latent_gps + 1
    if likelihood.observation_dim is not None:
        return int(likelihood.observation_dim)
    if num_latent_gps is None:
        return None
    return num_latent_gps * int(getattr(likelihood, "columns_per_output", 1))


def require_likelihood(likelihood: Any, num_latent_gps: int) -> None:
    """
    Refuse a likelihood that cannot take these latent functions or cannot be computed.

    :raises ValueError: for another kind of object; for instance, for ten classes and
        ``num_latent_gps=1``; and for GPflow's ``Ordinal`` where the error function of infinity is
        NaN, as in float64 of TensorFlow 2.21 on a CPU: its first and last level would be NaN.
    """
    if not isinstance(likelihood, likelihoods.Likelihood):
        raise ValueError(
            "likelihood must be a GPflow Likelihood, such as gpflow.likelihoods.Gaussian(); got "
            f"{type(likelihood).__name__}."
        )
    wanted = likelihood.latent_dim
    if wanted is not None and int(wanted) != num_latent_gps:
        raise ValueError(
            f"num_latent_gps must be {int(wanted)} for this {type(likelihood).__name__} "
            f"likelihood, got {num_latent_gps}; pass num_latent_gps={int(wanted)}."
        )
    if getattr(type(likelihood), "_make_phi", None) is not likelihoods.Ordinal._make_phi:
        return
    with tf.init_scope():
        if np.isnan(tf.math.erf(tf.constant(np.inf, gpflow.default_float()))):
            raise ValueError(
                "likelihood Ordinal of GPflow is NaN at its first and last level, since this "
                f"TensorFlow's erf(inf) is NaN in {np.dtype(gpflow.default_float()).name}. Use "
                "gs.likelihoods.Ordinal(bin_edges)."
            )


def require_labels(likelihood: likelihoods.Likelihood, Y: tf.Tensor) -> None:
    """Refuse values of ``Y [N, P]`` outside the likelihood's support, where they are known."""
    allowed = support(likelihood)
    values = tf.get_static_value(Y)  # None for an argument of the function being traced
    if allowed is None or values is None:
        return
    whole, low, high, text = allowed
    if isinstance(likelihood, likelihoods.SwitchedLikelihood):
        values = values[:, -1]
    if getattr(likelihood, "columns_per_output", 1) == 2:  # outputs, and their variances
        values = values[:, values.shape[1] // 2 :]
    wrong = (values < low) | (values > high)
    if whole:
        wrong |= (values != np.round(values)) & ~np.isnan(values)
    if wrong.any():
        found = np.unique(values[wrong])[:5]
        raise ValueError(
            f"Y must hold {text} for {type(likelihood).__name__}, but has {wrong.sum()} other "
            f"value(s), such as {', '.join(f'{v:g}' for v in found)}. Recode Y."
        )


def support(likelihood: likelihoods.Likelihood) -> Support | None:
    """The observations that a likelihood takes; None for all numbers."""
    if hasattr(likelihood, "support"):  # of this package
        return likelihood.support  # type: ignore[no-any-return]
    # a chain of ifs, not `match`: AutoGraph cannot read that statement and warns
    if isinstance(likelihood, likelihoods.Bernoulli):
        return True, 0, 1, "labels 0 or 1 (not -1 and 1)"
    if hasattr(likelihood, "num_classes"):  # of GPflow or of this package
        last = int(likelihood.num_classes) - 1
        return True, 0, last, f"integer class labels from 0 to {last}"
    if isinstance(likelihood, likelihoods.Ordinal):
        last = int(likelihood.num_bins) - 1
        return True, 0, last, f"integer levels from 0 to {last}"
    if isinstance(likelihood, likelihoods.SwitchedLikelihood):
        last = len(likelihood.likelihoods) - 1
        return True, 0, last, f"an index from 0 to {last} in the last column"
    if isinstance(likelihood, likelihoods.Poisson):
        return True, 0, np.inf, "counts 0, 1, 2, ..."
    if isinstance(likelihood, likelihoods.Exponential):
        return False, 0, np.inf, "non-negative numbers"
    if isinstance(likelihood, likelihoods.Gamma):
        return False, float(np.finfo(np.float32).tiny), np.inf, "positive numbers"
    if isinstance(likelihood, likelihoods.Beta):
        below_one = float(np.nextafter(1.0, 0.0))
        return False, float(np.finfo(np.float32).tiny), below_one, "numbers inside (0, 1)"
    return None


def require_count(value: Any, name: str) -> int:
    """``value`` as a positive integer; anything else, 10.0 and True included, is refused."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not 1 <= value < 2**63:
        raise ValueError(f"{name} must be a positive integer, got {value!r}.")
    return int(value)


def require_whole(value: Any, name: str, kind: str = "an integer") -> int:
    """``value`` as an integer of any size; ``kind`` describes valid values in errors."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"{name} must be {kind}, got {value!r}.")
    return int(value)


def is_number(value: Any) -> bool:
    """Whether a value is a real number and not a Boolean."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def require_seed(value: Any, name: str = "seed") -> int:
    """``value`` as a seed that NumPy, scikit-learn and TensorFlow all take."""
    kind = "an integer from 0 to 2^32 - 1"
    if not 0 <= require_whole(value, name, kind) < 2**32:
        raise ValueError(f"{name} must be {kind}, got {value!r}.")
    return int(value)


def require_positive(
    value: Any,
    name: str,
    wanted: str = "one positive number",
    shapes: Sequence[tuple[int, ...]] = ((),),
    dtype: tf.DType | None = None,
) -> np.ndarray:
    """
    ``value`` as an array of finite numbers above 0 that TensorFlow does not flush to 0.

    :param wanted: valid values in words, for the error.
    :param shapes: the possible shapes.
    :param dtype: see :func:`as_tensor`.
    :raises ValueError: for anything else, True included.
    """
    numbers = as_tensor(value, name, dtype).numpy()
    positive = (numbers >= np.finfo(numbers.dtype).tiny).all()
    positive &= not isinstance(value, bool | np.bool_)
    if numbers.shape not in shapes or not positive:
        found = repr(value) if numbers.ndim == 0 else f"shape {numbers.shape}"
        if numbers.size and not positive:
            found += f", the smallest {numbers.min():g}"
        raise ValueError(f"{name} must be {wanted}; got {found}.")
    return numbers


def require_positive_number(value: Any, name: str) -> float:
    """``value`` as a float above 0, see :func:`require_positive`."""
    return float(require_positive(value, name, dtype=tf.float64).item())


def require_flag(value: Any, name: str) -> None:
    """Refuse values other than True and False, since ``"no"`` counts as true in Python."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}.")


def require_choice(value: Any, name: str, choices: Sequence[Any]) -> None:
    """Refuse a value that is not among ``choices``, which are strings and None."""
    if not (value is None or isinstance(value, str)) or value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {listed}; got {value!r}.")


def require_range(tensor: tf.Tensor, name: str, missing: bool = False) -> None:
    """
    Refuse NaN, infinity and entries whose squares overflow, where values are known.

    :param missing: whether NaN is an entry that is not observed.
    """
    values = tensor if tf.executing_eagerly() else tf.get_static_value(tensor)
    if values is None or not tensor.dtype.is_floating:
        return
    if missing:
        with tf.init_scope():
            values = np.nan_to_num(values, posinf=np.inf, neginf=-np.inf)
    limit = tensor.dtype.max**0.5 / 1e3
    remedy = " Drop or fill these rows." if tensor.shape.rank else ""
    with tf.init_scope():
        # `.numpy()`, since AutoGraph would convert `bool`; a comparison with NaN is false
        if tf.size(values).numpy() == 0 or tf.reduce_max(tf.abs(values)).numpy() < limit:
            return
        sizes = np.abs(np.asarray(values))
    bad = np.argwhere(~np.isfinite(sizes))
    if len(bad):
        where = ", ".join(str(tuple(int(i) for i in index)) for index in bad[:3])
        raise ValueError(
            f"{name} must be finite, but {len(bad)} of its {sizes.size} entries are NaN or "
            f"infinite, the first at {where}.{remedy}"
        )
    place = tuple(int(i) for i in np.unravel_index(sizes.argmax(), sizes.shape))
    raise ValueError(
        f"{name} must be smaller than {limit:.0e} in size, or its squares overflow in "
        f"{tensor.dtype.name}; its largest entry is {sizes.max():.3g}, at {place}. Drop that row, "
        f"or standardize {name} (gpflow_sparse.Standardizer)."
    )


def require_finite_in_graph(tensor: tf.Tensor, name: str) -> tf.Tensor:
    """
    An argument of a traced function, with a check for NaN, infinity and overflow in the graph.

    :return: the same values; running the graph raises ``tf.errors.InvalidArgumentError`` with a
        message about ``name`` if they, or their squares, are not finite.
    """
    known = tf.executing_eagerly() or tf.get_static_value(tensor) is not None
    if known or not tensor.dtype.is_floating:
        return tensor
    message = f"{name} must be finite, and its squares too: drop or fill rows, and standardize"
    with tf.control_dependencies([tf.debugging.check_numerics(tf.square(tensor), message)]):
        return tf.identity(tensor)


def _require_known_rank(tensor: tf.Tensor, name: str, wanted: str) -> None:
    if tensor.shape.rank is None:
        raise ValueError(
            f"{name} must {wanted}, but its rank is unknown while tracing: give the function an "
            f"input_signature of rank 2, or call {name}.set_shape([None, None]) first."
        )


def _require_equal(
    static: int | None, other: int | None, dynamic: Any, dynamic_other: Any, text: str
) -> None:
    """Compare two sizes while tracing where they are known, else when the graph runs."""
    if static is None or other is None:
        tf.debugging.assert_equal(dynamic, dynamic_other, message=text.split(", got")[0])
    elif static != other:
        raise ValueError(text.format(static, other))


def _shape(tensor: tf.Tensor) -> tuple[int | None, ...]:
    return tuple(tensor.shape)
