"""What a paper's table is, and which part of it to run; no TensorFlow."""

import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpflow_sparse.data import Dataset

Record = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One model of a paper's table, to be run on each data set."""

    key: str
    """Names the row on the command line and in the results."""
    title: str
    """What tables call it."""
    options: Mapping[str, Any]
    """What the model is built from, and what the results record, as JSON has it."""
    group: str
    """Rows of one group are run on all data sets before those of the next."""


@dataclass(frozen=True)
class Size:
    """How much of a table to run."""

    rows: tuple[Row, ...]
    """In the order in which they are run, within groups."""


@dataclass(frozen=True)
class Task:
    """What is run, kept and gone on with as a whole."""

    row: Row
    dataset: str
    split: int

    @property
    def key(self) -> tuple[str, str, int]:
        """Tells its record from others."""
        return self.row.key, self.dataset, self.split


@dataclass(frozen=True)
class Paper(abc.ABC):
    """A table: what is run, how it is scored, and what was published."""

    name: str
    """On the command line, and of the files of results."""
    title: str
    citation: str
    """Authors, year, and where the table is."""
    datasets: tuple[str, ...]
    """Names for :func:`gpflow_sparse.data.load`, in the order in which they are run."""
    sizes: Mapping[str, Any]
    """A :class:`Size` by name: "small" for a small machine, "full" as published."""
    published: Mapping[str, Mapping[str, Any]]
    """By title and data set."""
    notes: tuple[str, ...]
    """Paragraphs of Markdown: what the protocol is and where it departs from the paper."""

    @abc.abstractmethod
    def require_options(self, run: "PaperRun") -> None:
        """
        :raises ValueError: for options that mean nothing to this paper.
        """

    @abc.abstractmethod
    def splits(self, run: "PaperRun", row: Row, dataset: str) -> Sequence[int]:
        """The splits of a data set on which a row is run."""

    @abc.abstractmethod
    def load(self, dataset: str, split: int) -> "Dataset":
        """
        The standardized data of a task.

        :raises ValueError: if they cannot be had.
        """

    @abc.abstractmethod
    def describe(self, run: "PaperRun", row: Row, num_train: int) -> Record:
        """The part of a record that says what is about to be done, ``config`` at least."""

    @abc.abstractmethod
    def mismatch(self, run: "PaperRun", record: Record) -> str | None:
        """Why a record belongs to another run, and what to do about it; None if it does not."""

    @abc.abstractmethod
    def run_one(
        self, run: "PaperRun", task: Task, dataset: "Dataset", pace: float, deadline: float
    ) -> Record:
        """
        Train and score; what is new in the record. See :mod:`.runner` for what may be raised.

        :param dataset: what :meth:`load` returned.
        :param pace: what :meth:`pace` said of an earlier task of the kind; 0 if there was none.
        :param deadline: of ``time.perf_counter``.
        :raises DoesNotFitError: if it would end too late.
        """

    @abc.abstractmethod
    def kind(self, row: str, dataset: str) -> str:
        """Tasks of one kind go at one pace."""

    @abc.abstractmethod
    def pace(self, record: Record) -> float:
        """From which the time of other tasks of the kind is foreseen."""

    @abc.abstractmethod
    def write_table(
        self,
        run: "PaperRun",
        records: Sequence[Record],
        paces: Mapping[str, float],
        num_train: Mapping[str, int],
    ) -> Path:
        """
        Write ``NAME.md`` in the folder of the run.

        :param records: of all tasks run so far.
        :param paces: by kind; also of tasks that were not run.
        :param num_train: training rows of the data sets of this run.
        """

    @abc.abstractmethod
    def summary(
        self, records: Sequence[Record]
    ) -> tuple[tuple[str, ...], Sequence[tuple[str, ...]]]:
        """Header and rows of what the command line prints at the end, of records that are done."""


@dataclass(frozen=True)
class PaperRun:
    """What to run of a paper, and where the results are."""

    paper: Paper
    size: str
    """Key of ``paper.sizes``."""
    folder: Path
    steps: int | None = None
    """Of every row, where rows are trained by steps; None takes the number of the size."""
    datasets: tuple[str, ...] = ()
    """Which of the paper's; none for all."""
    rows: tuple[str, ...] = ()
    """Keys of the rows; none for all."""
    splits: tuple[int, ...] = ()
    """Which of the paper's; none for all."""

    def __post_init__(self) -> None:
        sizes = self.paper.sizes
        _require_known("size", (self.size,), tuple(sizes))
        _require_known("datasets", self.datasets, self.paper.datasets)
        _require_known("rows", self.rows, tuple(row.key for row in sizes[self.size].rows))
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps must be positive, got {self.steps}.")
        self.paper.require_options(self)

    @property
    def stem(self) -> str:
        """Name of the files of results, without their ending."""
        return self.paper.name if self.size == "small" else f"{self.paper.name}-{self.size}"

    @property
    def chosen_datasets(self) -> tuple[str, ...]:
        """In the paper's order."""
        return tuple(n for n in self.paper.datasets if not self.datasets or n in self.datasets)

    def tasks(self) -> Iterator[Task]:
        """In the order in which they are run: by group, then data set, then split."""
        rows = [r for r in self.paper.sizes[self.size].rows if not self.rows or r.key in self.rows]
        for group in dict.fromkeys(row.group for row in rows):
            members = [row for row in rows if row.group == group]
            for name in self.chosen_datasets:
                chosen = {row.key: self.paper.splits(self, row, name) for row in members}
                for split in sorted({split for splits in chosen.values() for split in splits}):
                    yield from (
                        Task(row, name, split) for row in members if split in chosen[row.key]
                    )


def _require_known(name: str, values: tuple[str, ...], known: tuple[str, ...]) -> None:
    for value in values:
        if value not in known:
            raise ValueError(f"{name} must be among {', '.join(known)}; got {value!r}.")
