"""The report on a trained model: a folder with pictures, diagnostics and an HTML page."""

import html
import json
import os
import string
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from gpflow_sparse.data import metrics
from gpflow_sparse.persistence import files
from gpflow_sparse.runs import outputs
from gpflow_sparse.runs.plots import draw_confusion, new_figure, save_figure

_BINS = 20  # of the histogram of the probability integral transform
_FEW = 30  # rows below which a histogram is not informative
_MAX_ENTRIES = 12  # most entries of a list, such as the center of a region, on the page
_ABOUT = {
    "pit.png": "Probability integral transform: flat, within the gray band nine bins in ten, if "
    "the predictions are calibrated.",
    "coverage.png": "Fraction of outputs inside the central intervals: on the diagonal if "
    "calibrated, below it if the intervals are too narrow.",
    "residuals.png": "Standardized residuals: the same spread everywhere; of a Gaussian, 95 % lie "
    "between the dashed lines.",
    "reliability.png": "Accuracy of the likeliest class by its predicted probability: on the "
    "diagonal if calibrated. Beside each dot is its number of rows.",
    "confusion.png": "True against predicted classes.",
}


_PAGE, _DIAGNOSTICS = "index.html", "diagnostics.json"
_REGRESSION = ("pit.png", "coverage.png", "residuals.png")
_CLASSIFICATION = ("reliability.png", "confusion.png")


def require_writable(directory: Path | str, num_classes: int | None) -> None:
    """
    Refuse a folder in which :func:`write_report` cannot write, before a report is computed.

    :raises ValueError: if matplotlib is not installed, or a file in the folder that belongs to no
        report has the name of one of its files.
    :raises NotADirectoryError: if the folder or a parent of it is a file.
    """
    _panel()
    folder = Path(directory)
    outputs.require_folder(folder)
    names = _REGRESSION if num_classes is None else _CLASSIFICATION
    outputs.require_own(folder, (*names, _PAGE), outputs.REPORT)
    # a JSON file names no writer, but the page beside it does
    if os.path.lexists(folder / _DIAGNOSTICS) and not (folder / _PAGE).is_file():
        raise outputs.foreign(folder / _DIAGNOSTICS, outputs.REPORT)


def write_report(
    directory: Path | str,
    *,
    title: str,
    diagnostics: dict[str, Any],
    Y: np.ndarray,
    predictions: dict[str, np.ndarray],
    scores: dict[str, float],
    num_classes: int | None,
    target_name: str,
) -> Path:
    """
    Write ``index.html``, ``diagnostics.json`` and the pictures on the page.

    The page needs no scripts and no files outside the folder.

    :param directory: created if missing; files of an earlier report are replaced.
    :param title: heading of the page, such as the method and its sizes.
    :param diagnostics: result of :func:`gpflow_sparse.diagnostics`, usually for training rows.
    :param Y: outputs ``[N, 1]`` of the rows predicted, in original units, or integer labels.
    :param predictions: predictions of :func:`gpflow_sparse.runs.evaluation.evaluate` for these
        rows: ``mean`` and ``variance [N, 1]``, or ``probabilities [N, C]``.
    :param scores: metrics by name, of the same function.
    :param num_classes: None for regression.
    :param target_name: name of ``Y``, for the axes.
    :return: path of ``index.html``.
    :raises ValueError: if matplotlib is not installed, arrays do not match, or a file of one of
        these names belongs to no report.
    """
    require_writable(directory, num_classes)
    pictures = (
        _regression(Y, predictions["mean"], predictions["variance"], target_name)
        if num_classes is None
        else _classification(Y, predictions["probabilities"])
    )
    if diagnostics["calibration"] is None:  # not Gaussian, such as counts: no such intervals
        pictures = {name: pictures[name] for name in pictures if name == "residuals.png"}
    folder = Path(directory)
    for name, figure in pictures.items():
        save_figure(figure, folder / name, outputs.REPORT)
    page = folder / _PAGE
    text = json.dumps(diagnostics, indent=1, allow_nan=False)
    files.write_text(page, _page(title, diagnostics, scores, pictures, target_name, len(Y)))
    files.write_text(folder / _DIAGNOSTICS, text + "\n")
    return page


