"""The pictures of a report: scikit-learn's displays, as figures of matplotlib."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn import metrics as sklearn_metrics
from sklearn.calibration import CalibrationDisplay
from sklearn.inspection import PartialDependenceDisplay

from gpflow_sparse.data import metrics

# Points of a scatter plot, bins of the histogram, bins of the calibration curve.
_MAX_POINTS, _PIT_BINS, _PROBABILITY_BINS = 1000, 20, 10
# Columns with an importance, with a bar, with a curve; outputs and classes drawn one by one.
_MAX_COLUMNS, _MAX_BARS, _MAX_CURVES, _MAX_OUTPUTS, _MAX_NUMBERED = 64, 12, 4, 4, 20
# Rows predicted for the importance of all columns together, and most and least rows of a column.
_PREDICTED, _MOST_ROWS, _LEAST_ROWS = 6000, 500, 30
# Values of a column in a curve, and rows over which each is averaged.
_GRID, _AVERAGED = 12, 40
_PATCHES_ACROSS = 10
_MAX_LETTERS = 20  # of a name beside an axis

# Kinds of PredictionErrorDisplay, labels and captions.
_ERRORS = (
    (
        "actual_vs_predicted",
        "observed",
        f"Observed against predicted {{name}}, at most {_MAX_POINTS} rows: the closer to the line, "
        "the better. Points that leave the line on one side show values that are predicted too low "
        "or too high.",
    ),
    (
        "residual_vs_predicted",
        "residual of",
        f"Residuals, observed minus predicted {{name}}, at most {_MAX_POINTS} rows: a band around "
        "zero without a shape leaves nothing to learn. A curve is an effect that the model misses, "
        "and a funnel is noise that grows with the prediction.",
    ),
)

Figures = dict[str, Any]
"""Figures of matplotlib by caption."""


def draw_accuracy(Y: np.ndarray, point: np.ndarray, names: Sequence[str]) -> Figures:
    """
    Observed outputs and residuals against predicted ones, figures of the first four outputs.

    :param Y: observed outputs [N, P].
    :param point: predicted outputs [N, P].
    :param names: P names of the outputs.
    """
    figures = {}
    for name, observed, predicted in list(zip(names, Y.T, point.T, strict=True))[:_MAX_OUTPUTS]:
        for kind, label, caption in _ERRORS:
            figure = _panel()
            sklearn_metrics.PredictionErrorDisplay.from_predictions(
                observed,
                predicted,
                kind=kind,
                subsample=_MAX_POINTS,
                random_state=0,
                ax=figure.axes[0],
                scatter_kwargs={"s": 8, "alpha": 0.5},
            )
            figure.axes[0].set(xlabel=f"predicted {name}", ylabel=f"{label} {name}")
            figures[caption.format(name=name)] = figure
    return figures


def draw_transforms(pit: np.ndarray) -> Figures:
    """
    The histogram of the probability integral transforms [N, P], and the band that holds nine of ten
    bins of a uniform sample.
    """
    figure, values = _panel(), pit.ravel()
    axis = figure.axes[0]
    counts = np.asarray(stats.binom.ppf([0.05, 0.95], values.size, 1.0 / _PIT_BINS))
    axis.axhspan(*(counts * _PIT_BINS / values.size), color="0.85")
    axis.hist(values, bins=_PIT_BINS, range=(0.0, 1.0), density=True, histtype="step")
    axis.set(xlabel="probability integral transform", ylabel="density")
    caption = (
        "Probability integral transform, the predicted distribution function at the observation: "
        "flat, within the gray band nine bins in ten, if the predictions are calibrated. With "
        "peaks at both ends intervals are too narrow, with one in the middle too wide."
    )
    return {caption: figure}


def draw_classes(labels: np.ndarray, P: np.ndarray, names: Sequence[str]) -> Figures:
    """
    The calibration curve and the confusion matrix.

    The curve is about the second of two classes, and about the likeliest of more.

    :param labels: positions of the observed classes [N].
    :param P: predicted probabilities [N, C].
    :param names: C names of the classes.
    """
    found, probability, what = labels, P[:, -1], f"class {names[-1]}"
    if P.shape[1] > 2:
        found, probability, what = labels == P.argmax(axis=1), P.max(axis=1), "the likeliest class"
    curve, matrix = _panel(), _panel(max(3.4, min(0.3 * len(names), 8.0)))
    CalibrationDisplay.from_predictions(
        found.astype(int), probability, n_bins=_PROBABILITY_BINS, pos_label=1, ax=curve.axes[0]
    )
    curve.axes[0].set(xlabel="mean predicted probability", ylabel="observed fraction")
    curve.axes[0].get_legend().remove()
    sklearn_metrics.ConfusionMatrixDisplay.from_predictions(
        labels,
        P.argmax(axis=1),
        labels=np.arange(len(names)),
        display_labels=[name[:_MAX_LETTERS] for name in names],
        include_values=len(names) <= _MAX_NUMBERED,
        xticks_rotation="vertical" if max(map(len, names)) > 3 else "horizontal",
        cmap="Blues",
        colorbar=False,
        ax=matrix.axes[0],
    )
    caption = (
        f"Fraction of rows of {what} by predicted probability: on the diagonal if calibrated. "
        "Below it probabilities are too high, above it too low."
    )
    of_matrix = (
        "Observed and predicted classes: numbers of rows. Those off the diagonal are errors, and "
        "show which classes are taken for each other."
    )
    return {caption: curve, of_matrix: matrix}


def importance(estimator: Any, frame: pd.DataFrame, Y: np.ndarray) -> pd.Series:
    """
    How much worse predictions get if the cells of one column are shuffled, by column.

    As :func:`sklearn.inspection.permutation_importance`, but with one call of the estimator, which
    takes longer than its rows: 30 to 500 rows for each of the first 64 columns that are used.

    :param frame: rows in random order.
    :param Y: their outputs [N, P], or positions of their classes [N, 1].
    :return: increase of the RMSE, or of the mean negative log probability of the observed class;
        the largest first.
    """
    names = [c.name for c in estimator.encoder_.columns_ if c.kind != "dropped"][:_MAX_COLUMNS]
    count = int(np.clip(_PREDICTED // (len(names) + 1), _LEAST_ROWS, _MOST_ROWS))
    frame, Y = frame[:count], Y[:count]
    turned = np.roll(np.arange(len(frame)), 1)  # rows are in random order
    moved = [frame.assign(**{name: frame[name].iloc[turned].array}) for name in names]
    rows = pd.concat([frame, *moved], ignore_index=True)
    is_class = hasattr(estimator, "classes_")
    predicted = estimator.predict_proba(rows) if is_class else estimator.predict(rows)
    parts = np.split(predicted.reshape(len(rows), -1), len(names) + 1)
    if is_class:
        labels = np.arange(parts[0].shape[1])
        first, *others = (sklearn_metrics.log_loss(Y[:, 0], P, labels=labels) for P in parts)
    else:
        first, *others = (metrics.rmse(Y, part) for part in parts)
    is_rounding = np.isclose(others, first, rtol=1e-9, atol=0.0)
    found = pd.Series(np.where(is_rounding, 0.0, np.array(others) - first), names)
    return found.sort_values(ascending=False)


def draw_columns(
    estimator: Any, frame: pd.DataFrame, inputs: np.ndarray, Y: np.ndarray
) -> tuple[Figures, pd.Series]:
    """
    The importance of columns and partial dependence on the most important ones.

    :param frame: the columns of training [N, .].
    :param inputs: the encoded rows [N, D].
    :param Y: outputs [N, P], or positions of the classes [N, 1].
    :return: figures, and the importance of the columns that are compared, the largest first.
    """
    order = np.random.default_rng(0).permutation(len(frame))[:_MOST_ROWS]
    sample, encoded = frame.iloc[order], pd.DataFrame(inputs[order])
    encoded.columns = estimator.encoder_.get_feature_names_out()
    found = importance(estimator, sample, Y[order])
    figures = _draw_bars(found, is_class=hasattr(estimator, "classes_"))
    kinds = {column.name: column for column in estimator.encoder_.columns_}
    shown = [name for name in found.index[found > 0.0] if _has_curve(estimator, kinds[name])]
    # of the first output, of the second of two classes, of the most frequent of more
    classes, curves = getattr(estimator, "classes_", [0]), Figures()
    target = classes[np.bincount(Y[:, 0].astype(int)).argmax() if len(classes) > 2 else -1]
    for name in shown[:_MAX_CURVES]:
        cells = kinds[name].levels[:_GRID]
        if kinds[name].kind == "number":
            levels = np.linspace(0.0, 1.0, _AVERAGED)
            cells = np.quantile(encoded[name], levels, method="nearest")
        curves |= draw_dependence(estimator, sample[:_AVERAGED], name, cells, target)
    axes = [curve.axes[-1] for curve in curves.values()]
    ends = np.array([axis.get_ylim() for axis in axes]).reshape(-1, 2)
    for axis in axes:  # of one scale, or every effect would look large
        axis.set_ylim(ends[:, 0].min(), ends[:, 1].max())
    return figures | curves, found


def _has_curve(estimator: Any, column: Any) -> bool:
    """
    Whether cells of a column can be numbers or levels of a curve: not percentages, which numbers
    are not read as, and not exposures, to which rates are proportional.
    """
    is_exposure = column.name == estimator.recipe_.exposure
    return column.kind in ("number", "category") and column.unit != "%" and not is_exposure


def _draw_bars(found: pd.Series, *, is_class: bool) -> Figures:
    """The largest importances by column, see :func:`importance`."""
    bars = found[:_MAX_BARS]
    figure = _panel(1.0 + 0.24 * len(bars))
    axis, places = figure.axes[0], range(len(bars))
    axis.barh(places, bars)
    axis.set_yticks(places, [name[:_MAX_LETTERS] for name in bars.index])
    axis.invert_yaxis()
    axis.set_xlabel(f"increase of the {'mean negative log probability' if is_class else 'RMSE'}")
    caption = (
        "Permutation importance: how much worse the predictions get if the cells of this column "
        f"are exchanged between rows. Each of several columns that say the same seems to matter "
        f"less than all do together; shown are {len(bars)} of the {len(found)} columns compared."
    )
    return {caption: figure}


def draw_dependence(
    estimator: Any,
    frame: pd.DataFrame,
    name: str,
    cells: Sequence[Any] | np.ndarray,
    target: Any = 0,
) -> Figures:
    """
    Mean predictions of some rows if all of them have the same cell in one column.

    :param cells: numbers, which are compared between their 5th and 95th percentile, or levels.
    :param target: position of the output, or the class whose probability is drawn.
    """
    what = f"mean probability of {target}" if hasattr(estimator, "classes_") else "mean prediction"
    is_level = isinstance(cells[0], str)
    values = pd.Series(np.resize(np.array(cells, object if is_level else float), len(frame)))
    figure = _panel()
    display = PartialDependenceDisplay.from_estimator(
        estimator,
        frame.assign(**{name: values.array}),
        [name],
        categorical_features=[name] if is_level else None,
        target=target,
        grid_resolution=_GRID,
        ax=figure.axes[0],
    )
    axis = display.axes_[0, 0]
    axis.set(xlabel=name[: 2 * _MAX_LETTERS], ylabel=what[: 2 * _MAX_LETTERS])
    if is_level:
        shown = np.unique(values)
        axis.set_xticks(range(len(shown)), [level[:_MAX_LETTERS] for level in shown])
    caption = (
        f"Partial dependence on {name}: the {what}, all other columns as they are. It is what the "
        "model has learned, not what a change of the column would cause."
    )
    return {caption: figure}


def draw_patches(model: Any) -> Figures:
    """The first hundred inducing patches of the first layer, channels averaged, zero in gray."""
    layer = model.layers[0] if hasattr(model, "layers") else model
    grid = getattr(layer, "grid", None) or layer.kernel.grid
    points = layer.inducing_variable
    Z = getattr(points, "sets", (points,))[0].Z.numpy()[: _PATCHES_ACROSS**2]
    patches = Z.reshape(len(Z), *grid.patch_shape, -1).mean(axis=-1)
    gaps = (0, -len(Z) % _PATCHES_ACROSS), (0, 1), (0, 1)
    tiles = np.pad(patches, gaps, constant_values=np.nan)
    h, w = tiles.shape[1:]
    tiles = tiles.reshape(-1, _PATCHES_ACROSS, h, w).swapaxes(1, 2)
    figure, most = _panel(), np.abs(patches).max()
    wall = tiles.reshape(-1, _PATCHES_ACROSS * w)
    figure.axes[0].imshow(wall, cmap="gray", vmin=-most, vmax=most)
    figure.axes[0].axis("off")
    return {f"The first {len(Z)} inducing patches.": figure}


def _panel(height: float = 3.4) -> Any:
    """A figure with one pair of axes, legible on a telephone."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2, height), layout="constrained")
    figure.subplots()
    return figure
