"""Estimators with scikit-learn's interface."""

import pickle
import warnings

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from scipy import stats
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sklearn_kernels
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import gpflow_sparse as gs
from gpflow_sparse.estimators import SparseGPClassifier, SparseGPRegressor
from gpflow_sparse.tables.estimators import base
from gpflow_sparse.tables.fitting import calibration
from gpflow_sparse.tables.reading.targets import split_target
from tests.tables.reading import messy

FEW_STEPS = {"num_steps": 20, "num_inducing": 20, "num_orthogonal": 10}


def smooth(num_rows=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(num_rows, 3))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=num_rows)


@pytest.fixture(scope="module")
def exact():
    return SparseGPRegressor("exact", random_state=0).fit(*smooth())


@pytest.mark.nightly
def test_an_estimator_calibrates_on_rows_it_holds_out(monkeypatch):
    monkeypatch.setattr(calibration, "MIN_ROWS", 2000)
    X, y = smooth(2300)
    options = FEW_STEPS | {"conformal": True}
    model = SparseGPRegressor("solvegp", method_options=options, random_state=0).fit(X, y)
    found = model.model_.calibration
    assert (found.num_rows, model.model_.num_data) == (115, 2185)
    new = smooth(200, seed=1)[0]
    mean, deviation = model.predict(new, return_std=True)
    ends = model.predict_interval(new, coverage=0.9)
    np.testing.assert_allclose(ends[:, 1], mean + found.radius(0.9) * deviation, rtol=1e-9)
    draws = model.sample_y(new[:5], n_samples=20_000)
    np.testing.assert_allclose(draws.std(axis=1), deviation[:5], rtol=0.03)
    plain = SparseGPRegressor("solvegp", method_options=FEW_STEPS | {"calibrate": False})
    assert plain.fit(X, y).model_.calibration is None


def test_an_exact_gp_predicts_as_scikit_learns_own(exact):
    X, y = smooth()
    kernel, noise = exact.model_.kernel, float(exact.model_.likelihood.variance.numpy())
    own = sklearn_kernels.ConstantKernel(float(kernel.variance.numpy())) * sklearn_kernels.Matern(
        kernel.lengthscales.numpy(), nu=2.5
    )
    peer = GaussianProcessRegressor(own, alpha=noise, optimizer=None)
    mean, scale = X.mean(axis=0), X.std(axis=0)
    peer.fit((X - mean) / scale, (y - y.mean()) / y.std())
    new = smooth(30, seed=1)[0]
    expected, covariance = peer.predict((new - mean) / scale, return_cov=True)
    found, joint = exact.predict(new, return_cov=True)
    np.testing.assert_allclose(found, y.mean() + y.std() * expected, rtol=1e-8)
    noisy = (covariance + noise * np.eye(30)) * y.var()
    np.testing.assert_allclose(joint, noisy, rtol=1e-6, atol=1e-9)
    deviations = exact.predict(new, return_std=True)[1]
    np.testing.assert_allclose(deviations, np.sqrt(np.diag(noisy)), rtol=1e-6)


def test_f_has_no_noise(exact):
    new = smooth(20, seed=1)[0]
    mean, deviation = exact.predict(new, return_std=True, noise=False)
    noise = float(exact.model_.likelihood.variance.numpy()) * smooth()[1].var()
    noisy = exact.predict(new, return_std=True)
    np.testing.assert_allclose(mean, noisy[0], rtol=1e-9)
    np.testing.assert_allclose(deviation**2, noisy[1] ** 2 - noise, rtol=1e-6)
    covariance = exact.predict(new, return_cov=True, noise=False)[1]
    np.testing.assert_allclose(np.diag(covariance), deviation**2, rtol=1e-6)
    draws = exact.sample_f(new, n_samples=5_000, random_state=1)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=4.5 * deviation.max() / 5_000**0.5)
    np.testing.assert_allclose(np.cov(draws), covariance, atol=0.1 * covariance.max())
    with pytest.raises(ValueError, match="point must be None where noise is False"):
        exact.predict(new, noise=False, point="mean")
    with pytest.raises(ValueError, match="noise must be True or False, got 'no'"):
        exact.predict(new, noise="no")


