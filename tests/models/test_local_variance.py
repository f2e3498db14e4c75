"""GPnn with variances that depend on the input, against naive loops and made data."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_sparse as gs
from gpflow_sparse.estimators import SparseGPRegressor
from gpflow_sparse.models import NearestNeighborGP
from gpflow_sparse.models.nearest_neighbor import local_variance
from gpflow_sparse.tables.fitting.calibration import describe_calibration, summary
from tests.models.test_nearest_neighbor import (
    NEW,
    NOISE,
    SCALES,
    VARIANCE,
    build,
    k,
    repeated_rows,
    rows,
)
from tests.oracles import gpnn as oracle

H = 9  # of which one, two, four or all nine give factors
PAIRS = [(n, a) for n in (1, 2, 4, 9) for a in (1.0, 2.0, 4.0, 8.0, 16.0, 64.0)]


@pytest.fixture
def always(monkeypatch):
    """Factors are kept whatever rows gain from them."""
    monkeypatch.setattr(local_variance, "_is_clear", lambda gain, error: True)


def made_rows(num_rows, seed, ratio):
    """Noise with a standard deviation of 0.1 on one side, and ``ratio`` times that on the other."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, size=(num_rows, 2))
    deviation = np.where(X[:, :1] > 0.0, 0.1 * ratio, 0.1)
    return X, np.sin(2.0 * X[:, :1]) + deviation * rng.normal(size=(num_rows, 1))


def made_model(data, noise_variance):
    kernel = gpflow.kernels.Matern52(lengthscales=[1.0, 4.0])
    return NearestNeighborGP(data, kernel, num_neighbors=32, noise_variance=noise_variance)


