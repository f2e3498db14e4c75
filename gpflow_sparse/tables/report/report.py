"""The page about a fitted estimator: one HTML file with its pictures inside, for any browser."""

import base64
import importlib.util
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from gpflow_sparse.data import metrics
from gpflow_sparse.diagnosis import advice, diagnostics
from gpflow_sparse.persistence import files
from gpflow_sparse.tables.estimators.scoring import Scored, chosen_parts, score_rows
from gpflow_sparse.tables.fitting.calibration import describe_calibration
from gpflow_sparse.tables.report import pictures

_WRITER = "gpflow_sparse.tables.report"
_START = 1000  # characters at the start of a page in which its writer is named
_FEW_ROWS = 30  # fewer do not show whether predictions are calibrated
_MAX_DIAGNOSED = 2000  # rows
_MAX_WORST, _MAX_CELLS = 10, 4  # rows, and their cells of the most important columns


def require_report(path: Path) -> None:
    """
    Refuse a page that :func:`write_report` cannot write, before a model is trained or rows scored.

    :raises ValueError: without matplotlib, or if ``path`` is a file other than such a page.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("a report needs matplotlib: python -m pip install matplotlib")
    if path.exists() and not path.is_file():
        raise ValueError(f"path must name a file, but {path} is a folder or a device; add a name.")
    if path.exists() and _WRITER not in path.read_text("utf-8", "replace")[:_START]:
        raise ValueError(
            f"{path} is not a report, and would be replaced: move it away, or choose another path."
        )


def write_report(
    path: Path,
    estimator: Any,
    X: pd.DataFrame,
    y: Any,
    *,
    title: str,
    record: Mapping[str, Any] | None = None,
    scored: Scored | None = None,
) -> Path:
    """
    Write a page with scores, pictures and advice about a fitted estimator, which needs no other
    file.

    Scores, errors and calibration are measured on all rows, the importance of columns on at most
    500, partial dependence on at most 40, diagnostics on at most 2000. Apart from the scores, this
    takes seconds.

    :param path: the HTML file; a report that is there is replaced.
    :param estimator: a fitted ``SparseGPRegressor`` or ``SparseGPClassifier``.
    :param X: rows with at least the columns of training [N, .]; their index names them on the page.
    :param y: observed outputs [N] or [N, P], or labels [N].
    :param title: the heading of the page.
    :param record: texts, numbers, and lists and mappings of these by name, shown in a table. The
        entry ``rows`` says which rows are scored, such as "test rows, which were not trained on".
    :param scored: the result of :func:`score_rows` for these rows, if it is known.
    :return: ``path``.
    :raises ValueError: see :func:`require_report`; for columns that are missing; for no rows; for
        labels that are not classes of the estimator.
    """
    require_report(path)
    frame, inputs, Y, scores, predictions, errors = scored or score_rows(estimator, X, y)
    figures, effects, contributions = _draw(estimator, frame, inputs, Y, predictions)
    found = _diagnose(estimator, inputs, Y, known=estimator._noise_column in frame)
    text = _template().render(
        writer=_WRITER,
        title=title,
        record=record or {},
        method=getattr(estimator, "method_", estimator.recipe_.name),
        reason=getattr(estimator, "reason_", ""),
        calibration=describe_calibration(estimator.model_),
        num_rows=len(Y),
        is_few=len(Y) < _FEW_ROWS,
        scores=scores,
        errors=errors,
        chosen=chosen_parts(estimator),
        constant=_constant(Y, hasattr(estimator, "classes_")),
        advice=found.pop("advice"),
        figures=[(caption, _png(figure)) for caption, figure in figures.items()],
        effects=[(caption, _png(figure)) for caption, figure in effects.items()],
        contributions=[{"column": k, "increase": float(v)} for k, v in contributions.items()],
        worst=_worst(estimator, frame, Y, predictions, list(contributions.index)[:_MAX_CELLS]),
        attempts=[attempt._asdict() for attempt in getattr(estimator, "attempts_", ())],
        notes=estimator.encoder_.notes_,
        diagnostics=found,
    )
    files.write_text(path, text)
    return path


def _template() -> jinja2.Template:
    """The page, in which all texts are escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = _shown
    return environment.get_template("page.html")


