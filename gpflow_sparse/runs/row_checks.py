"""Rows that would fail in a model, found before it is trained."""

import numpy as np

from gpflow_sparse.data import Dataset


def require_range(
    what: str,
    names: tuple[str, ...],
    pair: tuple[np.ndarray, np.ndarray],
    numbers: np.ndarray | None = None,
    dtype: type = np.float64,
) -> None:
    """
    Refuse numbers whose squares overflow.

    :param what: the rows come from.
    :param names: of the columns of X and of Y, together.
    :param pair: X ``[N, D]`` and Y ``[N, 1]``.
    :param numbers: place of each row in its table, from 0; None for their order here.
    :param dtype: that the squares are computed in.
    :raises ValueError: naming the first such row and its column.
    """
    limit = float(np.finfo(dtype).max) ** 0.5 / 1e3
    values = np.concatenate(pair, axis=1)
    bad = np.argwhere(~(np.abs(values) < limit))
    if not len(bad):
        return
    row, column = bad[0]
    number = row if numbers is None else numbers[row]
    raise ValueError(
        f"row {number + 1} of {what} (its header not counted) holds {values[row, column]:.3g} in "
        f"column {names[column]!r}, but its square must not overflow in {np.dtype(dtype).name}: it "
        f"must be smaller than {limit:.0e} in size. Drop that row."
    )


def require_ranges(
    dataset: Dataset,
    what: str,
    dtype: type,
    rows: tuple[np.ndarray, np.ndarray] | None = None,
) -> None:
    """
    :func:`require_range` for training and test rows.

    :param dataset: standardized.
    :param what: the data set or file.
    :param rows: places of training and test rows in the file; None if they are tables of their own.
    """
    names = (*dataset.feature_names, dataset.target_name)
    for i, (part, pair) in enumerate((("training", dataset.train), ("test", dataset.test))):
        source = f"{what}, once standardized,"
        if rows is None:
            require_range(f"the {part} part of {source}", names, pair, None, dtype)
        else:
            require_range(source, names, pair, rows[i], dtype)