def test_f_of_transformed_outputs_is_described_by_its_quantiles(mixture):
    X, y = smooth()
    options = {"transform": "log"}
    found = SparseGPRegressor("exact", method_options=options, random_state=0).fit(X, np.exp(y))
    new = smooth(4, seed=1)[0]
    median, deviation = found.predict(new, return_std=True, noise=False)
    draws = found.sample_f(new, n_samples=20_000)
    low, middle, high = np.quantile(draws, stats.norm.cdf([-1.0, 0.0, 1.0]), axis=1)
    np.testing.assert_allclose(median, middle, rtol=0.02)
    np.testing.assert_allclose(deviation, 0.5 * (high - low), rtol=0.05)
    draws = mixture.sample_f(new, n_samples=20_000)
    mean, deviation = mixture.predict(new, return_std=True, noise=False)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.05 * deviation.max())
    np.testing.assert_allclose(draws.std(axis=1), deviation, rtol=0.1)


def test_f_of_counts_is_refused():
    X, y = smooth(40)
    counts = np.random.default_rng(0).poisson(np.exp(y))
    options = {"num_steps": 5, "num_inducing": 8}
    model = SparseGPRegressor("svgp", likelihood="poisson", method_options=options)
    model.fit(X, counts)
    for call in (lambda: model.predict(X, noise=False), lambda: model.sample_f(X)):
        with pytest.raises(ValueError, match=r"units of y .* got Poisson"):
            call()


@pytest.fixture(scope="module")
def mixture():
    options = {"num_components": 6, "num_draws": 4}  # two have transformed outputs
    X, y = smooth()
    found = SparseGPRegressor(method_options=options, random_state=0).fit(X, np.exp(y))
    assert found.method_ == "mixture"
    return found


def test_transformed_outputs_are_predicted_by_their_medians():
    """The mean of the inverse of a logarithm explodes where the model knows little."""
    X, y = smooth()
    options = {"transform": "log", "num_components": 2, "num_draws": 4}
    found = SparseGPRegressor("mixture", method_options=options, random_state=0)
    found.fit(X, np.exp(y))
    new = np.concatenate([smooth(5, seed=1)[0], np.full((1, 3), 30.0)])
    median, deviation = found.predict(new, return_std=True)
    Z = found._observed(new).rows
    levels = stats.norm.cdf(np.linspace(-7.0, 7.0, 401))
    quantiles = found.model_.predict_quantiles(Z, levels).numpy()[..., 0]
    points = found.model_.standardizer.inverse_outputs(quantiles.reshape(-1, 1)).reshape(401, 6)
    np.testing.assert_allclose(median, points[200], rtol=1e-6)
    weights = np.gradient(levels)[:, None]
    mean = np.sum(weights * points, axis=0)
    np.testing.assert_allclose(found.predict(new, point="mean")[:5], mean[:5], rtol=1e-2)
    variance = np.sum(weights * (points - mean) ** 2, axis=0)
    np.testing.assert_allclose(deviation[:5], np.sqrt(variance[:5]), rtol=3e-2)
    assert found.predict(new, point="mean")[5] > 1.2 * median[5]  # far from the rows
    with pytest.raises(ValueError, match=r"coverage must be between 0 and 1, got '0\.9'"):
        found.predict_interval(new, "0.9")
    with pytest.raises(ValueError, match="n_samples must be"):
        found.sample_y(new, 2.5)
    with pytest.raises(ValueError, match="point must be 'mean' or None, got 'mode'"):
        found.predict(new, point="mode")


@pytest.mark.nightly
def test_an_export_predicts_medians_of_transformed_outputs(mixture, tmp_path):
    new = smooth(5, seed=1)[0]
    median, deviation = mixture.predict(new, return_std=True)
    gs.export(mixture.model_, tmp_path / "exported")
    exported = tf.saved_model.load(tmp_path / "exported")
    for part, wanted in zip(exported.predict(new), (median, deviation**2), strict=True):
        np.testing.assert_allclose(part[:, 0], wanted, rtol=1e-6)


def test_draws_leave_the_generators_of_the_user_as_they_are(mixture):
    new = smooth(5, seed=1)[0]
    tf.random.set_seed(3)
    expected = tf.random.uniform([2]).numpy()
    tf.random.set_seed(3)
    before = mixture.sample_y(new, 3, random_state=0)
    np.testing.assert_array_equal(tf.random.uniform([2]), expected)
    np.testing.assert_array_equal(mixture.sample_y(new, 3, random_state=0), before)
    assert np.all(mixture.sample_y(new, 3, random_state=1) != before)


def test_intervals_and_samples_of_a_mixture_agree(mixture):
    new = smooth(5, seed=1)[0]
    samples = mixture.sample_y(new, 20_000, random_state=0)
    for coverage in (0.5, 0.9):
        low, high = mixture.predict_interval(new, coverage=coverage).T
        inside = (samples > low[:, None]) & (samples < high[:, None])
        np.testing.assert_allclose(inside.mean(axis=1), coverage, atol=0.015)
    mean, deviation = mixture.predict(new, return_std=True)
    np.testing.assert_allclose(samples.mean(axis=1), mean, atol=5 * deviation.max() / 20_000**0.5)


