"""Kinds of hostile input, and which roles each may nevertheless play."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import scipy.sparse
import tensorflow as tf

# What an array can be to a door: inputs or outputs of a pair of equally many rows ("wide": of any
# number of columns), inputs of a fixed number of columns, inputs of any shape [N, D], an orthogonal
# set, an array of one exact shape, or a number for each column ("scale": or one for all).
ANY = frozenset({"x", "y", "wide", "alone", "free", "orthogonal", "exact", "scale"})
ROWS = frozenset({"alone", "free", "orthogonal"})
NOWHERE = frozenset()


class Kind(NamedTuple):
    """One way to spoil a good float64 matrix."""

    make: Callable[[np.ndarray], Any]
    """From the good matrix to what is passed."""
    roles: frozenset = NOWHERE
    """Where it has a meaning: there its result must be that of the float64 matrix, or an error."""
    clean: Callable[[Any], np.ndarray] = lambda value: np.array(value, dtype=np.float64)
    """From what is passed to the float64 matrix it stands for."""
    values: bool = False
    """Only its values are wrong, which cannot be seen in an argument of a traced function."""


class Frame:
    """What NumPy sees of a data frame."""

    def __init__(self, values, error=None):
        self.values, self.error = values, error

    def __array__(self, dtype=None, copy=None):
        if self.error is not None:
            raise self.error
        return np.asarray(self.values, dtype=dtype)


def put(value, *index):
    def make(A):
        A = A.copy()
        A[index or (1, 0)] = value
        return A

    return make


def as_type(dtype):
    return lambda A: np.round(3.0 * A).astype(dtype)


def masked(*entries):
    def make(A):
        mask = np.zeros(A.shape, dtype=bool)
        for entry in entries:
            mask[entry] = True
        return np.ma.masked_array(A, mask)

    return make


def record(A):
    return np.array([tuple(row) for row in A], dtype=[(f"c{i}", float) for i in range(A.shape[1])])


def read_only(A):
    A = A.copy()
    A.flags.writeable = False
    return A


def strided(A):
    return np.repeat(np.repeat(A, 2, axis=0), 3, axis=1)[::2, ::3]


SHAPES = {
    "python_scalar": Kind(lambda A: 3.0, frozenset({"scale"})),
    "zero_rank": Kind(lambda A: np.array(3.0), frozenset({"scale"})),
    "rank_1": Kind(lambda A: A[:, 0].copy()),
    "rank_3": Kind(lambda A: A[None], frozenset({"alone"})),
    "one_row": Kind(lambda A: A[:1], ROWS | {"exact"}),
    "one_entry": Kind(lambda A: A[:1, :1], ROWS),
    "a_row_short": Kind(lambda A: A[:-1], ROWS),
    "a_row_long": Kind(lambda A: np.vstack([A, A[:1] + 1.0]), ROWS),
    "a_column_short": Kind(lambda A: A[:, :-1], frozenset({"free", "wide"})),
    "a_column_long": Kind(lambda A: np.hstack([A, A[:, :1]]), frozenset({"free", "wide"})),
    "transposed": Kind(lambda A: A.T, frozenset({"free", "scale"})),
    "no_rows": Kind(lambda A: A[:0], frozenset({"orthogonal"})),
    "no_columns": Kind(lambda A: A[:, :0]),
    "empty_list": Kind(lambda A: []),
}

VALUES = {
    "nan": Kind(put(np.nan), values=True),
    "inf": Kind(put(np.inf), values=True),
    "nan_tensor": Kind(lambda A: tf.constant(put(np.nan)(A)), values=True),
    "nan_float32": Kind(lambda A: put(np.nan)(A.astype(np.float32)), values=True),
    "scale_1e300": Kind(lambda A: 1e300 * A, ANY, values=True),
    "scale_1e12": Kind(lambda A: 1e12 * A, ANY),
    "scale_1e-12": Kind(lambda A: 1e-12 * A, ANY),
    "mixed_scales": Kind(lambda A: A * np.geomspace(1e-12, 1e12, A.size).reshape(A.shape), ANY),
    "subnormal": Kind(lambda A: put(5e-324)(A), ANY),
    "constant_column": Kind(lambda A: np.hstack([A[:, 1:], np.full_like(A[:, :1], 2.0)]), ANY),
    "all_zero": Kind(lambda A: np.zeros_like(A), ANY),
    "duplicate_rows": Kind(lambda A: np.repeat(A[:2], 3, axis=0), ANY),
}

DTYPES = {
    "float32": Kind(lambda A: A.astype(np.float32), ANY),
    "float16": Kind(lambda A: A.astype(np.float16), ANY),
    "long_double": Kind(lambda A: A.astype(np.longdouble), ANY),
    "big_endian": Kind(lambda A: A.astype(">f8"), ANY),
    "int8": Kind(as_type(np.int8), ANY),
    "uint64": Kind(lambda A: np.arange(A.size, dtype=np.uint64).reshape(A.shape), ANY),
    "huge_int64": Kind(lambda A: np.full(A.shape, 2**62) + np.round(A).astype(np.int64), ANY),
    "huge_python_int": Kind(lambda A: [[10**400] * A.shape[1]] * A.shape[0]),
    "bool": Kind(lambda A: A > 0, ANY),
    "complex": Kind(lambda A: A + 1j),
    "complex_tensor": Kind(lambda A: tf.constant(A + 0j)),
    "object_floats": Kind(lambda A: A.astype(object)),
    "object_none": Kind(lambda A: put(None)(A.astype(object))),
    "number_strings": Kind(lambda A: A.astype(str)),
    "string_tensor": Kind(lambda A: tf.constant(np.full(A.shape, "1.0"))),
    "bytes": Kind(lambda A: np.full(A.shape, b"1")),
    "timedelta64": Kind(lambda A: np.full(A.shape, 3, dtype="timedelta64[s]")),
    "record": Kind(record),
}

LAYOUTS = {
    "fortran": Kind(np.asfortranarray, ANY),
    "negative_strides": Kind(lambda A: A[::-1], ANY),
    "strided": Kind(strided, ANY),
    "read_only": Kind(read_only, ANY),
    "matrix": Kind(np.matrix, ANY),
    "list": Kind(lambda A: A.tolist(), ANY),
    "tuple_of_arrays": Kind(tuple, ANY),
    "list_of_tensors": Kind(lambda A: [tf.constant(row) for row in A], ANY),
    "tensor_float32": Kind(lambda A: tf.constant(A, tf.float32), ANY, lambda v: np.float64(v)),
    "variable": Kind(tf.Variable, ANY, lambda v: v.numpy()),
    "parameter": Kind(gpflow.Parameter, ANY, lambda v: v.numpy()),
    "frame": Kind(Frame, ANY, lambda v: np.asarray(v)),
    "masked_nowhere": Kind(masked(), ANY),
}

CONTAINERS = {
    "masked": Kind(masked((1, 0))),
    "frame_of_objects": Kind(lambda A: Frame(A.astype(object))),
    "frame_that_raises": Kind(lambda A: Frame(A, RuntimeError("no array today"))),
    "ragged_list": Kind(lambda A: [[1.0, 2.0], [3.0]]),
    "sparse_tensor": Kind(lambda A: tf.sparse.from_dense(A)),
    "ragged_tensor": Kind(lambda A: tf.RaggedTensor.from_tensor(A)),
    "scipy_sparse": Kind(scipy.sparse.csr_matrix),
    "dataset": Kind(lambda A: tf.data.Dataset.from_tensors(A)),
    "generator": Kind(lambda A: (row for row in A)),
    "set": Kind(lambda A: {1.0, 2.0}),
    "dict": Kind(lambda A: {"X": A}),
    "none": Kind(lambda A: None),
    "string": Kind(lambda A: "X"),
    "function": Kind(lambda A: np.sin),
    "tensor_spec": Kind(lambda A: tf.TensorSpec(A.shape, tf.float64)),
}

GROUPS = {
    "shapes": SHAPES,
    "values": VALUES,
    "types": DTYPES,
    "layouts": LAYOUTS,
    "containers": CONTAINERS,
}
KINDS = {name: kind for group in GROUPS.values() for name, kind in group.items()}

# Values for an argument that should be a count, a flag, a seed, or an object of GPflow.
OPTIONS = {
    "None": None,
    "0": 0,
    "-1": -1,
    "1": 1,
    "numpy_2": np.int64(2),
    "2.5": 2.5,
    "2.0": 2.0,
    "10**30": 10**30,
    "True": True,
    "False": False,
    "numpy_True": np.True_,
    "'yes'": "yes",
    "'2'": "2",
    "nan": float("nan"),
    "inf": float("inf"),
    "[2]": [2],
    "()": (),
    "array(2)": np.array(2),
    "array([2])": np.array([2]),
    "tensor(2)": tf.constant(2),
    "dict": {},
    "object": object(),
    "type": gpflow.kernels.Matern52,
    "function": np.sin,
}
