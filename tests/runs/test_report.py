"""The report: a page that opens anywhere, pictures of what they claim, nothing unescaped."""

import json
import re
import sys
from html.parser import HTMLParser

import gpflow
import numpy as np
import pytest

import gpflow_sparse as gs
from gpflow_sparse.runs import report
from gpflow_sparse.runs.report import write_report

HOSTILE = "<script>alert(\"x\")</script> & $\\frac{ 'q'"
VOID = {"meta", "img", "br"}


def regression(N=200):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    Y = np.sin(X[:, :1]) + 0.3 * rng.normal(size=(N, 1))
    model = gpflow.models.SVGP(gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.1), X[:9])
    model.q_mu.assign(rng.normal(size=(9, 1)))
    mean, variance = (m.numpy() for m in model.predict_y(X))
    return {
        "title": "SVGP(9)",
        "diagnostics": gs.diagnostics(model, (X, Y)),
        "Y": Y,
        "predictions": {"mean": mean, "variance": variance},
        "scores": {"rmse": 0.3125, "nlpd": 1.25},
        "num_classes": None,
        "target_name": "torque",
    }


def classification(N=120, C=3):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    Y = np.digitize(X[:, :1], [-0.5, 0.5]).astype(float)
    likelihood = gpflow.likelihoods.MultiClass(C)
    model = gpflow.models.SVGP(gpflow.kernels.Matern52(), likelihood, X[:9], num_latent_gps=C)
    probabilities = model.predict_y(X)[0].numpy()
    return {
        "title": "SVGP(9)",
        "diagnostics": gs.diagnostics(model, (X, Y)),
        "Y": Y,
        "predictions": {"probabilities": probabilities / probabilities.sum(1, keepdims=True)},
        "scores": {"error_rate": 0.5},
        "num_classes": C,
        "target_name": "class",
    }


class Page(HTMLParser):
    """Text, sources and open tags of a page; fails on tags that do not match."""

    def __init__(self, text):
        super().__init__()
        self.text, self.tags, self.sources, self.open = "", [], [], []
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