def test_intervals_and_samples_agree_with_the_moments(exact):
    new = smooth(20, seed=1)[0]
    mean, deviation = exact.predict(new, return_std=True)
    ends = exact.predict_interval(new, coverage=0.95)
    np.testing.assert_allclose(ends[:, 1] - mean, 1.959964 * deviation, rtol=1e-5)
    np.testing.assert_allclose(mean - ends[:, 0], 1.959964 * deviation, rtol=1e-5)
    samples = exact.sample_y(new, 4000, random_state=0)
    joint = exact.predict(new, return_cov=True)[1]
    np.testing.assert_allclose(samples.mean(axis=1), mean, atol=5 * deviation.max() / 4000**0.5)
    np.testing.assert_allclose(np.cov(samples), joint, atol=0.1 * joint.max())


def test_outliers_are_named_before_training(monkeypatch):
    """Unless the noise has heavy tails, or a logarithm makes the outputs symmetric."""
    monkeypatch.setattr(base, "fit_task", lambda *_, **__: 1 / 0)
    X, y = smooth(150)
    skewed, y[17] = np.exp(3.0 * y), 1e6
    heavy = [{"likelihood": name} for name in ("student_t", gpflow.likelihoods.StudentT())]
    cases = [({}, y, 1), ({}, skewed, 0), ({}, np.stack([skewed, y], axis=1), 1)]
    for options, values, count in [*cases, *((options, y, 0) for options in heavy)]:
        with warnings.catch_warnings(record=True) as found, pytest.raises(ZeroDivisionError):
            warnings.simplefilter("always")
            SparseGPRegressor(**options).fit(X, values)
        texts = [str(warning.message) for warning in found]
        assert len([text for text in texts if "outlier" in text]) == count
        name = "y" if values.ndim == 1 else "y[:, 1]"
        start = f"1 value of {name!r} is an outlier, the farthest 1e+06 beside a median of "
        assert not count or texts[0].startswith(start)


@pytest.mark.nightly
def test_students_t_is_not_moved_by_an_outlier():
    X, y = smooth(150)
    y[17] = 1e6
    model = SparseGPRegressor(likelihood="student_t", method_options=FEW_STEPS, random_state=0)
    new, values = smooth(500, seed=1)
    assert np.sqrt(np.mean((model.fit(X, y).predict(new) - values) ** 2)) < 0.5 * values.std()


@pytest.mark.nightly
def test_intervals_of_students_t_hold_their_share():
    X, y = smooth(150)
    y = y + 0.3 * np.random.default_rng(2).standard_t(2.5, len(y))
    options = {**FEW_STEPS, "num_steps": 300}  # the noise starts too large
    model = SparseGPRegressor(likelihood="student_t", method_options=options, random_state=0).fit(
        X, y
    )
    ends = model.predict_interval(X, coverage=0.8)
    assert 0.7 < np.mean((ends[:, 0] < y) & (y < ends[:, 1])) < 0.9


@pytest.mark.parametrize("kind", [SparseGPRegressor, SparseGPClassifier])
def test_a_weight_counts_as_equal_rows_and_weight_zero_as_none(kind):
    X, y = smooth(40)
    y = y if kind is SparseGPRegressor else np.where(y > 0, "high", "low")
    weights = np.arange(40) % 4
    options = {"num_draws": 4, "num_components": 2} if kind is SparseGPRegressor else {}
    model = kind(random_state=0, method_options={"calibrate": False, **options})
    # weights are divided by their mean, that of the rows with one
    share = np.full(weights.sum(), 1.0 / weights[weights > 0].mean())
    copies = X.repeat(weights, 0), y.repeat(weights)
    expected = clone(model).fit(*copies, None if kind is SparseGPRegressor else share)
    # of a pipeline, with rows as a list
    name = f"{kind.__name__.lower()}__sample_weight"
    found = make_pipeline(model).fit(X, y, **{name: weights.tolist()})[-1]
    assert found.method_ == expected.method_
    if kind is SparseGPRegressor:
        for method in (found.predict, expected.predict):
            assert method(X).shape == (40,)
        pairs = zip(
            found.predict(X, return_std=True), expected.predict(X, return_std=True), strict=True
        )
    else:
        pairs = [(found.predict_proba(X), expected.predict_proba(X))]
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", [SparseGPRegressor, SparseGPClassifier])
@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (-np.ones(20), "must be 20 numbers of at least 0"),
        (np.ones(19), "must be 20 numbers of at least 0"),
        (np.ones((20, 1)), "must be 20 numbers of at least 0"),
        (np.zeros(20), "must be above zero for two rows or more, got 0"),
        (np.full(20, np.nan), "contains NaN"),
    ],
)
def test_other_weights_are_refused(kind, weights, words):
    X, y = smooth(20)
    with pytest.raises(ValueError, match=words):
        kind().fit(X, y > 0, sample_weight=weights)


