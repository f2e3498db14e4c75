"""A paper's table as its TOML file describes it, and the part of it to run; no TensorFlow."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import tomllib

Record = dict[str, Any]
"""The result of a task: one line of the JSON lines file."""


@dataclass(frozen=True)
class Row:
    """One model of a paper's table; the budget is steps, epochs, minutes, or else one fit."""

    key: str
    """Name of the row on the command line and in the results."""
    title: str
    options: Mapping[str, Any]
    """Arguments of the function that builds, trains and scores the model."""
    datasets: tuple[str, ...]
    group: str = "all"
    """Rows of one group are run on all data sets before those of the next."""
    splits: int | Mapping[str, int] | None = None
    """Number of splits, or numbers by data set; None for a single split, 0 unless chosen."""
    steps: int | None = None
    epochs: int | None = None
    """Passes over the training rows in batches of ``options["batch_size"]``."""
    minutes: float | None = None
    """Minutes of training on each split."""
    compared: str = ""
    """Title of the published row next to which the row is shown."""

    @property
    def config(self) -> Record:
        """The part of the row in records, which must be equal for the row to be resumed."""
        return {**self.options, **({"minutes": self.minutes} if self.minutes else {})}

    def count_splits(self, dataset: str) -> int:
        """Number of splits of a data set on which the row is run, if it has several."""
        if isinstance(self.splits, Mapping):
            return self.splits.get(dataset, self.splits["default"])
        return self.splits or 0


class Task(NamedTuple):
    """A row on one split of a data set: the unit that is run, kept and resumed."""

    row: Row
    dataset: str
    split: int

    @property
    def key(self) -> tuple[str, str, int]:
        """Key of the row, data set and split, as :func:`key_of` finds them in a record."""
        return self.row.key, self.dataset, self.split


def key_of(record: Record) -> tuple[str, str, int]:
    """The key of the task that a record is the result of."""
    return record["row"], record["dataset"], record["split"]


@dataclass(frozen=True)
class Paper:
    """A table of a paper: tasks, layout and published results."""

    name: str
    title: str
    citation: str
    datasets: tuple[str, ...]
    """Names for :func:`gpflow_sparse.data.load` or of ``data_splits``, in the order of the runs."""
    rows: Mapping[str, Sequence[Row]]
    """By size: "small" for a small machine, "full" as published."""
    fit: str
    """Key of ``harness.FITS``."""
    protocol: str
    """Paragraphs of Markdown: data, splits, units."""
    columns: Mapping[str, Sequence[str]]
    """Key in the record and format, by title; "spread" as a third entry adds the deviation."""
    read: str = "published"
    """Key of ``data_splits.READERS``."""
    notes: str = ""
    """More paragraphs: models, training, departures from the paper."""
    layout: str = "by_dataset"
    """Key of ``pages.LAYOUTS``."""
    isolated: bool = False
    """Whether each task has a process of its own, whose memory is measured."""
    published: Mapping[str, Mapping[str, Mapping[str, str]]] = field(default_factory=dict)
    """Cells by title, data set and column, with the digits that the paper prints."""
    printed: Sequence[str] = ()
    """Titles of the columns that the command line prints; all if empty."""
    details: Sequence[str] = ()
    """Titles of the last columns of the layout "by_row"."""
    sections: Sequence[Mapping[str, str]] = ()
    """Tables of the layout "by_metric": heading, text, cell, published column, size if of one."""
    picture: Mapping[str, str] = field(default_factory=dict)
    """Learning curves that are drawn: label of the axis by key of a point."""
    kept: Sequence[float] = ()
    """Fractions of the test rows for which records have the accuracy of the kept rows."""
    command: str = ""
    """Command that writes the page, where it is not ``bench paper``; ``{size}`` is the size."""


@functools.cache
def load_paper(name: str) -> Paper:
    """The paper of the file ``NAME.toml``."""
    table = _read(name)
    rows = {
        size: tuple(_row(row, table["options"], table["datasets"]) for row in described)
        for size, described in table["rows"].items()
    }
    every = rows.pop("every", ())
    for size, budget in table.get("budgets", {}).items():
        rows[size] = tuple(_within(row, **budget) for row in every)
    given = {f.name: table[f.name] for f in fields(Paper) if f.name in table}
    return Paper(**given | {"name": name, "datasets": tuple(table["datasets"]), "rows": rows})


def with_minutes(paper: Paper, dataset: str, minutes: float) -> Paper:
    """The paper with another time of training of all rows of a data set."""
    rows = {
        size: tuple(
            replace(row, minutes=minutes) if dataset in row.datasets else row for row in described
        )
        for size, described in paper.rows.items()
    }
    return replace(paper, rows=rows)