def read(path):
    return Page(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("case", "names"),
    [
        (regression, {"pit.png", "coverage.png", "residuals.png"}),
        (classification, {"reliability.png", "confusion.png"}),
    ],
)
def test_the_folder_holds_the_page_its_pictures_and_the_numbers(tmp_path, case, names):
    folder, options = tmp_path / "new" / "report", case()
    path = write_report(folder, **options)
    assert path == folder / "index.html"
    assert {file.name for file in folder.iterdir()} == names | {"index.html", "diagnostics.json"}
    for name in names:
        assert (folder / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert json.loads((folder / "diagnostics.json").read_text()) == options["diagnostics"]
    page = read(path)
    # nothing from outside, nothing that runs
    assert set(page.sources) == names | {"diagnostics.json"}
    assert not {"script", "link", "iframe"} & set(page.tags)
    assert "url(" not in path.read_text()


def test_the_page_has_advice_before_scores_before_pictures_before_numbers(tmp_path):
    options = regression()
    text = read(write_report(tmp_path, **options)).text
    places = [text.index(w) for w in ("Advice", "Scores", "Pictures", "Diagnostics")]
    assert places == sorted(places)
    assert options["diagnostics"]["advice"]
    for sentence in options["diagnostics"]["advice"]:
        assert places[0] < text.index(sentence) < places[1]
    assert "0.3125" in text
    assert "Of the 200 rows scored." in text
    assert "1.25" in text
    assert f"{options['diagnostics']['bound']['elbo']:.4g}" in text
    options["diagnostics"]["advice"] = []
    assert "No problems were found." in read(write_report(tmp_path, **options)).text


def test_hostile_strings_are_shown_not_run(tmp_path):
    options = regression()
    options["diagnostics"]["notes"] = {HOSTILE: HOSTILE}
    options["diagnostics"]["advice"] = [HOSTILE]
    scores = {HOSTILE: 1.0}
    options |= {"title": HOSTILE, "target_name": HOSTILE, "scores": scores}
    path = write_report(tmp_path, **options)
    assert "<script" not in path.read_text()
    page = read(path)
    assert "script" not in page.tags
    assert page.text.count(HOSTILE) == 7  # title, heading twice, score, advice, note twice


def test_numbers_that_are_missing_and_long_lists_stay_readable(tmp_path):
    options = regression()
    options["diagnostics"]["long"] = list(range(40))
    options["diagnostics"]["empty"] = []
    text = read(write_report(tmp_path, **options)).text
    assert "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, and 28 more" in text
    assert re.search(r"empty\s*none", text)
    assert re.search(r"error rate\s*–", text)


def test_a_likelihood_that_is_not_gaussian_has_no_pictures_of_gaussian_intervals(tmp_path):
    options = regression()
    options["diagnostics"]["calibration"] = None
    path = write_report(tmp_path, **options)
    assert read(path).sources == ["residuals.png", "diagnostics.json"]


def lines(axis):
    return [line.get_xydata() for line in axis.get_lines()]


def test_the_pictures_of_a_regression_show_the_metrics():
    options = regression()
    Y, mean, variance = options["Y"], *options["predictions"].values()
    pictures = report._regression(Y, mean, variance, "y")
    values = gs.data.metrics.pit(Y, mean, variance)
    (outline,) = pictures["pit.png"].axes[0].patches[1:]
    density, _ = np.histogram(values, bins=20, range=(0, 1), density=True)
    np.testing.assert_allclose(np.unique(outline.get_xy()[:, 1])[-1], density.max())
    curve = lines(pictures["coverage.png"].axes[0])[1]
    found = [gs.data.metrics.coverage(Y, mean, variance, level) for level in curve[:, 0]]
    np.testing.assert_allclose(curve[:, 1], found)
    z, low, high = lines(pictures["residuals.png"].axes[0])
    expected = np.concatenate([mean, (Y - mean) / np.sqrt(variance)], axis=1)
    order = np.argsort(z[:, 0]), np.argsort(expected[:, 0])
    np.testing.assert_allclose(z[order[0]], expected[order[1]])
    assert (set(low[:, 1]), set(high[:, 1])) == ({-2.0}, {2.0})


def test_the_band_of_the_pit_picture_holds_nine_bins_in_ten_of_a_uniform_sample():
    values = np.random.default_rng(0).uniform(size=100_000)
    figure = report._panel()
    report._draw_pit(figure.axes[0], values)
    band = figure.axes[0].patches[0]
    low, high = band.get_y(), band.get_y() + band.get_height()
    samples = np.random.default_rng(1).binomial(values.size, 1 / 20, size=20_000) * 20 / values.size
    inside = np.mean((samples >= low) & (samples <= high))
    np.testing.assert_allclose(inside, 0.9, atol=0.01)
    assert low < 1.0 < high


def test_the_pictures_of_a_classification_show_the_metrics():
    options = classification()
    probabilities = options["predictions"]["probabilities"]
    pictures = report._classification(options["Y"], probabilities)
    bins = gs.data.metrics.reliability(options["Y"], probabilities)
    filled = bins.num_points > 0
    curve = lines(pictures["reliability.png"].axes[0])[1]
    np.testing.assert_allclose(curve, np.stack([bins.confidence, bins.accuracy], 1)[filled])
    counts = np.asarray(pictures["confusion.png"].axes[0].get_images()[0].get_array())
    assert counts.sum() == 120
    beside = [int(text.get_text()) for text in pictures["reliability.png"].axes[0].texts]
    assert beside == bins.num_points[filled].tolist()
    correct = 1 - gs.data.metrics.error_rate(options["Y"], probabilities)
    np.testing.assert_allclose(np.trace(counts) / 120, correct)


def test_without_matplotlib_the_error_says_what_to_install(tmp_path, monkeypatch):
    options = regression()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match=r"drawing needs matplotlib: .*gpflow_sparse\[plot\]"):
        write_report(tmp_path / "report", **options)
    assert not (tmp_path / "report").exists()


def test_predictions_of_other_rows_are_refused(tmp_path):
    options = regression()
    options["Y"] = options["Y"][:-1]
    with pytest.raises(ValueError, match="mean must have the shape of Y"):
        write_report(tmp_path, **options)
