"""The report on a trained model: a folder with pictures, diagnostics and an HTML page."""

import html
import json
import os
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
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2em; }
table { border-collapse: collapse; margin: 0.5em 0; }
th, td { border: 1px solid #bbb; padding: 0.2em 0.6em; text-align: left; vertical-align: top; }
th { background: #f2f2f2; font-weight: 600; } img { max-width: 100%; height: auto; }
"""
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
    files.write_text(page, _page(title, diagnostics, scores, list(pictures), target_name, len(Y)))
    files.write_text(folder / _DIAGNOSTICS, text + "\n")
    return page


def _regression(
    Y: np.ndarray, mean: np.ndarray, variance: np.ndarray, target_name: str
) -> dict[str, Any]:
    values = metrics.pit(Y, mean, variance).reshape(-1)
    z = (np.asarray(Y) - mean) / np.sqrt(variance)
    levels = np.linspace(0.05, 0.95, 19)
    observed = metrics.coverage_curve(Y, mean, variance, levels)
    pictures = {name: _panel() for name in _REGRESSION}
    axes = {name: figure.axes[0] for name, figure in pictures.items()}
    _draw_pit(axes["pit.png"], values)
    _draw_diagonal(axes["coverage.png"], levels, observed, "nominal coverage", "observed coverage")
    axis = axes["residuals.png"]
    shown = np.random.default_rng(0).permutation(z.size)[:2000]  # more would overlap
    axis.plot(mean.reshape(-1)[shown], z.reshape(-1)[shown], ".", ms=4, alpha=0.45)
    for height in (-2.0, 2.0):
        axis.axhline(height, color="0.2", lw=1.0, ls="--")
    # a name such as "cost in $" is not a formula
    axis.set_xlabel(f"predicted {target_name}", parse_math=False)
    axis.set_ylabel("standardized residual")
    return pictures


def _classification(Y: np.ndarray, probabilities: np.ndarray) -> dict[str, Any]:
    bins = metrics.reliability(Y, probabilities)
    filled = bins.num_points > 0
    reliability, confusion = _panel(), _panel()
    _draw_diagonal(
        reliability.axes[0],
        bins.confidence[filled],
        bins.accuracy[filled],
        "probability of the likeliest class",
        "accuracy",
    )
    axis = reliability.axes[0]
    for x, y, count in zip(bins.confidence, bins.accuracy, bins.num_points, strict=True):
        if count:  # bins of few points are uncertain
            axis.annotate(str(count), (x, y), (4, 4), textcoords="offset points", fontsize=8)
    draw_confusion(confusion.axes[0], np.asarray(Y).reshape(-1, 1), probabilities)
    return dict(zip(_CLASSIFICATION, (reliability, confusion), strict=True))


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
    pictures: list[str],
    target_name: str,
    num_rows: int,
) -> str:
    heading, target = html.escape(title), html.escape(target_name)
    items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in diagnostics["advice"])
    figures = "".join(
        f'<figure><img src="{name}" alt="{_ABOUT[name]}"><figcaption>{_ABOUT[name]}</figcaption>'
        "</figure>"
        for name in pictures
    )
    entries = {name: value for name, value in diagnostics.items() if name != "advice"}
    sections = "".join(f"<h3>{_words(name)}</h3>{_cell(value)}" for name, value in entries.items())
    few = ": too few to judge calibration by" if num_rows < _FEW else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{heading}</title>
<meta name="generator" content="{outputs.REPORT}">
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>
<body><h1>{heading}: {target}</h1>
<h2>Advice</h2>{f"<ul>{items}</ul>" if items else "<p>No problems were found.</p>"}
<h2>Scores</h2><p>In the units of the data.</p>{_cell(scores)}
<h2>Pictures</h2><p>Of the {num_rows} rows scored{few}.</p>{figures}
<h2>Diagnostics</h2><p>Bound, condition numbers and hyperparameters of
{diagnostics["num_rows"]} rows (those of training, where they are at hand: see notes), residual
variance and calibration of the {num_rows} rows scored; in the units the model was trained in,
bounds in nats. Every entry is explained in the documentation, under "Reading the diagnostics". The
same values are in <a href="diagnostics.json">diagnostics.json</a>.</p>{sections}
</body></html>
"""


def _cell(value: Any) -> str:
    """A number, a text, or a table of them."""
    if isinstance(value, dict):
        rows = "".join(
            f"<tr><th>{_words(name)}</th><td>{_cell(entry)}</td></tr>"
            for name, entry in value.items()
        )
        return f"<table>{rows}</table>" if rows else "none"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        header = "".join(f"<th>{_words(name)}</th>" for name in value[0])
        rows = "".join(
            f"<tr>{''.join(f'<td>{_cell(entry)}</td>' for entry in row.values())}</tr>"
            for row in value
        )
        return f"<table><tr>{header}</tr>{rows}</table>"
    if isinstance(value, list):
        shown = [_cell(entry) for entry in value[:_MAX_ENTRIES]]
        more = [f"and {len(value) - len(shown)} more"] if len(value) > len(shown) else []
        return ", ".join([*shown, *more]) or "none"
    if value is None:
        return "&ndash;"
    return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))


def _words(name: str) -> str:
    return html.escape(name.replace("_", " "))
