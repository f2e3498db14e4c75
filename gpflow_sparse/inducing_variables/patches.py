"""Patches of images as inducing variables of convolutional kernels."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from gpflow_sparse.inducing_variables.covariances import Kuv
from gpflow_sparse.kernels.convolutional import TICK, Convolutional
from gpflow_sparse.numerics import linalg
from gpflow_sparse.validation import checks


class PatchSet(InducingVariables):
    """Base class of sets of M patches of L values."""

    arrays: tuple[str, ...] = ("Z",)
    """Attributes with a row for each patch: the arguments of the kernel's covariances."""

    def __init__(self, Z: Any, name: str | None = None) -> None:
        """
        :param Z: patches ``[M, L]``, each row by row, channels last.
        :raises ValueError: for anything but a finite matrix.
        """
        super().__init__(name=name)
        self.Z = _parameter(Z, "Z")

    @property
    def num_inducing(self) -> tf.Tensor:
        """M."""
        return tf.shape(self.Z)[0]

    @property
    def shape(self) -> tuple[int, None, int]:
        """``(M, None, 1)``: GPflow compares the second with the columns of X."""
        return (self.Z.shape[0], None, 1)

    @property
    def inputs(self) -> list[tf.Tensor]:
        """The :attr:`arrays`."""
        return [tf.convert_to_tensor(getattr(self, name)) for name in self.arrays]

    @abstractmethod
    def require_kernel(self, kernel: Any) -> Any:
        """
        :return: the kernel.
        :raises ValueError: for another class of kernel, or patches of another size.
        """


class Patches(PatchSet):
    """
    Inducing variables ``u_m = g(z_m)``: responses to M patches, of a kernel
    :class:`~gpflow_sparse.kernels.Convolutional`.

    ``Kuu = k_g(Z, Z)``, without the kernel's weights; ``Kuf = c sum_p w_p k_g(Z, x^[p])``. Van der
    Wilk, Rasmussen and Hensman, "Convolutional Gaussian Processes" (2017).
    """

    def require_kernel(self, kernel: Any) -> Convolutional:
        own = isinstance(kernel, Convolutional) and not isinstance(kernel, TICK)
        _require(kernel, own, Convolutional, self.Z)
        return kernel


class LocatedPatches(PatchSet):
    """
    Inducing variables ``u_m = g(z_m, s_m)``: responses to M patches with locations, of a
    kernel :class:`~gpflow_sparse.kernels.TICK`.
    """

    arrays = ("Z", "locations")

    def __init__(self, Z: Any, locations: Any, name: str | None = None) -> None:
        """
        :param Z: patches ``[M, L]``, each row by row, channels last.
        :param locations: ``[M, 2]``, rows and columns of the grid of patches, from 0 to ``H' - 1``
            and ``W' - 1``, not necessarily whole.
        :raises ValueError: for anything but finite matrices with M rows.
        """
        super().__init__(Z, name=name)
        self.locations = _parameter(locations, "locations")
        if tuple(self.locations.shape) != (self.Z.shape[0], 2):
            raise ValueError(
                f"locations must have shape ({self.Z.shape[0]}, 2), a row and a column for each "
                f"patch of Z; got {tuple(self.locations.shape)}."
            )

    def require_kernel(self, kernel: Any) -> TICK:
        _require(kernel, isinstance(kernel, TICK), TICK, self.Z)
        return kernel


def _parameter(value: Any, name: str) -> gpflow.Parameter:
    tensor = checks.require_matrix(value, name)
    return value if isinstance(value, gpflow.Parameter) else gpflow.Parameter(tensor)


def _require(kernel: Any, own: bool, wanted: type[Kernel], Z: tf.Tensor) -> None:
    """Refuse a kernel of another class, or for patches of another size."""
    if not own:
        other = "LocatedPatches(Z, locations)" if isinstance(kernel, TICK) else "inducing points"
        raise ValueError(
            f"kernel must be a gs.kernels.{wanted.__name__} for these inducing patches, got "
            f"{type(kernel).__name__}; for that kernel take {other}. Sums of kernels go inside: "
            f"gs.kernels.{wanted.__name__}(first + second, ...)."
        )
    if Z.shape[1] != kernel.grid.patch_length:
        raise ValueError(
            f"Z must have {kernel.grid.patch_length} columns, the values in a patch of "
            f"{kernel.patch_shape} pixels and {kernel.image_shape[2]} channel(s); got {Z.shape[1]}."
        )


def _covariances(patches: PatchSet, kernel: Kernel) -> tuple[Callable[..., Any], ...]:
    """The kernel's covariance functions of two sets of patches, and of a set and images."""
    known = patches.require_kernel(kernel)
    if isinstance(patches, LocatedPatches):
        return known.located_covariance, known.located_response_covariance
    return known.patch_covariance, known.response_covariance


@Kuu.register(PatchSet, Kernel)
@check_shapes("patches: [M, L, 1]", "return: [M, M]")
def _own(patches: PatchSet, kernel: Kernel, *, jitter: float = 0.0) -> tf.Tensor:
    K = _covariances(patches, kernel)[0](*patches.inputs)  # [M, M]
    return linalg.add_jitter(K, tf.constant(jitter, K.dtype)) if jitter else K


@Kuf.register(PatchSet, Kernel, object)
@check_shapes("patches: [M, L, 1]", "Xnew: [N, D]", "return: [M, N]")
def _images(patches: PatchSet, kernel: Kernel, Xnew: Any) -> tf.Tensor:
    return _covariances(patches, kernel)[1](*patches.inputs, tf.convert_to_tensor(Xnew))  # [M, N]


@Kuv.register(PatchSet, PatchSet, Kernel)
@check_shapes("first: [M, L, 1]", "second: [M2, L, 1]", "return: [M, M2]")
def _across(first: PatchSet, second: PatchSet, kernel: Kernel) -> tf.Tensor:
    first.require_kernel(kernel)
    return _covariances(second, kernel)[0](*first.inputs, *second.inputs)  # [M, M2]
