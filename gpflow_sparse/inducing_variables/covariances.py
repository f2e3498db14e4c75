"""The ``Kuv`` dispatcher: covariance between two sets of inducing variables.

GPflow has ``Kuu`` (a set with itself) and ``Kuf`` (a set with the function). Orthogonal sets need
one more, a set with another set. Register a pair by
``@Kuv.register(FirstSet, SecondSet, gpflow.kernels.Kernel)``.
"""

import tensorflow as tf
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import InducingPatches, InducingPoints, InducingVariables
from gpflow.kernels import Convolutional, Kernel
from gpflow.utilities import Dispatcher

from gpflow_sparse.stationary import covariance

Kuv = Dispatcher("Kuv")


@Kuv.register(InducingPoints, InducingPoints, Kernel)
def _points_points(first: InducingPoints, second: InducingPoints, kernel: Kernel) -> tf.Tensor:
    return covariance(kernel, first.Z, second.Z)  # [M1, M2]


@Kuv.register(InducingPatches, InducingPatches, Convolutional)
def _patches_patches(
    first: InducingPatches, second: InducingPatches, kernel: Convolutional
) -> tf.Tensor:
    return kernel.base_kernel(first.Z, second.Z)  # [M1, M2]


def needs_jitter(inducing_set: InducingVariables) -> bool:
    """Whether the covariance of a set may be singular; that of a basis is the identity."""
    return getattr(inducing_set, "needs_jitter", True)


def set_covariance(inducing_set: InducingVariables, kernel: Kernel) -> tf.Tensor:
    """GPflow's ``Kuu`` without jitter, ``[M, M]``."""
    if type(inducing_set) is InducingPoints:
        return covariance(kernel, inducing_set.Z)
    return Kuu(inducing_set, kernel, jitter=0.0)


def cross_covariance(inducing_set: InducingVariables, kernel: Kernel, X: tf.Tensor) -> tf.Tensor:
    """GPflow's ``Kuf``, ``[M, n]``, at ``X [n, D]``."""
    if type(inducing_set) is InducingPoints:
        return covariance(kernel, inducing_set.Z, X)
    return Kuf(inducing_set, kernel, X)
