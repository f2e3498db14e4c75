"""Known variances of the noise of rows: fits, predictions and files, against dense algebra."""

import gpflow
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import gpflow_sparse as gs
from gpflow_sparse.estimators import SparseGPClassifier, SparseGPRegressor
from gpflow_sparse.tables.estimators.scoring import score_rows

COLUMN = {"noise_column": "s2"}


def measured(num_rows=40, seed=0):
    """Rows of a smooth function whose noise has the variances of the column s2."""
    rng = np.random.default_rng(seed)
    a, b, s2 = rng.uniform(size=(3, num_rows))
    s2 = np.exp(6.0 * s2 - 6.0)
    y = 3.0 + 2.0 * np.sin(5.0 * a) + b + np.sqrt(s2) * rng.normal(size=num_rows)
    return pd.DataFrame({"a": a, "b": b, "s2": s2}), y


def dense(model, frame, y, known, new):
    """Mean and variance of f at new rows, in original units, by solves with ``K + noise``."""
    scaler, kernel = model.standardizer, model.kernel
    scale, center = float(scaler.y_scale[0]), float(scaler.y_mean[0])
    X, Z = map(scaler.transform_inputs, (frame.to_numpy(), new.to_numpy()))
    noise = float(model.likelihood.variance.numpy()) + known / scale**2
    k, K = kernel(X, Z).numpy(), kernel(X).numpy() + np.diag(noise)
    var = kernel(Z, full_cov=False) - np.sum(k * np.linalg.solve(K, k), axis=0)
    mean = k.T @ np.linalg.solve(K, (y - center) / scale)
    beyond = float(model.likelihood.variance.numpy())
    return center + scale * mean, scale**2 * var, scale**2 * beyond


@pytest.mark.parametrize("method", ["exact", "gpnn"])
def test_predictions_are_dense_algebra(method, tmp_path):
    frame, y = measured()
    new, _ = measured(7, seed=1)
    found = SparseGPRegressor(method, method_options=COLUMN, random_state=0).fit(frame, y)
    of_f, without = frame[["a", "b"]], new[["a", "b"]]
    mean, var, beyond = dense(found.model_, of_f, y, frame["s2"].to_numpy(), without)
    gs.save(found, tmp_path / "model")
    for model in (found, gs.load(tmp_path / "model")):
        np.testing.assert_allclose(model.predict(new), mean, rtol=1e-8)
        deviation = model.predict(new, return_std=True, noise=False)[1]
        np.testing.assert_allclose(deviation**2, var, rtol=1e-8, atol=1e-8)
        for rows, known in ((new, new["s2"].to_numpy()), (without, 0.0)):
            deviation = model.predict(rows, return_std=True)[1]
            np.testing.assert_allclose(deviation**2, var + beyond + known, rtol=1e-8)
            ends = mean + 1.959963984540054 * np.outer([-1.0, 1.0], deviation)
            np.testing.assert_allclose(model.predict_interval(rows).T, ends, rtol=1e-8)
    given = SparseGPRegressor(method, random_state=0).fit(of_f, y, noise_variance=frame["s2"])
    np.testing.assert_allclose(given.predict(without), found.predict(without), rtol=1e-12)


def test_variances_are_read_with_the_decimal_mark_of_the_table():
    frame, y = measured()
    frame = frame.round(3)
    texts = frame.map(lambda value: f"{value:.3f}".replace(".", ","))
    options = {"method_options": COLUMN, "random_state": 0}
    model, of_texts = (SparseGPRegressor("exact", **options).fit(X, y) for X in (frame, texts))
    alone = pd.DataFrame({"a": [1.25], "b": [2.125], "s2": [1.5]})  # no cell shows its mark
    for rows in (frame, frame[:1], alone):
        cells = rows.map(lambda value: f"{value:.3f}".replace(".", ","))
        expected, found = model.predict(rows, True), of_texts.predict(cells, True)
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("method", ["exact", "mixture"])
def test_drawn_observations_have_the_known_noise(method):
    frame, y = measured()
    found = SparseGPRegressor(method, method_options=COLUMN, random_state=0).fit(frame, y)
    new = frame[:4].assign(s2=[4.0, 0.01, 1.0, 0.0])
    drawn = found.sample_y(new, 4000, random_state=0)
    deviation = found.predict(new, return_std=True)[1]
    np.testing.assert_allclose(drawn.std(axis=-1), deviation, rtol=0.05)


