"""Data sets of images with classes: pixels as rows, labels as integers."""

import math
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

ImageShape = tuple[int, int, int]
"""Height H, width W and channels C; a row of data holds H W C pixel values, channels last."""

IMAGE_KEYS = ("x_train", "y_train", "x_test", "y_test")

_NUM_CLASSES = 10
_CIFAR_RECORD = 1 + 3 * 32 * 32


def split_images(
    name: str, arrays: Mapping[str, np.ndarray]
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Flatten images that come with a training and a test part.

    :param name: the data set, for error messages.
    :param arrays: `x_train` and `x_test`, uint8 images [N,H,W] or [N,H,W,C]; `y_train` and
        `y_test`, integer labels [N] or [N,1] from 0 to 9.
    :return: training and test pairs of pixels [N,D] (0 to 255, rows first, channels last) and
        labels [N,1], all float64.
    :raises ValueError: for a missing array, another shape or type, or a label out of range.
    """
    missing = [key for key in IMAGE_KEYS if key not in arrays]
    if missing:
        raise ValueError(f"{name}: expected the arrays {list(IMAGE_KEYS)}, {missing} missing")
    pairs = []
    for part in ("train", "test"):
        images, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if images.dtype != np.uint8 or images.ndim not in (3, 4):
            raise ValueError(
                f"{name}: images must be uint8 of shape [N,H,W] or [N,H,W,C], got {images.dtype} "
                f"{images.shape}"
            )
        if labels.dtype.kind not in "iu" or labels.size != len(images):
            raise ValueError(
                f"{name}: labels must be {len(images)} integers, got {labels.dtype} {labels.shape}"
            )
        if labels.size and not 0 <= labels.min() <= labels.max() < _NUM_CLASSES:
            raise ValueError(
                f"{name}: labels must be from 0 to {_NUM_CLASSES - 1}, got {labels.min()} to "
                f"{labels.max()}"
            )
        pixels = images.reshape(len(images), -1)
        pairs.append((pixels.astype(float), labels.reshape(-1, 1).astype(float)))
    train, test = pairs
    if train[0].shape[1] != test[0].shape[1]:
        raise ValueError(
            f"{name}: training and test images must have the same size, got "
            f"{arrays['x_train'].shape[1:]} and {arrays['x_test'].shape[1:]}"
        )
    return train, test


def shape_of_images(images: np.ndarray) -> ImageShape:
    """Height, width and channels of images [N,H,W] (one channel) or [N,H,W,C]."""
    height, width, channels = (*images.shape[1:], 1)[:3]
    return height, width, channels


def image_shape_of(num_columns: int) -> ImageShape:
    """The shape of square images, gray or of three colors, from the length of a row.

    :raises ValueError: if the length is neither a square nor three times one.
    """
    for channels in (1, 3):
        side = math.isqrt(num_columns // channels)
        if side and channels * side**2 == num_columns:
            return side, side, channels
    raise ValueError(
        f"image_shape is missing: {num_columns} columns are not a square image of 1 or 3 channels; "
        "give height, width and channels"
    )


def read_cifar10(path: Path) -> dict[str, np.ndarray]:
    """Read the binary version of CIFAR-10 straight out of its archive.

    A record is one label byte and 3072 pixel bytes, one color plane after the other.

    :param path: the file cifar-10-binary.tar.gz.
    :return: arrays for :func:`split_images`, images [N,32,32,3].
    :raises ValueError: if a part is missing or is not a whole number of records.
    """
    members = {f"data_batch_{i}.bin": b"" for i in range(1, 6)} | {"test_batch.bin": b""}
    with tarfile.open(path, mode="r:gz") as archive:
        for member in archive:
            # Members are read in memory and known by their last name only: nothing is extracted,
            # so a path in the archive cannot lead anywhere.
            content = archive.extractfile(member)
            name = Path(member.name).name
            if content is not None and name in members:
                members[name] = content.read()
    for name, raw in members.items():
        if not raw or len(raw) % _CIFAR_RECORD:
            raise ValueError(
                f"{path.name}: {name} must hold records of {_CIFAR_RECORD} bytes, got {len(raw)} "
                "bytes; delete the file and load again"
            )
    arrays = {}
    test = members.pop("test_batch.bin")
    for part, raw in (("train", b"".join(members.values())), ("test", test)):
        records = np.frombuffer(raw, dtype=np.uint8).reshape(-1, _CIFAR_RECORD)
        arrays[f"x_{part}"] = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        arrays[f"y_{part}"] = records[:, 0]
    return arrays


def read_digits() -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """The 8 x 8 digits that ship with scikit-learn.

    :return: pixels [1797,64] from 0 to 16, labels [1797,1], and the names of the pixels.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    X, labels = digits.data.astype(np.float64), digits.target.astype(np.float64)
    return X, labels[:, None], tuple(digits.feature_names)
