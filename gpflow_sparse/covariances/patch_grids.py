"""Grids of the patches of an image: their positions, pixels and sizes."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from gpflow_sparse.validation import checks


class PatchGrid(NamedTuple):
    """
    All patches of an image that lie within it, ``stride`` pixels apart.

    An image is a row of ``H W C`` values: rows of pixels first, channels last. A patch is a row of
    ``L = h w C`` values in the same order, the order of a ``conv2d`` filter ``[h, w, C]``.
    """

    image_shape: tuple[int, int, int]
    """``(H, W, C)``."""
    patch_shape: tuple[int, int]
    """``(h, w)``."""
    stride: int

    @property
    def shape(self) -> tuple[int, int]:
        """``(H', W')``: number of patches downward and across."""
        (height, width, _), (h, w) = self.image_shape, self.patch_shape
        return (height - h) // self.stride + 1, (width - w) // self.stride + 1

    @property
    def num_patches(self) -> int:
        """P, ``H' W'``."""
        return self.shape[0] * self.shape[1]

    @property
    def patch_length(self) -> int:
        """L, the number of values in a patch."""
        return self.patch_shape[0] * self.patch_shape[1] * self.image_shape[2]

    @property
    def num_pixels(self) -> int:
        """D, the number of values in an image."""
        return int(np.prod(self.image_shape))

    def pixels(self) -> np.ndarray:
        """Columns of the image row for each patch: int32 ``[P, L]``."""
        indices = np.arange(self.num_pixels, dtype=np.int32).reshape(self.image_shape)
        windows = np.lib.stride_tricks.sliding_window_view(  # type: ignore[call-overload]
            indices, self.patch_shape, axis=(0, 1)
        )
        spaced = windows[:: self.stride, :: self.stride]  # [H', W', C, h, w]
        return np.moveaxis(spaced, 2, -1).reshape(self.num_patches, self.patch_length)

    def locations(self) -> np.ndarray:
        """Row and column of each patch in the grid of patches: float64 ``[P, 2]``."""
        return np.indices(self.shape).reshape(2, -1).T.astype(np.float64)

    def patches(self, X: tf.Tensor) -> tf.Tensor:
        """``[..., P, L]`` for images ``X [..., D]``."""
        return tf.gather(X, self.pixels(), axis=-1)


def make_grid(image_shape: Any, patch_shape: Any, stride: Any = 1) -> PatchGrid:
    """
    :param image_shape: ``(H, W)`` or ``(H, W, C)``.
    :param patch_shape: ``(h, w)``, at most ``(H, W)``.
    :param stride: pixels between neighboring patches.
    :raises ValueError: for anything else.
    """
    image = require_sizes(image_shape, "image_shape", (2, 3))
    patch = require_sizes(patch_shape, "patch_shape", (2,))
    if patch[0] > image[0] or patch[1] > image[1]:
        raise ValueError(
            f"patch_shape must fit into the image of {image[0]} x {image[1]} pixels, got "
            f"{patch[0]} x {patch[1]}."
        )
    height, width, *channels = image
    count = checks.require_count(stride, "stride")
    return PatchGrid((height, width, *(channels or [1])), (patch[0], patch[1]), count)  # type: ignore[arg-type]


def require_sizes(value: Any, name: str, lengths: tuple[int, ...]) -> tuple[int, ...]:
    """:raises ValueError: unless ``value`` is a tuple of positive counts of one of ``lengths``."""
    example = "(28, 28)" if len(lengths) == 1 else "(28, 28) or (32, 32, 3)"
    try:
        sizes = tuple(value)
    except TypeError:  # also of arrays without axes, which have __iter__
        sizes = ()
    if len(sizes) not in lengths:
        raise ValueError(f"{name} must be a tuple such as {example}, got {value!r}.")
    return tuple(checks.require_count(size, name) for size in sizes)
