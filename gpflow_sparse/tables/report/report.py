"""The report on a trained model: one HTML page with its pictures inside, for any browser."""

import base64
import html
import json
import os
import string
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import pandas as pd

from gpflow_sparse.data import Dataset, metrics
from gpflow_sparse.diagnosis import advice, diagnostics
from gpflow_sparse.diagnosis.summary import training_diagnostics
from gpflow_sparse.kernels import Convolutional
from gpflow_sparse.persistence import files
from gpflow_sparse.tables.cli import outputs
from gpflow_sparse.tables.cli.config import PAGE
from gpflow_sparse.tables.cli.rows import original_units
from gpflow_sparse.tables.cli.stored import StoredModel, load_run_data, open_model, predict_table
from gpflow_sparse.tables.cli.terminal import FEW_ROWS
from gpflow_sparse.tables.cli.training import Trained
from gpflow_sparse.tables.fitting.calibration import describe_calibration
from gpflow_sparse.tables.report import plots
from gpflow_sparse.tables.report import report_pictures as pictures
from gpflow_sparse.tables.report.effects import (
    Factor,
    factors_of,
    partial_dependence,
    pit_of,
    residuals,
    surprising_rows,
)

_INDEX, _DIAGNOSTICS = "index.html", "diagnostics.json"
_TEXTS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
_RESULTS = ("title", "rmse", "error_rate", "nlpd", "crps", "brier", "seconds", "error")
_MAX_EFFECTS, _MAX_BARS = 4, 12  # columns with a picture, and with a bar
_MAX_FACTORS = 64  # columns that are compared by partial dependence
_MAX_ROWS, _SHOWN_INPUTS = 10, 4  # surprising rows, and their input columns
_MAX_DIAGNOSED = 200_000  # training rows at the end of a run: more take longer than 15 s
_MAX_ENTRIES = 12  # most entries of a list, such as the center of a region


class Scored(NamedTuple):
    """Rows with observed outputs, and what a model predicts for them."""

    X: np.ndarray
    """``[N, D]``, original units."""
    Y: np.ndarray
    """``[N, P]``, original units, or integer labels."""
    scores: dict[str, float]
    """Scores of these rows; with ``predictions``, the results of :func:`evaluation.evaluate`."""
    predictions: dict[str, np.ndarray]
    data: str | None = None
    """The file of the rows; None for the test rows of a run."""
    empty: np.ndarray | None = None
    """Which entries of ``X`` the file does not have, see :meth:`TableEncoder.empty`."""
    weights: np.ndarray | None = None
    """As how many equal rows each counts in the scores ``[N]``; None for 1."""

    @property
    def shown(self) -> np.ndarray:
        """``X`` with NaN for what the file does not have."""
        return self.X if self.empty is None else np.where(self.empty, np.nan, self.X)


def require_reportable(directory: Path, stored: StoredModel) -> None:
    """
    Refuse a report that :func:`write_report` cannot write, before rows are scored.

    :raises ValueError: for a deep model of images, without matplotlib, or if a file in the folder
        that belongs to no report has the name of one of its files.
    :raises NotADirectoryError: if the folder or a parent of it is a file.
    """
    if any(layer.grid is not None for layer in getattr(stored.model, "layers", ())):
        raise ValueError("a report on images needs a model of one layer; leave --report out.")
    plots.new_figure(1.0, 1.0)
    outputs.require_folder(directory)
    outputs.require_own(directory, (_INDEX,), outputs.REPORT)
    # a JSON file names no writer, but the page beside it does
    if os.path.lexists(directory / _DIAGNOSTICS) and not (directory / _INDEX).is_file():
        raise outputs.foreign(directory / _DIAGNOSTICS, outputs.REPORT)


def write_report(directory: Path, stored: StoredModel, scored: Scored) -> Path:
    """
    Write ``index.html``, which needs no other file, and ``diagnostics.json`` into a folder.

    Bound and hyperparameters refer to the training rows of the run, if they are available; all
    else to the rows scored.

    :param directory: created if missing; files of an earlier report are replaced.
    :return: path of ``index.html``.
    :raises ValueError: see :func:`require_reportable`.
    """
    require_reportable(directory, stored)
    data: Dataset | ValueError
    try:
        data = _in_memory(load_run_data(stored))
    except ValueError as error:
        data = error
    found = _diagnose(stored, scored, data)
    page = directory / _INDEX
    files.write_text(page, _page(stored, scored, data, found, outputs.REPORT))
    text = json.dumps(found, indent=1, allow_nan=False)
    files.write_text(directory / _DIAGNOSTICS, text + "\n")
    return page


