"""What a paper's table is, as plain data; no TensorFlow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Row:
    """One model of a paper's table, to be trained on each data set."""

    key: str
    """Names the row on the command line and in the results."""
    title: str
    """What tables call it."""
    options: Mapping[str, Any]
    """What the paper's ``build`` is given, and what the results record, as JSON has it."""
    group: str
    """Rows of one group are run on all data sets before those of the next."""


@dataclass(frozen=True)
class Size:
    """The rows to train, and for how long."""

    rows: tuple[Row, ...]
    """In the order in which they are run, within groups."""
    steps: int | None
    """Of every row unless told otherwise; None takes ``num_epochs``."""
    num_epochs: int
    """Passes over the training rows in the paper."""


@dataclass(frozen=True)
class Paper:
    """A table: what is run, how it is scored, and what was published."""

    name: str
    """On the command line, and of the files of results."""
    title: str
    citation: str
    """Authors, year, and where the table is."""
    datasets: tuple[str, ...]
    """Names for :func:`gpflow_sparse.data.load`, in the order of the columns."""
    sizes: Mapping[str, Size]
    """By name: "small" for a small machine, "full" as published."""
    batch_size: int
    learning_rate: float
    """Of Adam, constant."""
    build: Callable[[Mapping[str, Any], np.ndarray, int], Any]
    """``build(row.options, X, seed)``: the model at its start; standardized inputs ``[N, D]``."""
    published: Mapping[str, Mapping[str, tuple[float, float]]]
    """By title and data set: test RMSE and mean test log-likelihood, standardized outputs."""
    notes: tuple[str, ...]
    """Paragraphs of Markdown: what the protocol is and where it departs from the paper."""
