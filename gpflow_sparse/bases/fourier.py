"""Random Fourier features of stationary kernels, and the frequencies they are made of."""

import math
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import kernels

from gpflow_sparse import checks, component_checks
from gpflow_sparse.bases.base import FiniteBasis

# Degrees of freedom of the Student's t that the frequencies follow, 2 nu for a Matern kernel of
# smoothness nu; infinitely many make a normal.
_DEGREES: dict[type, float] = {
    kernels.SquaredExponential: math.inf,
    kernels.Matern12: 1.0,
    kernels.Matern32: 3.0,
    kernels.Matern52: 5.0,
}


class RandomFourier(FiniteBasis):
    r"""
    Random Fourier features: ``basis(X) basis(X')^T`` is ``k(X, X')`` on average over seeds.

    A stationary kernel is the Fourier transform of its spectral density, a distribution of
    frequencies ``w``: ``k(x, x') = variance E[cos(w^T (x - x'))]``. With m / 2 frequencies from it,
    features ``2 i`` and ``2 i + 1`` are

        sqrt(2 variance / m) cos(w_i^T x)     and     sqrt(2 variance / m) sin(w_i^T x),

    so that every ``basis(x) basis(x)^T`` is the variance, exactly. The spectral density of a
    squared exponential with unit lengthscales is a standard normal; that of a Matern kernel of
    smoothness nu is a multivariate Student's t with 2 nu degrees of freedom. Weights are
    ``N(0, I)``. Rahimi and Recht, "Random Features for Large-Scale Kernel Machines" (2007), whose
    algorithm 1 has the pairs.

    Frequencies are drawn once, for unit lengthscales; variance, lengthscales and ``active_dims``
    are read from the kernel at every call, so gradients reach them.
    """

    def __init__(
        self, kernel: kernels.Kernel, num_features: int, *, orthogonal: bool = False, seed: int = 0
    ) -> None:
        """
        :param kernel: SquaredExponential (RBF), Matern12, Matern32 or Matern52.
        :param num_features: m, even.
        :param orthogonal: frequencies in blocks of D orthogonal directions, each with a radius of
            its own, so that they spread evenly: Yu et al., "Orthogonal Random Features" (2016),
            section 3; their radius is the norm of a normal, ours that of the kernel's own spectral
            density, so all four kernels are unbiased. O(m D^2) once.
        :param seed: of the frequencies, from 0 to 2^32 - 1.
        :raises ValueError: for another kernel, an odd number of features, or a bad seed or flag.
        """
        super().__init__()
        self._degrees = spectral_degrees(kernel)
        component_checks.require_dtype(kernel, "kernel", gpflow.default_float())
        checks.require_flag(orthogonal, "orthogonal")
        self.kernel = kernel
        self.num_basis = require_num_features(num_features)
        self.orthogonal = bool(orthogonal)
        self.seed = checks.require_seed(seed)
        self._frequencies: tf.Tensor | None = None

    @property
    def input_dim(self) -> int | None:
        """D, once the frequencies are drawn for all columns of X; None before."""
        active = self.kernel.active_dims
        if self._frequencies is None or not isinstance(active, slice) or active != slice(None):
            return None
        return int(self._frequencies.shape[1])

    def _columns(self, X: tf.Tensor, indices: tf.Tensor | None) -> tf.Tensor:
        """Time and memory O(N m D) and O(N m), or O(N k D) and O(N k) for k indices."""
        if spectral_degrees(self.kernel) != self._degrees:
            raise ValueError(
                f"kernel has become a {type(self.kernel).__name__} since the frequencies were "
                "chosen; make a new RandomFourier for it."
            )
        inputs = self.kernel.scale(self.kernel.slice(X, None)[0])  # [N, D], lengthscales now 1
        scale = tf.sqrt(2.0 * self.kernel.variance / self.num_basis)
        if indices is None:
            W = self._standard_frequencies(inputs.shape[-1])  # [m / 2, D]
            angles = tf.linalg.matmul(inputs, W, transpose_b=True)  # [N, m / 2]
            pairs = tf.stack([tf.cos(angles), tf.sin(angles)], axis=-1)  # [N, m / 2, 2]
            return scale * tf.reshape(pairs, [-1, self.num_basis])
        W = self._standard_frequencies(inputs.shape[-1], indices // 2)  # [k, D]
        # a sine is a cosine a quarter turn later: one function per column, not two
        turn = 0.5 * math.pi * tf.cast(indices % 2, X.dtype)
        return scale * tf.cos(tf.linalg.matmul(inputs, W, transpose_b=True) - turn)

    def _standard_frequencies(
        self, num_columns: int | None, indices: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Frequencies for unit lengthscales, ``[m / 2, D]``, or the rows asked for."""
        if num_columns is None:
            raise ValueError(
                "X must have a known number of columns while tracing: give the function an "
                "input_signature such as tf.TensorSpec([None, D])."
            )
        if self._frequencies is None:
            # D is known only now; the stream belongs to this object, so when does not matter
            drawn = standard_frequencies(
                self._degrees,
                self.num_basis // 2,
                num_columns,
                np.random.default_rng(self.seed),
                orthogonal=self.orthogonal,
            )
            with tf.init_scope():
                self._frequencies = tf.constant(drawn, dtype=gpflow.default_float())
        if self._frequencies.shape[1] != num_columns:
            raise ValueError(
                f"X must have as many columns for the kernel as when the frequencies were drawn, "
                f"{self._frequencies.shape[1]}; got {num_columns}. Make a new RandomFourier."
            )
        return self._frequencies if indices is None else tf.gather(self._frequencies, indices)


def standard_frequencies(
    degrees: float,
    count: int,
    num_columns: int,
    generator: np.random.Generator,
    *,
    orthogonal: bool = False,
) -> np.ndarray:
    """
    Draws from the spectral density of a kernel with unit lengthscales.

    :param degrees: see :func:`spectral_degrees`.
    :param orthogonal: consecutive groups of D draws point in orthogonal directions; each draw
        alone has the same distribution either way.
    :return: ``[count, D]``, float64.
    """
    if orthogonal:
        blocks = -(-count // num_columns)
        Q, R = np.linalg.qr(generator.normal(size=(blocks, num_columns, num_columns)))
        # uniform over rotations only with R's diagonal made positive
        Q = Q * np.sign(np.diagonal(R, axis1=-2, axis2=-1))[:, None, :]
        radius = np.sqrt(generator.chisquare(num_columns, size=(count, 1)))
        frequencies = Q.reshape(-1, num_columns)[:count] * radius
    else:
        frequencies = generator.normal(size=(count, num_columns))
    if degrees < math.inf:
        frequencies = frequencies / np.sqrt(generator.chisquare(degrees, size=(count, 1)) / degrees)
    return frequencies


def spectral_degrees(kernel: Any) -> float:
    """
    Degrees of freedom of the multivariate Student's t that is a kernel's spectral density;
    infinity for the normal.

    :raises ValueError: for kernels without such a density: sums, products, kernels of the user's.
    """
    if type(kernel) not in _DEGREES:
        raise ValueError(
            f"kernel must be one of {', '.join(kind.__name__ for kind in _DEGREES)} for random "
            f"Fourier features, got {type(kernel).__name__}."
        )
    return _DEGREES[type(kernel)]


def require_num_features(value: Any) -> int:
    """
    ``value`` as an even positive integer: features come as pairs of a cosine and a sine.

    :raises ValueError: for anything else.
    """
    if checks.require_count(value, "num_features") % 2:
        raise ValueError(
            f"num_features must be even, a cosine and a sine per frequency; got {value}, use "
            f"{int(value) + 1}."
        )
    return int(value)
