"""Starting hyperparameters on tables with integer, collinear, repeated and heavy-tailed columns."""

import dataclasses
import functools
import itertools
import time
import warnings

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner

import gpflow_sparse as gs
from gpflow_sparse import initialization
from gpflow_sparse.data import Dataset
from gpflow_sparse.initialization import (
    hyperparameters,
    median_lengthscales,
    repeated_rows,
    subset_hyperparameters,
)
from gpflow_sparse.tables.cli.main import main
from gpflow_sparse.tables.fitting.building import build_model
from gpflow_sparse.tables.fitting.observations import log_rates
from gpflow_sparse.tables.fitting.starts import InitialHyperparameters, _Trial, resolved
from gpflow_sparse.tables.methods.registry import RECIPES, recipe_of

FOR_CLASSES = ("dirichlet_gpnn", "site_vgp")
TABULAR = [n for n, kind in RECIPES.items() if not kind.takes_images and n not in FOR_CLASSES]


def repeated_measurements(num_visits, seed=0, num_subjects=42, num_signals=16):
    """
    Visits of each subject over half a year: X ``[., 4 + num_signals]`` holds the number of the
    subject, age, a binary column, time in days, and skewed signals with correlations up to .99; y
    is piecewise linear in time for each subject.
    """
    rng = np.random.default_rng(seed)
    i = np.repeat(np.arange(num_subjects), num_visits)
    age = rng.integers(36, 86, num_subjects)[i]
    binary = rng.integers(0, 2, num_subjects)[i]
    week = np.tile(np.arange(num_visits) // 6, num_subjects)
    time = 7.0 * week + rng.uniform(-0.5, 0.5, len(i)) + rng.uniform(0.0, 5.0, num_subjects)[i]
    factors = rng.standard_normal((len(i), 3)) + 0.5 * rng.standard_normal((num_subjects, 3))[i]
    loads = np.zeros((3, num_signals))
    signal = np.arange(num_signals)
    loads[np.where(signal % 4 == 0, signal % 3, 0), signal] = 1.0
    noise = 0.1 * rng.standard_normal((len(i), num_signals))
    signals = np.exp(0.6 * (factors @ loads + noise)) * 10.0 ** rng.uniform(-4.0, 0.0, num_signals)
    base, *slopes = rng.normal(size=(3, num_subjects)) * [[10.0], [5.0], [5.0]]
    early, late = np.minimum(time, 90.0) / 90.0, np.maximum(time - 90.0, 0.0) / 90.0
    y = base[i] + slopes[0][i] * early + slopes[1][i] * late
    return np.column_stack([i + 1, age, binary, time, signals]), y[:, None]


def standardized(X, Y):
    return (X - X.mean(0)) / X.std(0), (Y - Y.mean(0)) / Y.std(0)


def test_the_fit_of_repeated_measurements_stays_within_its_bounds():
    """Without bounds, lengthscales of the subject and of the binary column ran to 1e-20."""
    X, Y = standardized(*repeated_measurements(6, num_signals=4))
    start = median_lengthscales(X)
    kernel = gpflow.kernels.Matern52(lengthscales=start)
    noise = subset_hyperparameters(X, Y, kernel, num_rows=150, max_iterations=40)
    ratio = kernel.lengthscales.numpy() / start
    assert not np.allclose(ratio, 1.0)
    assert ratio.min() > 0.0099
    assert ratio.max() < 101.0
    assert noise > 1.9e-6
    assert np.linalg.eigvalsh(kernel(X).numpy())[0] > -1e-10


def test_a_fit_that_predicts_other_rows_worse_is_not_written(monkeypatch):
    X, Y = standardized(*repeated_measurements(6))
    kernel = gpflow.kernels.Matern52(lengthscales=median_lengthscales(X))

    def spoil(density, start, **_):
        return np.concatenate([start[:-2], [np.log(1e-3)], start[-1:]])  # the kernel's variance

    monkeypatch.setattr(hyperparameters, "find_mode", spoil)
    assert subset_hyperparameters(X, Y, kernel, num_rows=100, noise_variance=0.2) == 0.2
    assert kernel.variance.numpy() == 1.0
    monkeypatch.setattr(hyperparameters, "_log_density", lambda *_: 0.0)
    subset_hyperparameters(X, Y, kernel, num_rows=100)
    np.testing.assert_allclose(kernel.variance, 1e-3)


def test_a_prior_of_the_user_is_not_bounded():
    X = np.random.default_rng(0).uniform(size=(60, 1))
    kernel = gpflow.kernels.Matern52(lengthscales=100.0)
    kernel.lengthscales.prior = hyperparameters.tfp.distributions.LogNormal(
        np.log(0.3), np.float64(0.1)
    )
    subset_hyperparameters(X, np.sin(6.0 * X), kernel)
    assert 0.2 < kernel.lengthscales.numpy() < 0.5


@pytest.mark.parametrize(("kind", "radius"), [(np.float64, 6.7e4), (np.float32, 29.0)])
def test_no_outlier_is_farther_away_than_precision_allows(kind, radius):
    column = np.random.default_rng(0).standard_cauchy(200) ** 5
    with gpflow.config.as_context(gpflow.config.Config(float=kind)):
        found = median_lengthscales(column[:, None])
    np.testing.assert_allclose(np.abs(column - column.mean()).max() / found, radius, rtol=5e-3)


def test_rounding_of_equal_values_is_no_distance():
    # more than half of all pairs are equal but for rounding: the cosine of the day every 16 hours
    column = np.cos(2 * np.pi * (16436 + np.arange(300) * 16 / 24))[:, None]
    np.testing.assert_allclose(median_lengthscales(column), column.std(), rtol=1e-9)


def write_table(path, X, Y):
    header = ",".join([*(f"c{i}" for i in range(X.shape[1])), "y"])
    np.savetxt(path, np.column_stack([X, Y]), "%.10g", ",", header=header, comments="")


def fit_table(folder, X, Y, method, *options, **given):
    """
    Run the command line, with five steps where the method has steps; return its exit code and what
    it wrote to stderr.

    :param given: values of options, for methods that have them.
    """
    write_table(folder / "table.csv", X, Y)
    arguments = ["fit", "--data", str(folder / "table.csv"), "--target", "y", "--method", method]
    arguments += ["--no-plot", "--output", str(folder / "run")]
    for name, value in ({"num_steps": 5} | given).items():
        if name in RECIPES[method].own_options():
            arguments += [f"--{name.replace('_', '-')}", str(value)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = CliRunner().invoke(main, [*arguments, *options])
    return found.exit_code, found.stderr


def test_a_failed_fit_of_the_start_does_not_end_a_run(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise ValueError("no optimum")

    monkeypatch.setattr(hyperparameters, "find_mode", fail)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    code, error = fit_table(tmp_path, X, np.sin(X[:, :1]), "svgp")
    assert (code, "Traceback" in error) == (0, False), error


def columns():
    """Tables of 120 rows whose last column is the target."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=(120, 2))
    y = np.sin(base[:, 0]) + 0.1 * rng.normal(size=120)
    rare, event = np.zeros(120), np.zeros(120)
    rare[7], event[[7, 50]] = 1.0, (1.0, 2.0)
    heavy = rng.standard_cauchy((120, 2)) ** 3
    integers = np.column_stack([rng.integers(0, top, 120) for top in (2, 3, 50)])
    return {
        "binary": (np.column_stack([base, integers[:, 0]]), y),
        "integers": (integers, y),
        "constant in the subset": (np.column_stack([base, rare]), y),
        "duplicated": (np.column_stack([base, base]), y),
        "linear copy": (np.column_stack([base, 1e3 * base[:, 0] - 7.0]), y),
        "heavy tails": (np.column_stack([base, heavy]), y),
        "heavy tails alone": (heavy, y),
        "repeated rows": (np.repeat(base[:30], 4, axis=0), y),
        "linear target": (base, base @ [1.0, 2.0]),
        "target constant in the subset": (base, event),
    }


TABLES = [*((table, "--float64") for table in columns()), ("heavy tails", "--float32")]


@pytest.mark.parametrize(
    ("table", "precision", "method"),
    [
        (*TABLES[i // 3], method)
        for i, method in zip(range(3 * len(TABLES)), itertools.cycle(TABULAR), strict=False)
    ],
)
@pytest.mark.nightly
def test_every_method_finishes_on_awkward_columns(tmp_path, method, table, precision):
    """Each table by three methods, each method on at least two tables."""
    code, error = fit_table(tmp_path, *columns()[table], method, precision, num_subset=60)
    assert (code, "Traceback" in error) == (0, False), error


@pytest.mark.parametrize("method", TABULAR[::2])
@pytest.mark.nightly
def test_every_second_method_finishes_on_repeated_measurements(tmp_path, method):
    """Training with the defaults failed: lengthscales of the start ran to 1e-20."""
    code, error = fit_table(tmp_path, *repeated_measurements(12), method)
    assert (code, "Traceback" in error) == (0, False), error


def test_a_long_table_starts_from_the_fit_that_predicts_held_out_rows_better(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(500, 1))
    pair = standardized(X, np.sin(20.0 * X) + 0.1 * rng.standard_normal(X.shape))
    dataset = Dataset("table", pair, pair, ("a",), "y", None)
    config = recipe_of("svgp", num_subset=100)

    def fit(lengthscale, noise_variance):
        def assign(X, Y, kernel, **_):
            kernel.lengthscales.assign([lengthscale])
            return noise_variance

        return assign

    def fail(*_, **__):
        raise ValueError("no optimum")

    def start(random, local, config=config):
        monkeypatch.setattr(initialization, "subset_hyperparameters", random)
        monkeypatch.setattr(initialization, "local_hyperparameters", local)
        kernel, noise_variance = InitialHyperparameters(dataset).find(config)[:2]
        return kernel.lengthscales.numpy()[0], noise_variance

    good, bad = fit(0.3, 0.02), fit(3.0, 0.5)
    np.testing.assert_allclose(start(bad, good), [0.3, 0.02])
    np.testing.assert_allclose(start(good, bad), [0.3, 0.02])
    np.testing.assert_allclose(start(bad, fail), [3.0, 0.5])
    np.testing.assert_allclose(start(fail, bad), [3.0, 0.5])
    # local subsets are for long tables, and for methods with inducing points and exact GPs
    short, functions = dataclasses.replace(config, num_subset=126), recipe_of("qsgp")
    functions = dataclasses.replace(functions, num_subset=100)
    for other in (short, functions):
        np.testing.assert_allclose(start(bad, good, other)[1], 0.5)


@pytest.mark.nightly
def test_the_best_of_several_draws_of_local_subsets_is_taken(monkeypatch):
    """Eighteen draws are tried after the start, of which the first is the best."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(500, 1))
    pair = standardized(X, np.sin(20.0 * X) + 0.1 * rng.standard_normal(X.shape))
    starts = InitialHyperparameters(Dataset("table", pair, pair, ("a",), "y", None))
    scales, drawn = {0: 3.0, 1: 0.3, 2: 1.0}, []

    def fit(X, Y, kernel, *, seed, **_):
        drawn.append(seed)
        kernel.lengthscales.assign([scales.get(seed, 2.0)])
        return 0.02

    monkeypatch.setattr(initialization, "local_hyperparameters", fit)
    monkeypatch.setattr(initialization, "subset_hyperparameters", lambda *_, **__: 0.9)
    config = recipe_of("gpnn", num_subset=100, kernel="matern52")
    assert starts.find(config).kernel.lengthscales.numpy() != 0.3
    search = starts.search(config)
    while search.advance():
        pass
    np.testing.assert_allclose(search.best.kernel.lengthscales, [0.3])
    assert drawn == list(range(19))


def test_the_gain_of_a_stage_is_that_of_the_best_fit():
    rng = np.random.default_rng(0)
    pair = standardized(rng.uniform(size=(500, 1)), rng.normal(size=(500, 1)))
    starts = InitialHyperparameters(Dataset("table", pair, pair, ("a",), "y", None))
    scores = {"matern52": 0.1, "matern32": 0.4, "matern12": 0.3, "squared_exponential": 0.0}
    starts.fit = lambda trial: trial.kernel
    starts.score = lambda trial: scores[trial.kernel]
    search = starts.search(recipe_of("gpnn", metric="columns"))
    assert (search.advance(), search.best) == (True, "matern52")
    assert np.isnan(search.gain)  # a single fit
    assert (search.advance(), search.best) == (True, "matern32")
    np.testing.assert_allclose(search.gain, 0.3)


def test_a_fit_begins_where_1_3_times_the_time_of_its_kind_is_left(monkeypatch):
    rng = np.random.default_rng(0)
    pair = standardized(rng.uniform(size=(500, 1)), rng.normal(size=(500, 1)))
    starts = InitialHyperparameters(Dataset("table", pair, pair, ("a",), "y", None))
    clock, fitted = [0.0], []

    def fit(trial):  # a local subset takes a second, and a random one ten
        fitted.append(trial)
        clock[0] += 1.0 if trial.num_rows is None else 10.0

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    starts.fit, starts.score = functools.cache(fit), lambda trial: fitted.index(trial)
    search = starts.search(recipe_of("gpnn", metric="columns", kernel="matern52", num_subset=100))
    while search.stage != "rows":
        assert search.advance()
    begun = len(fitted)
    assert search.advance(clock[0] + 2.7)
    assert [trial.num_rows for trial in fitted[begun:]] == [None, None]
    assert not search.is_out_of_time
    assert (search.advance(clock[0] + 1.2), search.is_out_of_time) == (False, True)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["matern12", "smooth"])
def test_the_kernel_with_which_neighbors_predict_best_is_taken(kind):
    """A path of an Ornstein-Uhlenbeck process has a Matern 1/2 kernel, a smooth function none."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(size=(400, 1)), axis=0)
    K = np.exp(-np.abs(X - X.T) / 0.2)
    rough = np.linalg.cholesky(K + 1e-10 * np.eye(400)) @ rng.standard_normal((400, 1))
    f = rough if kind == "matern12" else np.sin(8.0 * X)
    pair = standardized(X, f + 0.02 * rng.standard_normal(X.shape))
    dataset = Dataset("table", pair, pair, ("a",), "y", None)
    config = recipe_of("gpnn", num_subset=100)
    starts = InitialHyperparameters(dataset)
    kernel, noise_variance = starts.find(config)[:2]
    assert (type(kernel).__name__ == "Matern12") == (kind == "matern12")
    assert noise_variance < 0.01
    # with few rows, or a kernel that was asked for, nothing is chosen
    few = dataclasses.replace(dataset, train=tuple(a[:150] for a in pair))
    assert type(InitialHyperparameters(few).find(config).kernel) is gpflow.kernels.Matern52
    assert starts.find(config).kernel is kernel  # no fit is made twice
    asked = dataclasses.replace(config, kernel="matern32")
    assert type(starts.find(asked).kernel) is gpflow.kernels.Matern32


@pytest.mark.parametrize("columns", [2, 12])
def test_an_exact_gp_of_few_rows_has_the_more_probable_lengthscales(columns):
    """Of two columns one matters; of twelve all do alike, of which 60 rows cannot tell more."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, columns))
    f = np.sin(3.0 * X[:, :1]) if columns == 2 else np.sin(X.sum(1, keepdims=True) / 2.0)
    pair = standardized(X, f + 0.1 * rng.standard_normal(f.shape))
    starts = InitialHyperparameters(
        Dataset("table", pair, pair, tuple("abcdefghijkl"[:columns]), "y", None)
    )
    found, one = (
        starts.find(recipe_of("exact", kernel="matern52", ard=ard)) for ard in (True, False)
    )
    assert found.kernel.lengthscales.shape == ((2,) if columns == 2 else ())
    assert found.log_evidence >= one.log_evidence
    assert one.kernel.lengthscales.shape == ()


def waves(is_turned, count=700):
    """Rows of a function that varies along two of six orthogonal directions; and the first."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(count, 6))
    turn = np.linalg.qr(rng.normal(size=(6, 6)))[0] if is_turned else np.eye(6)
    u, v = (X @ turn[:2].T).T
    X, Y = standardized(X, (np.sin(2.0 * u) + 0.3 * v + 0.05 * rng.normal(size=count))[:, None])
    return Dataset("table", (X, Y), (X, Y), tuple("abcdef"), "y", None), turn[0]


def starts_of(dataset):
    """Starts of both metrics, which find them, and the log densities of held-out rows."""
    recipe = recipe_of("gpnn", kernel="squared_exponential", num_subset=300)
    starts = InitialHyperparameters(dataset)
    found = starts.find(recipe)
    columns = starts.find(resolved(recipe, gpflow.kernels.SquaredExponential()))
    densities = [
        initialization.neighbor_log_density(*dataset.train, *start[:2], num_held_out=2000)
        for start in (found, columns)
    ]
    return recipe, starts, found, columns, densities


@pytest.mark.nightly
def test_a_start_along_axes_is_no_worse_where_columns_are_the_axes():
    densities = starts_of(waves(False)[0])[-1]
    assert densities[0] >= densities[1]


def test_lengthscales_are_along_the_axes_of_gradients_where_these_predict_better():
    dataset, direction = waves(True)
    recipe, starts, found, columns, densities = starts_of(dataset)
    chosen, base = resolved(recipe, found.kernel), found.kernel.base
    assert (chosen.kernel, chosen.metric) == ("squared_exponential", "gradients")
    assert densities[0] > densities[1] + 0.1
    np.testing.assert_allclose(np.abs(found.kernel.matrix.numpy()[0] @ direction), 1.0, atol=0.02)
    assert base.lengthscales.numpy()[0] < 0.5 * base.lengthscales.numpy()[1:].min()
    assert found.seconds > columns.seconds  # with the fits before it
    search = starts.search(recipe)
    while search.stage != "axes":
        search.advance()
    scales = starts._axes(search._ranked[-1].along)[1]
    assert np.all(np.diff(scales) >= 0.0)  # they start longer where the slope is less
    late = InitialHyperparameters(dataset, until=0.0)
    assert resolved(recipe, late.find(recipe).kernel).metric == "columns"
    model = build_model(chosen, dataset, kernel=found.kernel, noise_variance=0.01)
    again = build_model(chosen, dataset, start=model)  # which has the matrix too
    np.testing.assert_allclose(*(m.predict_f(dataset.train[0][:5])[0] for m in (model, again)))


def test_axes_of_gradients_do_not_depend_on_the_rows_that_judge_them():
    """A fifth of the distinct rows; rows that are equal to one of them are left out with it."""
    dataset, _ = waves(True, count=300)
    rows = [np.concatenate([part, part[:50]]) for part in dataset.train]
    _, judged = repeated_rows.held_out(300, 2000, 0)
    judged = np.concatenate([judged, 300 + judged[judged < 50]])
    recipe = recipe_of("gpnn", kernel="squared_exponential", num_subset=100)
    changed, axes = rows[1].copy(), []
    changed[judged] = -changed[judged]
    for Y in (rows[1], changed):
        starts = InitialHyperparameters(dataclasses.replace(dataset, train=(rows[0], Y)))
        trial = _Trial(recipe.kernel, recipe.ard, recipe.on_grid, recipe.seed, 100)
        axes.append(starts._axes(trial)[0])
    np.testing.assert_array_equal(*axes)


@pytest.mark.parametrize("likelihood", ["student_t", gs.likelihoods.Laplace()])
def test_outliers_do_not_decide_on_the_start_of_noise_with_heavy_tails(likelihood):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 1))
    Y = np.sin(2.0 * X) + 0.1 * rng.normal(size=(150, 1))
    found = []
    for outlier in (3.0, 1e6):
        Y[7] = outlier
        raw = Dataset("table", (X, Y.copy()), (X, Y.copy()), ("a",), "y", None)
        start = InitialHyperparameters(raw.standardized(robust=True), likelihood)
        found.append(start.find(recipe_of("svgp")))
    for name in ("variance", "lengthscales"):
        values = [np.log(getattr(start.kernel, name).numpy()) for start in found]
        np.testing.assert_allclose(*values, atol=0.3)
    assert found[1].noise_variance < 0.2


def rates(rng):
    X = rng.normal(size=(300, 2))
    return X, np.exp(np.sin(2.0 * X[:, :1]))


@pytest.mark.parametrize(("method", "likelihood"), [("svgp", "exponential"), ("swsgp", "gamma")])
def test_positive_outputs_in_any_unit_have_the_same_function(rng, method, likelihood):
    """Up to the logarithm of the unit."""
    X, rate = rates(rng)
    Y = rng.exponential(rate)
    fit = getattr(gs.recipes, method)
    found = [
        fit(X, unit * Y, likelihood=likelihood, num_inducing=40, num_steps=3).predict_f(X)[0]
        for unit in (1.0, 1e-4)
    ]
    np.testing.assert_allclose(found[1] - np.log(1e-4), found[0], atol=1e-3)
    assert np.sqrt(np.mean((found[0] - np.log(rate)) ** 2)) < 0.4


@pytest.mark.parametrize("method", ["svgp", "swsgp", "deep"])
def test_counts_of_thousands_are_fitted_in_few_steps(rng, method):
    """They once ended the training."""
    X, rate = rates(rng)
    Y = rng.poisson(3000.0 * rate).astype(float)
    model = getattr(gs.recipes, method)(X, Y, likelihood="poisson", num_inducing=40, num_steps=3)
    error = model.predict_f(X)[0] - np.log(3000.0 * rate)
    assert np.sqrt(np.mean(error**2)) < 0.15


def counted(Y):
    pair = np.zeros([len(Y), 1]), Y.astype(float)
    return Dataset("made", pair, pair, ("a",), "y", None)


def test_estimates_from_single_outputs_are_unbiased(rng):
    f = rng.uniform(2.0, 5.0, (20_000, 1))
    for likelihood, Y in (
        (gpflow.likelihoods.Exponential(), rng.exponential(np.exp(f))),
        (gpflow.likelihoods.Gamma(shape=0.5), rng.gamma(0.5, np.exp(f))),
        (gpflow.likelihoods.Poisson(binsize=2.0), rng.poisson(2.0 * np.exp(f))),
    ):
        estimates, mean = log_rates(likelihood, counted(Y), None)
        np.testing.assert_allclose(estimates.mean() - f.mean(), 0.0, atol=0.05)
        np.testing.assert_allclose(mean, estimates.mean(axis=0))
    assert log_rates(gpflow.likelihoods.Poisson(invlink=tf.square), counted(Y), None) is None
