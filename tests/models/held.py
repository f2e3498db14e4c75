"""The same rows in other containers."""

import itertools

import numpy as np
import tensorflow as tf

KINDS = ("memmap", "one map", "dataset", "generator")


def held_in(kind, rows, folder):
    """Rows ``(X, Y)`` as memory maps, one of them, or a data set of even or of ragged batches."""
    if kind in ("memmap", "one map"):
        for name, part in zip("XY", rows, strict=True):
            np.save(folder / f"{name}.npy", part)
        X, Y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in "XY")
        return X, Y if kind == "memmap" else rows[1]
    if kind == "dataset":
        return tf.data.Dataset.from_tensor_slices(rows).batch(8)
    spec = tuple(tf.TensorSpec([None, part.shape[1]], tf.float64) for part in rows)
    ends = itertools.pairwise([0, 11, 12, 25, len(rows[0])])
    batches = [tuple(part[a:b] for part in rows) for a, b in ends]
    return tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=spec)