def write_run_report(folder: Path, dataset: Dataset, trained: Trained) -> None:
    """
    Write the page on a finished run into its folder, and a line on standard error.

    :param dataset: standardized, of the run.
    :param trained: its model, with predictions of the test rows.
    """
    try:
        stored = open_model(folder)
        pair = original_units(dataset, dataset.test)
        found = trained.metrics, trained.predictions
        scored = Scored(*pair, *found, None, dataset.test_empty, dataset.test_weights)
        few = dataset.num_train <= _MAX_DIAGNOSED or dataset.shards is not None
        many = ValueError("evaluate --report diagnoses so many rows.")
        data = _in_memory(dataset) if few else many
        diagnosed = _diagnose(stored, scored, data)
        files.write_text(folder / PAGE, _page(stored, scored, dataset, diagnosed, outputs.FIT))
        click.echo(f"the report is {folder / PAGE}", err=True)
    except ValueError as error:  # the run itself is complete
        click.echo(f"no report is written: {error}", err=True)


def _in_memory(dataset: Dataset) -> Dataset | ValueError:
    """The data set, or the error of training rows that are not in memory."""
    if dataset.shards is None:
        return dataset
    return ValueError("The training rows are in a folder, and not all in memory.")


def _diagnose(stored: StoredModel, scored: Scored, data: Dataset | ValueError) -> dict[str, Any]:
    """Diagnostics with names of columns; ``data`` of the run, or the reason why there are none."""
    found = diagnostics(stored.model, stored.standardizer.transform(scored.X, scored.Y))
    if isinstance(data, Dataset):
        own = {name: found[name] for name in ("residual_variance", "calibration")}
        notes = {name: text for name, text in found["notes"].items() if name == "calibration"}
        found = training_diagnostics(stored.model, data.train) | own
        found["notes"] |= notes
    else:
        found["notes"]["training rows"] = f"{data} All entries refer to the rows scored."
    if stored.feature_names is not None:
        for entry in found["hyperparameters"]["columns"] or []:
            entry["column"] = stored.feature_names[entry["column"]]
    found["advice"] = advice(found)
    return found


def _page(
    stored: StoredModel,
    scored: Scored,
    data: Dataset | ValueError,
    found: dict[str, Any],
    writer: str,
) -> str:
    target, num_rows = stored.target_name or "y", len(scored.Y)
    source, numbers = f"rows of {Path(scored.data or '').name}", np.arange(num_rows)
    if scored.data is None:
        source = "test rows, which were not trained on"
        if isinstance(data, Dataset) and data.test_rows is not None:
            numbers = data.test_rows
    columns, factors = _columns(stored, scored, found, target)
    about = _TEXTS["about"]["regression" if stored.num_classes is None else "classification"]
    template = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")
    return string.Template(template).substitute(
        writer=writer,
        target=html.escape(target),
        title=html.escape(stored.title),
        summary=_summary(scored),
        advice=_list(found["advice"]),
        data=_data(stored),
        tried=_tried(stored),
        num_rows=num_rows,
        source=html.escape(source),
        few=": too few to judge calibration by" if num_rows < FEW_ROWS else "",
        scores=_scores(scored.scores),
        calibration=_figures(_calibration(stored, scored, found, target)),
        about_columns=about["columns"],
        about_surprising=about["surprising"],
        columns=_figures(columns),
        surprising=_surprising(stored, scored, factors, numbers + 1),
        time=_time(stored),
        num_diagnosed=found["num_rows"],
        sections="".join(
            f"<h3>{_words(name)}</h3>{_cell(value)}"
            for name, value in found.items()
            if name != "advice"
        ),
    )


def _summary(scored: Scored) -> str:
    """The main scores in a sentence, beside the scores of a constant."""
    Y, weights, kind = scored.Y, scored.weights, "regression"
    mean = np.average(Y, axis=0, weights=weights)
    constant = metrics.rmse(Y, np.broadcast_to(mean, Y.shape), weights)
    if "probabilities" in scored.predictions:
        counts = np.bincount(Y[:, 0].astype(int), weights)
        kind, constant = "classification", 1.0 - counts.max() / counts.sum()
    return str(_TEXTS["summary"][kind].format(constant=constant, **scored.scores))


