"""The ``Kuv`` dispatcher, beside GPflow's ``Kuu`` (of a set) and ``Kuf`` (of a set and f)."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import InducingPatches, InducingPoints, InducingVariables
from gpflow.kernels import Convolutional, Kernel
from gpflow.utilities import Dispatcher

from gpflow_sparse.covariances.stationary import covariance, stacked_covariances
from gpflow_sparse.numerics import devices, linalg


class _PairDispatcher(Dispatcher):
    """Covariance ``[M1, M2]`` of two sets of inducing variables: ``Kuv(first, second, kernel)``.

    For points and any kernel, patches and ``gpflow.kernels.Convolutional``, and sets of this
    package and its kernels. Register another pair, in one of its two orders, by
    ``@Kuv.register(FirstSet, SecondSet, gpflow.kernels.Kernel)``.
    """

    def dispatch(self, *types: Any) -> Callable[..., Any] | None:
        found = super().dispatch(*types)
        if found is not None or len(types) != 3:
            return found
        first, second, kernel = types
        mirrored = super().dispatch(second, first, kernel)
        if mirrored is None:
            pair = f"{first.__name__}, {second.__name__}"
            raise ValueError(
                f"inducing_variable holds the sets {pair}, whose covariance under "
                f"{kernel.__name__} is not known: register a function of (first, second, kernel) "
                f"that returns [M1, M2], by @gs.inducing_variables.Kuv.register({pair}, "
                "gpflow.kernels.Kernel)."
            )

        def transposed(first: InducingVariables, second: InducingVariables, kernel: Kernel) -> Any:
            return tf.transpose(mirrored(second, first, kernel))

        return transposed


Kuv = _PairDispatcher("Kuv")
# Arrays of GPflow's inducing variables with a row for each of them; our classes name their own.
_ARRAYS: dict[type[InducingVariables], tuple[str, ...]] = {
    InducingPoints: ("Z",),
    InducingPatches: ("Z",),
}


@Kuv.register(InducingPoints, InducingPoints, Kernel)
@check_shapes("first: [M1, D, 1]", "second: [M2, D, 1]", "return: [M1, M2]")
def _points_points(first: InducingPoints, second: InducingPoints, kernel: Kernel) -> tf.Tensor:
    return covariance(kernel, first.Z, second.Z)  # [M1, M2]


@Kuv.register(InducingPatches, InducingPatches, Convolutional)
@check_shapes("first: [M1, L, 1]", "second: [M2, L, 1]", "return: [M1, M2]")
def _patches_patches(
    first: InducingPatches, second: InducingPatches, kernel: Convolutional
) -> tf.Tensor:
    return kernel.base_kernel(first.Z, second.Z)  # [M1, M2]


def refuse_joint_covariances(kind: type[InducingVariables], model: str) -> None:
    """
    Make GPflow's ``Kuu`` and ``Kuf`` refuse inducing variables whose approximation is made by their
    posterior: from joint covariances, ``SGPR`` and GPflow's wrappers for several outputs would
    compute the dense model instead.

    :param model: the model of this package for ``kind``.
    """

    def refuse(inducing_variable: InducingVariables, kernel: Kernel, *_: Any, **__: Any) -> Any:
        raise ValueError(
            f"{kind.__name__} has no joint Kuu and Kuf, which SGPR, conditional() of wrapped "
            "inducing variables and SeparateIndependentInducingVariables need. Pass it as it is, "
            f"without a wrapper, to {model}, gpflow.models.SVGP or gpflow.conditionals.conditional."
        )

    Kuu.register(kind, Kernel)(refuse)
    Kuf.register(kind, Kernel, object)(refuse)


def joined(sets: Sequence[InducingVariables]) -> InducingVariables | None:
    """
    All sets as one, whose covariances are evaluated together and have one factor: on a GPU, for
    points or patches of one class. None elsewhere: on a CPU blocks are faster (``docs/gpu.md``).
    """
    names = _ARRAYS.get(type(sets[0]), ()) or getattr(sets[0], "arrays", ())
    if not (devices.sees_gpu() and names) or len({type(part) for part in sets}) > 1:
        return None
    union = copy.copy(sets[0])  # of plain tensors: a Parameter cannot be made in a graph
    for name in names:
        rows = [tf.convert_to_tensor(getattr(part, name)) for part in sets]
        setattr(union, name, tf.concat(rows, axis=0))
    return union


def joint_covariances(
    union: InducingVariables, kernel: Kernel, X: tf.Tensor, jitter: float | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    ``Kuu`` plus jitter ``[M, M]`` and ``Kuf [M, n]`` at ``X [n, D]``; of points by one evaluation.

    :param jitter: smallest relative jitter, see :func:`gpflow_sparse.numerics.linalg.jitter`.
    """
    if type(union) is InducingPoints:
        return stacked_covariances(kernel, tf.convert_to_tensor(union.Z), X, jitter)
    K = set_covariance(union, kernel)
    amount = linalg.jitter(tf.linalg.diag_part(K), jitter)
    return linalg.add_jitter(K, amount), cross_covariance(union, kernel, X)


def set_covariance(inducing_set: InducingVariables, kernel: Kernel) -> tf.Tensor:
    """GPflow's ``Kuu`` without jitter, ``[M, M]``."""
    if type(inducing_set) is InducingPoints:
        return covariance(kernel, inducing_set.Z)
    return Kuu(inducing_set, kernel, jitter=0.0)


def cross_covariance(
    inducing_set: InducingVariables, kernel: Kernel, X: tf.Tensor, dtype: tf.DType | None = None
) -> tf.Tensor:
    """GPflow's ``Kuf``, ``[M, n]``, at ``X [n, D]``, in float type ``dtype``, by default X's."""
    if type(inducing_set) is InducingPoints:
        return covariance(kernel, inducing_set.Z, X, dtype)
    K = Kuf(inducing_set, kernel, X)
    return tf.cast(K, dtype or K.dtype)
