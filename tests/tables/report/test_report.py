"""The report: scores as scikit-learn computes them, pictures that show them, nothing unescaped."""

import base64
import functools
import html
import io
import re
import sys
import types
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy import stats
from sklearn import dummy, metrics
from sklearn.calibration import calibration_curve
from sklearn.inspection import permutation_importance

import gpflow_sparse as gs
from gpflow_sparse.estimators import Column, SparseGPClassifier, SparseGPRegressor
from gpflow_sparse.tables.estimators.scoring import score_rows
from gpflow_sparse.tables.report import pictures, require_report, write_report

HOSTILE = "<script>alert(\"x\")</script> & $\\frac{ 'q'"
VOID = {"meta", "img", "br"}
OUTLIERS = {"r7": 60.0, "r23": -70.0}
FAST = {"num_steps": 3, "num_inducing": 9}
COUNT = 80


@functools.cache
def fitted(kind):
    """An estimator and rows that it was not trained on: a number with gaps, a level, a date."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=2 * COUNT)
    level = rng.choice(["red", "green", "cost in $"], 2 * COUNT)
    X = pd.DataFrame(
        {
            "a": a,
            "level": level,
            "day": pd.date_range("2020-01-01", periods=2 * COUNT).astype(str),
            HOSTILE: rng.normal(size=2 * COUNT),
        },
        index=[f"r{i}" for i in range(-COUNT, COUNT)],
    )
    f = 6.0 * np.sin(a) + 3.0 * (level == "red")
    y = f + rng.normal(size=2 * COUNT)
    X.loc[["r-9", "r3", "r4"], "a"] = np.nan
    regressor = functools.partial(SparseGPRegressor, "svgp", random_state=0)
    classifier = functools.partial(SparseGPClassifier, "svgp", random_state=0)
    if kind == "regression":
        estimator = regressor(method_options=FAST)
        for row, value in OUTLIERS.items():
            y[X.index.get_loc(row)] += value
    elif kind == "counts":
        estimator, y = (
            regressor(likelihood="poisson", method_options=FAST),
            rng.poisson(np.exp(f / 3)),
        )
    elif kind == "two outputs":
        estimator, y = SparseGPRegressor("exact", random_state=0), np.stack([y, 10.0 - y], axis=1)
    elif kind == "two classes":
        estimator, y = classifier(method_options=FAST), np.where(y > 1.0, "x & large", "small")
    else:
        estimator, y = classifier(method_options=FAST), np.digitize(y, [-1.0, 3.0])
    estimator.fit(X[:COUNT], y[:COUNT])
    return estimator, X[COUNT:], y[COUNT:]


KINDS = ["regression", "counts", "two outputs", "two classes", "three classes"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The page of every kind, written once."""
    record = {
        "rows": "test rows, which were not trained on",
        "seconds": 1.23456,
        HOSTILE: [HOSTILE],
    }

    @functools.cache
    def page_of(kind):
        path = tmp_path_factory.mktemp("report") / "new" / "page.html"
        assert write_report(path, *fitted(kind), title=HOSTILE, record=record) == path
        return Page(path.read_text(encoding="utf-8"))

    return page_of


