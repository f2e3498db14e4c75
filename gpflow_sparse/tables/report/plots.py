"""Pictures of predictions and of models of images; matplotlib is imported on first use."""

import importlib.util
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import entropy

from gpflow_sparse.data.images import ImageShape
from gpflow_sparse.persistence import files
from gpflow_sparse.tables.cli import outputs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gpflow_sparse.tables.cli.training import Trained

# Width and height of the squares in which patches of a set and images are drawn, in pictures.
_PATCHES_ACROSS, _IMAGES_ACROSS = 10, 5
# Width in pixels and color of the gaps between pictures; not gray, as pictures may be.
_GAP, _BACKGROUND = 1, (0.68, 0.8, 0.92)
_MISSING = "drawing needs matplotlib: python -m pip install matplotlib"


def require_matplotlib() -> None:
    """
    Find matplotlib without its import, which takes .3 s and is needed at the end of a run.

    :raises ValueError: if matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError(_MISSING)


def new_figure(width: float, height: float) -> "Figure":
    """
    An empty figure of a size in inches.

    :raises ValueError: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError(_MISSING) from error
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: "Figure", path: Path, writer: str) -> None:
    """Write a PNG that names the command that wrote it, see :mod:`outputs`."""
    files.write_bytes(path, png(figure, writer))


