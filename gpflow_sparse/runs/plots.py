"""Pictures of a run; matplotlib is imported when one is drawn."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpflow_sparse.persistence import files
from gpflow_sparse.runs import outputs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gpflow_sparse.runs.training import Trained

NEEDED = 'drawing needs matplotlib: python -m pip install "gpflow_sparse[plot]"'


def plot_predictions(path: Path, Y: np.ndarray, runs: "list[Trained]", target_name: str) -> None:
    """
    Predictions against truth, one panel per model.

    Regression: test values against predicted means with central 95 % intervals. Classification: the
    confusion matrix.

    :param path: where the PNG goes.
    :param Y: test outputs ``[N, 1]`` in original units.
    :param target_name: label of the axes.
    :raises ValueError: if matplotlib is not installed.
    """
    figure = new_figure(4.6 * len(runs), 4.4)
    axes = figure.subplots(1, len(runs), squeeze=False)[0]
    for axis, run in zip(axes, runs, strict=True):
        if "probabilities" in run.predictions:
            draw_confusion(axis, Y, run.predictions["probabilities"])
            axis.set_title(f"{run.title}\nerror rate {run.metrics['error_rate']:.3g}")
        else:
            _scatter(axis, Y, run.predictions["mean"], run.predictions["variance"])
            axis.set_title(
                f"{run.title}\nRMSE {run.metrics['rmse']:.3g}, "
                f"95 % coverage {100 * run.metrics['coverage']:.1f} %"
            )
            axis.set_xlabel(f"predicted {target_name}", parse_math=False)
            axis.set_ylabel(f"measured {target_name}", parse_math=False)
    save_figure(figure, path, outputs.FIT)


def save_figure(figure: "Figure", path: Path, writer: str) -> None:
    """Write a PNG that names the command that wrote it, see :mod:`outputs`."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=130, metadata={"Software": writer})
    files.write_bytes(path, content.getvalue())


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    try:
        new_figure(1.0, 1.0)
    except ValueError:
        return False
    return True


def new_figure(width: float, height: float) -> "Figure":
    """
    :param width: in inches.
    :raises ValueError: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError(f"{NEEDED}, or --no-plot.") from error
    return Figure(figsize=(width, height), layout="constrained")


def _scatter(axis: Any, Y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> None:
    shown = np.random.default_rng(0).permutation(len(Y))[:500]  # more hide one another
    half = 1.96 * np.sqrt(variance[shown, 0])
    axis.errorbar(
        mean[shown, 0], Y[shown, 0], xerr=half, fmt=".", ms=4, lw=0.6, color="C0", alpha=0.45
    )
    ends = [min(Y.min(), mean.min()), max(Y.max(), mean.max())]
    axis.plot(ends, ends, color="0.2", lw=1.0)
    axis.set_aspect("equal", adjustable="box")


def draw_confusion(axis: Any, Y: np.ndarray, probabilities: np.ndarray) -> None:
    """Counts of labels ``Y [N, 1]`` against the likeliest class of ``probabilities [N, C]``."""
    classes = probabilities.shape[1]
    counts = np.zeros((classes, classes), dtype=int)
    np.add.at(counts, (Y[:, 0].astype(int), probabilities.argmax(axis=1)), 1)
    axis.imshow(counts, cmap="Blues")
    for (i, j), count in np.ndenumerate(counts):
        if count:
            color = "white" if count > counts.max() / 2 else "black"
            axis.text(j, i, str(count), ha="center", va="center", color=color, fontsize=8)
    axis.set_xticks(range(classes))
    axis.set_yticks(range(classes))
    axis.set_xlabel("predicted class")
    axis.set_ylabel("true class")
