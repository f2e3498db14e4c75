"""
The log marginal likelihood of exact Gaussian processes and its gradient, in NumPy.

A fit to some hundred rows evaluates it some forty times, for 5 to 15 ms each; to trace a function
of TensorFlow once takes half a second, and each of its evaluations two to three times as long.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow_probability as tfp
from gpflow.kernels import Kernel, Matern12, Matern32, Matern52, SquaredExponential
from scipy.linalg import lapack
from scipy.special import expit

from gpflow_sparse.covariances.stationary import unmapped
from gpflow_sparse.inference.log_parameters import LogParameters
from gpflow_sparse.initialization.repeated_rows import Rows

Array = np.ndarray
_LEAST_SQUARE = 1e-36  # as in GPflow; a root has no derivative at zero
_MAX_ROWS = 1000  # of one GP; with more rows a trace takes a small part of the time of a fit


def _matern12(squares: Array) -> tuple[Array, Array]:
    r = np.sqrt(squares)
    e = np.exp(-r)
    return e, -0.5 * e / r


def _matern32(squares: Array) -> tuple[Array, Array]:
    s = np.sqrt(3.0 * squares)
    e = np.exp(-s)
    return (1.0 + s) * e, -1.5 * e


def _matern52(squares: Array) -> tuple[Array, Array]:
    s = np.sqrt(5.0 * squares)
    e = np.exp(-s)
    linear = (1.0 + s) * e
    return linear + (5.0 / 3.0) * squares * e, (-5.0 / 6.0) * linear


def _squared_exponential(squares: Array) -> tuple[Array, Array]:
    e = np.exp(-0.5 * squares)
    return e, -0.5 * e


# Kernels of variance 1 and their derivatives, as functions of squared distances in lengthscales.
_PROFILES: dict[type[Kernel], Callable[[Array], tuple[Array, Array]]] = {
    Matern12: _matern12,
    Matern32: _matern32,
    Matern52: _matern52,
    SquaredExponential: _squared_exponential,
}


class _Slopes(NamedTuple):
    """Derivatives by the values of the hyperparameters."""

    variance: float
    lengthscales: Array
    noise: float


class ExactLikelihood:
    """
    The sum of the log marginal likelihoods of independent exact GPs with the same hyperparameters,
    of prior mean zero, as a function of variance, lengthscales and noise variance.

    :param kernel: a kernel for which :func:`has_closed_form` holds.
    :param rows: of one GP ``[n, D]``, or of several ``[B, n, D]``.
    :param noise_variance: the parameter of the noise variance.
    """

    def __init__(self, kernel: Kernel, rows: Rows, noise_variance: gpflow.Parameter) -> None:
        self._kernel, X = unmapped(kernel, rows.X)
        X, self._profile = self._kernel.slice(X, None)[0], _PROFILES[type(self._kernel)]
        one = X.shape.rank == 2

        def sets(part: Any) -> Array:
            """``[B, n, ...]``"""
            return np.asarray(part)[None] if one else np.asarray(part)

        X = sets(X)
        self._X = X - X.mean(axis=1, keepdims=True)  # distances do not depend on a common shift
        self._Y, repeats = sets(rows.Y), rows.counts is not None
        self._counts = sets(rows.counts) if repeats else np.ones(X.shape[:2])
        self._deviations = sets(rows.deviations) if repeats else None
        self._noise_variance = noise_variance

    def evaluate(
        self, parameters: Sequence[gpflow.Parameter], values: Sequence[Array]
    ) -> tuple[float, list[Array]]:
        """
        The value, and its derivatives by these parameters.

        :param parameters: trainable ones; others are as in the kernel.
        :param values: values in their place.
        :raises LinAlgError: for a covariance that is not positive definite.
        """
        kernel = self._kernel
        own = (kernel.variance, kernel.lengthscales, self._noise_variance)
        given = {id(p): value for p, value in zip(parameters, values, strict=True)}
        at = [given[id(p)] if id(p) in given else p.numpy() for p in own]
        variance, lengthscales, noise = float(at[0]), np.asarray(at[1]), float(at[2])
        found = [self._one(i, variance, lengthscales, noise) for i in range(len(self._X))]
        total = sum(value for value, _ in found)
        slopes = [sum(parts) for parts in zip(*(part for _, part in found), strict=True)]
        by_id = {id(p): np.asarray(slope) for p, slope in zip(own, slopes, strict=True)}
        return total, [by_id[id(p)] for p in parameters]

    def _one(
        self, number: int, variance: float, lengthscales: Array, noise: float
    ) -> tuple[float, _Slopes]:
        Z, Y = self._X[number] / lengthscales, self._Y[number]  # [n, D], [n, P]
        counts = self._counts[number]
        norms = np.sum(Z * Z, axis=1)
        squares = norms[:, None] + norms - 2.0 * (Z @ Z.T)
        unit, slope = self._profile(np.maximum(squares, _LEAST_SQUARE, out=squares))
        np.fill_diagonal(unit, 1.0)
        np.fill_diagonal(slope, 0.0)
        K = variance * unit
        K.flat[:: len(K) + 1] += noise / counts
        value, dK = _log_density(K, Y)
        by_slope = slope
        by_slope *= dK  # [n, n]
        # the squared distance of two rows falls by twice its term of a column as that
        # column's logarithmic lengthscale rises
        moved = by_slope.sum(axis=1) @ (Z * Z) - np.sum(Z * (by_slope @ Z), axis=0)  # [D]
        by_logs = -4.0 * variance * moved
        scales = by_logs / lengthscales if lengthscales.ndim else by_logs.sum() / lengthscales
        by_noise = float(np.sum(np.diagonal(dK) / counts))
        if self._deviations is not None:
            own, slope_of_own = self._within(counts, self._deviations[number], noise)
            value, by_noise = value + own, by_noise + slope_of_own
        return value, _Slopes(float(np.vdot(dK, unit)), scales, by_noise)

    def _within(self, counts: Array, deviations: Array, noise: float) -> tuple[float, float]:
        """See :meth:`Rows.within`, with its derivative by the noise variance."""
        num_outputs = self._Y.shape[-1]
        logs = (counts - 1.0) * np.log(2.0 * np.pi * noise) + np.log(counts)
        value = -0.5 * float(np.sum(num_outputs * logs + deviations / noise))
        rates = num_outputs * (counts - 1.0) / noise - deviations / noise**2
        return value, -0.5 * float(np.sum(rates))


class ExactDensity:
    """
    The log posterior density of the logarithms of trainable hyperparameters, and its gradient.

    :param likelihood: of the data.
    :param parameters: the trainable ones, all of them as :func:`has_closed_form` asks for.
    """

    def __init__(self, likelihood: ExactLikelihood, parameters: Sequence[gpflow.Parameter]) -> None:
        self._likelihood, self.logs = likelihood, LogParameters(parameters)
        sizes = [int(np.prod(parameter.shape)) for parameter in parameters]
        self._shifts = np.repeat([_softplus_shift(parameter) for parameter in parameters], sizes)

    def __call__(self, vector: Array) -> tuple[float, Array]:
        """:param vector: logarithms ``[p]``."""
        logs = self.logs
        value, slopes = self._likelihood.evaluate(logs.parameters, logs.values(vector))
        prior, slope = logs.log_prior(vector)
        return value + prior, logs.gradient_of_values(vector, slopes) + slope

    def loss(self, unconstrained: Array) -> tuple[float, Array]:
        """Minus the density at values of the unconstrained variables ``[p]``, for optimizers."""
        values = self._shifts + np.logaddexp(0.0, unconstrained)
        value, gradient = self(np.log(values))
        return -value, -gradient * expit(unconstrained) / values


def has_closed_form(
    kernel: Kernel, rows: Rows, noise_variance: gpflow.Parameter, trainable: Sequence[Any]
) -> bool:
    """
    Whether the classes here take a kernel, at most 1,000 rows of each GP, and these parameters to
    train: those of one stationary kernel in float64, positive by GPflow's default transform, with
    log-normal priors.
    """
    base, _ = unmapped(kernel, rows.X)
    if type(base) not in _PROFILES or rows.X.dtype != np.float64 or rows.X.shape[-2] > _MAX_ROWS:
        return False
    own = {id(p) for p in (base.variance, base.lengthscales, noise_variance)}
    return len(own) == 3 and all(
        id(p) in own
        and type(p.prior) is tfp.distributions.LogNormal
        and p.prior_on == gpflow.base.PriorOn.CONSTRAINED
        and _softplus_shift(p) is not None
        for p in trainable
    )


def _log_density(K: Array, Y: Array) -> tuple[float, Array]:
    """
    Sum of the log densities of the columns of ``Y [n, P]`` under ``N(0, K)``, and its derivative by
    ``K [n, n]``, ``(a a^T - P K^-1) / 2``, ``a = K^-1 Y``.
    """
    num_rows, num_outputs = Y.shape
    L, info = lapack.dpotrf(K.T, lower=1)  # transposed, so that nothing is copied for Fortran
    if info:
        raise np.linalg.LinAlgError("K + s2 I (covariance of the rows) is not positive definite")
    a, _ = lapack.dpotrs(L, Y, lower=1)
    log_det = 2.0 * float(np.sum(np.log(np.diagonal(L))))
    constant = num_rows * num_outputs * np.log(2.0 * np.pi)
    value = -0.5 * (float(np.vdot(Y, a)) + num_outputs * log_det + constant)
    inverse, _ = lapack.dpotri(L, lower=1, overwrite_c=1)  # its lower triangle
    diagonal = np.diagonal(inverse).copy()
    inverse = inverse + inverse.T
    np.fill_diagonal(inverse, diagonal)
    inverse *= -0.5 * num_outputs
    inverse += 0.5 * (a @ a.T)
    return value, inverse


def _softplus_shift(parameter: gpflow.Parameter) -> float | None:
    """The shift of a transform ``shift + log(1 + exp(x))``; None for another transform."""
    transform: Any = parameter.transform
    if transform is None:
        return None
    points = np.array([-800.0, -3.0, 0.0, 1.0, 40.0])
    try:
        found = transform.forward(points.astype(parameter.dtype.as_numpy_dtype)).numpy()
    except Exception:  # of any kind: a transform of other shapes
        return None
    shift = float(found[0])
    is_one = np.allclose(found, shift + np.logaddexp(0.0, points), rtol=1e-12, atol=0.0)
    return shift if is_one else None
