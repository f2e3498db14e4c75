"""The pictures of a report, as matplotlib figures with colors for the color-blind."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from gpflow_sparse.data import metrics
from gpflow_sparse.tables.report.effects import Effect, Factor
from gpflow_sparse.tables.report.plots import draw_confusion, draw_scatter, new_figure

_BINS = 20  # of the histogram of the probability integral transform
_MAX_POINTS = 1000  # of a scatter plot: more would overlap
_MAX_LINES = 6  # classes whose probabilities are drawn
_GROUPS = 8  # groups of rows by a column, each with its mean residual
# Okabe & Ito's colors, which differ for the color-blind; lines differ in style too.
_BLUE, _ORANGE, _GRAY = "#0072B2", "#D55E00", "0.45"
_LINES = (
    *((_BLUE, "-", "o"), (_ORANGE, "--", "s"), ("#009E73", "-.", "^"), ("#CC79A7", ":", "D")),
    *(("#E69F00", (0, (5, 1)), "v"), ("black", (0, (1, 1)), "x")),
)
LEVELS = np.linspace(0.05, 0.95, 19)
"""Nominal coverages of the central intervals that are compared with the observed ones."""


def accuracy(Y: np.ndarray, predictions: dict[str, Any], target_name: str) -> Any:
    """Observed outputs against predicted means with 95 % intervals."""
    figure = _panel()
    axis = figure.axes[0]
    draw_scatter(axis, Y, predictions["point"], predictions["variance"])
    # a name such as "cost in $" is not a formula
    axis.set_xlabel(f"predicted {target_name}", parse_math=False)
    axis.set_ylabel(f"observed {target_name}", parse_math=False)
    return figure


def pit_histogram(pit: np.ndarray) -> Any:
    """
    Density of the probability integral transforms, and the band that holds 90 % of the bins of a
    uniform sample.
    """
    figure, values = _panel(), pit.reshape(-1)
    axis = figure.axes[0]
    counts = np.asarray(stats.binom.ppf([0.05, 0.95], values.size, 1.0 / _BINS))
    low, high = counts * _BINS / values.size
    axis.axhspan(low, high, color="0.85")
    axis.axhline(1.0, color="0.2", lw=1.0)
    axis.hist(values, bins=_BINS, range=(0.0, 1.0), density=True, histtype="step", color=_BLUE)
    axis.set_xlabel("probability integral transform")
    axis.set_ylabel("density")
    return figure


def coverage(central: np.ndarray) -> Any:
    """
    Fraction of the outputs inside central intervals of several levels.

    :param central: the probability of the smallest central interval that holds each output.
    """
    observed = np.array([np.mean(central < level) for level in LEVELS])
    return _diagonal(LEVELS, observed, "nominal coverage", "observed coverage")


def reliability(Y: np.ndarray, probabilities: np.ndarray) -> Any:
    """Accuracy of the likeliest class by its probability, with the number of rows at each dot."""
    bins = metrics.reliability(Y, probabilities)
    filled = bins.num_points > 0
    points = bins.confidence[filled], bins.accuracy[filled]
    figure = _diagonal(*points, "probability of the likeliest class", "accuracy")
    for x, y, count in zip(*points, bins.num_points[filled], strict=True):
        # bins of few points are uncertain
        figure.axes[0].annotate(str(count), (x, y), (4, 4), textcoords="offset points", fontsize=8)
    return figure


def confusion(Y: np.ndarray, probabilities: np.ndarray, labels: Sequence[str]) -> Any:
    """Counts of the true against the likeliest classes."""
    figure = _panel(max(3.4, min(0.3 * len(labels), 8.0)))
    draw_confusion(figure.axes[0], Y, probabilities, labels)
    return figure


def relevance(names: Sequence[str], sizes: Mapping[str, Sequence[float]]) -> Any:
    """Bars for columns by several measures, a panel for each; the first column on top."""
    figure = new_figure(4.2, 1.0 + 0.24 * len(names))
    panels = figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
    for axis, (measure, values) in zip(panels, sizes.items(), strict=True):
        axis.barh(range(len(names)), values, color=_BLUE)
        axis.set_xlabel(measure)
    panels[0].set_yticks(range(len(names)), [name[:20] for name in names], parse_math=False)
    panels[0].invert_yaxis()
    return figure


def effect_of_column(effect: Effect, X: np.ndarray, residuals: np.ndarray, target_name: str) -> Any:
    """
    Above the partial dependence with its intervals, below the residuals, by one factor.

    :param X: inputs [N, D] of the rows predicted.
    :param residuals: of their outputs [N, P], or classes [N, 1]; see :func:`effects.residuals`.
    """
    figure = new_figure(4.2, 4.6)
    above, below = figure.subplots(2, 1, sharex=True)
    is_class = "lower_95" not in effect.predicted
    if is_class:
        _draw_probabilities(above, effect)
        above.set_ylabel("probability")
        below.set_ylabel("right less probability")
    else:
        _draw_band(above, effect)
        above.set_ylabel(f"predicted {target_name}", parse_math=False)
        below.set_ylabel("standardized residual")
    _draw_residuals(below, effect.factor, X, residuals, with_points=not is_class)
    below.set_xlabel(effect.factor.name, parse_math=False)
    _label_places(below, effect)
    return figure


def _draw_band(axis: Any, effect: Effect) -> None:
    point = "mean" if "mean" in effect.predicted else "median"
    middle, low, high = (effect.predicted[k] for k in (point, "lower_95", "upper_95"))
    x = effect.places
    if effect.factor.kind == "category":
        lengths = np.stack([middle - low, high - middle])
        axis.errorbar(x, middle, lengths, fmt="o", color=_BLUE, lw=1.2)
    else:
        axis.fill_between(x, low, high, color=_BLUE, alpha=0.2, lw=0.0)
        axis.plot(x, middle, color=_BLUE)


def _draw_probabilities(axis: Any, effect: Effect) -> None:
    """The probabilities of the classes that change most; of two classes, of the second."""
    frame, x = effect.predicted, effect.places
    names = [name for name in frame if name.startswith("probability_")]
    most = sorted(names, key=lambda name: -frame[name].std(ddof=0))[:_MAX_LINES]
    shown = names[1:] if len(names) == 2 else [name for name in names if name in most]
    is_category = effect.factor.kind == "category"
    for name, (color, line, marker) in zip(shown, _LINES, strict=False):
        style = {"marker": marker, "ls": "none", "ms": 5} if is_category else {"ls": line}
        label = f"P({name.removeprefix('probability_')[:20]})"
        axis.plot(x, frame[name], color=color, label=label, **style)
    for text in axis.legend(fontsize=7).get_texts():
        text.set_parse_math(False)
    axis.set_ylim(-0.03, 1.03)


def _draw_residuals(
    axis: Any, factor: Factor, X: np.ndarray, residuals: np.ndarray, *, with_points: bool
) -> None:
    """Residuals by factor, and their means in groups of rows with two standard errors."""
    x = np.repeat(factor.places(X), residuals.shape[1])
    known = np.isfinite(x)
    x, values = x[known], residuals.reshape(-1)[known]
    axis.axhline(0.0, color="0.2", lw=1.0)
    if with_points:
        rows = np.random.default_rng(0).permutation(x.size)[:_MAX_POINTS]
        axis.plot(x[rows], values[rows], ".", ms=3, alpha=0.45, color=_GRAY)
        for height in (-1.96, 1.96):
            axis.axhline(height, color="0.2", lw=0.8, ls="--")
    starts = np.unique(x)
    if factor.kind != "category" and len(starts) > _GROUPS:
        starts = np.unique(np.quantile(x, np.arange(_GROUPS) / _GROUPS, method="lower"))
    group = np.searchsorted(starts, x, side="right") - 1
    count = np.bincount(group)
    center, mean, square = (np.bincount(group, weights=w) / count for w in (x, values, values**2))
    errors = 2.0 * np.sqrt(np.maximum(square - mean**2, 0.0) / count)
    axis.errorbar(center, mean, errors, fmt="s", ms=4, lw=1.2, color=_ORANGE)


def _label_places(axis: Any, effect: Effect) -> None:
    """Names of levels, and dates, on the horizontal axis."""
    if effect.factor.kind == "category":
        levels = [effect.factor.levels[int(place)][:16] for place in effect.places]
        axis.set_xticks(effect.places, levels, parse_math=False, rotation=60, fontsize=8)
        axis.set_xlim(effect.places[0] - 0.5, effect.places[-1] + 0.5)
    elif effect.factor.kind == "date":
        from matplotlib import dates

        # matplotlib's dates are days since 1970 too
        locator = dates.AutoDateLocator(minticks=3, maxticks=6)
        axis.xaxis.set_major_locator(locator)
        axis.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))


def _panel(height: float = 3.4) -> Any:
    """A figure with one pair of axes, legible on a telephone."""
    figure = new_figure(4.2, height)
    figure.subplots()
    return figure


def _diagonal(x: np.ndarray, y: np.ndarray, x_label: str, y_label: str) -> Any:
    figure = _panel()
    axis = figure.axes[0]
    axis.plot([0.0, 1.0], [0.0, 1.0], color="0.2", lw=1.0)
    axis.plot(x, y, "o", color=_BLUE, ms=4)
    axis.set_xlabel(x_label)
    axis.set_ylabel(y_label)
    axis.set_aspect("equal")
    return figure
