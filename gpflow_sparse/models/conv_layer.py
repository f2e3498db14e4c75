"""Hidden layers over images: the functions of a layer, at every patch."""

from typing import Any

from gpflow.kernels import Kernel

from gpflow_sparse.covariances.patch_grids import PatchGrid, make_grid
from gpflow_sparse.models.layers import GPLayer


class ConvLayer(GPLayer):
    """
    A hidden layer over images: G functions of every patch, which make an image of G channels.

    Kernel, inducing inputs and mean function are on patches ``[., h w C]``, row by row, channels
    last. The output ``[N, H' W' G]`` is an image ``(H', W', G)`` for the next layer. The KL is one
    per function, however many patches look at it. Blomqvist, Kaski and Heinonen, "Deep
    convolutional Gaussian processes" (arXiv:1810.03052), and section 4 of Shi, Titsias and Mnih.
    """

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: Any,
        image_shape: Any,
        patch_shape: Any,
        *,
        stride: int = 1,
        **options: Any,
    ) -> None:
        """
        :param image_shape: ``(H, W)`` or ``(H, W, C)`` of the input.
        :param patch_shape: ``(h, w)``.
        :param stride: pixels from one patch to the next.
        :param options: further arguments of :class:`GPLayer`.
        :raises ValueError: for shapes that do not fit each other.
        """
        self.image_shape, self.patch_shape, self.stride = make_grid(
            image_shape, patch_shape, stride
        )
        super().__init__(kernel, inducing_variable, **options)

    @property
    def grid(self) -> PatchGrid:
        return make_grid(self.image_shape, self.patch_shape, self.stride)

    @property
    def input_dim(self) -> int:
        return self.grid.num_pixels

    @property
    def output_dim(self) -> int:
        return self.grid.num_patches * self.num_outputs

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """``(H', W', G)``."""
        return (*self.grid.shape, self.num_outputs)

    def _require_parts(self) -> None:
        columns = self._row_length
        if columns not in (None, self.grid.patch_length):
            raise ValueError(
                f"inducing_variable must have {self.grid.patch_length} columns, the numbers in a "
                f"patch of {self.patch_shape} pixels and {self.image_shape[2]} channel(s); got "
                f"{columns}."
            )
        super()._require_parts()