class Page(HTMLParser):
    """Text, sources and tags of a page, and the rows of its tables; tags must match."""

    def __init__(self, text):
        super().__init__()
        self.source, self.text, self.tags, self.sources, self.open = text, "", [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.sources += [value for name, value in attributes if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def table(self, heading=""):
        """Cells of the first table below a heading, row by row."""
        part = self.source.split(f"<h2>{heading}</h2>" if heading else "<body>")[1]
        rows = part.split("</table>")[0].split("<tr>")[1:]
        return [
            [html.unescape(cell) for cell in re.findall(r"<t[hd]>([^<]*)</t[hd]>", row)]
            for row in rows
        ]

    def score(self, name):
        (found,) = (float(row[1]) for row in self.table() if row[0] == name)
        return found


def close(found, expected):
    """Whether a number on a page, of four digits, is the expected one."""
    return found == pytest.approx(expected, rel=6e-4, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS[:3])
def test_scores_of_a_regression_are_those_of_scikit_learn(pages, kind):
    (estimator, X, y), page = fitted(kind), pages(kind)
    mean, std = estimator.predict(X, return_std=True)
    error = np.sqrt(metrics.mean_squared_error(y, mean))
    assert close(page.score("RMSE"), error)
    constant = dummy.DummyRegressor().fit(X, y).predict(X)
    beside = re.search(r"error is (\S+), beside (\S+) for the mean", page.text).groups()
    assert close(float(beside[0]), error)
    assert close(float(beside[1]), np.sqrt(metrics.mean_squared_error(y, constant)))
    if kind == "regression":
        assert close(page.score("NLPD"), -stats.norm.logpdf(y, mean, std).mean())
        assert close(page.score("CRPS"), gs.data.metrics.crps(y, mean, std**2))
    ends = estimator.predict_interval(X)
    inside = np.mean((ends[:, 0] <= y) & (y <= ends[:, 1]))
    if kind == "counts":  # the ends of intervals come from draws
        assert page.score("95 % coverage") == pytest.approx(inside, abs=0.05)
    else:
        assert close(page.score("95 % coverage"), inside)
    assert f"Measured on {COUNT} test rows, which were not trained on." in page.text


@pytest.mark.parametrize("kind", KINDS[3:])
def test_scores_of_classes_are_those_of_scikit_learn(pages, kind):
    (estimator, X, y), page = fitted(kind), pages(kind)
    P, constant = estimator.predict_proba(X), dummy.DummyClassifier().fit(X, y)
    error = 1.0 - metrics.accuracy_score(y, estimator.predict(X))
    assert close(page.score("error rate"), error)
    one_hot = np.asarray(y)[:, None] == estimator.classes_
    assert close(page.score("Brier score"), np.sum((P - one_hot) ** 2, axis=1).mean())
    assert page.score("NLPD") == pytest.approx(metrics.log_loss(y, P), rel=0.02)
    wrong = 1.0 - metrics.accuracy_score(y, constant.predict(X))
    percent = re.search(
        r"(\S+)% of the labels are wrong; .* be wrong in (\S+)%", page.text
    ).groups()
    np.testing.assert_allclose(np.array(percent, float), [100 * error, 100 * wrong], atol=0.0501)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_needs_no_other_file_and_runs_nothing(pages, kind):
    page = pages(kind)
    # accuracy and transforms, or curve and matrix; importance; the number, the level, the other
    expected = {"two outputs": 9, "regression": 7, "counts": 7}.get(kind, 6)
    assert expected - 2 <= len(page.sources) <= expected
    for source in page.sources:
        start, content = source.split(",", 1)
        assert start == "data:image/png;base64"
        with Image.open(io.BytesIO(base64.b64decode(content, validate=True))) as image:
            assert image.width >= 500
            image.load()
    assert not {"script", "link", "iframe", "object"} & set(page.tags)
    assert not re.search(r"url\(|https?:|@import| on\w+=", page.source)
    assert page.source.count("&lt;script&gt;") >= 6  # of titles, the record, and columns
    assert page.text.startswith(f"\n\n{HOSTILE}\n")


def test_a_page_begins_with_the_scores_the_method_and_why(pages):
    page = pages("regression")
    words = ("The root mean squared", "Method: svgp. svgp was asked for", "RMSE", "The run")
    words += ("Errors and calibration", "What each column contributes", "The rows predicted worst")
    words += ("What was done with the columns",)
    places = [page.text.index(word) for word in words]
    assert places == sorted(places)
    assert ["seconds", "1.235"] in page.table("The run")
    assert "hardly matter" not in page.text
    contributions = page.table("What each column contributes")
    assert contributions[0] == ["column", "increase"]
    assert {name for name, _ in contributions[1:]} == {"a", "level", "day", HOSTILE}
    assert float(contributions[1][1]) > 0.5
    assert "Chosen: transform none, kernel matern52" in page.text
    assert "of 5 columns" not in page.text
    assert "'level' is a category of 3 levels." in page.text


def test_the_most_surprising_rows_are_the_planted_outliers(pages):
    (estimator, X, y), page = fitted("regression"), pages("regression")
    header, first, second, *others = page.table("The rows predicted worst")
    assert [first[0], second[0]] == ["r23", "r7"]
    assert len(others) == 8
    place = X.index.get_loc("r23")
    one = X.iloc[[place]]
    (mean,), ((low, high),) = estimator.predict(one), estimator.predict_interval(one)
    found = dict(zip(header, first, strict=True))
    numbers = {"observed": y[place], "predicted": mean, "from": low, "to": high}
    assert {name: found[name] for name in numbers} == {k: f"{v:.4g}" for k, v in numbers.items()}
    assert (found["a"], found["level"]) == (f"{one['a'].iloc[0]:.4g}", one["level"].iloc[0])


def test_the_most_surprising_rows_of_classes_have_the_least_probability_of_their_label(pages):
    (estimator, X, y), page = fitted("two classes"), pages("two classes")
    header, first, *_ = page.table("The rows predicted worst")
    P = estimator.predict_proba(X)
    likelihood = P[np.arange(COUNT), np.searchsorted(estimator.classes_, y)]
    worst = likelihood.argmin()
    found = dict(zip(header, first, strict=True))
    assert found["row"] == X.index[worst]
    assert found["its probability"] == f"{likelihood[worst]:.4g}"
    assert (found["observed"], found["predicted"]) == (y[worst], estimator.predict(X)[worst])


def test_pictures_of_classes_show_scikit_learns_numbers():
    rng = np.random.default_rng(0)
    P, labels = rng.dirichlet(np.ones(3), 200), rng.integers(3, size=200)
    curve, matrix = pictures.draw_classes(labels, P, ["a", "b", "$ c"]).values()
    counts = [[int(text.get_text()) for text in matrix.axes[0].texts]]
    expected = metrics.confusion_matrix(labels, P.argmax(axis=1))
    np.testing.assert_array_equal(np.reshape(counts, (3, 3)), expected)
    found = curve.axes[0].get_lines()[1].get_xydata()
    right = labels == P.argmax(axis=1)
    observed = np.stack(calibration_curve(right, P.max(axis=1), n_bins=10)[::-1], axis=1)
    np.testing.assert_allclose(found, observed)
    two = pictures.draw_classes(labels > 0, P[:, :2] / P[:, :2].sum(1)[:, None], ["a", "b"])
    caption, figure = next(iter(two.items()))
    assert "Fraction of rows of class b" in caption
    observed = calibration_curve(labels > 0, P[:, 1] / P[:, :2].sum(1), n_bins=10)[::-1]
    np.testing.assert_allclose(figure.axes[0].get_lines()[1].get_xydata(), np.stack(observed, 1))


def test_pictures_of_a_regression_show_outputs_and_transforms():
    rng = np.random.default_rng(0)
    Y, point = rng.normal(size=(2, 300, 2))
    first, _, second, residuals = pictures.draw_accuracy(Y, point, ["y 0", "y 1"]).values()
    offsets = second.axes[0].collections[0].get_offsets()
    order = np.argsort(point[:, 1])
    np.testing.assert_allclose(sorted(map(tuple, offsets)), np.stack([point, Y], 2)[order, 1])
    left = residuals.axes[0].collections[0].get_offsets()
    np.testing.assert_allclose(np.sort(left[:, 1]), np.sort((Y - point)[:, 1]))
    assert first.axes[0].get_xlabel() == "predicted y 0"
    (figure,) = pictures.draw_transforms(rng.uniform(size=(100_000, 1))).values()
    band, outline = figure.axes[0].patches
    data = figure.axes[0].transData.inverted()
    low, high = data.transform(band.get_window_extent())[:, 1]
    heights = np.unique(outline.get_xy()[:, 1])[1:]
    assert np.mean((heights >= low) & (heights <= high)) >= 0.7
    sample = np.random.default_rng(1).binomial(100_000, 1 / 20, size=20_000) * 20 / 100_000
    np.testing.assert_allclose(np.mean((sample >= low) & (sample <= high)), 0.9, atol=0.01)


class Additive(SparseGPRegressor):
    """Predicts 2 a, plus 5 for red rows: fitted without a model."""

    def __init__(self):
        names = ("a", "color", "b", "id")
        kinds = ("number", "category", "number", "dropped")
        levels = ((), ("blue", "red"), (), ())
        columns = tuple(map(lambda n, k, v: Column(n, k, levels=v), names, kinds, levels))
        self.encoder_ = gs.estimators.TableEncoder.from_columns(columns)
        self.recipe_ = types.SimpleNamespace(exposure=None)

    def predict(self, X):
        return 2.0 * X["a"].to_numpy(float) + 5.0 * (X["color"] == "red").to_numpy(float)


def test_importance_is_that_of_scikit_learn_and_curves_are_mean_predictions():
    rng, estimator = np.random.default_rng(0), Additive()
    X = pd.DataFrame(rng.normal(size=(500, 2)), columns=["a", "b"])
    X["color"], X["id"] = rng.choice(["red", "blue"], 500), np.arange(500)
    X = X[["a", "color", "b", "id"]]
    y = estimator.predict(X)
    found = pictures.importance(estimator, X, y[:, None])
    assert list(found.index) == ["color", "a", "b"]
    repeated = permutation_importance(
        estimator, X, y, scoring="neg_root_mean_squared_error", n_repeats=5, random_state=0
    )
    np.testing.assert_allclose(found[["a", "color", "b"]], repeated.importances_mean[:3], rtol=0.1)
    figures, drawn = pictures.draw_columns(
        estimator, X, estimator.encoder_.transform(X), y[:, None]
    )
    assert list(drawn.index) == list(found.index)
    bars, color, a = (figure.axes[-1] for figure in figures.values())
    np.testing.assert_allclose([bar.get_width() for bar in bars.patches], found, rtol=0.2)
    heights = [bar.get_height() for bar in color.patches]
    np.testing.assert_allclose(heights[1] - heights[0], 5.0)
    x, curve = a.get_lines()[0].get_xydata().T
    np.testing.assert_allclose(np.diff(curve), 2.0 * np.diff(x))
    np.testing.assert_allclose(x[[0, -1]], np.quantile(X["a"], [0.05, 0.95]), atol=0.25)
    assert a.get_ylim() == color.get_ylim()


def test_the_first_columns_of_a_wide_table_are_compared_and_long_names_shortened():
    estimator, long = Additive(), "a name of more than twenty letters, "
    X = pd.DataFrame(np.eye(40, 70)).add_prefix(long)
    columns = tuple(Column(name, "number") for name in X)
    estimator.encoder_ = gs.estimators.TableEncoder.from_columns(columns)
    estimator.predict = lambda X: X[f"{long}3"].to_numpy()
    found = pictures.importance(estimator, X, X[[f"{long}3"]].to_numpy())
    assert (len(found), found.index[0]) == (64, f"{long}3")
    np.testing.assert_allclose(found.iloc[1:], 0.0)
    (bars, *_) = pictures.draw_columns(estimator, X, X.to_numpy(), X[[f"{long}3"]].to_numpy())[
        0
    ].values()
    assert [bar.get_y() + bar.get_height() / 2 for bar in bars.axes[0].patches] == list(range(12))
    assert {text.get_text() for text in bars.axes[0].get_yticklabels()} == {long[:20]}


@pytest.mark.parametrize(
    ("method", "layers", "channels"),
    [("svgp", 1, 1), pytest.param("solvegp", 2, 3, marks=pytest.mark.nightly)],
)
def test_an_image_model_has_its_patches_and_no_columns(tmp_path, rng, method, layers, channels):
    X = pd.DataFrame(rng.normal(size=(60, 36 * channels))).add_prefix("p")
    y = np.arange(60) % 3
    options = {"num_inducing": 12, "num_steps": 2, "num_layers": layers}
    options["image_shape"] = f"6,6,{channels}"
    estimator = SparseGPClassifier(f"conv-{method}", method_options=options, random_state=0)
    estimator.fit(X, y)
    page = Page(write_report(tmp_path / "page.html", estimator, X, y, title="x").read_text())
    assert len(page.sources) == 3
    assert "The first 12 inducing patches." in page.text
    assert "importance" not in page.text
    (figure,) = pictures.draw_patches(estimator.model_).values()
    layer = estimator.model_ if layers == 1 else estimator.model_.layers[0]
    points = layer.inducing_variable
    patch = getattr(points, "sets", (points,))[0].Z.numpy()[11].reshape(-1, channels).mean(axis=1)
    wall = np.ma.filled(figure.axes[0].get_images()[0].get_array(), np.nan)
    side = int(np.sqrt(len(patch)))
    corner = wall[side + 1 : -1, side + 1 : 2 * side + 1]
    np.testing.assert_allclose(corner, patch.reshape(side, side))


def test_a_report_that_cannot_be_written_is_refused_before_work(tmp_path, monkeypatch):
    path, known = tmp_path / "page.html", types.SimpleNamespace()
    path.write_text("<p>mine</p>")
    with pytest.raises(ValueError, match=r"page.html is not a report, and would be replaced"):
        write_report(path, known, None, None, title="x")
    with pytest.raises(ValueError, match=r"path must name a file, but .* is a folder"):
        require_report(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ValueError, match=r"^a report needs matplotlib: python -m pip install"):
        write_report(tmp_path / "other.html", known, None, None, title="x")
    assert path.read_text() == "<p>mine</p>"


def test_a_report_replaces_a_report_and_takes_scores_that_are_known(pages, tmp_path, monkeypatch):
    estimator, X, y = fitted("regression")
    path = tmp_path / "page.html"
    path.write_text(pages("regression").source)
    scored = score_rows(estimator, X, y)._replace(scores={"rmse": 12345.0, "coverage": 0.5})
    monkeypatch.setattr("gpflow_sparse.tables.report.report.score_rows", None)
    write_report(path, estimator, X, y, title="x", scored=scored)
    assert Page(path.read_text()).score("RMSE") == 12340.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": []}, "X and y must have as many rows, one or more, got 0 and 80"),
        ({"columns": ["a", "day"]}, "X lacks columns of the training data: level, "),
        ({"y": "huge"}, "y must hold classes of the estimator, small, x & large; got 'huge'"),
    ],
)
def test_rows_that_do_not_fit_the_estimator_are_refused(tmp_path, change, message):
    estimator, X, y = fitted("two classes")
    X = X.loc[change.get("X", X.index), change.get("columns", list(X))]
    y = np.append(y[:-1], change["y"]) if "y" in change else y
    with pytest.raises(ValueError, match=message):
        write_report(tmp_path / "page.html", estimator, X, y, title="x")


def test_a_page_on_known_noise_has_its_intervals_and_no_doubt_of_them(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.random((90, 1)), columns=["a"]).assign(s2=rng.choice([4.0, 0.01], 90))
    y = np.sin(6.0 * frame["a"]) + np.sqrt(frame["s2"]) * rng.normal(size=90)
    options = {"method_options": {"noise_column": "s2"}, "random_state": 0}
    model, test = SparseGPRegressor("exact", **options).fit(frame[:60], y[:60]), slice(60, 90)
    path = write_report(tmp_path / "page.html", model, frame[test], y[test], title="")
    page = Page(path.read_text(encoding="utf-8"))
    assert "Intervals are too narrow" not in page.text
    header, *worst = page.table("The rows predicted worst")
    found = pd.DataFrame(worst, columns=header).astype(float).set_index("row")
    ends = model.predict_interval(frame.loc[found.index])
    np.testing.assert_allclose(found[["from", "to"]], ends, rtol=1e-3)
