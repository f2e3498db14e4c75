"""How large the images and models are whose cost is measured; no TensorFlow."""

from dataclasses import dataclass

OURS, ONE_SHOT, GPFLOW = "ours", "one shot", "GPflow Convolutional"


@dataclass(frozen=True)
class ImageSizes:
    """A batch of gray images, and patches one pixel apart."""

    num_images: int = 64
    """N."""
    image_size: int = 28
    """Height and width."""
    patch_size: int = 5
    """Height and width."""
    num_classes: int = 10
    """Latent functions; the likelihood is robust-max."""
    num_inducing: int = 500
    """M, patches of the base set."""
    num_orthogonal: int = 500
    """M2, patches of the orthogonal set."""

    @property
    def num_patches(self) -> int:
        """M + M2, of models with one set."""
        return self.num_inducing + self.num_orthogonal


@dataclass(frozen=True)
class KernelMemory:
    """In units of 2^20 bytes, above a process that has done the same with two images."""

    title: str
    """``OURS``, ``ONE_SHOT`` or ``GPFLOW``."""
    gradient: bool
    """Whether the gradient is taken too."""
    peak: float
    """The most on the way, with what is made to compile the work."""


@dataclass(frozen=True)
class DeepSizes:
    """A batch of images of three colors, and patches of two layers: a third of the paper's."""

    num_images: int = 16
    """N."""
    image_size: int = 32
    """Height and width."""
    hidden: int = 128
    """M of the hidden layer."""
    last: int = 320
    """M of the last layer."""