def png(figure: "Figure", writer: str | None = None) -> bytes:
    """The figure as a PNG, which may name its writer."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=130, metadata={"Software": writer})
    return content.getvalue()


def plot_predictions(
    path: Path,
    Y: np.ndarray,
    runs: "list[Trained]",
    target_name: str,
    labels: Sequence[str] | None = None,
) -> None:
    """
    Predictions against truth, one panel per model.

    Regression: test values against predicted means with central 95 % intervals. Classification: the
    confusion matrix.

    :param path: path of the PNG.
    :param Y: test outputs ``[N, 1]`` in original units.
    :param target_name: label of the axes.
    :param labels: names of the classes; None for their numbers.
    :raises ValueError: if matplotlib is not installed.
    """
    figure = new_figure(4.6 * len(runs), 4.4)
    axes = figure.subplots(1, len(runs), squeeze=False)[0]
    for axis, run in zip(axes, runs, strict=True):
        if "probabilities" in run.predictions:
            draw_confusion(axis, Y, run.predictions["probabilities"], labels)
            axis.set_title(f"{run.title}\nerror rate {run.metrics['error_rate']:.3g}")
        else:
            draw_scatter(axis, Y, run.predictions["point"], run.predictions["variance"])
            axis.set_title(
                f"{run.title}\nRMSE {run.metrics['rmse']:.3g}, "
                f"95 % coverage {100 * run.metrics['coverage']:.1f} %"
            )
            axis.set_xlabel(f"predicted {target_name}", parse_math=False)
            axis.set_ylabel(f"measured {target_name}", parse_math=False)
    save_figure(figure, path, outputs.FIT)


def draw_scatter(axis: Any, Y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> None:
    """First outputs of ``Y [N, P]`` against means with 1.96 standard deviations, at most 500."""
    shown = np.random.default_rng(0).permutation(len(Y))[:500]  # more would overlap
    half = 1.96 * np.sqrt(variance[shown, 0])
    axis.errorbar(
        mean[shown, 0], Y[shown, 0], xerr=half, fmt=".", ms=4, lw=0.6, color="C0", alpha=0.45
    )
    low, high = (f(np.concatenate([Y[:, 0], mean[:, 0]])) for f in (np.min, np.max))
    ends = low - 0.05 * (high - low or 1.0), high + 0.05 * (high - low or 1.0)
    axis.plot(ends, ends, color="0.2", lw=1.0)
    axis.set(xlim=ends, ylim=ends)  # an interval may be much longer
    axis.set_aspect("equal", adjustable="box")


def draw_confusion(
    axis: Any, Y: np.ndarray, probabilities: np.ndarray, labels: Sequence[str] | None = None
) -> None:
    """
    Counts of labels ``Y [N, 1]`` against the likeliest class of ``probabilities [N, C]``.

    :param labels: names of the classes; None for their numbers.
    """
    classes = probabilities.shape[1]
    counts = np.zeros((classes, classes), dtype=int)
    np.add.at(counts, (Y[:, 0].astype(int), probabilities.argmax(axis=1)), 1)
    axis.imshow(counts, cmap="Blues")
    for (i, j), count in np.ndenumerate(counts):
        if count:
            color = "white" if count > counts.max() / 2 else "black"
            axis.text(j, i, str(count), ha="center", va="center", color=color, fontsize=8)
    names = list(map(str, range(classes))) if labels is None else [n[:20] for n in labels]
    # a name such as "cost in $" is not a formula
    axis.set_xticks(range(classes), names, parse_math=False)
    axis.set_yticks(range(classes), names, parse_math=False)
    if max(map(len, names)) > 3:
        axis.tick_params(axis="x", rotation=60)
    axis.set(xlabel="predicted class", ylabel="true class")


def plot_images(
    folder: Path, pair: tuple[np.ndarray, np.ndarray], run: "Trained", image_shape: ImageShape
) -> None:
    """
    ``patches.png``: the inducing patches of the first layer; for classes also ``confusion.png`` and
    ``uncertain.png``.

    :param folder: folder of the run.
    :param pair: test images and labels in original units.
    """
    plot_patches(folder / "patches.png", *inducing_patches(run.model))
    if "probabilities" in run.predictions:
        (X, Y), P = pair, run.predictions["probabilities"]
        figure = new_figure(5.4, 5.4)
        axis = figure.subplots()
        draw_confusion(axis, Y, P)
        accuracy = 100.0 * (1.0 - run.metrics["error_rate"])
        axis.set_title(f"{run.title}\n{accuracy:.2f} % of {len(Y)} right")
        save_figure(figure, folder / "confusion.png", outputs.FIT)
        plot_uncertain(folder / "uncertain.png", X, Y, P, image_shape)


def inducing_patches(model: Any) -> tuple[dict[str, np.ndarray], ImageShape]:
    """
    Inducing patches ``[M, h w C]`` of the first layer of a convolutional model, by the name of
    their set, and the shape (h, w, C) of a patch.
    """
    layer = model.layers[0] if hasattr(model, "layers") else model
    points = layer.inducing_variable
    sets = getattr(points, "sets", (points,))
    names = ("Z", "O", *(f"O{i}" for i in range(2, len(sets))))
    grid = getattr(layer, "grid", None) or layer.kernel.grid
    patches = {name: part.Z.numpy() for name, part in zip(names, sets, strict=False)}
    return patches, (*grid.patch_shape, grid.image_shape[2])


def plot_patches(path: Path, sets: Mapping[str, np.ndarray], patch_shape: ImageShape) -> None:
    """
    Inducing patches as tiles, a panel for each set, the first hundred of each.

    One or three channels are drawn as gray or color, the middle of the scale at zero and its ends
    at the largest absolute value of the set; of other numbers of channels, their mean.

    :param sets: patches ``[M, h w C]``, channels last, by title.
    :param patch_shape: (h, w, C).
    """
    figure = new_figure(4.2 * len(sets), 4.5)
    axes: Any = figure.subplots(1, len(sets), squeeze=False)[0]
    for axis, (title, patches) in zip(axes, sets.items(), strict=True):
        axis.margins(0.03)  # between panels too
        shown = _visible(patches[: _PATCHES_ACROSS**2].reshape(-1, *patch_shape))
        # zero in the middle of the scale from 0 to 1
        scaled = 0.5 + 0.5 * shown / (np.abs(shown).max() or 1.0)
        _show(axis, tiles(scaled, _PATCHES_ACROSS))
        first = f", first {len(shown)} of {len(patches)}" if len(shown) < len(patches) else ""
        axis.set_title(f"{title}{first}", fontsize=9)
    save_figure(figure, path, outputs.FIT)


def plot_uncertain(
    path: Path, X: np.ndarray, Y: np.ndarray, probabilities: np.ndarray, image_shape: ImageShape
) -> None:
    """
    The 25 images of which a model is least sure, each with its two likeliest classes.

    Titles are red where the likeliest class is not the true one.

    :param X: images ``[N, H W C]`` in original units.
    :param Y: labels ``[N, 1]``.
    :param probabilities: probabilities of classes ``[N, C]``.
    """
    rows = np.argsort(-entropy(probabilities, axis=1), kind="stable")
    figure = new_figure(1.7 * _IMAGES_ACROSS, 2.0 * _IMAGES_ACROSS)
    axes = figure.subplots(_IMAGES_ACROSS, _IMAGES_ACROSS, squeeze=False).ravel()
    pictures = _visible(X.reshape(-1, *image_shape))
    low, high = pictures.min(), pictures.max()
    for axis in axes:
        axis.axis("off")
    for axis, row in zip(axes, rows, strict=False):
        _show(axis, (pictures[row] - low) / ((high - low) or 1.0))
        P, label = probabilities[row], int(Y[row, 0])
        first, second = np.argsort(-P, kind="stable")[:2]
        text = f"{first}: {P[first]:.2f}  {second}: {P[second]:.2f}\ntrue: {label}"
        axis.set_title(text, fontsize=8, color="black" if first == label else "C3")
    save_figure(figure, path, outputs.FIT)


def tiles(pictures: np.ndarray, across: int) -> np.ndarray:
    """Pictures ``[n, h, w, 1 or 3]`` side by side in one ``[., ., 3]``, on a blue background."""
    count, h, w, _ = pictures.shape
    down, height, width = -(-count // across), h + _GAP, w + _GAP
    framed = np.tile(_BACKGROUND, (down * across, height, width, 1))
    framed[:count, :h, :w] = pictures
    grid = framed.reshape(down, across, height, width, 3).swapaxes(1, 2)
    return grid.reshape(down * height, across * width, 3)[:-_GAP, :-_GAP]


def _visible(pictures: np.ndarray) -> np.ndarray:
    """Pictures of one or three channels; of other numbers of channels, their mean."""
    return pictures if pictures.shape[-1] in (1, 3) else pictures.mean(axis=-1, keepdims=True)


def _show(axis: Any, picture: np.ndarray) -> None:
    axis.imshow(picture, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
    axis.axis("off")