def _regression(
    Y: np.ndarray, mean: np.ndarray, variance: np.ndarray, target_name: str
) -> dict[str, Any]:
    pictures = {name: _panel() for name in _REGRESSION}
    histogram, coverage, residuals = (figure.axes[0] for figure in pictures.values())
    _draw_pit(histogram, metrics.pit(Y, mean, variance).reshape(-1))
    levels = np.linspace(0.05, 0.95, 19)
    observed = metrics.coverage_curve(Y, mean, variance, levels)
    _draw_diagonal(coverage, levels, observed, "nominal coverage", "observed coverage")
    z = ((np.asarray(Y) - mean) / np.sqrt(variance)).reshape(-1)
    shown = np.random.default_rng(0).permutation(z.size)[:2000]  # more would overlap
    residuals.plot(mean.reshape(-1)[shown], z[shown], ".", ms=4, alpha=0.45)
    for height in (-2.0, 2.0):
        residuals.axhline(height, color="0.2", lw=1.0, ls="--")
    # a name such as "cost in $" is not a formula
    residuals.set_xlabel(f"predicted {target_name}", parse_math=False)
    residuals.set_ylabel("standardized residual")
    return pictures


def _classification(Y: np.ndarray, probabilities: np.ndarray) -> dict[str, Any]:
    pictures = {name: _panel() for name in _CLASSIFICATION}
    reliability, confusion = (figure.axes[0] for figure in pictures.values())
    bins = metrics.reliability(Y, probabilities)
    filled = bins.num_points > 0
    points = bins.confidence[filled], bins.accuracy[filled]
    _draw_diagonal(reliability, *points, "probability of the likeliest class", "accuracy")
    for x, y, count in zip(*points, bins.num_points[filled], strict=True):
        # bins of few points are uncertain
        reliability.annotate(str(count), (x, y), (4, 4), textcoords="offset points", fontsize=8)
    draw_confusion(confusion, np.asarray(Y).reshape(-1, 1), probabilities)
    return pictures


def _panel() -> Any:
    """A figure with one pair of axes."""
    figure = new_figure(5.2, 4.2)
    figure.subplots()
    return figure


def _draw_pit(axis: Any, values: np.ndarray) -> None:
    """A histogram of densities, with the band that holds 90 % of the bins of a uniform sample."""
    counts = np.asarray(stats.binom.ppf([0.05, 0.95], values.size, 1.0 / _BINS))
    low, high = counts * _BINS / values.size
    axis.axhspan(low, high, color="0.85")
    axis.axhline(1.0, color="0.2", lw=1.0)
    axis.hist(values, bins=_BINS, range=(0.0, 1.0), density=True, histtype="step", color="C0")
    axis.set_xlabel("probability integral transform")
    axis.set_ylabel("density")


def _draw_diagonal(axis: Any, x: np.ndarray, y: np.ndarray, x_label: str, y_label: str) -> None:
    axis.plot([0.0, 1.0], [0.0, 1.0], color="0.2", lw=1.0)
    axis.plot(x, y, "o", color="C0", ms=4)
    axis.set_xlabel(x_label)
    axis.set_ylabel(y_label)
    axis.set_aspect("equal")


def _page(
    title: str,
    diagnostics: dict[str, Any],
    scores: dict[str, float],
    pictures: Iterable[str],
    target_name: str,
    num_rows: int,
) -> str:
    items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in diagnostics["advice"])
    figures = (
        f'<figure><img src="{name}" alt="{_ABOUT[name]}"><figcaption>{_ABOUT[name]}</figcaption>'
        "</figure>"
        for name in pictures
    )
    entries = (item for item in diagnostics.items() if item[0] != "advice")
    template = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")
    return string.Template(template).substitute(
        title=html.escape(title),
        target=html.escape(target_name),
        writer=outputs.REPORT,
        advice=f"<ul>{items}</ul>" if items else "<p>No problems were found.</p>",
        scores=_cell(scores),
        num_rows=num_rows,
        few=": too few to judge calibration by" if num_rows < _FEW else "",
        figures="".join(figures),
        num_diagnosed=diagnostics["num_rows"],
        sections="".join(f"<h3>{_words(name)}</h3>{_cell(value)}" for name, value in entries),
    )


def _cell(value: Any) -> str:
    """A number, a text, or a table of them."""
    if isinstance(value, dict):
        rows = (f"<th>{_words(name)}</th><td>{_cell(v)}</td>" for name, v in value.items())
        return _table(rows) if value else "none"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        header = "".join(f"<th>{_words(name)}</th>" for name in value[0])
        cells = ("".join(f"<td>{_cell(v)}</td>" for v in row.values()) for row in value)
        return _table([header, *cells])
    if isinstance(value, list):
        shown = [_cell(entry) for entry in value[:_MAX_ENTRIES]]
        more = [f"and {len(value) - len(shown)} more"] if len(value) > len(shown) else []
        return ", ".join([*shown, *more]) or "none"
    if value is None:
        return "&ndash;"
    return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))


def _table(rows: Iterable[str]) -> str:
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _words(name: str) -> str:
    return html.escape(name.replace("_", " "))
