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
    num_inducing: int | str = option(
        100, "M, patches of the base set, of each layer, or one number for each: 384,384,1000."
    )
    zero_mean: bool = option(
        False,
        "Prior mean of hidden layers zero, as in SOLVE-GP's paper, not trained rectified filters.",
    )
    sampling: str = option(
        "shared_inducing",
        "Draws of hidden layers: the patches of an image share inducing variables, or are "
        "independent (marginal), as in the paper.",
        choices=["shared_inducing", "marginal"],
    )
    whiten: bool = options.whiten()
    num_steps: int = 1000
    batch_size: int = 128
    # Under robust-max, natural gradients saturate all probabilities, and the gradient vanishes.
    natural_gradients: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_shape(self.image_shape)
        self.patches_of_layers()

    @property
    def image(self) -> ImageShape | None:
        """Height, width and channels."""
        return parse_shape(self.image_shape)

    def patches_of_layers(self) -> dict[str, list[int]]:
        """
        Numbers of patches of each layer, by option. A single number of orthogonal patches is of the
        last layer: at equal time a second set gains less in hidden layers than it costs.

        :raises ValueError: for an option that is not a number, nor one number for each layer.
        """
        found = {}
        for name, least in (("num_inducing", 1), ("num_orthogonal", 0)):
            value, count = getattr(self, name, 0), self.num_layers
            parts = [part.strip() for part in str(value).split(",")]
            numbers = [int(part) for part in parts if part.isdecimal() and int(part) >= least]
            if len(numbers) != len(parts) or len(parts) not in (1, count):
                raise ValueError(
                    f"{name} must be a number of at least {least}, or {count} such numbers for "
                    f"{count} layer(s), separated by commas; got {value!r}."
                )
            fill = numbers[0] if least else 0
            found[name] = [fill] * (count - len(numbers)) + numbers
        return found

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        from gpflow_sparse.data.images import image_shape_of

        shape = self.image or image_shape_of(data[0].shape[1])
        names = "tick", "whiten", "zero_mean", "sampling", "seed"
        given = {
            **self.patches_of_layers(),
            "architecture": self.architecture(shape),
            **{name: getattr(self, name) for name in names},
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

    num_orthogonal: int | str = option(
        100, "M2, patches of the orthogonal set of the last layer, or one number for each layer."
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

    :raises ValueError: for a text that is not a shape.
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