def _data(stored: StoredModel) -> str:
    """The rows and columns of training, and what was done with them."""
    table, sentences = stored.table, []
    if stored.record is not None:
        known = stored.record["dataset"]
        counts = (known.get(f"num_{part}", "?") for part in ("train", "test"))
        name = Path(known["source"]).name
        sentences.append("{}: {} rows for training, {} for testing.".format(name, *counts))
    num_inputs = stored.standardizer.x_mean.shape[0]
    inputs = f"{num_inputs} columns of numbers."
    if table is not None:
        used = sum(column.kind != "dropped" for column in table.columns)
        inputs = f"{used} of {len(table.columns)} columns are used, as {num_inputs} inputs."
    scaled = "Inputs and target" if stored.standardizer.y_mean is not None else "Inputs"
    sentences += [inputs, f"{scaled} are standardized for training; this page has original units."]
    return f"<p>{html.escape(' '.join(sentences))}</p>{_list(table.notes if table else ())}"


def _tried(stored: StoredModel) -> str:
    """The choice of the method, and the models trained."""
    if stored.record is None:
        return "<p>The model was saved without a record of its training.</p>"
    choice, tried = stored.record.get("choice"), ""
    if choice:
        names = {"nlpd": "held-out NLPD", "error": "held-out error", "num_steps": "steps"}
        tried = f"<p>{html.escape(choice['reason'])}</p>"
        tried += _records(
            [
                {names.get(k, k): f"{v:.1f}" if k == "seconds" else v for k, v in a.items()}
                for a in choice["attempts"]
            ]
        )
    names = {name: words for name, (words, _) in _TEXTS["scores"].items()} | {"title": "model"}
    results = [
        {names.get(name, name): result[name] for name in _RESULTS if name in result}
        for result in stored.record["results"]
    ]
    found = getattr(stored.model, "calibration", None)
    scope = "Trained on all training rows"
    if found is not None and found.num_rows:
        scope += f" but {found.num_rows}"
    said = html.escape(f"{scope}. {describe_calibration(stored.model)}")
    return f"{tried}<p>{said} Scores on the test rows:</p>{_records(results)}"


def _scores(scores: dict[str, float]) -> str:
    known = ((*_TEXTS["scores"].get(name, (name, "")), value) for name, value in scores.items())
    return _table(
        f"<th>{html.escape(words)}</th><td>{_cell(value)}</td><td>{meaning}</td>"
        for words, meaning, value in known
    )


def _time(stored: StoredModel) -> str:
    if stored.record is None:
        return "<p>Not recorded.</p>"
    record, first = stored.record, stored.record["results"][0]
    seconds = {
        "choice of the method, seconds": record.get("choice", {}).get("seconds"),
        f"training of {first['title']}, seconds": first.get("seconds"),
        "whole run, seconds": record.get("seconds"),
    }
    versions = ", ".join(f"{name} {v}" for name, v in record.get("versions", {}).items())
    end = html.escape(f"{versions}; seed {record.get('seed')}.")
    return f"{_cell(seconds)}<p>{end}</p>"


def _calibration(
    stored: StoredModel, scored: Scored, found: dict[str, Any], target: str
) -> dict[str, Any]:
    """Figures of accuracy and calibration by caption."""
    Y, predictions, captions = scored.Y, scored.predictions, _TEXTS["captions"]
    if stored.num_classes is not None:
        P = predictions["probabilities"]
        return {
            captions["reliability"]: pictures.reliability(Y, P),
            captions["confusion"]: pictures.confusion(Y, P, stored.labels),
        }
    figures = {captions["accuracy"]: pictures.accuracy(Y, predictions, target)}
    # without draws from a likelihood that is not Gaussian, its intervals are not known
    if "pit" in predictions or found["calibration"] is not None:
        pit = pit_of(Y, predictions)
        central = predictions.get("central", 2.0 * np.abs(pit - 0.5))
        figures[captions["pit"]] = pictures.pit_histogram(pit)
        figures[captions["coverage"]] = pictures.coverage(central)
    return figures