def _within(
    row: Row, minutes: float, splits: int | None = None, datasets: Sequence[str] | None = None
) -> Row:
    """The row with other minutes, and fewer splits and data sets if they are given."""
    names = tuple(name for name in row.datasets if datasets is None or name in datasets)
    return replace(row, minutes=minutes, splits=splits or row.splits, datasets=names)


def _read(name: str) -> dict[str, Any]:
    """A file over the one that it extends; options of both are known by name."""
    table = tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))
    base = _read(table["extends"]) if "extends" in table else {}
    return base | table | {"options": base.get("options", {}) | table.get("options", {})}


def _row(described: Mapping[str, Any], options: Mapping[str, Any], datasets: list[str]) -> Row:
    merged = {"datasets": datasets} | _merged(described, options)
    own = {f.name: merged.pop(f.name) for f in fields(Row) if f.name in merged}
    return Row(**own | {"datasets": tuple(own["datasets"]), "options": _with_none(merged)})


def _merged(table: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The named options that a table uses, in turn, and its own entries over them."""
    found: dict[str, Any] = {}
    for part in (*(_merged(options[name], options) for name in table.get("use", ())), table):
        for key, value in part.items():
            both = isinstance(value, dict) and isinstance(found.get(key), dict)
            found[key] = found[key] | value if both else value
    found.pop("use", None)
    return found


def _with_none(value: Any) -> Any:
    """The value with None for "null", since TOML has no null."""
    if isinstance(value, dict):
        return {key: _with_none(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_with_none(part) for part in value]
    return None if value == "null" else value


@dataclass(frozen=True)
class PaperRun:
    """
    The tasks of a paper to run, and the folder of the results.

    :raises ValueError: for a choice that the paper does not have.
    """

    paper: Paper
    size: str
    """Key of ``paper.rows``."""
    folder: Path
    steps: int | None = None
    """Steps of every row that is trained by steps or minutes; None for those of the row."""
    datasets: tuple[str, ...] = ()
    """Names of data sets of the paper; all if empty."""
    rows: tuple[str, ...] = ()
    """Keys of rows; all if empty."""
    splits: tuple[int, ...] = ()
    """Numbers of splits; all of the row if empty."""

    def __post_init__(self) -> None:
        paper = self.paper
        _require_known("size", (self.size,), tuple(paper.rows))
        _require_known("datasets", self.datasets, paper.datasets)
        _require_known("rows", self.rows, tuple(row.key for row in self.all_rows))
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps must be positive, got {self.steps}.")
        if self.steps and not any(r.steps or r.epochs or r.minutes for r in self.all_rows):
            raise ValueError(f"steps mean nothing to {paper.name}, which is not trained by steps.")
        counts = [row.count_splits(name) for row in self.all_rows for name in row.datasets]
        if not any(counts) and len(self.splits) > 1:
            raise ValueError(f"splits must be at most one for {paper.name}; got {self.splits}.")
        for split in self.splits if any(counts) else ():
            if split not in range(max(counts)):
                raise ValueError(f"splits must be among 0 to {max(counts) - 1}; got {split}.")

    @property
    def stem(self) -> str:
        """Name of the files of results, without their ending."""
        return self.paper.name if self.size == "small" else f"{self.paper.name}-{self.size}"

    @property
    def all_rows(self) -> Sequence[Row]:
        """The rows of the size, chosen or not."""
        return self.paper.rows[self.size]

    def chosen(self, row: str, dataset: str) -> bool:
        """Whether a row and a data set are among those to run."""
        return (not self.rows or row in self.rows) and (
            not self.datasets or dataset in self.datasets
        )

    def splits_of(self, row: Row, dataset: str) -> Sequence[int]:
        """The splits of a data set on which a row is run."""
        if row.splits is None:
            return self.splits or (0,)
        count = row.count_splits(dataset)
        return [split for split in range(count) if not self.splits or split in self.splits]

    def tasks(self) -> Iterator[Task]:
        """In the order in which they are run: by group, then data set, then split."""
        for group in dict.fromkeys(row.group for row in self.all_rows):
            for name in self.paper.datasets:
                found = [
                    Task(row, name, split)
                    for row in self.all_rows
                    if row.group == group and name in row.datasets and self.chosen(row.key, name)
                    for split in self.splits_of(row, name)
                ]
                yield from sorted(found, key=lambda task: task.split)

    def steps_of(self, row: Row, num_train: int) -> int | None:
        """Steps of a row on so many training rows; None for one that has no number of steps."""
        if self.steps or row.steps or not row.epochs:
            return self.steps or row.steps
        return -(-row.epochs * num_train // min(row.options["batch_size"], num_train))


def _require_known(name: str, values: tuple[str, ...], known: tuple[str, ...]) -> None:
    for value in values:
        if value not in known:
            raise ValueError(f"{name} must be among {', '.join(known)}; got {value!r}.")
