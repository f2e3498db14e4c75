"""
The log marginal likelihood of exact Gaussian processes and its gradient, in NumPy.

A fit to some hundred rows evaluates it some forty times, for 1 to 10 ms each; to trace a function
of TensorFlow once takes half a second, and each of its evaluations two to three times as long.
"""

import functools
from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.kernels import Kernel

from gpflow_sparse.covariances.stationary import unmapped
from gpflow_sparse.inference.exact_gp import PROFILES, ExactGP, Values
from gpflow_sparse.inference.log_parameters import LogParameters
from gpflow_sparse.initialization.repeated_rows import Rows
from gpflow_sparse.numerics.threads import threads_for

Array = np.ndarray


class ExactLikelihood:
    """
    The sum of the log marginal likelihoods of independent exact GPs with the same hyperparameters,
    of prior mean zero, as a function of variance, lengthscales and noise variance.

    :param kernel: a kernel for which :func:`has_closed_form` holds.
    :param rows: of one GP ``[n, D]``, or of several ``[B, n, D]``.
    :param noise_variance: the parameter of the noise variance.
    """

    gps: list[ExactGP]

    def __init__(self, kernel: Kernel, rows: Rows, noise_variance: gpflow.Parameter) -> None:
        base, X = unmapped(kernel, rows.X)
        X = base.slice(X, None)[0]
        one = X.shape.rank == 2

        def sets(part: Any) -> Array:
            """``[B, n, ...]``"""
            return np.asarray(part)[None] if one else np.asarray(part)

        X = sets(X)
        X = X - X.mean(axis=1, keepdims=True)  # distances do not depend on a common shift
        profile = PROFILES[type(base)]
        parts = (len(X) * [None] if part is None else sets(part) for part in rows[1:])
        each = zip(X, *parts, strict=True)
        self.gps = [ExactGP(x, y, profile, *others) for x, y, *others in each]
        self._own = base.variance, base.lengthscales, noise_variance

    @functools.cached_property
    def _memory(self) -> Array:
        return np.empty((self.gps[0].Y.shape[0],) * 2)

    def evaluate(
        self, parameters: Sequence[gpflow.Parameter], values: Sequence[Array]
    ) -> tuple[float, list[Array]]:
        """
        The value, and its derivatives by these parameters.

        :param parameters: trainable ones; others are as in the kernel.
        :param values: values in their place.
        :raises LinAlgError: for a covariance that is not positive definite.
        """
        at = self.values(parameters, values)
        found = [gp.with_gradient(at, self._memory) for gp in self.gps]
        total = sum(value for value, _ in found)
        slopes = [sum(parts) for parts in zip(*(part[:3] for _, part in found), strict=True)]
        by_id = {id(p): np.asarray(slope) for p, slope in zip(self._own, slopes, strict=True)}
        return total, [by_id[id(p)] for p in parameters]

    def values(self, parameters: Sequence[gpflow.Parameter], values: Sequence[Array]) -> Values:
        """All hyperparameters, with these values of some; see :meth:`evaluate`."""
        given = {id(p): value for p, value in zip(parameters, values, strict=True)}
        at = [given[id(p)] if id(p) in given else p.numpy() for p in self._own]
        return Values(float(at[0]), np.asarray(at[1]), float(at[2]))


def exact_gp(
    kernel: Kernel, rows: Rows, noise_variance: gpflow.Parameter
) -> tuple[ExactGP, Values] | None:
    """
    One exact GP of rows whose outputs are less the prior mean, with the present hyperparameters;
    None for a kernel without a closed form.
    """
    if not has_closed_form(kernel, rows, noise_variance, ()):
        return None
    likelihood = ExactLikelihood(kernel, rows, noise_variance)
    return likelihood.gps[0], likelihood.values((), ())


def lower_factor(kernel: Kernel, rows: Rows, noise_variance: gpflow.Parameter) -> tf.Tensor | None:
    """
    The factor of the covariance of the outputs ``[n, n]`` in memory for less than three matrices of
    its size; eager operations of TensorFlow take six. None as in :func:`exact_gp`.

    :raises LinAlgError: for a covariance that is not positive definite.
    """
    found = exact_gp(kernel, rows, noise_variance)
    if found is None:
        return None
    gp, at = found
    L = np.zeros((len(gp.Y), len(gp.Y)))
    with threads_for(len(L)):
        gp.factor(at, L)
    return tf.constant(L)


class ExactDensity:
    """
    The log posterior density of the logarithms of trainable hyperparameters, and its gradient.

    :param likelihood: of the data.
    :param parameters: the trainable ones, all of them as :func:`has_closed_form` asks for.
    """

    def __init__(self, likelihood: ExactLikelihood, parameters: Sequence[gpflow.Parameter]) -> None:
        self._likelihood, self.logs = likelihood, LogParameters(parameters)

    def __call__(self, vector: Array) -> tuple[float, Array]:
        """:param vector: logarithms ``[p]``."""
        logs = self.logs
        value, slopes = self._likelihood.evaluate(logs.parameters, logs.values(vector))
        prior, slope = logs.log_prior(vector)
        return value + prior, logs.gradient_of_values(vector, slopes) + slope


def has_closed_form(
    kernel: Kernel, rows: Rows, noise_variance: gpflow.Parameter, trainable: Sequence[Any]
) -> bool:
    """
    Whether the classes here take a kernel, rows, and these parameters to train: parameters of one
    stationary kernel in float64, positive by GPflow's default transform, with log-normal priors.
    """
    base, _ = unmapped(kernel, rows.X)
    if type(base) not in PROFILES or rows.X.dtype != np.float64:
        return False
    own = {id(p) for p in (base.variance, base.lengthscales, noise_variance)}
    return len(own) == 3 and all(
        id(p) in own
        and type(p.prior) is tfp.distributions.LogNormal
        and p.prior_on == gpflow.base.PriorOn.CONSTRAINED
        and _softplus_shift(p) is not None
        for p in trainable
    )


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
