"""A basis with other weights, and perhaps turned: the re-weighted kernel of GRIEF."""

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import Parameter

from gpflow_sparse.bases.base import FiniteBasis
from gpflow_sparse.validation import checks


class ReweightedBasis(FiniteBasis):
    """
    ``sqrt(w_j) (V^T phi(x))_j``: the functions of another basis, turned by V, with prior variances
    w in place of 1.

    Without V its kernel is eq. (11) of Evans and Nair, "Scalable Gaussian Processes with
    Grid-Structured Eigenfunctions" (2018). With V it is another family of kernels: a diagonal in
    turned coordinates is none in the old ones, except for ``w = 1``, which is the basis itself
    either way (an orthogonal V).
    """

    def __init__(self, basis: FiniteBasis, weights: Any, rotation: Any = None) -> None:
        """
        :param basis: m functions.
        :param weights: w ``[m]``, positive; an array or a ``gpflow.Parameter``, which it shares.
        :param rotation: V ``[m, m]``, orthogonal; None for the identity.
        :raises ValueError: for weights that are not m positive numbers, or another shape of V.
        """
        super().__init__()
        if not isinstance(basis, FiniteBasis):
            raise ValueError(f"basis must be a finite basis, got {type(basis).__name__}.")
        self.basis = basis
        self.kernel = basis.kernel
        self.num_basis = basis.num_basis
        self.num_leading = basis.num_leading if rotation is None else 0
        if not isinstance(weights, Parameter):
            tensor = checks.as_tensor(weights, "weights")
            checks.require_range(tensor, "weights")
            values = tensor.numpy()
            if not (values >= np.finfo(values.dtype).tiny).all():  # TensorFlow flushes less to 0
                raise ValueError(f"weights must be positive, but the smallest is {values.min():g}.")
            weights = Parameter(values, transform=gpflow.utilities.positive())
        if rotation is not None and not isinstance(rotation, tf.Variable):
            rotation = checks.as_tensor(rotation, "rotation")
        for name, value, shape in (
            ("weights", weights, (self.num_basis,)),
            ("rotation", rotation, (self.num_basis, self.num_basis)),
        ):
            if value is not None and tuple(value.shape) != shape:
                raise ValueError(f"{name} must have shape {shape}, got {tuple(value.shape)}.")
        self.weights = weights
        self.rotation = rotation

    def precompute(self) -> tuple[tf.Tensor, ...]:
        """What the basis inside precomputes."""
        return self.basis.precompute()

    def refresh(self) -> bool:
        """Of the basis inside; weights and rotation stay, whatever functions they are then of."""
        return self.basis.refresh()

    def unweighted(self, coefficients: tf.Tensor) -> tf.Tensor:
        """The same functions in terms of the basis inside: its coefficients, ``[..., m, P]``."""
        scaled = tf.sqrt(tf.cast(self.weights, coefficients.dtype))[:, None] * coefficients
        if self.rotation is None:
            return scaled
        return tf.linalg.matmul(tf.cast(self.rotation, scaled.dtype), scaled)

    @property
    def numbers_per_row(self) -> int:
        return self.basis.numbers_per_row + self.num_basis

    @property
    def input_dim(self) -> int | None:
        return self.basis.input_dim

    def _features(self, X: tf.Tensor, precomputed: Sequence[tf.Tensor]) -> tf.Tensor:
        A = self.basis._features(X, precomputed)
        if self.rotation is not None:
            A = tf.linalg.matmul(tf.cast(self.rotation, A.dtype), A, transpose_a=True)
        return tf.sqrt(tf.cast(self.weights, A.dtype))[:, None] * A

    def _columns(self, X: tf.Tensor, indices: tf.Tensor | None) -> tf.Tensor:
        roots = tf.sqrt(tf.cast(self.weights, X.dtype))
        if indices is not None:
            roots = tf.gather(roots, indices)
        if self.rotation is None:
            return self._inner(X, indices) * roots
        V = tf.cast(self.rotation, X.dtype)
        V = V if indices is None else tf.gather(V, indices, axis=1)
        return tf.linalg.matmul(self._inner(X, None), V) * roots

    def _inner(self, X: tf.Tensor, indices: tf.Tensor | None) -> tf.Tensor:
        """Whitened functions of the basis inside; all of them, if it is not whitened itself."""
        if self.basis.precision == "identity":
            return self.basis._columns(X, indices)
        columns = tf.transpose(self.basis._features(X, self.basis.precompute()))
        return columns if indices is None else tf.gather(columns, indices, axis=1)