def test_a_mixture_has_components_of_outputs_that_are_not_transformed():
    frame, y = measured()
    model = SparseGPRegressor(method_options=COLUMN, random_state=0).fit(frame, y)
    new, observed = measured(200, seed=1)
    assert model.method_ == "mixture"
    assert all(part.transform is None for part in model.model_.components)
    scored = score_rows(model, new, observed)
    mean, deviation = model.predict(new, return_std=True)
    nlpd = -stats.norm.logpdf(observed, mean, deviation).mean()
    np.testing.assert_allclose(scored.scores["nlpd"], nlpd, rtol=1e-12)
    assert 0.9 < scored.scores["coverage"] < 0.99
    beyond = model.predict(new[["a", "b"]], return_std=True)[1] ** 2
    np.testing.assert_allclose(deviation**2 - beyond, new["s2"], rtol=1e-8)
    plain = SparseGPRegressor(random_state=0).fit(frame[["a", "b"]], y)
    assert nlpd < score_rows(plain, new[["a", "b"]], observed).scores["nlpd"] - 0.3


def test_long_tables_have_nearest_neighbors_at_once():
    frame, y = measured(1100)
    model = SparseGPRegressor(random_state=0).fit(frame[["a", "b"]], y, noise_variance=frame["s2"])
    assert (model.method_, model.attempts_) == ("gpnn", ())
    new, _ = measured(300, seed=1)
    f = 3.0 + 2.0 * np.sin(5.0 * new["a"]) + new["b"]
    mean, deviation = model.predict(new[["a", "b"]], return_std=True, noise=False)
    assert np.sqrt(np.mean((mean - f) ** 2)) < 0.03
    assert np.mean(np.abs(mean - f) < 1.96 * deviation) > 0.85


def test_values_without_noise_are_interpolated():
    frame, _ = measured()
    y = np.sin(5.0 * frame["a"]) + frame["b"]
    X = frame[["a", "b"]]
    model = SparseGPRegressor("exact", random_state=0).fit(X, y, noise_variance=1e-6)
    np.testing.assert_allclose(model.predict(X), y, atol=1e-3)


def test_copies_of_rows_are_left_out_and_other_measurements_are_kept():
    frame, y = measured()
    twice = pd.concat([frame, frame[:2], frame[:1].assign(s2=0.5)]), np.r_[y, y[:2], y[0]]
    with pytest.warns(UserWarning, match="2 rows left out"):
        model = SparseGPRegressor("exact", method_options=COLUMN, random_state=0).fit(*twice)
    assert len(model.model_.data[0]) == 41


def test_what_has_no_known_noise_is_refused():
    frame, y = measured()

    def fit(method="exact", X=frame, kind=SparseGPRegressor, y=y, likelihood=None, **given):
        options = {"transform": "log"} if "noise_variance" in given else COLUMN
        kind(method, likelihood=likelihood, method_options=options).fit(X, y, **given)

    with pytest.raises(ValueError, match=r"None for method softki, .* one of auto, gpnn, mixture,"):
        fit("softki")
    with pytest.raises(ValueError, match="noise_variance is for Gaussian noise"):
        fit("auto", likelihood="student_t")
    with pytest.raises(ValueError, match="noise_column must be a column of X"):
        fit(X=frame[["a"]])
    with pytest.raises(ValueError, match="one output and rows without sample_weight"):
        fit(sample_weight=np.ones(40))
    with pytest.raises(ValueError, match="one output and rows without sample_weight"):
        fit(y=np.column_stack([y, y]))
    with pytest.raises(ValueError, match="noise_column 's2' must be a finite number of at least 0"):
        fit(X=frame.assign(s2=-1.0))
    with pytest.raises(ValueError, match=r"of 40 rows, got shape \(3,\) with 0 others"):
        fit(noise_variance=np.ones(3))
    with pytest.raises(ValueError, match="noise_column is for regression"):
        fit("gpnn", kind=SparseGPClassifier, y=y > y.mean())
    with pytest.raises(ValueError, match="transform must be none where noise variances are known"):
        fit(noise_variance=0.1)
    with pytest.raises(ValueError, match="their known_variance is not known here"):
        SparseGPRegressor("exact", method_options=COLUMN).fit(frame, y).partial_fit(frame, y)
    with pytest.raises(ValueError, match="noise_column is for regression"):
        gs.recipes.exact(frame.to_numpy(), y[:, None], noise_column="s2")
    X, Y = frame.to_numpy(), y[:, None]
    given = {"known_variance": X[:, 2], "row_weights": np.ones(40)}
    with pytest.raises(ValueError, match="known_variance must be None for rows of weights"):
        gs.models.GPMixture((X, Y), [gpflow.kernels.Matern32()], **given)
