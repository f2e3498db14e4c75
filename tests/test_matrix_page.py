"""The page of all combinations, against new runs of its cells."""

import re

import numpy as np
import pytest

from tests import matrix_page

TEXT = matrix_page.PAGE.read_text(encoding="utf-8")
REASONS = dict(re.findall(r"^- ([^:]*): (.*)$", TEXT, re.MULTILINE))


def written(cell):
    """What the page has for a cell: numbers, or why it is refused."""
    *line, column = cell
    if ", ".join(line[:2]) in REASONS:
        return REASONS[", ".join(line[:2])]
    titles = [[part.strip() for part in row.split("|")[1:-1]] for row in TEXT.splitlines() if row]
    (header,) = [row for row in titles if column in row and len(row) > len(line)]
    (found,) = [row for row in titles if row[: len(line)] == line]
    return found[header.index(column)]


def test_every_cell_is_on_the_page_with_numbers_or_a_reason():
    for cell in matrix_page.CELLS:
        text = written(cell)
        assert text in REASONS.values() or re.fullmatch(r"-?\d+\.\d\d → -?\d+\.\d\d", text), cell
    assert len(matrix_page.CELLS) == 8 * 6 + 3 * 5 * 2 * 3 + 5 * 6


def test_a_cell_is_as_written():
    compare(("kernels at rows", "sub-sampled, Bernoulli"))


@pytest.mark.nightly
def test_a_cell_of_every_row_and_several_of_every_column_are_as_written():
    """``python -m tests.matrix_page`` writes all of them."""
    rows = {}
    for cell in matrix_page.CELLS:
        rows.setdefault(cell[:-1], []).append(cell)
    for i, row in enumerate(rows.values()):
        compare(row[i % len(row)])


def compare(cell):
    found, text = matrix_page.score(matrix_page.CELLS[cell], cell), written(cell)
    if isinstance(found, str):
        assert text == found, cell
    else:
        before, after = (float(part) for part in text.split(" → "))
        np.testing.assert_allclose(found[0], before, atol=0.006, err_msg=str(cell))
        # rounding grows in 50 steps
        np.testing.assert_allclose(found[1], after, atol=0.03, err_msg=str(cell))
