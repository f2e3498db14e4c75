"""Pictures of models of images; matplotlib is imported when one is drawn."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpflow_sparse.runs import outputs
from gpflow_sparse.runs.plots import draw_confusion, new_figure, save_figure

# Patches of a set that are drawn, and images; in squares.
_PATCHES_ACROSS, _IMAGES_ACROSS = 10, 5
# Pixels between pictures, and their color, which is no gray.
_GAP, _WALL = 1, (0.68, 0.8, 0.92)


def plot_images(
    folder: Path, pair: tuple[np.ndarray, np.ndarray], run: Any, image_shape: tuple[int, int, int]
) -> None:
    """
    ``patches.png``: the inducing patches of the first layer; for classes also ``confusion.png`` and
    ``uncertain.png``.

    :param folder: of the run.
    :param pair: test images and labels in original units.
    :param run: what :func:`gpflow_sparse.runs.training.train` returned.
    :param image_shape: (H, W, C).
    :raises ValueError: if matplotlib is not installed.
    """
    plot_patches(folder / "patches.png", *inducing_patches(run.model))
    if "probabilities" in run.predictions:
        X, Y = pair
        plot_confusion(folder / "confusion.png", Y, run)
        P = run.predictions["probabilities"]
        plot_uncertain(folder / "uncertain.png", X, Y, P, image_shape)


def inducing_patches(model: Any) -> tuple[dict[str, np.ndarray], tuple[int, int, int]]:
    """
    Of the first layer of a convolutional model: patches ``[M, L]`` by the name of the set, and
    their height, width and channels.
    """
    layer = model.layers[0] if hasattr(model, "layers") else model
    points = layer.inducing_variable
    sets = getattr(points, "sets", (points,))
    names = ("Z", "O", *(f"O{i}" for i in range(2, len(sets))))
    grid = getattr(layer, "grid", None) or layer.kernel.grid
    patches = {name: part.Z.numpy() for name, part in zip(names, sets, strict=False)}
    return patches, (*grid.patch_shape, grid.image_shape[2])


def plot_patches(
    path: Path, sets: Mapping[str, np.ndarray], patch_shape: tuple[int, int, int]
) -> None:
    """
    Inducing patches as tiles, a panel for each set, the first hundred of each.

    One or three channels are drawn as gray or color, the middle of the scale at zero and its ends
    at the largest absolute value of the set; of another number, the mean over channels.

    :param path: where the PNG goes.
    :param sets: patches ``[M, h w C]``, channels last, by title.
    :param patch_shape: (h, w, C).
    :raises ValueError: if matplotlib is not installed.
    """
    figure = new_figure(4.2 * len(sets), 4.5)
    axes: Any = figure.subplots(1, len(sets), squeeze=False)[0]
    for axis, (title, patches) in zip(axes, sets.items(), strict=True):
        axis.margins(0.03)  # between panels too
        shown = patches[: _PATCHES_ACROSS**2].reshape(-1, *patch_shape)
        _show(axis, tiles(_to_unit(_visible(shown)), _PATCHES_ACROSS))
        first = f", first {len(shown)} of {len(patches)}" if len(shown) < len(patches) else ""
        axis.set_title(f"{title}{first}", fontsize=9)
    save_figure(figure, path, outputs.FIT)


def plot_confusion(path: Path, Y: np.ndarray, run: Any) -> None:
    """
    Counts of true against predicted classes of one model.

    :param path: where the PNG goes.
    :param Y: labels ``[N, 1]``.
    :param run: what :func:`gpflow_sparse.runs.training.train` returned.
    :raises ValueError: if matplotlib is not installed.
    """
    figure = new_figure(5.4, 5.4)
    axis = figure.subplots()
    draw_confusion(axis, Y, run.predictions["probabilities"])
    accuracy = 100.0 * (1.0 - run.metrics["error_rate"])
    axis.set_title(f"{run.title}\n{accuracy:.2f} % of {len(Y)} right")
    save_figure(figure, path, outputs.FIT)


def plot_uncertain(
    path: Path,
    X: np.ndarray,
    Y: np.ndarray,
    probabilities: np.ndarray,
    image_shape: tuple[int, int, int],
) -> None:
    """
    The 25 images of which a model is least sure, each with its two likeliest classes.

    Titles are red where the likeliest class is not the true one.

    :param path: where the PNG goes.
    :param X: images ``[N, H W C]`` in original units.
    :param Y: labels ``[N, 1]``.
    :param probabilities: of classes ``[N, C]``.
    :param image_shape: (H, W, C).
    :raises ValueError: if matplotlib is not installed.
    """
    rows = most_uncertain(probabilities, _IMAGES_ACROSS**2)
    figure = new_figure(1.7 * _IMAGES_ACROSS, 2.0 * _IMAGES_ACROSS)
    axes = figure.subplots(_IMAGES_ACROSS, _IMAGES_ACROSS, squeeze=False).ravel()
    pictures = _visible(X.reshape(-1, *image_shape))
    low, high = pictures.min(), pictures.max()
    for axis in axes:
        axis.axis("off")
    for axis, row in zip(axes, rows, strict=False):
        _show(axis, (pictures[row] - low) / ((high - low) or 1.0))
        first, second = np.argsort(-probabilities[row], kind="stable")[:2]
        P, label = probabilities[row], int(Y[row, 0])
        text = f"{first}: {P[first]:.2f}  {second}: {P[second]:.2f}\ntrue: {label}"
        axis.set_title(text, fontsize=8, color="black" if first == label else "C3")
    save_figure(figure, path, outputs.FIT)


def most_uncertain(probabilities: np.ndarray, count: int) -> np.ndarray:
    """Rows of ``probabilities [N, C]`` of largest entropy, at most ``count``, largest first."""
    P = np.maximum(probabilities, np.finfo(float).tiny)
    entropy = -np.sum(P * np.log(P), axis=1)
    return np.argsort(-entropy, kind="stable")[:count]


def tiles(pictures: np.ndarray, across: int) -> np.ndarray:
    """Pictures ``[n, h, w, 1 or 3]`` as one ``[., ., 3]``, so many in a row, blue between them."""
    count, h, w, _ = pictures.shape
    down = -(-count // across)
    wall = np.tile(_WALL, (down * (h + _GAP) - _GAP, across * (w + _GAP) - _GAP, 1))
    for i, picture in enumerate(pictures):
        row, column = (h + _GAP) * (i // across), (w + _GAP) * (i % across)
        wall[row : row + h, column : column + w] = picture
    return wall


def _visible(pictures: np.ndarray) -> np.ndarray:
    """Of one or three channels."""
    return pictures if pictures.shape[-1] in (1, 3) else pictures.mean(axis=-1, keepdims=True)


def _to_unit(pictures: np.ndarray) -> np.ndarray:
    """Zero in the middle of 0 to 1."""
    return 0.5 + 0.5 * pictures / (np.abs(pictures).max() or 1.0)


def _show(axis: Any, picture: np.ndarray) -> None:
    axis.imshow(picture, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
    axis.axis("off")
