"""A cell has one reading, whatever else its file holds, and whichever reader read it."""

import csv
import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from gpflow_sparse.estimators import Column
from gpflow_sparse.tables.reading.encoder import TableEncoder
from gpflow_sparse.tables.reading.folders import open_shards
from gpflow_sparse.tables.reading.tables import read_frame
from gpflow_sparse.tables.reading.targets import split_target

NUM_ROWS, COLUMNS_PER_FILE = 30, 10


def point(value, digits):
    return f"{value:,.{digits}f}"


def comma(value, digits):
    return point(value, digits).translate(str.maketrans(",.", ".,"))


PLAIN = {
    "whole": lambda r: str(r.integers(-20, 2000)),
    "float": lambda r: repr(float(r.normal())),
    "padded": lambda r: f"{r.normal():.2f}",
    "three": lambda r: r.choice([str(r.integers(9)), f"{r.integers(1, 9)}.{r.integers(100, 999)}"]),
    "whole float": lambda r: r.choice(
        ["1.0", "2", "+3", "-0", "0.0", "1e1", "2E0", "1e20", "1e-05"]
    ),
    "few": lambda r: str(r.integers(4)),
    "tiny": lambda r: repr(float(r.normal()) * 10.0 ** r.integers(-50, 14)),
    "parts": lambda r: r.choice([".5", "5.", "-.25", "4.e1", "3"]),
}
OTHERS = {
    "code": lambda r: f"{r.integers(30):02d}",
    "levels": lambda r: r.choice(["01", "1", "02", "2", "x"]),
    "long": lambda r: str(10**17 + r.integers(3)),
    "thousands": lambda r: point(r.integers(-9, 9_000_000) // 10 ** r.integers(1, 6), 0),
    "points": lambda r: comma(r.integers(-9, 9_000_000) // 10 ** r.integers(1, 6), 0),
    "decimal": lambda r: point(r.normal() * 2000, 2),
    "comma": lambda r: comma(r.normal() * 2000, 3).replace(".", ""),
    "german": lambda r: comma(r.normal() * 2000, r.integers(4)),
    "logical": lambda r: r.choice(["True", "False"]),
    "spelled": lambda r: r.choice(["TRUE", "true", " False"]),
    "money": lambda r: f"${point(r.normal() * 2000, 2)}",
    "euro": lambda r: f"{comma(r.normal() * 2000, 2)} €",
    "percent": lambda r: f"{r.normal():.1f}%",
    "iso": lambda r: str(np.datetime64("2020-01-01") + int(r.integers(900))),
    "slash": lambda r: f"{r.integers(1, 28)}/{r.integers(1, 12)}/202{r.integers(5)}",
    "word": lambda r: r.choice(["red", "blue", "12 m", "1_000", "inf", "now"]),
    "any": lambda r: r.choice(["1,234", "1.234", "987", "3.5", "3,5", "1,234.5", "2,000,000"]),
}
GAPS = ["", "NA", "?", "#N/A"]


def draw(rng, forms):
    """Cells of a column: of one form, or of two, some with gaps."""
    first, second = rng.choice(list(forms), 2)
    share = rng.choice([0.0, 0.0, 0.0, 0.05, 0.4])
    cells = [forms[second if rng.random() < share else first](rng) for _ in range(NUM_ROWS)]
    gaps = rng.choice([0.0, 0.0, 0.1])
    if forms is not PLAIN:
        cells = [rng.choice(GAPS) if rng.random() < gaps else cell for cell in cells]
    return [str(cell) for cell in cells]


def write(path, columns, rows=None):
    """The rows as a csv file, in quotes only where commas are."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        table = list(zip(*columns.values(), strict=False))
        writer.writerows(table if rows is None else [table[i] for i in rows])
    return path


def target_of(frame, name, task):
    """The column, the values and the number of rows of a target, or why it is refused."""
    try:
        inputs, target = split_target(frame, name, task)
    except ValueError as error:
        return str(error)
    return target.column, target.values.tobytes(), len(inputs)


def check_one_reading(tmp_path, seed, forms):
    """Columns alone and beside text, all rows and a part of them, as inputs and as a target."""
    rng = np.random.default_rng(seed)
    columns = {"first": list(map(repr, rng.normal(size=NUM_ROWS)))}
    columns |= {f"v{i}": draw(rng, forms) for i in range(COLUMNS_PER_FILE)}
    columns["last"] = list(map(repr, rng.normal(size=NUM_ROWS)))
    mixed = {**columns, "text": ["a", "b", "c"] * (NUM_ROWS // 3)}
    alone, beside = (read_frame(write(tmp_path / "a.csv", table)) for table in (columns, mixed))
    encoder = TableEncoder().fit(alone)
    assert encoder.columns_ == TableEncoder().fit(beside).columns_[:-1]
    values = encoder.transform(alone)
    assert values.tobytes() == encoder.transform(beside).tobytes()
    stored = json.loads(json.dumps([dataclasses.asdict(column) for column in encoder.columns_]))
    known = TableEncoder.from_columns([Column(**column) for column in stored])
    check_folder(write(tmp_path / "alone.csv", columns), seed, alone)
    rows = rng.permutation(NUM_ROWS)[: rng.integers(1, 6)]
    for table in (columns, mixed):
        part = read_frame(write(tmp_path / "part.csv", table, rows))
        assert known.transform(part).tobytes() == values[rows].tobytes()
    check_later_rows(tmp_path, known, {name: draw(rng, forms) for name in columns}, rows)
    for name in list(columns)[1:-1]:
        for task in (None, "classification"):
            assert target_of(alone, name, task) == target_of(beside, name, task)


def check_folder(path, seed, frame):
    """The rows of the file, converted like a folder of files."""
    inputs, target = split_target(frame, "last")
    shards = open_shards(path, "last", seed=seed)
    encoder = TableEncoder().fit(inputs)
    assert shards.encoder.columns_ == encoder.columns_
    found, order = np.argsort(shards.Y[:, 0]), np.argsort(target.values)
    X = encoder.transform(inputs)[order]
    error = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0) - shards.X[found]
    np.testing.assert_allclose(error, 0.0, atol=1e-5)


def check_later_rows(tmp_path, known, table, rows):
    """Some rows of a later table alone and in the table, unless none of its cells can be read."""
    later, part = (read_frame(write(tmp_path / "b.csv", table, r)) for r in (None, rows))
    for column in known.columns_:
        encoder = TableEncoder.from_columns([column])
        try:
            values, few = encoder.transform(later), encoder.transform(part)
        except ValueError:  # none can be read
            continue
        assert few.tobytes() == values[rows].tobytes()


@pytest.mark.parametrize("forms", [PLAIN, OTHERS, PLAIN | OTHERS], ids=["plain", "other", "all"])
@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 77), marks=pytest.mark.nightly)])
@pytest.mark.filterwarnings("ignore:.* that (is|are) not:UserWarning")
def test_a_cell_means_the_same_in_every_file(tmp_path, seeds, forms):
    for seed in seeds:
        check_one_reading(tmp_path, seed, forms)


@pytest.mark.parametrize(
    ("cells", "later", "expected"),
    [
        (["1,234", "987", "2,500", "450"], ["1,234", "2,500"], [1234.0, 2500.0]),
        (["1.234.567", "2.345", "987"], ["1.234", "2.345"], [1234.0, 2345.0]),
        (["0,5", "1,234", "12"], ["1,234", "1.234,5"], [1.234, 1234.5]),
        (["1.5", "2.25", "3.0"], ["1,234", "1,234.5"], [1234.0, 1234.5]),
        (["1.250", "980", "7,5"], ["1.500", "980", "2,25"], [1500.0, 980.0, 2.25]),
        (["$1,234.50", "$3.00", "-$7.25"], ["$1,234", "5", "$-2"], [1234.0, 5.0, -2.0]),
        (["12 €", "3,5 €", "1.000 €"], ["1.500 €", "2"], [1500.0, 2.0]),
        (["5%", "7.5 %", "-1%"], ["100%", "0.5%"], [100.0, 0.5]),
    ],
)
def test_later_cells_are_read_as_in_training(tmp_path, cells, later, expected):
    for text in ({}, {"t": "xyxy"}):
        paths = [
            write(tmp_path / name, {"a": part, "b": range(len(part)), **text})
            for name, part in (("a.csv", cells), ("b.csv", later))
        ]
        encoder = TableEncoder().fit(read_frame(paths[0]))
        found = encoder.transform(read_frame(paths[1]))
        np.testing.assert_array_equal(found[:, 0], expected)


@pytest.mark.parametrize("text", [{}, {"t": ["x", "y", "x", "y"]}])
def test_true_and_false_are_labels_and_levels_in_every_file(tmp_path, text):
    cells = ["True", "False", "False", "True"]
    frame = read_frame(write(tmp_path / "a.csv", {**text, "b": range(4), "a": cells}))
    _, target = split_target(frame)
    assert target.column.levels == ("False", "True")
    np.testing.assert_array_equal(target.values, [1.0, 0.0, 0.0, 1.0])
    for flag in (frame["a"], pd.Series([True, False, False, True], name="a")):
        table = pd.DataFrame({"b": range(4), "a": flag.to_numpy()})
        encoder = TableEncoder().fit(table)
        names = list(encoder.get_feature_names_out())
        assert names == ["b", "a=False", "a=True"]
        np.testing.assert_array_equal(encoder.transform(table)[:, 2], [1.0, 0.0, 0.0, 1.0])


def test_a_column_of_percentages_takes_no_number_without_percent():
    frame = pd.DataFrame({"a": ["5%", "7%", "9%"], "b": [0.5, 1.5, 1.0]})
    encoder = TableEncoder().fit(frame)
    with pytest.warns(UserWarning, match="'a' has 1 cell that is not a number, such as '0.05'"):
        assert encoder.transform(frame.assign(a=["0.05", "7%", "9%"]))[0, 0] == 7.0
    with pytest.raises(ValueError, match="'a' must hold numbers as in training"):
        encoder.transform(frame.assign(a=[0.05, 0.07, 0.09]))


def test_dates_are_not_numbers_and_numbers_not_dates(tmp_path):
    cells = [str(np.datetime64("2020-01-01") + i) for i in range(30)]
    encoder = TableEncoder().fit(pd.DataFrame({"when": cells, "b": [0.5, 1.5, 2.5] * 10}))
    for when in ([2020, 2021, 5], ["2020", "now", "5"]):
        frame = read_frame(write(tmp_path / "a.csv", {"when": when, "b": "123"}))
        with pytest.raises(ValueError, match="'when' must hold dates as in training, has 3 cells"):
            encoder.transform(frame)


def test_decimals_of_the_target_alone_decide_for_the_inputs(tmp_path):
    """Whole numbers with points of thousands beside prices."""
    table = {"pieces": ["1.250", "980", "2.500"], "price": ["12,50", "7", "8,25"]}
    inputs, target = split_target(read_frame(write(tmp_path / "a.csv", table)))
    np.testing.assert_array_equal(target.values, [12.5, 7.0, 8.25])
    for frame in (inputs, inputs.iloc[[0, 1, 2]], inputs.reset_index(drop=True).copy()):
        values = TableEncoder().fit_transform(frame)
        np.testing.assert_array_equal(values[:, 0], [1250.0, 980.0, 2500.0])
