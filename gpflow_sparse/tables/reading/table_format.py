"""The columns and the target of a table that a model was trained on."""

import dataclasses
import json
import os
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gpflow_sparse.persistence.schema import parse_json
from gpflow_sparse.tables.reading.columns import (
    Column,
    TableEncoder,
    as_frame,
    other_marks,
    require_one_mark,
)
from gpflow_sparse.tables.reading.tables import read_frame
from gpflow_sparse.tables.reading.targets import read_target

__all__ = ["TableFormat"]


@dataclass(frozen=True)
class TableFormat:
    """
    Kinds and encodings of the columns of a table, kept beside the model that was trained on it.

    :param columns: the input columns.
    :param target: a column of kind "number", or "category" with the labels as levels.
    """

    columns: tuple[Column, ...]
    target: Column

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names of the classes; None for regression."""
        return self.target.levels or None

    @property
    def encoder(self) -> TableEncoder:
        """The transformer from tables to inputs [N, D] of the model, in original units."""
        return TableEncoder.from_columns(self.columns)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that say what is done with the columns."""
        return tuple(column.note for column in (self.target, *self.columns) if column.note)

    def read(self, path: str | os.PathLike[str]) -> pd.DataFrame:
        """
        The cells of a file, see :func:`read_frame`; as texts where 1.234 may be a thousand.

        :raises FileNotFoundError: if there is no such file.
        :raises ValueError: if it is no complete table.
        """
        columns = (self.target, *self.columns)
        return read_frame(path, as_texts=any(column.decimal == "," for column in columns))

    def gaps(self, frame: pd.DataFrame, target: str | None = None) -> tuple[str, ...]:
        """
        Sentences on cells of another table that are missing, unknown, or unlike cells of training.

        :param target: the column with the target, if it is read too.
        """
        notes = self.encoder.gaps(frame)
        if target is None or self.labels is not None:
            return notes
        return *notes, *other_marks(self.target, as_frame(frame)[target])

    def outputs(self, frame: pd.DataFrame, target: str | None = None) -> np.ndarray:
        """
        The target of rows of another table [N, 1]: numbers, or positions among ``labels``.

        :param target: its column; None for the target of training.
        :raises ValueError: if there is no such column, or a cell is no number or no known label, or
            numbers contradict each other when read as in training.
        """
        frame, name = as_frame(frame), self.target.name if target is None else target
        if name not in frame.columns:
            raise ValueError(f"target must be a column of the table, got {name!r}.")
        if self.labels is None:
            require_one_mark(self.target, frame[name])
        values = read_target(frame[name], self.target)
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            expected = (
                "a number" if self.labels is None else f"one of {', '.join(self.labels[:20])}"
            )
            raise ValueError(
                f"target {name!r} must be {expected} in every row, but {len(bad)} cells are not, "
                f"such as {str(frame[name].iloc[bad[0]])!r} in row {bad[0] + 1} (the header not "
                "counted); drop these rows."
            )
        return values[:, None]

    def empty(self, frame: pd.DataFrame) -> np.ndarray:
        """
        Which entries of the inputs [N, D] stand for cells that are missing or cannot be read.

        Missing cells of a category are a level of their own.
        """
        return self.encoder.empty(frame)

    def to_json(self) -> str:
        """The format as text, for files."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str, source: str) -> "TableFormat":
        """
        The format written by :meth:`to_json`.

        :param source: the file, in errors.
        :raises ValueError: if the text is damaged.
        """
        remedy = "restore the file or train again"
        values = parse_json(text, {"columns": list[Column], "target": Column}, source, remedy)
        try:
            columns, target = tuple(Column(**c) for c in values["columns"]), values["target"]
            return cls(columns, Column(**target))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{source} is damaged: {error}; {remedy}.") from error
