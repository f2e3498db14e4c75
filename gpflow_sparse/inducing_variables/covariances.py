"""The ``Kuv`` dispatcher: covariance between two sets of inducing variables.

GPflow has ``Kuu`` (a set with itself) and ``Kuf`` (a set with the function). Orthogonal sets need
one more, a set with another set. Register a pair by
``@Kuv.register(FirstSet, SecondSet, gpflow.kernels.Kernel)``.
"""

import tensorflow as tf
from gpflow.inducing_variables import InducingPatches, InducingPoints
from gpflow.kernels import Convolutional, Kernel
from gpflow.utilities import Dispatcher

Kuv = Dispatcher("Kuv")


@Kuv.register(InducingPoints, InducingPoints, Kernel)
def _points_points(first: InducingPoints, second: InducingPoints, kernel: Kernel) -> tf.Tensor:
    return kernel(first.Z, second.Z)  # [M1, M2]


@Kuv.register(InducingPatches, InducingPatches, Convolutional)
def _patches_patches(
    first: InducingPatches, second: InducingPatches, kernel: Convolutional
) -> tf.Tensor:
    return kernel.base_kernel(first.Z, second.Z)  # [M1, M2]
