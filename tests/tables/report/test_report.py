"""The report: one page that opens anywhere, pictures of what they claim, nothing unescaped."""

import base64
import copy
import io
import json
import re
import sys
from html.parser import HTMLParser

import gpflow
import numpy as np
import pandas as pd
import pytest
from PIL import Image

import gpflow_sparse as gs
from gpflow_sparse.inference.calibration import Calibration
from gpflow_sparse.tables.cli.stored import StoredModel, predict_table
from gpflow_sparse.tables.fitting.evaluation import evaluate
from gpflow_sparse.tables.reading.columns import Column
from gpflow_sparse.tables.reading.targets import TableFormat
from gpflow_sparse.tables.report import report, report_pictures
from gpflow_sparse.tables.report.effects import Effect, Factor, partial_dependence, pit_of
from gpflow_sparse.tables.report.report import Scored, write_report

HOSTILE = "<script>alert(\"x\")</script> & $\\frac{ 'q'"
VOID = {"meta", "img", "br"}
OUTLIERS = {17: 60.0, 123: -70.0}


def stored(model, scaler, num_classes, table, **fields):
    names = tuple(table.encoder.get_feature_names_out())
    values = {
        "title": "SVGP(9)",
        "feature_names": names,
        "target_name": table.target.name,
        "config": None,
        "record": None,
    }
    return StoredModel(
        model=model, standardizer=scaler, num_classes=num_classes, table=table, **values | fields
    )


def scored(known, X, Y):
    found = evaluate(known.predictor, known.standardizer, X, Y, known.num_classes)
    return Scored(X, Y, *found, data="folder/new.csv")


