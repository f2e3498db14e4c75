"""The columns and the target of a table that a model was trained on."""

import dataclasses
import json
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gpflow_sparse.data.columns import Column, TableEncoder, as_frame
from gpflow_sparse.data.targets import read_target
from gpflow_sparse.persistence.schema import parse_json

__all__ = ["TableFormat"]

# Kinds of columns whose missing cells are replaced by a value.
_FILLED = ("date", "number")


@dataclass(frozen=True)
class TableFormat:
    """
    Kinds and encodings of the columns of a table, kept beside the model that was trained on it.

    :param columns: the input columns.
    :param target: of kind "number", or "category" with the labels as levels.
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

    def outputs(self, frame: pd.DataFrame, target: str | None = None) -> np.ndarray:
        """
        The target of rows of another table [N, 1]: numbers, or positions among ``labels``.

        :param target: its column; None for that of training.
        :raises ValueError: if there is no such column, or a cell is no number or no known label.
        """
        frame, name = as_frame(frame), self.target.name if target is None else target
        if name not in frame.columns:
            raise ValueError(f"target must be a column of the table, got {name!r}.")
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
        flagged = [
            dataclasses.replace(column, missing=True) if column.kind in _FILLED else column
            for column in self.columns
        ]
        X, parts, start = TableEncoder.from_columns(flagged).transform(frame), [], 0
        for column, with_flag in zip(self.columns, flagged, strict=True):
            empty = np.zeros((len(X), _width(column)), dtype=bool)
            if column.kind in _FILLED:
                empty |= X[:, start + 1 : start + 2] > 0.5
                empty[:, 1 : 1 + column.missing] = False  # the indicator itself is known
            parts.append(empty)
            start += _width(with_flag)
        return np.concatenate(parts, axis=1)

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


def _width(column: Column) -> int:
    """The number of encoded columns of a column."""
    if column.kind == "dropped":
        return 0
    return len(column.levels) or 1 + column.missing + 2 * len(column.periods)