def _columns(
    stored: StoredModel, scored: Scored, found: dict[str, Any], target: str
) -> tuple[dict[str, Any], list[Factor]]:
    """
    Figures of the relevance of columns and of the effects of the most relevant, by caption; and
    all factors, most relevant first. None for images, whose pixels say little alone.
    """
    if isinstance(getattr(stored.model, "kernel", None), Convolutional):
        return {}, []
    names = stored.feature_names or tuple(f"x{i}" for i in range(scored.X.shape[1]))
    factors = factors_of(names, stored.table)
    known = found["hyperparameters"]["columns"] or []
    prior = [entry["effect"] or 0.0 for entry in known]

    def predict(X: np.ndarray) -> pd.DataFrame:
        frame = predict_table(stored, X, 4096)
        if stored.num_classes is not None or scored.Y.shape[1] == 1:
            return frame
        return frame.rename(columns=lambda name: name.removesuffix("_0"))  # the first output

    if prior:
        factors.sort(key=lambda factor: -sum(prior[i] for i in factor.columns))
    effects = partial_dependence(predict, scored.X, factors, _MAX_FACTORS)
    if not effects:
        return {}, factors
    captions, shown = _TEXTS["captions"], effects[:_MAX_BARS]
    caption = captions["effects"].format(len(shown), len(factors))
    sizes = {"size of the effect": [effect.size for effect in shown]}
    if prior:
        caption += f" {captions['lengthscales']}"
        sizes["ARD"] = [sum(prior[i] for i in effect.factor.columns) for effect in shown]
    figures = {caption: pictures.relevance([effect.factor.name for effect in shown], sizes)}
    z = residuals(scored.Y, scored.predictions)
    for effect in effects[:_MAX_EFFECTS]:
        figure = pictures.effect_of_column(effect, scored.shown, z, target)
        figures[f"Effect of {effect.factor.name}."] = figure
    return figures, [effect.factor for effect in effects]


def _surprising(
    stored: StoredModel, scored: Scored, factors: Sequence[Factor], numbers: np.ndarray
) -> str:
    """The rows predicted worst, with their values of the most relevant columns."""
    rows = surprising_rows(scored.Y, scored.predictions, _MAX_ROWS)
    X, Y, columns = scored.X[rows], scored.Y[rows], {"row": numbers[rows]}
    predicted = predict_table(stored, X, 4096)
    if stored.num_classes is not None:
        P, labels = scored.predictions["probabilities"][rows], Y[:, 0].astype(int)
        columns["observed"] = np.array(stored.labels)[labels]
        columns["its probability"] = P[np.arange(len(rows)), labels]
        columns["predicted"] = predicted["class"]
        columns["probability"] = P.max(axis=1)
    else:
        z = residuals(scored.Y, scored.predictions)[rows]
        for p in range(Y.shape[1]):
            end = "" if Y.shape[1] == 1 else f"_{p}"
            columns[f"observed{end}"] = Y[:, p]
            point = "mean" if f"mean{end}" in predicted else "median"
            for name, words in ((point, "predicted"), ("lower_95", "from"), ("upper_95", "to")):
                columns[f"{words}{end}"] = predicted[f"{name}{end}"]
            columns[f"residual{end}"] = z[:, p]
    for factor in [factor for factor in factors if factor.kind != "period"][:_SHOWN_INPUTS]:
        columns.setdefault(factor.name, factor.cells(scored.shown[rows]))
    return _records(pd.DataFrame(columns))


def _figures(figures: dict[str, Any]) -> str:
    """Figures with captions, as PNG inside of the page."""
    parts = [] if figures else ["<p>None can be shown.</p>"]
    for caption, figure in figures.items():
        image, text = base64.b64encode(plots.png(figure)).decode(), html.escape(caption)
        parts.append(
            f'<figure><img src="data:image/png;base64,{image}" alt="{text}">'
            f"<figcaption>{text}</figcaption></figure>"
        )
    return f'<div class="figures">{"".join(parts)}</div>'


def _records(rows: Any) -> str:
    """A table of rows, with the columns that any of them has."""
    frame = pd.DataFrame(rows)
    frame.columns = [str(name).replace("_", " ") for name in frame.columns]
    table = frame.to_html(
        index=False, border=0, justify="left", na_rep="\u2013", float_format="{:.4g}".format
    )
    return f'<div class="table">{table}</div>'


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
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="table"><table>{body}</table></div>'


def _list(sentences: Iterable[str]) -> str:
    items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences)
    return f"<ul>{items}</ul>" if items else ""


def _words(name: str) -> str:
    return html.escape(name.replace("_", " "))
