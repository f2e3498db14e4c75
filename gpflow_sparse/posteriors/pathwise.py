"""Functions drawn from a posterior: a draw of the prior, plus what the inducing variables change.

Wilson et al., "Efficiently Sampling Functions from Gaussian Process Posteriors" (2020,
arXiv:2002.09309), with one departure, which
:class:`~gpflow_sparse.posteriors.draws.FunctionDraws` explains.
"""

import math
from collections.abc import Sequence

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.covariances import Kuf
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import Kernel

from gpflow_sparse.bases.fourier import draw_frequencies
from gpflow_sparse.numerics import block_elimination
from gpflow_sparse.posteriors.draws import in_blocks, stack, unstack


class PriorPaths(tf.Module):
    r"""
    Functions drawn from a zero-mean prior, one for each of S samples and P outputs:

        f(x) = sqrt(variance / F) sum_i a_i cos(w_i^T x + b_i),      F = num_features / 2,

    with ``w`` from the spectral density, ``a`` from a Rayleigh distribution, ``b`` uniform on the
    circle. One such cosine is ``v_1 cos(w^T x) + v_2 sin(w^T x)`` with standard normal ``v``, in
    polar coordinates: a pair of random features for one evaluation.
    """

    def __init__(
        self,
        kernel: Kernel,
        shape: tuple[int, int],
        num_features: int,
        num_columns: int,
        generator: np.random.Generator,
    ) -> None:
        """
        :param kernel: SquaredExponential, Matern12, Matern32, Matern52 or a Product of such; its
            hyperparameters are copied.
        :param shape: ``(S, P)``.
        :param num_columns: D of the inputs, of which the kernel may read some.
        :raises ValueError: for a kernel without random Fourier features.
        """
        super().__init__()
        self.num_cosines = num_features // 2
        size = (*shape, self.num_cosines)
        drawn = draw_frequencies(kernel, math.prod(size), num_columns, generator)
        frequencies = np.swapaxes(drawn.reshape(*size, num_columns), -1, -2)  # [S, P, D, F]
        self.kernel = gpflow.utilities.freeze(kernel)
        self.shape = shape
        self.dtype = next(p.dtype for p in kernel.parameters if p.dtype.is_floating)
        origin = tf.zeros([1, num_columns], self.dtype)
        variance = self.kernel(origin, full_cov=False)[0]  # the same everywhere
        self._frequencies = tf.constant(frequencies, dtype=self.dtype)
        phases = generator.uniform(0.0, 2.0 * math.pi, size=size)
        self._phases = tf.constant(phases[..., None, :], dtype=self.dtype)  # [S, P, 1, F]
        amplitudes = tf.constant(generator.rayleigh(size=size), dtype=self.dtype)  # [S, P, F]
        self._amplitudes = tf.sqrt(variance / self.num_cosines) * amplitudes

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """``[S, N, P]`` at ``X [N, D]``."""
        return in_blocks(self.evaluate, X, self.numbers_per_row)

    @property
    def numbers_per_row(self) -> int:
        """How many numbers a row of X takes in the largest tensor on the way."""
        return math.prod(self.shape) * self.num_cosines

    @property
    def cosines(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Frequencies ``w [S, P, D, F]``, phases ``b [S, P, F]`` and amplitudes ``[S, P, F]``."""
        phases = self._phases[:, :, 0]
        return self._frequencies.numpy(), phases.numpy(), self._amplitudes.numpy()

    def evaluate(self, X: tf.Tensor) -> tf.Tensor:
        """As a call, all rows at once."""
        angles = tf.linalg.matmul(X, self._frequencies) + self._phases  # [S, P, N, F]
        values = tf.linalg.matvec(tf.cos(angles), self._amplitudes)  # [S, P, N]
        return tf.linalg.matrix_transpose(values)


class PosteriorPaths(tf.Module):
    """``f_prior(x) + sum_b Kuf_b(x)^T c_b``: draws of a prior, moved by inducing points."""

    def __init__(
        self,
        prior: PriorPaths,
        sets: Sequence[InducingPoints],
        coefficients: Sequence[tf.Tensor],
    ) -> None:
        """
        :param sets: inducing points, by blocks; copied.
        :param coefficients: ``c_b [S, M_b, P]``; see :func:`condition`.
        """
        super().__init__()
        self.prior = prior
        self._sets = tuple(gpflow.utilities.freeze(s) for s in sets)
        self._coefficients = tuple(stack(c) for c in coefficients)  # [M_b, S P]

    @property
    def dtype(self) -> tf.DType:
        """Float type of X and of the values."""
        return self.prior.dtype

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """``[S, N, P]`` at ``X [N, D]``."""
        num_inducing = sum(c.shape[0] for c in self._coefficients)
        return in_blocks(self._evaluate, X, max(self.prior.numbers_per_row, num_inducing))

    def with_mean(self, points: InducingPoints, weights: tf.Tensor) -> "PosteriorPaths":
        """The same draws plus ``Kuf(x)^T weights``, for one more set and ``weights [M, P]``."""
        S, P = self.prior.shape
        added = tf.broadcast_to(weights, [S, weights.shape[0], P])
        coefficients = [unstack(c, self.prior.shape) for c in self._coefficients]
        return PosteriorPaths(self.prior, [*self._sets, points], [*coefficients, added])

    def _evaluate(self, X: tf.Tensor) -> tf.Tensor:
        update = tf.add_n(
            [
                tf.linalg.matmul(Kuf(s, self.prior.kernel, X), c, transpose_a=True)  # [N, S P]
                for s, c in zip(self._sets, self._coefficients, strict=True)
            ]
        )
        return self.prior.evaluate(X) + unstack(update, self.prior.shape)


def condition(
    prior: PriorPaths,
    sets: Sequence[InducingPoints],
    L: block_elimination.BlockMatrix,
    q: Sequence[tuple[tf.Tensor, tf.Tensor | None]],
    jitter: tf.Tensor,
    generator: np.random.Generator,
) -> PosteriorPaths:
    """
    Draws of the posterior from draws of the prior; see
    :class:`~gpflow_sparse.posteriors.draws.FunctionDraws`. In whitened form

        c = L^-T ( m + R xi - L^-1 (f_prior(U) + sqrt(eps) zeta) ),      xi, zeta ~ N(0, I).

    Time O(M^2 S P + M S P num_features D).

    :param sets: inducing points U, by blocks.
    :param L: factor of their prior covariance, ``jitter`` on its diagonal included.
    :param q: whitened means ``[M_b, P]`` and factors ``[P, M_b, M_b]``; None for a fixed mean.
    """
    values, targets = [], []
    for s, (m, R) in zip(sets, q, strict=True):
        f = prior(tf.convert_to_tensor(s.Z))  # [S, M_b, P]
        zeta, xi = (tf.constant(generator.normal(size=f.shape), dtype=f.dtype) for _ in range(2))
        values.append(stack(f + tf.sqrt(jitter) * zeta))
        drawn = tf.broadcast_to(m, f.shape)
        targets.append(stack(drawn if R is None else drawn + tf.einsum("pij,sjp->sip", R, xi)))
    whitened = block_elimination.block_solve(L, values)
    rhs = [target - w for target, w in zip(targets, whitened, strict=True)]
    coefficients = block_elimination.block_solve_adjoint(L, rhs)
    return PosteriorPaths(prior, sets, [unstack(c, prior.shape) for c in coefficients])


def require_points(sets: Sequence[InducingVariables]) -> None:
    """
    Refuse inducing variables that are not values of ``f``.

    :raises ValueError: naming the kind.
    """
    for s in sets:
        if type(s) is not InducingPoints:
            raise ValueError(
                "functions can be drawn if inducing_variable holds points, arrays [M, D] or "
                f"gpflow's InducingPoints; got {type(s).__name__}, where the prior's draws have no "
                "values. Draw values instead: predict_f_samples."
            )
