"""Tables whose inputs repeat: all distinct rows are inducing points, and starts use all outputs."""

import dataclasses
import itertools

import gpflow
import numpy as np
import pytest

import gpflow_sparse as gs
from gpflow_sparse.data import Dataset
from gpflow_sparse.tables.fitting.building import build_model
from gpflow_sparse.tables.fitting.starts import InitialHyperparameters
from gpflow_sparse.tables.fitting.task import Task
from gpflow_sparse.tables.methods.registry import read_options, recipe_of
from gpflow_sparse.tables.methods.rows import choose_points, sized

NOISE = 0.35


def cells(seed=0):
    """Three hundred rows of 3 x 3 levels, each of which has an own mean."""
    rng = np.random.default_rng(seed)
    X = np.stack(np.meshgrid(range(3), range(3)), axis=-1).reshape(-1, 2).astype(float)
    f, of_row = rng.normal(size=9), rng.permutation(np.arange(300) % 9)
    return X[of_row], (f[of_row] + NOISE * rng.normal(size=300))[:, None], (X, f[:, None])


def levels(count=13, seed=0):
    """Sixty rows at each of some levels of one column."""
    rng = np.random.default_rng(seed)
    X = np.repeat(np.linspace(0.0, 1.0, count), 60)[:, None]
    return X, np.sin(7.0 * X) + 0.5 * X + 0.4 * rng.normal(size=X.shape)


def dataset_of(X, Y):
    names = tuple("abcdefgh"[: X.shape[1]])
    return Dataset("table", (X, Y), (X[:2], Y[:2]), names, "y", None).standardized()


def sort_rows(rows):
    return rows[np.lexsort(rows.T)]


def points_of(model):
    """All inducing points, of the first set and of all."""
    if hasattr(model, "basis"):
        return model.basis.Z.numpy(), model.basis.Z.numpy()
    variable = model.inducing_variable
    sets = [part.Z.numpy() for part in getattr(variable, "sets", [variable])]
    return sets[0], np.concatenate(sets)


METHODS = ["solvegp", "odvgp", "solvegpr", "swsgp", "softki", "svgp"]


@pytest.mark.parametrize(
    ("method", "given"), [*((method, False) for method in METHODS), ("solvegp", True)]
)
def test_all_distinct_rows_are_the_inducing_points(method, given):
    dataset = dataset_of(*cells()[:2])
    distinct = np.unique(dataset.train[0], axis=0)
    config = Task(dataset, options={"num_subset": 0}).recipe(method)
    assert config.num_inducing == 9
    if given:  # sizes that a user asked for are not changed
        sizes = {"num_subset": 0, "num_inducing": 256, "num_orthogonal": 100}
        config = recipe_of(method, **read_options(method, sizes))
    base, together = points_of(build_model(config, dataset))
    np.testing.assert_allclose(sort_rows(base), sort_rows(distinct), rtol=1e-12)
    # the other point of ODVGP is far from all rows
    assert len(together) == 9 + (method == "odvgp")


@pytest.mark.parametrize("method", ["solvegp", "odvgp", "solvegpr"])
def test_two_sets_have_all_distinct_rows_together(method):
    dataset = dataset_of(*levels(40))
    options = {"num_subset": 0, "num_inducing": 25, "num_orthogonal": 30}
    config = recipe_of(method, **options)
    assert config.shrunk_to(40, 2400).sizes == (25, 15)
    for tried in (config, config.shrunk_to(40, 2400)):
        base, together = points_of(build_model(tried, dataset))
        assert (len(base), len(together)) == (25, 40)
        expected = sort_rows(np.unique(dataset.train[0], axis=0))
        np.testing.assert_allclose(sort_rows(together), expected, rtol=1e-12)


def test_a_size_that_was_chosen_leaves_the_other_to_the_rows(rng):
    X = rng.normal(size=(60, 2))
    assert sized(recipe_of("solvegp", num_inducing=20), X, ["num_inducing"]).sizes == (20, 15)
    assert sized(recipe_of("solvegp", num_orthogonal=20), X, ["num_orthogonal"]).sizes == (15, 20)
    both = ["num_inducing", "num_orthogonal"]
    assert sized(recipe_of("solvegp"), X, both).sizes == (256, 256)
    repeated = np.concatenate([X, X])  # room for all of them
    assert sized(recipe_of("solvegp", num_inducing=20), repeated, both[:1]).sizes == (20, 256)
    with pytest.raises(ValueError, match=r"num_inducing \+ num_orthogonal = 50 \+ 15 exceeds"):
        choose_points(recipe_of("solvegp"), X, None, 50, 15)
    with pytest.raises(ValueError, match=r"^num_inducing = 70 exceeds the 60 training rows"):
        choose_points(recipe_of("svgp"), X, None, 70)


