"""Random Fourier features of stationary kernels, and their frequencies."""

import math
from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import kernels

from gpflow_sparse.bases.base import FiniteBasis
from gpflow_sparse.covariances.stationary import is_map
from gpflow_sparse.numerics import counters, devices
from gpflow_sparse.numerics.cosines import cos_two_pi
from gpflow_sparse.validation import checks, component_checks

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

    so that every ``basis(x) basis(x)^T`` is the variance, exactly. With unit lengthscales the
    spectral density of a squared exponential is a standard normal, and the spectral density of a
    Matern kernel of smoothness nu a multivariate Student's t with 2 nu degrees of freedom. Weights
    are ``N(0, I)``. Rahimi and Recht, "Random Features for Large-Scale Kernel Machines" (2007),
    whose algorithm 1 has the pairs.

    Frequencies belong to ``(seed, index)``: they are a hash (see
    :mod:`gpflow_sparse.numerics.counters`), computed for unit lengthscales when needed, so none is
    stored and ``m = 1e7`` has no cost until columns are evaluated. Variance, lengthscales and
    ``active_dims`` are read from the kernel at every call; gradients reach the first two.
    """

    def __init__(
        self, kernel: kernels.Kernel, num_features: int, *, orthogonal: bool = False, seed: int = 0
    ) -> None:
        """
        :param kernel: SquaredExponential (RBF), Matern12, Matern32 or Matern52.
        :param num_features: m, even.
        :param orthogonal: frequencies in blocks of D orthogonal directions, each with a radius of
            its own, so that they spread evenly: Yu et al., "Orthogonal Random Features" (2016),
            section 3, with the norm of a normal vector as the radius. Here the radius is the norm
            of a draw from the kernel's spectral density, so all four kernels are unbiased. Each
            block with a chosen column is computed as a whole, in O(D^3) at every call: for k
            scattered columns O(k D^3).
        :param seed: seed of the frequencies, from 0 to 2^32 - 1.
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
        self._input_dim: int | None = None

    @property
    def input_dim(self) -> int | None:
        """D of earlier inputs if the kernel reads all their columns; else None."""
        return self._input_dim

    def _columns(self, X: tf.Tensor, indices: tf.Tensor | None) -> tf.Tensor:
        """Time and memory O(N m D) and O(N m), or O(N k D) and O(N k) for k indices."""
        if indices is None:
            return tf.transpose(self._features(X, ()))
        return self.columns_at([X], indices)[0]

    def _of_sets(self, X: tf.Tensor, sets: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        sizes = [chosen.shape[0] for chosen in sets]
        if None in sizes or not devices.sees_gpu():
            return [self._columns(X, chosen) for chosen in sets]
        return tf.split(self._columns(X, tf.concat(sets, axis=0)), sizes, axis=1)

    def _features(self, X: tf.Tensor, precomputed: Sequence[tf.Tensor]) -> tf.Tensor:
        inputs = self._scaled_inputs(X)  # [N, D]
        W = self._frequencies(inputs, tf.range(self.num_basis // 2, dtype=tf.int64))  # [m / 2, D]
        angles = tf.linalg.matmul(W, inputs, transpose_b=True)  # [m / 2, N]
        # rows of a pair are whole rows of memory: twice as fast as pairs of columns
        pairs = tf.stack([tf.cos(angles), tf.sin(angles)], axis=1)  # [m / 2, 2, N]
        scale = tf.sqrt(2.0 * self.kernel.variance / self.num_basis)
        return scale * tf.reshape(pairs, [self.num_basis, -1])

    def columns_at(self, inputs: Sequence[tf.Tensor], indices: tf.Tensor) -> list[tf.Tensor]:
        """
        Chosen columns at several sets of inputs, each frequency hashed once.

        :param inputs: sets of inputs ``X [N, D]``, checked by the caller.
        :param indices: ``[k]``, checked too.
        :return: ``[N, k]`` for each set.
        """
        inputs = [self._scaled_inputs(X) for X in inputs]
        W = self._frequencies(inputs[0], indices // 2) / (2.0 * math.pi)  # [k, D], in turns
        # a sine is a cosine a quarter turn later: one function per column, not two
        phases = -0.25 * tf.cast(indices % 2, W.dtype)
        scale = tf.sqrt(2.0 * self.kernel.variance / self.num_basis)
        return [cos_two_pi(tf.linalg.matmul(x, W, transpose_b=True), phases, scale) for x in inputs]

    def _scaled_inputs(self, X: tf.Tensor) -> tf.Tensor:
        """The columns ``[N, D]`` that the kernel reads, over its lengthscales."""
        if spectral_degrees(self.kernel) != self._degrees:
            raise ValueError(
                f"kernel has become a {type(self.kernel).__name__} since the frequencies were "
                "chosen; make a new RandomFourier for it."
            )
        if X.shape[1] is None:
            raise ValueError(
                "X must have a known number of columns while tracing: give the function an "
                "input_signature such as tf.TensorSpec([None, D])."
            )
        active = self.kernel.active_dims
        if isinstance(active, slice) and active == slice(None):
            self._input_dim = X.shape[1]
        return self.kernel.scale(self.kernel.slice(X, None)[0])

    def _frequencies(self, inputs: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
        return hashed_frequencies(
            self._degrees,
            self.seed,
            indices,
            inputs.shape[1],
            inputs.dtype,
            orthogonal=self.orthogonal,
        )


def hashed_frequencies(
    degrees: float,
    seed: int,
    indices: tf.Tensor,
    num_columns: int,
    dtype: tf.DType,
    *,
    orthogonal: bool = False,
) -> tf.Tensor:
    """
    Draws from the spectral density of a kernel with unit lengthscales that belong to
    ``(seed, index)``.

    A Student's t is a normal over the root of the mean square of ``degrees`` other normals. In
    :func:`gpflow_sparse.numerics.counters.normals` the normal takes lanes 0 to D - 1, the others
    the next ``degrees`` lanes. Time O(k D).

    With ``orthogonal`` the direction of the normal is a row of :func:`_orthogonal_directions`, and
    its length the norm of D normals in the next D lanes: each frequency alone has the same
    distribution. Time O(D^3) for every block of D indices with a chosen one.

    :param degrees: see :func:`spectral_degrees`.
    :param indices: ``[k]``, of int64.
    :return: ``[k, D]``.
    """
    num_others = 0 if degrees == math.inf else int(degrees)
    if orthogonal:
        radii = counters.normals(seed, indices, num_columns, dtype, num_columns + num_others)
        lengths = tf.norm(radii, axis=1, keepdims=True)
        normals = _orthogonal_directions(seed, indices, num_columns, dtype) * lengths
    else:
        normals = counters.normals(seed, indices, num_columns, dtype)
    if not num_others:
        return normals
    others = counters.normals(seed, indices, num_others, dtype, num_columns)  # none of them is 0
    return normals * tf.math.rsqrt(tf.reduce_mean(tf.square(others), axis=1, keepdims=True))


def _orthogonal_directions(
    seed: int, indices: tf.Tensor, num_columns: int, dtype: tf.DType
) -> tf.Tensor:
    """
    Unit vectors ``[k, D]``: the vectors of block b, indices ``b D`` to ``b D + D - 1``, are the
    rows of Q of the QR decomposition of the D x D normals in lanes 0 to D - 1 of these indices.
    """
    blocks, position = tf.unique(indices // num_columns)  # [B], [k]
    members = blocks[:, None] * num_columns + tf.range(num_columns, dtype=tf.int64)  # [B, D]
    normals = counters.normals(seed, tf.reshape(members, [-1]), num_columns, dtype)
    Q, R = tf.linalg.qr(tf.reshape(normals, [-1, num_columns, num_columns]))  # [B, D, D]
    # uniform over rotations only with R's diagonal made positive
    Q = tf.where(tf.linalg.diag_part(R)[:, None, :] < 0.0, -Q, Q)
    return tf.gather_nd(Q, tf.stack([tf.cast(position, tf.int64), indices % num_columns], axis=1))


def draw_frequencies(
    kernel: kernels.Kernel, count: int, num_columns: int, generator: np.random.Generator
) -> np.ndarray:
    """
    Draws from the spectral density of a kernel with its own lengthscales, by NumPy's generator.

    The spectral density of a Product is the density of a sum of independent frequencies, one of
    each part, and of a Sum the mixture of the parts' by their variances; a Constant has the
    frequency 0; a LinearMap by A has ``A^T w`` for w of its base. A kernel of a user's class may
    have a method ``draw_frequencies(count, num_columns, generator)`` of its own.

    :param num_columns: D of the inputs; columns that the kernel does not read have the frequency 0.
    :return: ``[count, D]``, float64.
    :raises ValueError: for other kernels.
    """
    if is_map(kernel):
        A = np.asarray(kernel.matrix)
        return draw_frequencies(kernel.base, count, len(A), generator) @ A
    if hasattr(kernel, "draw_frequencies"):
        return np.asarray(kernel.draw_frequencies(count, num_columns, generator))
    if type(kernel) is kernels.Sum:
        return _draw_from_mixture(kernel, count, num_columns, generator)
    found = np.zeros((count, num_columns))
    if type(kernel) is kernels.Product:
        for part in kernel.kernels:
            found += draw_frequencies(part, count, num_columns, generator)
        return found
    if type(kernel) is kernels.Constant:
        return found
    if type(kernel) not in _DEGREES:
        raise ValueError(
            "kernel must be SquaredExponential, Matern12, Matern32, Matern52, MainEffects, or a "
            "sum, product or linear map of these to draw functions by random Fourier features, "
            f"got {type(kernel).__name__}: give its class a method draw_frequencies(count, "
            "num_columns, generator), or draw values by predict_f_samples."
        )
    degrees = spectral_degrees(kernel)
    columns = np.arange(num_columns)[kernel.active_dims]
    drawn = generator.normal(size=(count, len(columns)))
    if degrees < math.inf:
        drawn /= np.sqrt(generator.chisquare(degrees, size=(count, 1)) / degrees)
    np.add.at(found.T, columns, (drawn / np.asarray(kernel.lengthscales)).T)
    return found


def _draw_from_mixture(
    kernel: kernels.Sum, count: int, num_columns: int, generator: np.random.Generator
) -> np.ndarray:
    """:func:`draw_frequencies` of a sum; each draw has a part of its own."""
    drawn = [draw_frequencies(part, count, num_columns, generator) for part in kernel.kernels]
    somewhere = np.zeros((1, num_columns))
    variances = np.ravel([part(somewhere, full_cov=False) for part in kernel.kernels])
    chosen = generator.choice(len(drawn), size=count, p=variances / variances.sum())
    return np.stack(drawn)[chosen, np.arange(count)]


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