def test_methods_that_cannot_weigh_rows_refuse_weights():
    X, y = smooth(20)
    with pytest.raises(ValueError, match="weights of rows must be 1 for method softki"):
        SparseGPRegressor("softki").fit(X, y, sample_weight=np.arange(20))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((SparseGPRegressor, name) for name in ("predict", "predict_interval", "sample_y")),
        *((SparseGPClassifier, name) for name in ("predict", "predict_proba")),
    ],
)
def test_predictions_before_fit_are_refused(kind, name):
    with pytest.raises(NotFittedError):
        getattr(kind(), name)(smooth(3)[0])


@pytest.mark.nightly
def test_noise_by_its_name_has_draws_intervals_covariances_and_files():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, 300)
    y = np.sin(3 * x) + 0.3 * np.exp(x - 1) * rng.normal(size=300)
    options = {"num_inducing": 20, "num_orthogonal": 10, "num_steps": 300}
    model = SparseGPRegressor(
        likelihood="heteroskedastic", method_options=options, random_state=0
    ).fit(x[:, None], y)
    new = np.array([-1.5, 0.0, 1.5])[:, None]
    deviation = model.predict(new, return_std=True)[1]
    np.testing.assert_allclose(deviation, 0.3 * np.exp(new[:, 0] - 1), rtol=0.3)
    draws = model.sample_y(new, 20_000)
    np.testing.assert_allclose(draws.std(axis=1), deviation, rtol=0.1)
    low, high = model.predict_interval(new).T
    np.testing.assert_allclose((high - low) / deviation, 2 * 1.96, rtol=0.1)
    _, covariance = model.predict(new, return_cov=True)
    np.testing.assert_allclose(np.diag(covariance), deviation**2, rtol=1e-9)
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(loaded.predict(new, return_std=True)[1], deviation)
    with pytest.raises(ValueError, match=r"Y must have 1 column\(s\) for HeteroskedasticGaussian"):
        model.fit(x[:, None], np.stack([y, y], axis=1))


def test_several_outputs():
    X, y = smooth(60)
    Y = np.stack([y, 10.0 - 3.0 * y], axis=1)
    both = SparseGPRegressor("exact", random_state=0).fit(X, Y)
    mean, deviation = both.predict(X, return_std=True)
    np.testing.assert_allclose(mean[:, 1], 10.0 - 3.0 * mean[:, 0], rtol=1e-8)
    np.testing.assert_allclose(deviation[:, 1], 3.0 * deviation[:, 0], rtol=1e-8)
    assert both.predict_interval(X).shape == (60, 2, 2)
    assert both.sample_y(X[:5], 7).shape == (5, 2, 7)


def test_counts_are_not_standardized():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (150, 1))
    y = rng.poisson(np.exp(1.0 + X[:, 0]))
    model = SparseGPRegressor(
        likelihood="poisson", method_options=FEW_STEPS | {"num_steps": 100}, random_state=0
    ).fit(X, y)
    assert model.model_.standardizer.y_mean is None
    rate = np.exp(1.0 + X[:, 0])
    assert np.mean(np.abs(model.predict(X) - rate) / rate) < 0.15
    ends = model.predict_interval(X, coverage=0.9)
    assert 0.85 < np.mean((ends[:, 0] <= y) & (y <= ends[:, 1])) < 0.99


def test_labels_of_any_kind():
    X, y = smooth(100)
    labels = np.where(y > 0, "up", "down")
    model = SparseGPClassifier(method_options=FEW_STEPS, random_state=0).fit(X, labels)
    assert list(model.classes_) == ["down", "up"]
    assert model.score(X, labels) > 0.85
    P = model.predict_proba(X)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), P, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X), model.classes_[P.argmax(axis=1)])


def test_a_kernel_of_ones_own_is_copied():
    X, y = smooth(40)
    kernel = gpflow.kernels.SquaredExponential() + gpflow.kernels.Linear()
    model = SparseGPRegressor("exact", kernel=kernel, random_state=0).fit(X, y)
    assert isinstance(model.model_.kernel, gpflow.kernels.Sum)
    assert kernel.kernels[0].lengthscales.numpy() == 1.0


