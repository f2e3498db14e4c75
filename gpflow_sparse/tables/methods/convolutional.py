"""Convolutional GPs of images: SOLVE-GP, and its baseline with one set of patches."""

from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options
from gpflow_sparse.tables.methods.base import option
from gpflow_sparse.tables.methods.steps import NaturalSteps

ImageShape = tuple[int, int, int]
# Sizes and strides of patches by layer; wider images have larger patches and strides.
_SMALL_WIDTH = 16
_SMALL, _WIDE = ((3, 1), (3, 1), (3, 1)), ((5, 2), (4, 2), (5, 1))
# Channels of hidden layers, as in the paper.
_CHANNELS = 10
# Entries of the largest tensor of a chunk of patches.
_TABLE = 4_000_000


@dataclass(frozen=True)
class Convolutional(NaturalSteps):
    """Options of both methods of images."""

    takes_images = True

    image_shape: str | None = option(
        None, "Shape of the images, H,W or H,W,C; else as the data set has it, or square."
    )
    patch_size: int | None = option(
        None, "Height and width of patches; 3, or 5 above 16 pixels.", least=1
    )
    stride: int | None = option(None, "Pixels between patches; 1, or 2 above 16 pixels.", least=1)
    num_layers: int = options.num_layers(1, "Layers of the deep GP, 1 to 3.")
    tick: bool = option(True, "Let the last layer depend on the location of a patch.")
    num_inducing: int = option(100, "M, patches of the base set, of each layer.", least=1)
    whiten: bool = options.whiten()
    num_steps: int = 1000
    batch_size: int = 128
    # Under robust-max, natural gradients saturate all probabilities, and the gradient vanishes.
    natural_gradients: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_shape(self.image_shape)

    @property
    def image(self) -> ImageShape | None:
        """Height, width and channels."""
        return parse_shape(self.image_shape)

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        """The model; hidden layers have one set, since a second gains less there than it costs."""
        from gpflow_sparse.data.images import image_shape_of

        shape = self.image or image_shape_of(data[0].shape[1])
        given = {
            "num_inducing": self.num_inducing,
            "num_orthogonal": [0] * (self.num_layers - 1) + [getattr(self, "num_orthogonal", 0)],
            "architecture": self.architecture(shape),
            "tick": self.tick,
            "whiten": self.whiten,
            "seed": self.seed,
            **given,
        }
        return gs.models.deep_convolutional(data[0], shape, likelihood, **given)

    def architecture(self, shape: ImageShape) -> list[Any]:
        """
        Patches of each layer: 3 x 3 with stride 1; in images more than 16 pixels wide 5 x 5 with
        stride 2, then 4 x 4 with stride 2, then 5 x 5 with stride 1, or as large as fits.
        """
        plan = _SMALL if shape[1] <= _SMALL_WIDTH else _WIDE
        size, stride = plan[0]
        first = (self.patch_size or size, self.stride or stride)
        least, specs = min(shape[:2]), []
        for layer, (size, stride) in enumerate((first, *plan[1 : self.num_layers])):
            size = size if layer == 0 else min(size, least)
            least = (least - size) // stride + 1
            specs.append(gs.models.ConvSpec(size, stride, _CHANNELS))
        return [*specs[:-1], specs[-1]._replace(num_outputs=None)]


@dataclass(frozen=True)
class ConvolutionalSolveGP(Convolutional):
    """Options of convolutional SOLVE-GP, :func:`gpflow_sparse.models.deep_convolutional`."""

    name = "conv-solvegp"
    title = "Convolutional SOLVE-GP"
    idea = "images: a GP of patches, summed over an image, with M + M2 patches; one to three layers"

    num_orthogonal: int = option(
        100, "M2, patches of the orthogonal set of the last layer.", least=0
    )

    @classmethod
    def reason_against(cls, task: Any) -> str:
        return "" if task.has_images else "rows are not labeled images"


@dataclass(frozen=True)
class ConvolutionalSVGP(Convolutional):
    """Options of GPflow's SVGP with patches."""

    name = "conv-svgp"
    title = "Convolutional SVGP"
    idea = "the same with one set of M patches"

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        import gpflow

        model = super().build(data, kernel, likelihood, **given)
        if hasattr(model, "layers"):
            return model
        (patches,) = model.inducing_variable.sets
        names = ("num_latent_gps", "whiten", "num_data")
        shared = {name: getattr(model, name) for name in names}
        return gpflow.models.SVGP(model.kernel, model.likelihood, patches, **shared)


def parse_shape(text: str | None) -> ImageShape | None:
    """
    Height, width and channels, from an option.

    :raises ValueError: for a text that is no shape.
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if len(parts) not in (2, 3) or not all(p.isdecimal() and int(p) for p in parts):
        raise ValueError(
            "image_shape must be height and width, or these and channels, such as 28,28 or "
            f"32,32,3; got {text!r}."
        )
    height, width, channels = map(int, (*parts, "1")[:3])
    return height, width, channels