@pytest.mark.parametrize("kind", ["rows", "repeated rows", "weights"])
def test_factors_are_those_of_naive_loops(always, kind):
    X, Y = repeated_rows(40)[0] if kind == "repeated rows" else rows()
    weights = np.random.default_rng(3).uniform(0.2, 1.0, len(X)) if kind == "weights" else None
    model, plain = (build((X, Y), H, row_weights=weights) for _ in range(2))
    found = model.fit_local_variance()
    w = np.ones(len(X)) if weights is None else weights
    drawn = np.random.default_rng(0).permutation(len(X))
    held, kept = drawn[: len(X) // 4], np.sort(drawn[len(X) // 4 :])
    rest = X[kept], Y[kept], w[kept]
    known = oracle.left_out_residuals(k, rest, H, SCALES, NOISE, 1e-6 * VARIANCE)
    new = [oracle.residual(k, rest, X[i], Y[i], H, SCALES, NOISE, 0.0) for i in held]
    parts = (X[kept], known, w[kept]), (X[held], np.array(new), w[held])
    gains = {pair: oracle.local_gain(*parts, pair, SCALES) for pair in PAIRS}
    best = max(PAIRS, key=lambda pair: gains[pair][0])
    assert (found.num_nearest, found.strength) == best
    # repeated rows: the jitter is added to means, not to each of their outputs
    tolerance = {"rtol": 1e-4 if kind == "repeated rows" else 1e-8}
    np.testing.assert_allclose((found.gain, found.error), gains[best], **tolerance)
    all_rows = [np.concatenate(part) for part in zip(*parts, strict=True)]
    factors = np.array([[oracle.local_factor(*all_rows, x, *best, SCALES)] for x in NEW[0]])
    mean, var = (part.numpy() for part in plain.predict_f(NEW[0]))
    for predict in (model.predict_f, model.posterior().predict_f):
        np.testing.assert_allclose(predict(NEW[0])[0], mean, rtol=1e-12)
        np.testing.assert_allclose(predict(NEW[0])[1], factors * var, **tolerance)
    total = factors * (var + NOISE)
    np.testing.assert_allclose(model.predict_y(NEW[0])[1], total, **tolerance)
    batches = model.predict_y(NEW[0].reshape(3, 3, 2))[1]
    np.testing.assert_allclose(batches, total.reshape(3, 3, 2), **tolerance)
    density = -0.5 * (np.log(2.0 * np.pi * total) + (NEW[1] - mean) ** 2 / total)
    np.testing.assert_allclose(model.predict_log_density(NEW), density.sum(axis=1), **tolerance)
    cov = plain.predict_f(NEW[0], full_cov=True)[1].numpy()
    expected = np.sqrt(factors * factors.T) * cov
    np.testing.assert_allclose(model.predict_f(NEW[0], full_cov=True)[1], expected, **tolerance)


def test_factors_of_other_parameters_are_refused(always, tmp_path):
    model, words = build(rows(), H), "have changed since fit_local_variance"
    model.fit_local_variance()
    X, before = tf.constant(NEW[0]), model.predict_y(NEW[0])[1].numpy()
    compiled = tf.function(model.predict_y, autograph=False)
    np.testing.assert_allclose(compiled(X)[1], before, rtol=1e-12)
    gs.save(model, tmp_path / "model")
    loaded = gs.load(tmp_path / "model")
    first_call = tf.function(loaded.predict_y, autograph=False)(X)
    np.testing.assert_allclose(first_call[1], before, rtol=1e-12)
    np.testing.assert_array_equal(loaded.predict_y(X)[1], before)
    for each in (model, loaded):
        each.likelihood.variance.assign(12.0 * NOISE)
        with pytest.raises(ValueError, match=words):
            each.predict_y(X)
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        compiled(X)
    model.likelihood.variance.assign(NOISE)
    np.testing.assert_allclose(compiled(X)[1], before, rtol=1e-6)
    model.kernel.active_dims = [1, 0]
    with pytest.raises(ValueError, match=words):
        model.predict_f(X)
    model.fit_local_variance()
    assert np.abs(model.predict_y(X)[1] - before).max() > 1e-3
    loaded.local_variance = None
    plain = build(rows(), H)
    plain.likelihood.variance.assign(12.0 * NOISE)
    np.testing.assert_allclose(loaded.predict_y(X)[1], plain.predict_y(X)[1], rtol=1e-12)


def test_the_level_alone_is_one_factor():
    model = made_model(made_rows(600, 0, 1.0), 0.05)
    plain = model.predict_y(NEW[0])[1].numpy()
    found = model.fit_local_variance()
    assert found.num_nearest == 0
    assert 0.2 < found.level < 0.4  # the noise variance is 0.01, and f has some
    np.testing.assert_allclose(model.predict_y(NEW[0])[1], found.level * plain, rtol=1e-12)
    assert "by the factor" in describe_calibration(model)


def test_noise_that_depends_on_the_input_is_found_and_calibrated():
    new = made_rows(1000, 1, 5.0)
    model = made_model(made_rows(1500, 0, 5.0), 0.13)
    before = np.mean(model.predict_log_density(new))
    found = model.fit_local_variance()
    assert found.num_nearest > 0
    after = np.mean(model.predict_log_density(new))
    assert after > before + 0.3
    assert abs(found.gain - (after - before)) < 0.15
    f, total = (predict(new[0])[1].numpy() for predict in (model.predict_f, model.predict_y))
    factors = model.posterior().noise_factors(tf.constant(new[0])).numpy()
    calibration = gs.calibrate(model, made_rows(500, 2, 5.0))
    np.testing.assert_allclose(total, f + factors * 0.13, rtol=1e-10)
    expected = calibration.function * f + calibration.noise * factors * 0.13
    np.testing.assert_allclose(model.predict_y(new[0])[1], expected, rtol=1e-10)
    assert np.mean(model.predict_log_density(new)) > after - 0.01
    deviations = np.sqrt(expected[np.abs(new[0][:, 0]) > 1.0])
    right = new[0][np.abs(new[0][:, 0]) > 1.0][:, :1] > 0.0
    assert 3.0 < deviations[right].mean() / deviations[~right].mean() < 6.0


@pytest.mark.nightly
@pytest.mark.parametrize("calibrate", [True, False])
def test_the_estimator_fits_factors_and_draws_with_them(calibrate):
    X, Y = made_rows(1200 if calibrate else 200, 0, 5.0)
    options = {"kernel": "matern52", "metric": "columns", "calibrate": calibrate}
    options |= {"num_subset": 300, "num_neighbors": 32}
    model = SparseGPRegressor("gpnn", method_options=options, random_state=0).fit(X, Y[:, 0])
    found = model.model_.local_variance
    if not calibrate:
        assert found is None
        assert summary(model.model_) == {}
        return
    assert summary(model.model_)["local_variance"]["num_nearest"] == found.num_nearest > 0
    assert "nearest" in describe_calibration(model.model_)
    new = np.array([[-2.0, 0.0], [2.0, 0.0]])
    _, deviation = model.predict(new, return_std=True)
    assert 3.0 < deviation[1] / deviation[0] < 7.0
    draws = model.sample_y(new, 4000, random_state=0)
    np.testing.assert_allclose(draws.std(axis=1), deviation, rtol=0.05)


@pytest.mark.parametrize("kind", ["few rows", "equal outputs", "equal inputs"])
def test_rows_that_say_nothing_leave_the_variances_as_they_are(kind):
    X, Y = rows(7 if kind == "few rows" else 30)
    X, Y = X * (kind != "equal inputs"), Y * (kind == "few rows")
    model = build((X, Y))
    assert model.fit_local_variance() is None
    assert np.all(np.isfinite(model.predict_y(NEW[0])[1]))
