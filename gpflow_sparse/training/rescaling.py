"""GPflow's own models with other predictive variances and the same means."""

from collections.abc import Iterator

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import kernels
from gpflow.models import GPR, SVGP, GPModel

from gpflow_sparse.kernels import Convolutional, LinearMap, MainEffects

_COMBINED = (
    kernels.Sum,
    kernels.SeparateIndependent,
    kernels.LinearCoregionalization,
)
_WITH_VARIANCE = (kernels.Stationary, kernels.Static, kernels.Linear, kernels.ArcCosine)
_TOLERANCE = 1e-3


def rescale(model: GPModel, function: float, noise: float) -> None:
    """
    Multiply the predictive variance of f by one factor and the noise variance by another.

    With the kernel's variance times c, the mean of an SVGP stays the same if the whitened q_mu is
    divided by sqrt(c), or the q_sqrt that is not whitened multiplied by it. The mean of a GPR stays
    the same if its noise variance has the same factor.

    :raises ValueError: for a kernel or likelihood that cannot be scaled; some parameters may then
        be changed: :func:`restore` them.
    """
    changed = _parameters(model)
    X = _some_inputs(model)
    before = model.kernel(X, full_cov=False)
    for parameter in _variances(model.kernel):
        parameter.assign(function * parameter)
    if isinstance(model, SVGP) and model.whiten:
        model.q_mu.assign(model.q_mu / function**0.5)
    elif isinstance(model, SVGP):
        model.q_sqrt.assign(model.q_sqrt * function**0.5)
    if isinstance(model.likelihood, gpflow.likelihoods.Gaussian):
        lowest = 1.01 * float(model.likelihood.variance_lower_bound or 0.0)
        changed[-1].assign(tf.maximum(noise * changed[-1], lowest))
    if not np.allclose(model.kernel(X, full_cov=False), function * before, rtol=_TOLERANCE):
        raise _no_variance(model.kernel)


def values(model: GPModel) -> list[np.ndarray]:
    """Unconstrained values of the parameters that :func:`rescale` changes."""
    return [parameter.unconstrained_variable.numpy() for parameter in _parameters(model)]


def are_values(model: GPModel, expected: list[np.ndarray]) -> bool:
    """Whether :func:`values` are these, to the last bit."""
    found = values(model)
    return len(found) == len(expected) and all(map(np.array_equal, found, expected))


def restore(model: GPModel, originals: list[np.ndarray]) -> None:
    """Set the parameters to earlier :func:`values`, to the last bit."""
    for parameter, value in zip(_parameters(model), originals, strict=True):
        parameter.unconstrained_variable.assign(value)


def _parameters(model: GPModel) -> list[gpflow.Parameter]:
    """The parameters that change, in a fixed order."""
    found = list(_variances(model.kernel))
    if isinstance(model, SVGP):
        found.append(model.q_mu if model.whiten else model.q_sqrt)
    if isinstance(model.likelihood, gpflow.likelihoods.Gaussian):
        if not isinstance(model.likelihood.variance, gpflow.Parameter):
            raise ValueError(
                f"model.likelihood must have one noise variance to calibrate a "
                f"{type(model).__name__} of GPflow; gs.models.SOLVEGP takes noise that depends on "
                "the inputs."
            )
        found.append(model.likelihood.variance)
    return found


def _variances(kernel: kernels.Kernel) -> list[gpflow.Parameter]:
    """The variances that multiply the kernel together, each parameter once."""
    found = {id(parameter): parameter for parameter in _leaves(kernel)}
    return list(found.values())


def _leaves(kernel: kernels.Kernel) -> Iterator[gpflow.Parameter]:
    if isinstance(kernel, _COMBINED):
        for part in kernel.kernels:
            yield from _leaves(part)
    elif isinstance(kernel, kernels.Product):
        yield from _leaves(kernel.kernels[0])
    elif isinstance(kernel, kernels.SharedIndependent):
        yield from _leaves(kernel.kernel)
    elif isinstance(kernel, LinearMap | MainEffects):
        yield from _leaves(kernel.base)
    elif isinstance(kernel, Convolutional | kernels.Convolutional | kernels.Periodic):
        yield from _leaves(kernel.base_kernel)
    elif isinstance(kernel, _WITH_VARIANCE) and not isinstance(kernel, kernels.Polynomial):
        yield kernel.variance
    else:
        raise _no_variance(kernel)


def _no_variance(kernel: kernels.Kernel) -> ValueError:
    return ValueError(
        f"model.kernel ({type(kernel).__name__}) has no variance that multiplies all of it, which "
        "the calibration of GPflow's own models needs; gs.models.SOLVEGP takes any kernel."
    )


def _some_inputs(model: GPModel) -> tf.Tensor:
    """A few inputs at which kernels are compared."""
    if isinstance(model, GPR):
        return model.data[0][:8]
    return tf.convert_to_tensor(model.inducing_variable.parameters[0])[:8]
