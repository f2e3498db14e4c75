"""Pictures of rejection curves and of reliability."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.figures import new_figure

Bins = Sequence[Sequence[float]]
"""Number of points, mean confidence and accuracy of bins that have points, ``[B]`` each."""

# Bins with fewer points than this say little, and are not drawn.
_FEW = 5


def draw_rejection(
    path: Path,
    fractions: Sequence[float],
    curves: Mapping[str, np.ndarray],
    bins: Mapping[str, Sequence[Bins]],
) -> bool:
    """
    Draw the accuracy against the fraction that is kept, and against the confidence.

    :param curves: by title, accuracies in percent, one for each fraction.
    :param bins: by title, those of each split.
    :return: whether there is a picture: not without matplotlib, which must not end a benchmark.
    """
    try:
        figure = new_figure(10.0, 4.2)
    except ImportError:
        return False
    axes: Any = figure.subplots(1, 2)
    left, right = axes
    right.plot([0, 1], [0, 1], color="gray", lw=0.8)
    for title, kept in curves.items():
        (line,) = left.plot(100.0 * np.array(fractions), kept, marker=".", label=title)
        count, confidence, accuracy = pool(bins[title])
        shown = count >= _FEW
        right.plot(confidence[shown], accuracy[shown], marker=".", color=line.get_color())
    left.set(xlabel="kept, %", ylabel="accuracy of the kept, %")
    left.invert_xaxis()
    left.legend(fontsize=8, loc="lower right")
    right.set(xlabel="largest probability", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return True


def pool(splits: Sequence[Bins], num_bins: int = 15) -> tuple[np.ndarray, ...]:
    """The bins of several splits together: counts, mean confidences and accuracies, ``[B]``."""
    count, confidence, accuracy = np.concatenate([np.array(bins) for bins in splits], axis=1)
    place = np.ceil(confidence * num_bins).astype(int)
    totals = [np.bincount(place, weights=w) for w in (count, count * confidence, count * accuracy)]
    filled = totals[0] > 0
    points = totals[0][filled]
    return points, totals[1][filled] / points, totals[2][filled] / points
