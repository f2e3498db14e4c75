"""Kernels on images that are sums over patches, computed for a few images at a time.

With P patches in each of N images and M inducing patches, ``[N, P, M]`` is 0.3 GB at N = 64, 28 x
28 pixels, 5 x 5 patches, M = 1000 in float64, and its gradient needs several of them. So sums over
patches are computed for a few images at a time, and again for the gradient.
"""

from typing import Any

import gpflow
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow import Parameter
from gpflow.kernels import Kernel

from gpflow_sparse.covariances.patch_grids import PatchGrid, make_grid
from gpflow_sparse.covariances.stationary import covariance
from gpflow_sparse.covariances.weighted_sums import cross_sums, lower_strips, own_sums
from gpflow_sparse.numerics import devices
from gpflow_sparse.numerics.streaming import Tensors, by_chunks
from gpflow_sparse.validation import checks
from gpflow_sparse.validation.component_checks import require_single

# Entries of the largest tensor of a chunk of images; memory is a few times that. The time of a
# gradient hardly depends on it, from 0.6 to 10 million.
_CHUNK_SIZE = 2_500_000


class Convolutional(Kernel):
    r"""
    ``f(x) = c sum_p w_p g(x^[p])``, ``g ~ GP(0, k_g)`` on patches of all channels together.

        k(x, x') = c^2 sum_pq w_p w_q k_g(x^[p], x'^[q])

    with ``c = 1 / P`` if ``average``, else 1. Van der Wilk, Rasmussen and Hensman, "Convolutional
    Gaussian Processes" (2017), as Shi, Titsias and Mnih (2020, arXiv:1910.10596v5, section 4) use
    it; they print no c, other codes divide by P, which is a factor P^2 in k. With averaging the
    variance of f is at most the variance of g times the largest squared weight.

    GPflow's ``Convolutional`` has ``c = 1 / P`` too, no stride, and treats every channel of a patch
    as a separate patch.

    The variance at N images costs O(N P^2 L), with M inducing patches their covariance O(N P M L),
    in memory for a few images at a time. A full covariance of N images costs O(N^2 P^2 L): for
    small N only.
    """

    def __init__(
        self,
        base_kernel: Kernel,
        image_shape: Any,
        patch_shape: Any,
        *,
        weights: Any = None,
        stride: int = 1,
        average: bool = True,
    ) -> None:
        """
        :param base_kernel: k_g, any kernel of one output on patches ``[..., L]``, ``L = h w C``.
        :param image_shape: ``(H, W)`` or ``(H, W, C)``; an image is a row of ``H W C`` values, row
            by row, channels last.
        :param patch_shape: ``(h, w)``.
        :param weights: w ``[P]``, one for each patch row by row, trained; ones by default.
        :param stride: pixels from one patch to the next.
        :param average: whether to divide by the number of patches P.
        :raises ValueError: for shapes that do not fit each other.
        """
        super().__init__()
        grid = make_grid(image_shape, patch_shape, stride)
        checks.require_flag(average, "average")
        self.base_kernel = require_single(base_kernel, grid.patch_length, "base_kernel")
        self.image_shape, self.patch_shape, self.stride = grid
        self.average = average
        if weights is None:
            weights = tf.ones([grid.num_patches], gpflow.default_float())
        _require_shape(tensor := checks.as_tensor(weights, "weights"), grid.num_patches)
        self.weights = Parameter(tensor)

    @property
    def grid(self) -> PatchGrid:
        """Positions of the patches in an image."""
        return make_grid(self.image_shape, self.patch_shape, self.stride)

    @property
    def patch_weights(self) -> tf.Tensor:
        """``c w [P]``."""
        P, weights = self.grid.num_patches, tf.convert_to_tensor(self.weights)
        _require_shape(weights, P)
        checks.require_flag(self.average, "average")
        return weights / tf.cast(P, weights.dtype) if self.average else weights

    @inherit_check_shapes
    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        """``[..., N, N]``, or ``[..., N, ..., N2]`` for other images."""
        X = self._images(X)
        if X2 is not None:
            X2 = self._images(X2)
            first, second = (tf.reshape(part, [-1, part.shape[-1]]) for part in (X, X2))
            shape = tf.concat([tf.shape(X)[:-1], tf.shape(X2)[:-1]], axis=0)
            return tf.reshape(self._across(first, second), shape)
        if X.shape.rank == 2:
            return self._across(X, X)
        flat = tf.reshape(X, tf.concat([[-1], tf.shape(X)[-2:]], axis=0))
        # AutoGraph would convert GPflow's kernels at every call
        own = tf.autograph.experimental.do_not_convert(lambda images: self._across(images, images))
        K = tf.map_fn(own, flat)
        return tf.reshape(K, tf.concat([tf.shape(X)[:-1], tf.shape(X)[-2:-1]], axis=0))

    @inherit_check_shapes
    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        """``[..., N]``"""
        X = self._images(X)
        w = self.patch_weights
        table = w[:, None] * w[None, :] * self._location_covariance()  # [P, P]
        kernel, grid = self._base, self.grid

        def sums(rows: Tensors, shared: Tensors) -> tf.Tensor:
            return own_sums(kernel, grid.patches(rows[0]), shared)

        flat = tf.reshape(X, [-1, X.shape[-1]])
        size = max(1, devices.block_entries(_CHUNK_SIZE) // grid.num_patches**2)
        return tf.reshape(by_chunks(sums, [flat], lower_strips(table), size=size), tf.shape(X)[:-1])

    @check_shapes(
        "Z: [M, L]",
        "Z2: [M2, L]",
        "return: [M, M] if Z2 is None",
        "return: [M, M2] if Z2 is not None",
    )
    def patch_covariance(self, Z: tf.Tensor, Z2: tf.Tensor | None = None) -> tf.Tensor:
        """Covariance of responses g to patches: ``k_g(Z, Z2) [M, M2]``, or ``k_g(Z, Z)``."""
        return covariance(self._base, Z, Z2)

    @check_shapes("Z: [M, L]", "X: [N, D]", "return: [M, N]")
    def response_covariance(self, Z: tf.Tensor, X: tf.Tensor) -> tf.Tensor:
        """``cov[g(Z), f(X)] [M, N]`` for patches ``Z [M, L]`` and images ``X [N, D]``."""
        return self._cross_sums(Z, self._images(X), self.patch_weights[:, None])

    @property
    def _base(self) -> Kernel:
        """The kernel, checked again because it can be assigned."""
        return require_single(self.base_kernel, self.grid.patch_length, "base_kernel")

    def _images(self, X: Any) -> tf.Tensor:
        """Images ``[..., D]``; D must be the number of pixel values."""
        X = tf.convert_to_tensor(X)
        if X.shape.rank is not None and X.shape[-1] is None:
            return tf.ensure_shape(X, [*X.shape[:-1], self.grid.num_pixels])
        if X.shape[-1] != self.grid.num_pixels:
            raise ValueError(
                f"X must have {self.grid.num_pixels} columns, the values in an image of shape "
                f"{tuple(self.image_shape)}; got shape {tuple(X.shape)}."
            )
        return X

    def _location_covariance(self) -> Any:
        """Factor of the covariance of two patches by their locations: a scalar, or ``[P, P]``."""
        return 1.0

    def _across(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        """``k(X, X2) [N, N2]``, with the patches of the first images as inducing patches."""
        patches = tf.reshape(self.grid.patches(X), [-1, self.grid.patch_length])  # [N P, L]
        weights = self.patch_weights[:, None] * self._location_covariance()  # [P, 1] or [P, P]
        if weights.shape[1] > 1:
            weights = tf.tile(weights, [1, tf.shape(X)[0]])
        K = self._cross_sums(patches, X2, weights)  # [N P, N2]
        by_image = tf.reshape(K, [-1, self.grid.num_patches, tf.shape(X2)[0]])
        return tf.einsum("p,npm->nm", self.patch_weights, by_image)

    def _cross_sums(self, Z: tf.Tensor, X: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """
        ``sum_p weights[p, m] k_g(Z_m, x_n^[p])  [M, N]``, in O(N P M L).

        :param Z: patches ``[M, L]``.
        :param X: images ``[N, D]``.
        :param weights: ``[P, M]``; or ``[P, 1]``, the same for all of Z.
        """
        kernel, grid, M = self._base, self.grid, Z.shape[0]
        P = grid.num_patches

        def sums(rows: Tensors, shared: Tensors) -> tf.Tensor:
            return cross_sums(kernel, grid.patches(rows[0]), *shared)

        if M is None:  # patches of an unknown number of images, for a full covariance of few
            return tf.transpose(sums([X], [Z, weights]))
        size = max(1, devices.block_entries(_CHUNK_SIZE) // (P * M))
        return tf.transpose(by_chunks(sums, [X], [Z, weights], size=size))


class TICK(Convolutional):
    r"""
    A convolutional kernel whose response to a patch also depends on the location of the patch:

        k(x, x') = c^2 sum_pq w_p w_q k_g(x^[p], x'^[q]) k_loc(s_p, s_q)

    Dutordoir, van der Wilk, Artemev and Hensman, "Bayesian Image Classification with Deep
    Convolutional Gaussian Processes" (arXiv:1902.05888). Locations ``s_p`` are rows and columns of
    the grid of patches, from 0 to ``H' - 1`` and ``W' - 1``, whatever the stride; in pixels,
    lengthscales would be ``stride`` times as long.

    With a long lengthscale of ``k_loc`` it is :class:`Convolutional`; with a short one the response
    functions of patches are independent.
    """

    def __init__(
        self,
        base_kernel: Kernel,
        image_shape: Any,
        patch_shape: Any,
        *,
        location_kernel: Kernel | None = None,
        weights: Any = None,
        stride: int = 1,
        average: bool = True,
    ) -> None:
        """
        :param location_kernel: k_loc, on rows and columns ``[..., 2]``; by default Matern 3/2 of
            lengthscale 3, the paper's. Its variance is set to 1 and not trained: it would multiply
            the variance of ``base_kernel``.
        """
        super().__init__(
            base_kernel, image_shape, patch_shape, weights=weights, stride=stride, average=average
        )
        if location_kernel is None:
            location_kernel = gpflow.kernels.Matern32(lengthscales=3.0)
        kernel = require_single(location_kernel, 2, "location_kernel")
        if isinstance(variance := getattr(kernel, "variance", None), Parameter):
            variance.assign(tf.ones_like(variance))
            gpflow.set_trainable(variance, False)
        self.location_kernel = kernel

    def located_covariance(
        self,
        Z: tf.Tensor,
        locations: tf.Tensor,
        Z2: tf.Tensor | None = None,
        locations2: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """As :meth:`patch_covariance`, times ``k_loc`` of ``locations [M, 2]``."""
        return self.patch_covariance(Z, Z2) * covariance(self._near, locations, locations2)

    def located_response_covariance(
        self, Z: tf.Tensor, locations: tf.Tensor, X: tf.Tensor
    ) -> tf.Tensor:
        """As :meth:`response_covariance`, for patches that are at ``locations [M, 2]``."""
        near = covariance(self._near, self._places(), locations)  # [P, M]
        weights = self.patch_weights[:, None] * near
        return self._cross_sums(Z, self._images(X), weights)

    @property
    def _near(self) -> Kernel:
        """The kernel, checked again because it can be assigned."""
        return require_single(self.location_kernel, 2, "location_kernel")

    def _places(self) -> tf.Tensor:
        return tf.constant(self.grid.locations(), dtype=self.weights.dtype)

    def _location_covariance(self) -> Any:
        return covariance(self._near, self._places())  # [P, P]


def _require_shape(weights: tf.Tensor, num_patches: int) -> None:
    if tuple(weights.shape) != (num_patches,):
        raise ValueError(
            f"weights must be one for each of {num_patches} patches, got shape "
            f"{tuple(weights.shape)}."
        )
