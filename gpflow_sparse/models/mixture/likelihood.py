"""
The log marginal likelihood of one component as a function of its hyperparameters, in float64 for
parameters and data of any float type: factorizations in float32 were off by up to 54 nats.
"""

import contextlib
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.kernels import Kernel

from gpflow_sparse.covariances.stationary import covariance
from gpflow_sparse.inference.exact_gp import LEAST_SQUARE, PROFILES, ExactGP, Values
from gpflow_sparse.inference.log_parameters import LogParameters
from gpflow_sparse.inference.marginal_likelihood import log_density, log_density_of_factor
from gpflow_sparse.initialization.repeated_rows import Rows
from gpflow_sparse.kernels.function import KernelFunction, scale_of, terms_of
from gpflow_sparse.kernels.main_effects import MainEffects
from gpflow_sparse.numerics import linalg
from gpflow_sparse.numerics.tracing import compiled

# Entries of the covariances of the draws that are factorized together: 64 MiB of float64.
_GROUP_ENTRIES = 2**23


def likelihood_of(
    kernel: Kernel, noise_variance: Parameter, vector: LogParameters, rows: Rows
) -> "ClosedFormLikelihood | CompiledLikelihood":
    """
    The likelihood in NumPy where there is a closed form, else by TensorFlow. A value with its
    gradient takes 1.8 ms for 3.9 with 200 rows, and 42 for 110 with 1,000.

    :param vector: of the trainable parameters: the kernel's, and the noise variance.
    :param rows: distinct rows, outputs less the prior mean.
    """
    closed = ClosedFormLikelihood.takes(kernel, rows)
    kind = ClosedFormLikelihood if closed else CompiledLikelihood
    return kind(kernel, noise_variance, vector, rows)


class Drawn(NamedTuple):
    """Log densities given draws, and errors of some outputs predicted from all other rows."""

    values: np.ndarray
    """``[S]``; minus infinity where a factorization fails."""
    errors: np.ndarray
    """Outputs less their means ``[S, m, P]``."""
    variances: np.ndarray
    """Variances of these outputs ``[S, m]``."""