def test_pickled_and_cloned(exact):
    X = smooth(10, seed=3)[0]
    again = pickle.loads(pickle.dumps(exact))
    np.testing.assert_array_equal(again.predict(X), exact.predict(X))
    assert clone(exact).get_params() == exact.get_params()
    assert not hasattr(clone(exact), "model_")


def test_outputs_of_the_wrong_kind_are_refused():
    X, y = smooth(30)
    with pytest.raises(ValueError, match="SparseGPClassifier takes labels"):
        SparseGPRegressor().fit(X, np.where(y > 0, "up", "down"))
    with pytest.raises(ValueError, match="y must hold a label in every row, got NaN in 1"):
        SparseGPClassifier().fit(X, np.where(np.arange(30) == 3, None, "a"))
    with pytest.raises(ValueError, match="Y must hold counts"):
        SparseGPRegressor(likelihood="poisson").fit(X, y)
    months = pd.Series(pd.period_range("2020-01", periods=30, freq="M"))
    for outputs, found in ((months, "Period"), (months.dt.to_timestamp(), "dates")):
        with pytest.raises(ValueError, match=f"y must hold numbers, got {found}"):
            SparseGPRegressor().fit(X, outputs)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([1, "b"] * 15, dtype=object), "labels of one type, .* got int, str; make them"),
        ([f"id{i}" for i in range(30)], "30 rows have 30 different ones, such as 'id0'"),
        (pd.period_range("2020-01", periods=30, freq="M"), "of one type, .* got Period; make"),
    ],
)
def test_labels_of_the_wrong_kind_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        SparseGPClassifier().fit(smooth(30)[0], labels)


@pytest.mark.nightly
def test_pipeline_search_and_folds():
    X, y = smooth(50)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    scaled = make_column_transformer((StandardScaler(), ["a", "b"]), remainder="passthrough")
    pipeline = make_pipeline(scaled, SparseGPRegressor(random_state=0))
    scores = cross_val_score(pipeline, frame, y, cv=2, n_jobs=1)
    assert scores.min() > 0.5
    grid = {"kernel": [gpflow.kernels.Matern32(lengthscales=[1.0] * 3), None]}
    search = GridSearchCV(SparseGPRegressor(random_state=0), grid, cv=2).fit(X, y)
    assert search.best_score_ > 0.5


@pytest.mark.filterwarnings("ignore:X .*feature names:UserWarning")
def test_rows_without_the_names_of_training_have_them_by_position(exact):
    X, y = smooth()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    named = SparseGPRegressor("exact", random_state=0).fit(frame, y)
    expected = exact.predict(X)
    for model, rows in ((named, X), (named, frame.set_axis([7, 8, 9], axis=1)), (exact, frame)):
        np.testing.assert_allclose(model.predict(rows), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="2 features"):
        named.predict(X[:, :2])


def test_a_messy_table():
    inputs, target = split_target(messy.table("shop"), "y")
    few = {"num_draws": 4}
    model = SparseGPRegressor(method_options=few, random_state=0).fit(inputs, target.values)
    inputs, target = split_target(messy.table("shop", seed=1), "y")
    mean, deviation = model.predict(inputs, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(deviation).all()
    assert np.sqrt(np.mean((mean - target.values) ** 2)) / np.std(target.values) < 0.7


@pytest.mark.nightly
@pytest.mark.parametrize("budget", [None, 20.0])
def test_the_best_candidate_on_held_out_rows_is_trained_on_all(budget):
    X, y = smooth(1100)
    model = SparseGPRegressor(time_budget=budget, random_state=0)
    model.fit(X, y)
    scores = {attempt.method: attempt.nlpd for attempt in model.attempts_}
    names = {"gpnn", "gpnn with trees"}
    simple = {"constant", "linear", "trees"}
    assert simple | {"gpnn"} <= scores.keys() <= simple | names
    assert budget or names <= scores.keys()
    assert model.method_ not in ("constant", "linear")
    assert scores[model.method_] < scores["linear"] < scores["constant"]
    assert model.method_ in model.reason_
    held = getattr(model.model_, "data", (X,))[0]
    assert len(held) == 1100  # all rows, none held out
    assert model.score(X, y) > 0.5


@pytest.mark.nightly
@pytest.mark.parametrize(
    "estimator", [SparseGPRegressor(), SparseGPClassifier(method_options={"num_steps": 60})]
)
def test_scikit_learns_checks(estimator):
    sample_weights = (
        "predictions near 0 agree to 1e-8; folds of equal rows decide on the temperature of classes"
    )
    check_estimator(
        estimator,
        expected_failed_checks={"check_sample_weight_equivalence_on_dense_data": sample_weights},
        on_skip=None,
    )