def _draw(
    estimator: Any,
    frame: pd.DataFrame,
    inputs: np.ndarray,
    Y: np.ndarray,
    predictions: dict[str, np.ndarray],
) -> tuple[pictures.Figures, pictures.Figures, pd.Series]:
    """Figures of errors and of columns by caption, and importances of columns; none for images."""
    if "probabilities" in predictions:
        names = [str(label) for label in estimator.classes_]
        figures = pictures.draw_classes(Y[:, 0].astype(int), predictions["probabilities"], names)
    else:
        figures = pictures.draw_accuracy(Y, predictions["point"], _outputs("y", Y))
        figures |= pictures.draw_transforms(predictions["pit"])
    if estimator.recipe_.takes_images:
        return figures, pictures.draw_patches(estimator.model_), pd.Series(dtype=float)
    return figures, *pictures.draw_columns(estimator, frame, inputs, Y)


def _diagnose(estimator: Any, inputs: np.ndarray, Y: np.ndarray, *, known: bool) -> dict[str, Any]:
    """
    Diagnostics, and the advice that follows from them; without bounds, which are about the rows of
    training, and without lengthscales, which are of encoded columns: columns of the table have an
    importance.

    :param known: whether rows have known noise variances, without which intervals are too narrow.
    """
    rows = np.random.default_rng(0).permutation(len(Y))[:_MAX_DIAGNOSED]
    pair = estimator.model_.standardizer.transform(inputs[rows], Y[rows])
    found = diagnostics(estimator.model_, pair, held_out=True)
    found["hyperparameters"]["columns"] = None
    if known:
        found["calibration"] = None
    found["advice"] = advice(found)
    if known:
        found["residual_variance"] = None
    del found["bound"]
    return found


def _constant(Y: np.ndarray, is_class: bool) -> float:
    """The error rate of always the most frequent class, or the RMSE of the mean."""
    if is_class:
        return 1.0 - float(np.bincount(Y[:, 0].astype(int)).max()) / len(Y)
    return metrics.rmse(Y, np.broadcast_to(Y.mean(axis=0), Y.shape))


def _worst(
    estimator: Any,
    frame: pd.DataFrame,
    Y: np.ndarray,
    predictions: dict[str, np.ndarray],
    names: Sequence[str],
) -> list[dict[str, Any]]:
    """The rows that were least expected, the worst first, with their cells of some columns."""
    if "probabilities" in predictions:
        P, labels = predictions["probabilities"], Y[:, 0].astype(int)
        likelihood = P[np.arange(len(Y)), labels]
        rows = np.argsort(likelihood, kind="stable")[:_MAX_WORST]
        columns = {
            "observed": estimator.classes_[labels[rows]],
            "its probability": likelihood[rows],
            "predicted": estimator.classes_[P[rows].argmax(axis=1)],
        }
    else:
        pit = predictions["pit"]
        tail = np.minimum(pit, 1.0 - pit).min(axis=1)
        distance = np.abs(Y - predictions["point"]) / np.sqrt(predictions["variance"])
        rows = np.lexsort((-distance.max(axis=1), tail))[:_MAX_WORST]
        ends = estimator.predict_interval(frame.iloc[rows]).reshape(len(rows), 2, -1)
        parts = {"observed": Y[rows], "predicted": predictions["point"][rows]}
        parts |= {"from": ends[:, 0], "to": ends[:, 1]}
        columns = {}
        for words, part in parts.items():
            columns |= dict(zip(_outputs(words, Y), part.T, strict=True))
    table = {"row": frame.index[rows], **columns}
    table |= {name: frame[name].iloc[rows] for name in names if name not in table}
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


def _outputs(name: str, Y: np.ndarray) -> list[str]:
    """The name, with a number for each of several outputs."""
    return [name] if Y.shape[1] == 1 else [f"{name} {p}" for p in range(Y.shape[1])]


def _png(figure: Any) -> str:
    """The figure as a PNG in base64; a name such as "cost in $" is not a formula."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=130, metadata={"Software": None})
    return base64.b64encode(content.getvalue()).decode()


def _shown(value: Any) -> str:
    """A cell of a table: numbers to four digits, a dash for what is missing."""
    if value is None or value is pd.NaT or (isinstance(value, float) and np.isnan(value)):
        return "\u2013"
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)