def test_sizes_without_repeated_rows_are_a_quarter_of_the_rows():
    config = recipe_of("solvegp")
    assert config.shrunk_to(200, 200).sizes == config.shrunk_to(200).sizes == (50, 50)
    assert config.shrunk_to(600, 2000).sizes == (150, 150)  # no room for all
    assert config.shrunk_to(300, 2000).sizes == (256, 44)
    assert config.shrunk_to(9, 2000).sizes == (9,)
    assert recipe_of("odvgp").shrunk_to(9, 2000).sizes == (9, 1)
    assert recipe_of("softki").shrunk_to(300, 2000).sizes == (75,)
    hybrid = recipe_of("qsgp", num_basis=100, num_inducing=20).shrunk_to(9, 2000)
    assert (hybrid.num_inducing, hybrid.num_basis) == (9, 99)


def test_sizes_leave_room_for_held_out_rows():
    """A choice or a calibration holds out up to a third of the rows, which may be the repeated."""
    for method, num_rows in itertools.product(METHODS, (9, 100, 600, 6300)):
        for num_distinct in {1, num_rows // 2, num_rows // 2 + 1, num_rows - 1, num_rows}:
            sizes = recipe_of(method).shrunk_to(num_distinct, num_rows).sizes
            assert sum(sizes) <= max(2, num_rows // 2 + 1)


def test_few_repeated_rows_do_not_make_all_rows_points(rng):
    X = rng.normal(size=(300, 2))
    X[0] = X[-1]
    assert sized(recipe_of("swsgp"), X, ()).sizes == (74,)
    chosen = {"num_inducing": 20}
    assert sized(recipe_of("solvegp", **chosen), X, chosen).sizes == (20, 74)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("deep", {"num_inducing": 20}),
        ("deep", {"num_inducing": 20, "num_orthogonal": 0, "num_neighbors": 12}),
        ("solvegp", {"num_inducing": 20, "num_orthogonal": 20}),
        ("qsgp", {"num_inducing": 20, "num_basis": 100}),
        ("basis_svgp", {"num_inducing": 20, "basis": "soft"}),
    ],
)
def test_other_methods_take_fewer_points_than_they_were_asked_for(method, options):
    dataset = dataset_of(*cells()[:2])
    model = build_model(recipe_of(method, num_subset=0, **options), dataset)
    mean, variance = model.predict_f(dataset.train[0][:20])
    assert np.isfinite(mean).all()
    assert (variance.numpy() > 0.0).all()


@pytest.mark.nightly
@pytest.mark.parametrize(
    "method",
    [
        "solvegpr",
        *(
            pytest.param(name, marks=pytest.mark.nightly)
            for name in ("solvegp", "swsgp", "softki", "gpnn", "auto")
        ),
    ],
)
def test_predictions_are_as_good_as_the_means_of_the_cells(method):
    X, Y, (places, f) = cells()
    options = {"num_steps": 30} if method == "solvegpr" else {}
    found = gs.estimators.SparseGPRegressor(method, method_options=options, random_state=0)
    found.fit(X, Y[:, 0])
    means = np.array([Y[(place == X).all(axis=1)].mean() for place in places])
    error = found.predict(places) - f[:, 0]
    assert np.sqrt(np.mean(error**2)) < 1.3 * np.sqrt(np.mean((means - f[:, 0]) ** 2))
    low, high = found.predict_interval(places).T
    # the noise of SoftKI is that of 30 held-out rows, whose standard error is a quarter
    rtol = 0.5 if method == "softki" else 0.15
    np.testing.assert_allclose((high - low) / (2 * 1.96), NOISE, rtol=rtol)


def test_kernels_of_few_places_are_compared_by_their_evidence():
    """The nearest rows of a held-out row were copies of it: chance chose among the kernels."""
    dataset = dataset_of(*levels())
    starts = InitialHyperparameters(dataset)
    config = recipe_of("gpnn")
    kernel, noise, _, log_evidence = starts.find(config)
    assert isinstance(kernel, gpflow.kernels.SquaredExponential)
    search = starts.search(config)
    while search.advance():
        assert search.best.kernel is kernel
    for name in ("matern12", "matern32", "matern52"):
        other = starts.find(dataclasses.replace(config, kernel=name))
        assert other.log_evidence < log_evidence
    X, Y = dataset.train
    exact = gpflow.models.GPR((X, Y), kernel, noise_variance=noise)
    assert abs(log_evidence - exact.log_marginal_likelihood()) < 10.0  # volume of the posterior
    np.testing.assert_allclose(noise, np.var(Y - exact.predict_f(X)[0]), rtol=0.1)
