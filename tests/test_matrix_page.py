"""The page of all combinations, against new runs of its cells."""

import re

import numpy as np
import pytest

from tests import matrix_page

TEXT = matrix_page.PAGE.read_text(encoding="utf-8")
REASONS = dict(re.findall(r"^- (\[\d+\]) (.*)$", TEXT, re.MULTILINE))


def written(cell):
    """What the page has for a cell."""
    *line, column = cell
    titles = [[part.strip() for part in row.split("|")[1:-1]] for row in TEXT.splitlines() if row]
    (header,) = [row for row in titles if column in row and len(row) > len(line)]
    (found,) = [row for row in titles if row[: len(line)] == line]
    return found[header.index(column)]


def test_every_cell_is_on_the_page_with_numbers_or_a_reason():
    for cell in matrix_page.CELLS:
        text = written(cell)
        assert text in REASONS or re.fullmatch(r"-?\d+\.\d\d → -?\d+\.\d\d", text), cell
    assert len(matrix_page.CELLS) == 8 * 6 + 3 * 5 * 2 * 3


@pytest.mark.parametrize(
    "cell",
    [
        ("points", "orthogonal sets", "1 layer", "softmax"),
        ("patches", "nearest neighbors", "1 layer", "Gaussian"),
        ("kernels at rows", "sub-sampled, Bernoulli"),
    ],
    ids=" ".join,
)
def test_some_cells_are_as_written(cell):
    compare(cell)


@pytest.mark.nightly
@pytest.mark.parametrize("cell", matrix_page.CELLS, ids=" ".join)
def test_all_cells_are_as_written(cell):
    compare(cell)


def compare(cell):
    found, text = matrix_page.score(matrix_page.CELLS[cell], cell), written(cell)
    if isinstance(found, str):
        assert REASONS[text] == found
    else:
        before, after = (float(part) for part in text.split(" → "))
        np.testing.assert_allclose(found[0], before, atol=0.006)
        np.testing.assert_allclose(found[1], after, atol=0.03)  # rounding grows in 50 steps
