"""Patches of images as inducing variables of convolutional kernels."""

from typing import Any

import gpflow
import tensorflow as tf
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from gpflow_sparse.inducing_variables.covariances import Kuv
from gpflow_sparse.kernels.convolutional import TICK, Convolutional
from gpflow_sparse.numerics import linalg
from gpflow_sparse.validation import checks


class PatchSet(InducingVariables):
    """Base class of sets of M patches of L values."""

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


class Patches(PatchSet):
    """
    Inducing variables ``u_m = g(z_m)``: responses to M patches, of a kernel
    :class:`~gpflow_sparse.kernels.Convolutional`.

    ``Kuu = k_g(Z, Z)``, without the kernel's weights; ``Kuf = c sum_p w_p k_g(Z, x^[p])``. Van der
    Wilk, Rasmussen and Hensman, "Convolutional Gaussian Processes" (2017).
    """

    def require_kernel(self, kernel: Any) -> Convolutional:
        """:raises ValueError: for another kernel, or patches of another size."""
        own = isinstance(kernel, Convolutional) and not isinstance(kernel, TICK)
        _require(kernel, own, Convolutional, self.Z)
        return kernel


class LocatedPatches(PatchSet):
    """
    Inducing variables ``u_m = g(z_m, s_m)``: responses to M patches with locations, of a
    kernel :class:`~gpflow_sparse.kernels.TICK`.
    """

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
        """:raises ValueError: for another kernel, or patches of another size."""
        _require(kernel, isinstance(kernel, TICK), TICK, self.Z)
        return kernel


def _parameter(value: Any, name: str) -> gpflow.Parameter:
    if isinstance(value, gpflow.Parameter):
        checks.require_range(checks.require_matrix(value, name), name)
        return value
    tensor = checks.require_matrix(value, name)
    checks.require_range(tensor, name)
    return gpflow.Parameter(tensor)


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


def _with_jitter(K: tf.Tensor, jitter: float) -> tf.Tensor:
    return linalg.add_jitter(K, tf.constant(jitter, K.dtype)) if jitter else K


@Kuu.register(Patches, Kernel)
def _patches_own(patches: Patches, kernel: Kernel, *, jitter: float = 0.0) -> tf.Tensor:
    K = patches.require_kernel(kernel).patch_covariance(tf.convert_to_tensor(patches.Z))
    return _with_jitter(K, jitter)


@Kuf.register(Patches, Kernel, object)
def _patches_images(patches: Patches, kernel: Kernel, Xnew: Any) -> tf.Tensor:
    Z = tf.convert_to_tensor(patches.Z)
    return patches.require_kernel(kernel).response_covariance(Z, tf.convert_to_tensor(Xnew))


@Kuv.register(Patches, Patches, Kernel)
def _patches_patches(first: Patches, second: Patches, kernel: Kernel) -> tf.Tensor:
    plain = second.require_kernel(kernel)
    return plain.patch_covariance(*(tf.convert_to_tensor(part.Z) for part in (first, second)))


@Kuu.register(LocatedPatches, Kernel)
def _located_own(patches: LocatedPatches, kernel: Kernel, *, jitter: float = 0.0) -> tf.Tensor:
    tick = patches.require_kernel(kernel)
    return _with_jitter(tick.located_covariance(*_patches_and_locations(patches)), jitter)


@Kuf.register(LocatedPatches, Kernel, object)
def _located_images(patches: LocatedPatches, kernel: Kernel, Xnew: Any) -> tf.Tensor:
    tick = patches.require_kernel(kernel)
    return tick.located_response_covariance(
        *_patches_and_locations(patches), tf.convert_to_tensor(Xnew)
    )


@Kuv.register(LocatedPatches, LocatedPatches, Kernel)
def _located_located(first: LocatedPatches, second: LocatedPatches, kernel: Kernel) -> tf.Tensor:
    return second.require_kernel(kernel).located_covariance(
        *_patches_and_locations(first), *_patches_and_locations(second)
    )


def _patches_and_locations(patches: LocatedPatches) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.convert_to_tensor(patches.Z), tf.convert_to_tensor(patches.locations)