def regression(N=200):
    """A model of 10 + 6 sin(a), in units of 5, and rows with two outliers."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2)) * [1.0, 30.0]
    Y = 10.0 + 6.0 * np.sin(X[:, :1]) + 1.5 * rng.normal(size=(N, 1))
    for row, value in OUTLIERS.items():
        Y[row] += value
    scaler = gs.Standardizer([0.0, 0.0], [1.0, 30.0], [10.0], [5.0])
    Z, U = scaler.transform(X, Y)
    kernel = gpflow.kernels.Matern52(lengthscales=[1.5, 60.0])
    model = gs.models.SOLVEGPR(
        (Z, np.clip(U, -2.0, 2.0)),
        kernel,
        gs.inducing_variables.OrthogonalInducingVariables(Z[:20], Z[20:30]),
        noise_variance=0.1,
    ).to_solvegp()
    columns = (Column("a", "number"), Column("b", "number", note="'b' is read."))
    known = stored(model, scaler, None, TableFormat(columns, Column("torque", "number")))
    return known, scored(known, X, Y)


def classification(N=120):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    Y = np.digitize(X[:, :1], [-0.5, 0.5]).astype(float)
    likelihood = gpflow.likelihoods.MultiClass(3)
    model = gpflow.models.SVGP(gpflow.kernels.Matern52(), likelihood, X[:9], num_latent_gps=3)
    model.q_mu.assign(3.0 * (Y[:9] == [0.0, 1.0, 2.0]))
    columns = (Column("a", "number"), Column("b", "number"))
    target = Column("size", "category", levels=("small", "medium", "x & large"))
    known = stored(model, gs.Standardizer.fit(X), 3, TableFormat(columns, target))
    return known, scored(known, X, Y)


class Page(HTMLParser):
    """Text, sources, cells and open tags of a page; fails on tags that do not match."""

    def __init__(self, text):
        super().__init__()
        self.text, self.tags, self.sources, self.open, self.cells = "", [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.sources += [value for name, value in attributes if name in ("src", "href")]
        if tag == "td":
            self.cells.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.open[-1:] == ["td"]:
            self.cells[-1] += data


def read(path):
    return Page(path.read_text(encoding="utf-8"))


def table_below(path, heading):
    """Rows of the first table below a heading, as texts by column."""
    section = path.read_text().split(f"<h2>{heading}</h2>")[1].split("</table>")[0]
    header = re.findall(r"<th[^>]*>([^<]*)</th>", section)
    rows = [re.findall(r"<td>([^<]*)</td>", row) for row in section.split("<tr")]
    return [dict(zip(header, row, strict=True)) for row in rows if row]


@pytest.mark.parametrize(("case", "count"), [(regression, 6), (classification, 5)])
def test_the_page_needs_no_other_file(tmp_path, case, count):
    folder, (known, rows) = tmp_path / "new" / "report", case()
    path = write_report(folder, known, rows)
    assert path == folder / "index.html"
    assert {file.name for file in folder.iterdir()} == {"index.html", "diagnostics.json"}
    page, text = read(path), path.read_text()
    assert len(page.sources) == count
    for source in page.sources:
        kind, content = source.split(",", 1)
        assert kind == "data:image/png;base64"
        with Image.open(io.BytesIO(base64.b64decode(content, validate=True))) as image:
            assert image.format == "PNG"
            assert image.width >= 500
            image.load()
    # nothing from outside, nothing that runs
    assert not {"script", "link", "iframe", "object"} & set(page.tags)
    assert not re.search(r"url\(|https?:|@import| on\w+=", text)
    found = json.loads((folder / "diagnostics.json").read_text())
    assert found["num_rows"] == len(rows.Y)
    assert found["advice"] == [a for a in found["advice"] if a in page.text]


def test_the_page_says_what_a_colleague_asks_in_this_order(tmp_path):
    known, rows = regression()
    page = read(write_report(tmp_path, known, rows))
    headings = ("The data", "Methods", "Accuracy", "Columns that matter", "surprising", "Time")
    places = [page.text.index(heading) for heading in headings]
    assert places == sorted(places)
    assert "2 of 2 columns are used, as 2 inputs." in page.text
    assert "'b' is read." in page.text
    assert "200 rows of new.csv." in page.text
    for name in ("rmse", "nlpd", "crps", "coverage"):
        assert f"{rows.scores[name]:.4g}" in page.cells
    assert "From and to are the ends of the central 95 % interval." in page.text
    constant = rows.Y.std()
    assert f"error is {rows.scores['rmse']:.4g}, beside {constant:.4g} for the mean" in page.text
    assert "All entries refer to the rows scored" in page.text


def test_the_surprising_rows_are_the_planted_outliers(tmp_path):
    known, rows = regression()
    first, second, *others = table_below(
        write_report(tmp_path, known, rows), "Most surprising rows"
    )
    assert [int(row["row"]) for row in (first, second)] == [124, 18]  # counted from 1
    assert len(others) == 8
    predicted = predict_table(known, rows.X, 4096)
    for row, place in ((first, 123), (second, 17)):
        assert row["observed"] == f"{rows.Y[place, 0]:.4g}"
        for name, key in (("predicted", "mean"), ("from", "lower_95"), ("to", "upper_95")):
            assert row[name] == f"{predicted[key][place]:.4g}"
        assert row["a"] == f"{rows.X[place, 0]:.4g}"
    assert first["residual"] == "-5.998"
    assert second["residual"] == "5.998"
    assert all(abs(float(row["residual"])) < 4.0 for row in others)


def test_classes_have_their_names(tmp_path):
    known, rows = classification()
    path = write_report(tmp_path, known, rows)
    assert "interval" not in read(path).text
    assert "the header not counted.\nThese are the rows with the least" in read(path).text
    first, *_ = table_below(path, "Most surprising rows")
    P, labels = rows.predictions["probabilities"], rows.Y[:, 0].astype(int)
    worst = P[np.arange(len(P)), labels].argmin()
    names = ("small", "medium", "x &amp; large")
    assert int(first["row"]) == worst + 1
    assert first["observed"] == names[labels[worst]]
    assert first["predicted"] == names[P[worst].argmax()]
    assert first["its probability"] == f"{P[worst, labels[worst]]:.4g}"
    most_frequent = 1.0 - np.bincount(labels).max() / len(labels)
    error = rows.scores["error_rate"]
    assert f"{error:.1%} of the labels are wrong; always the most frequent" in read(path).text
    assert f"would be wrong in {most_frequent:.1%}" in read(path).text
    axis = report_pictures.confusion(rows.Y, P, known.labels).axes[0]
    assert [text.get_text() for text in axis.get_xticklabels()] == list(known.labels)
    counts = np.asarray(axis.get_images()[0].get_array())
    np.testing.assert_allclose(np.trace(counts) / 120, 1 - error)


RECORD = {
    "dataset": {"source": "/far/my.csv", "num_train": 180, "num_test": 20},
    "choice": {
        "reason": "softki is best.",
        "seconds": 61.25,
        "attempts": [
            {"method": "constant", "nlpd": 1.5, "error": 1.0, "num_steps": 0, "seconds": 0.01},
            {"method": "softki", "nlpd": 0.25, "error": 0.5, "num_steps": 40, "seconds": 3.0},
        ],
    },
    "results": [
        {"title": "SoftKI(9)", "rmse": 2.5, "seconds": 12.5, "elbo": 3.0},
        {"title": "SVGP(9)", "error": "it failed"},
    ],
    "seconds": 80.0,
    "versions": {"gpflow": "2.11.2"},
    "seed": 3,
}


def test_the_record_of_a_run_is_on_its_page(tmp_path):
    known, rows = regression()
    known = stored(known.model, known.standardizer, None, known.table, record=RECORD)
    path = write_report(tmp_path, known, rows)
    text = read(path).text
    assert "my.csv: 180 rows for training, 20 for testing." in text
    assert "softki is best." in text
    tried = table_below(path, "Methods that were tried")
    assert [(row["method"], row["held-out NLPD"]) for row in tried] == [
        ("constant", "1.5"),
        ("softki", "0.25"),
    ]
    assert re.search(r"SoftKI\(9\)\s*2.5\s*12.5\s*–\s*SVGP\(9\)\s*–\s*–\s*it failed", text)
    assert "choice of the method, seconds61.25" in text
    assert "training of SoftKI(9), seconds12.5" in text
    assert "whole run, seconds80" in text
    assert "gpflow 2.11.2; seed 3." in text


@pytest.mark.parametrize(
    ("num_rows", "words"),
    [
        (0, "Trained on all training rows. Calibrated on the training rows, each left out"),
        (9, "Trained on all training rows but 9. Calibrated on 9 held-out rows"),
    ],
)
def test_the_page_says_how_many_rows_calibrated_the_probabilities(num_rows, words):
    known, _ = classification()
    known.model.calibration = Calibration(temperature=1.25, num_rows=num_rows)
    known = stored(known.model, known.standardizer, 3, known.table, record=RECORD)
    assert words in report._tried(known)


def leaves(node):
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        if isinstance(value, dict | list):
            yield from leaves(value)
        else:
            yield node, key


@pytest.mark.nightly
def test_markup_in_any_field_of_a_record_is_not_on_its_page(tmp_path):
    """Where it is not refused as being of a wrong type, it is shown."""
    known, rows = regression()
    record = copy.deepcopy(RECORD)
    for holder, key in leaves(record):
        if not isinstance(holder[key], float):  # which are formatted as numbers
            holder[key] = HOSTILE
    for holder in (record["versions"], record["results"][0], record["choice"]["attempts"][0]):
        holder[HOSTILE] = HOSTILE
    known = stored(known.model, known.standardizer, None, known.table, record=record)
    page = write_report(tmp_path, known, rows).read_text()
    assert "<script" not in page
    assert page.count("seed &lt;script&gt;alert") == 1


def test_numbers_that_are_missing_and_long_lists_stay_readable():
    text = Page(
        report._cell({"long": list(range(40)), "empty": [], "none": None, "x": 1.23456})
    ).text
    assert "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, and 28 more" in text
    assert "emptynone" in text
    assert "none–" in text
    assert "x1.235" in text


def lines(axis):
    return [line.get_xydata() for line in axis.get_lines()]


def test_the_pictures_of_a_regression_show_the_metrics():
    _, rows = regression()
    Y, mean, variance = rows.Y, rows.predictions["point"], rows.predictions["variance"]
    pit = pit_of(Y, {"point": mean, "variance": variance})
    (outline,) = report_pictures.pit_histogram(pit).axes[0].patches[1:]
    density, _ = np.histogram(pit, bins=20, range=(0, 1), density=True)
    np.testing.assert_allclose(np.unique(outline.get_xy()[:, 1])[-1], density.max())
    curve = lines(report_pictures.coverage(2.0 * np.abs(pit - 0.5)).axes[0])[1]
    found = [gs.data.metrics.coverage(Y, mean, variance, level) for level in curve[:, 0]]
    np.testing.assert_allclose(curve[:, 1], found)


def test_a_likelihood_that_is_not_gaussian_has_calibration_only_from_its_transforms():
    known, rows = regression()
    plain = rows._replace(predictions={k: rows.predictions[k] for k in ("point", "variance")})
    drawn = plain._replace(predictions=plain.predictions | {"pit": np.full_like(rows.Y, 0.5)})
    counts = [
        len(report._calibration(known, case, {"calibration": calibration}, "y"))
        for case, calibration in ((plain, None), (drawn, None), (plain, {}))
    ]
    assert counts == [1, 3, 3]


def test_the_band_of_the_pit_picture_holds_nine_bins_in_ten_of_a_uniform_sample():
    values = np.random.default_rng(0).uniform(size=100_000)
    band = report_pictures.pit_histogram(values).axes[0].patches[0]
    low, high = band.get_y(), band.get_y() + band.get_height()
    samples = np.random.default_rng(1).binomial(values.size, 1 / 20, size=20_000) * 20 / values.size
    inside = np.mean((samples >= low) & (samples <= high))
    np.testing.assert_allclose(inside, 0.9, atol=0.01)
    assert low < 1.0 < high


def test_the_reliability_picture_shows_the_metrics():
    _, rows = classification()
    P = rows.predictions["probabilities"]
    axis = report_pictures.reliability(rows.Y, P).axes[0]
    bins = gs.data.metrics.reliability(rows.Y, P)
    filled = bins.num_points > 0
    np.testing.assert_allclose(
        lines(axis)[1], np.stack([bins.confidence, bins.accuracy], 1)[filled]
    )
    assert [int(text.get_text()) for text in axis.texts] == bins.num_points[filled].tolist()


def test_the_effect_of_a_column_is_drawn_above_mean_residuals_of_its_rows():
    known, rows = regression()
    factors = [Factor("a", "number", (0,)), Factor("b", "number", (1,))]
    effects = partial_dependence(lambda X: predict_table(known, X, 4096), rows.X, factors, 9)
    assert [effect.factor.name for effect in effects] == ["a", "b"]
    curve = np.asarray(effects[0].predicted["mean"])
    truth = 10.0 + 6.0 * np.sin(effects[0].places)
    inner = np.abs(effects[0].places) < 1.5
    np.testing.assert_allclose(curve[inner], truth[inner], atol=1.0)
    upper = rows.X[:, :1] >= np.quantile(rows.X[:, 0], 0.5, method="lower")
    z = np.where(upper, 1.0, -1.0)
    figure = report_pictures.effect_of_column(effects[0], rows.X, z, "torque")
    above, below = figure.axes
    np.testing.assert_allclose(lines(above)[0][:, 1], curve)
    means = lines(below)[-1]
    np.testing.assert_allclose(means[:, 1], [-1.0] * 4 + [1.0] * 4)
    assert above.get_ylabel() == "predicted torque"


def test_levels_of_a_category_have_names_and_their_own_means():
    factor = Factor("color", "category", (0, 1), ("red $", "blue"))
    X = np.eye(2)[[0, 1, 1, 1]]
    z = np.array([[1.0], [0.0], [2.0], [4.0]])
    frame = predicted_frame(mean=[1.0, 2.0])
    figure = report_pictures.effect_of_column(Effect(factor, np.arange(2.0), frame, 1.0), X, z, "y")
    below = figure.axes[1]
    np.testing.assert_allclose(lines(below)[-1], [[0.0, 1.0], [1.0, 2.0]])
    assert [text.get_text() for text in below.get_xticklabels()] == ["red $", "blue"]


def predicted_frame(mean):
    mean = np.array(mean)
    return pd.DataFrame({"mean": mean, "lower_95": mean - 1.0, "upper_95": mean + 1.0})


def test_without_matplotlib_the_error_says_what_to_install(tmp_path, monkeypatch):
    known, rows = regression()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match=r"drawing needs matplotlib: .*install matplotlib"):
        write_report(tmp_path / "report", known, rows)
    assert not (tmp_path / "report").exists()