class ClosedFormLikelihood:
    """
    The likelihood in NumPy, for a stationary kernel of all columns, alone or with terms that are
    proportional to a variance, their only trainable parameter.
    """

    @staticmethod
    def takes(kernel: Kernel, rows: Rows) -> bool:
        """Whether a kernel has a closed form, and the rows are at hand."""
        terms = terms_of(kernel)
        others = [term for term in terms if scale_of(term) is None]
        own = [{id(parameter) for parameter in term.parameters} for term in terms]
        return (
            len(others) == 1
            and type(others[0]) in PROFILES
            and len(set().union(*own)) == sum(map(len, own))  # none is common to two terms
            and tf.executing_eagerly()
        )

    def __init__(
        self, kernel: Kernel, noise_variance: Parameter, vector: LogParameters, rows: Rows
    ) -> None:
        """See :func:`likelihood_of`."""
        self._vector = vector
        pairs = [(term, scale_of(term)) for term in terms_of(kernel)]
        (stationary,) = (term for term, scale in pairs if scale is None)
        scaled = [(term, scale) for term, scale in pairs if scale is not None]
        scales = [scale for _, scale in scaled]
        self._own = [stationary.variance, stationary.lengthscales, noise_variance, *scales]
        rows = in_float64(rows)
        X = stationary.slice(rows.X, None)[0].numpy()
        parts = [None if part is None else part.numpy() for part in rows[2:]]
        counts, deviations, powers, known = parts
        self._gp = ExactGP(
            X - X.mean(axis=0),  # distances do not depend on a common shift
            rows.Y.numpy(),
            PROFILES[type(stationary)],
            counts,
            deviations,
            powers,
            known,
            constants=[_at_unit_variance(term, rows.X) for term, _ in scaled],
        )
        self._memory = np.empty((len(X), len(X)))

    def with_gradient(self, at: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient at a vector ``[p]``."""
        value, found = self._gp.with_gradient(self._values(self._vector.values(at)), self._memory)
        each = [found.variance, found.lengthscales, found.noise, *found.scales]
        by_id = {id(p): slope for p, slope in zip(self._own, each, strict=True)}
        slopes = [by_id[id(p)] for p in self._vector.parameters]
        return value, self._vector.gradient_of_values(at, slopes)

    def of_draws(self, draws: Sequence[Sequence[np.ndarray]], rows: np.ndarray) -> Drawn:
        """:param rows: indices of the rows that are predicted ``[m]``."""
        return Drawn(*map(np.array, zip(*(self._of_draw(d, rows) for d in draws), strict=True)))

    def factors(self, draws: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
        """Lower factors of the covariances of the rows ``[S, n, n]``."""
        num_rows = len(self._memory)
        found = np.zeros((len(draws), num_rows, num_rows))
        for draw, L in zip(draws, found, strict=True):
            self._gp.factor(self._values(draw), L)
        return found

    def _of_draw(self, draw: Sequence[np.ndarray], rows: np.ndarray) -> tuple[Any, ...]:
        with contextlib.suppress(np.linalg.LinAlgError):
            found = self._gp.left_out(self._values(draw), self._memory, rows)
            if np.isfinite(found[0]):
                return found
        return -np.inf, np.zeros((len(rows), self._gp.Y.shape[1])), np.ones(len(rows))

    def _values(self, values: Sequence[np.ndarray]) -> Values:
        """
        :param values: of the trainable parameters; others are as they are.
        """
        given = {id(p): value for p, value in zip(self._vector.parameters, values, strict=True)}
        found = [given[id(p)] if id(p) in given else p.numpy() for p in self._own]
        variance, lengthscales, noise, *scales = found
        lengthscales = np.asarray(lengthscales, np.float64)
        return Values(float(variance), lengthscales, float(noise), [float(v) for v in scales])


def _at_unit_variance(term: Kernel, X: tf.Tensor) -> np.ndarray:
    """
    The covariance ``[n, n]`` of a term that is proportional to a variance, at variance 1.

    Main effects are computed by NumPy, column by column: eager operations on differences of all
    columns take three times as long for 200 rows of 5 columns, and twice as long for 1,000.
    """
    profile = PROFILES.get(type(term.base)) if isinstance(term, MainEffects) else None
    if profile is None:
        variance = scale_of(term)
        assert variance is not None  # such a term is not trained by itself
        scale = variance.numpy()
        return (covariance(term, tf.cast(X, scale.dtype)).numpy() / scale).astype(np.float64)
    scaled, K = term.slice(X, None)[0].numpy() / term.base.lengthscales.numpy(), np.zeros(())
    for column in scaled.T:
        squares = np.square(column[:, None] - column)
        K = K + profile(np.maximum(squares, LEAST_SQUARE, out=squares))[0]
    K /= scaled.shape[1]
    np.fill_diagonal(K, 1.0)
    return K


class CompiledLikelihood:
    """The likelihood by TensorFlow, for every kernel."""

    def __init__(
        self, kernel: Kernel, noise_variance: Parameter, vector: LogParameters, rows: Rows
    ) -> None:
        """See :func:`likelihood_of`."""
        self._noise_variance, self._vector, self._rows = noise_variance, vector, rows
        self._kernel = KernelFunction(kernel)
        self._constants = self._kernel.constants(rows.X)
        self._num_kernel = len(kernel.trainable_parameters)
        make = _value_and_gradient if self._kernel.is_shareable else _value_and_gradient.__wrapped__
        self._compiled = make(self._kernel)  # traced in the time of ten calls

    def with_gradient(self, at: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient at a vector ``[p]``."""
        given, noise = self._split([value[None] for value in self._vector.values(at)])
        value, slopes = self._compiled(given, noise, self._constants, self._rows)
        return float(value), self._vector.gradient_of_values(at, slopes)

    def of_draws(self, draws: Sequence[Sequence[tf.Tensor]], rows: np.ndarray) -> Drawn:
        """:param rows: indices of the rows that are predicted ``[m]``."""
        found, units = [], tf.one_hot(rows, len(self._rows.X), axis=0, dtype=tf.float64)
        stacked = [tf.stack(parts) for parts in zip(*draws, strict=True)]
        for group in groups_of(len(draws), int(self._rows.X.shape[0])):
            values, noise = self._split([value[group] for value in stacked])
            K, within = _covariances(self._kernel, values, noise, self._constants, self._rows)
            L = tf.linalg.cholesky(K)  # NaN where it fails, which is a draw of weight zero
            Y = tf.cast(self._rows.Y, K.dtype)
            white = linalg.solve_triangular(L, Y + tf.zeros_like(L[:, :1, :1]))
            value = log_density_of_factor(L, white) + within
            inverse = linalg.solve_triangular(L, units + tf.zeros_like(L[:, :1, :1]))
            variances = 1.0 / tf.reduce_sum(tf.square(inverse), axis=1)
            errors = variances[:, :, None] * tf.linalg.matmul(inverse, white, transpose_a=True)
            usable = tf.math.is_finite(value)
            found.append(
                (
                    tf.where(usable, value, -np.inf).numpy(),
                    tf.where(usable[:, None, None], errors, 0.0).numpy(),
                    tf.where(usable[:, None], variances, 1.0).numpy(),
                )
            )
        return Drawn(*map(np.concatenate, zip(*found, strict=True)))

    def _split(self, values: Sequence[tf.Tensor]) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Values of the kernel's parameters ``[S, ...]``, and noise variances ``[S]``."""
        if len(values) > self._num_kernel:
            return list(values[:-1]), values[-1]
        return list(values), tf.convert_to_tensor(self._noise_variance)[None]


@functools.lru_cache(maxsize=16)
def _value_and_gradient(kernel: KernelFunction) -> Any:
    """
    The compiled log marginal likelihood of all kernels of one structure, and its gradients by the
    values of the kernel's parameters and by the noise variance.
    """

    def evaluate(
        values: list[tf.Tensor], noise: tf.Tensor, constants: list[tf.Tensor], rows: Rows
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        given = [*values, noise]
        with tf.GradientTape() as tape:
            tape.watch(given)
            K, within = _covariances(kernel, values, noise, constants, rows)
            total = log_density(K, tf.cast(rows.Y, K.dtype)) + tf.reduce_sum(within)
        return total, tape.gradient(total, given)

    return compiled(evaluate, reduce_retracing=True)


def _covariances(
    kernel: KernelFunction,
    values: Sequence[tf.Tensor],
    noise: tf.Tensor,
    constants: Sequence[tf.Tensor],
    rows: Rows,
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Covariances of the means of equal rows ``[S, n, n]``, and the log density of the outputs less
    that of the means ``[S]``, in float64.

    :param noise: ``[S]``
    """
    K, rows = tf.cast(kernel.evaluate(values, constants, rows.X), tf.float64), in_float64(rows)
    noise = tf.cast(noise, tf.float64)[:, None]
    amounts = rows.noises(noise) + tf.zeros_like(rows.X[:, 0])  # [S, n]
    within = tf.reduce_sum(rows.within(noise) + tf.zeros_like(noise), axis=1)
    return linalg.add_jitter(K, amounts), within


def in_float64(rows: Rows) -> Rows:
    """Rows of any float type in float64."""
    return Rows(*(None if part is None else tf.cast(part, tf.float64) for part in rows))


def groups_of(num_draws: int, num_rows: int) -> list[slice]:
    """Slices of draws whose covariances are in memory together."""
    size = max(1, _GROUP_ENTRIES // num_rows**2)
    return [slice(i, min(i + size, num_draws)) for i in range(0, num_draws, size)]
