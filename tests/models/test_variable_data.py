"""Data given as ``tf.Variable`` and assigned later, as GPflow documents it."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_sparse as gs
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.models import GRIEF, SOLVEGPR, BasisGPR

D, P = 2, 2
GRID = [np.linspace(-2.0, 2.0, 5)] * D


def rows(count, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, D))
    return X, np.sin(X @ np.ones((D, P))) + 0.1 * rng.normal(size=(count, P))


OLD, NEW, XNEW = rows(13, 0), rows(29, 1), rows(7, 2)[0]


def variables(data):
    return tuple(tf.Variable(part, shape=[None, part.shape[1]]) for part in data)


def assign(held, data):
    for variable, value in zip(held, data, strict=True):
        variable.assign(value)


def linear():
    return gpflow.functions.Linear(np.full((D, P), 0.3), np.full(P, 0.1))


def kernel():
    return gpflow.kernels.SquaredExponential(variance=1.3, lengthscales=[0.7, 1.1])


def solvegpr(data, bound="standard"):
    points = np.random.default_rng(3).normal(size=(7, D))
    sets = OrthogonalInducingVariables(points[:4], points[4:])
    options = {"noise_variance": 0.2, "bound": bound, "block_size": 4}
    return SOLVEGPR(data, kernel(), sets, mean_function=linear(), **options)


def grief(data, **options):
    return GRIEF(
        data,
        kernel(),
        num_eigenfunctions=20,
        grid=GRID,
        mean_function=linear(),
        noise_variance=0.2,
        **options,
    )


BUILDERS = {
    "solvegpr": solvegpr,
    "solvegpr coupled": lambda data: solvegpr(data, "coupled"),
    "solvegpr tighter": lambda data: solvegpr(data, "fully_coupled"),
    "solvegpr block": lambda data: solvegpr(data, "block"),
    "basis_gpr": lambda data: BasisGPR(
        data, gs.bases.RandomFourier(kernel(), 10), mean_function=linear(), noise_variance=0.2
    ),
    "grief": grief,
    "grief likelihood": lambda data: grief(data, objective="likelihood"),
    "grief corrected": lambda data: grief(data, objective="corrected"),
}
every_model = pytest.mark.parametrize("build", BUILDERS.values(), ids=list(BUILDERS))


def loss_and_gradients(closure, model):
    with tf.GradientTape() as tape:
        loss = closure()
    return [loss, *tape.gradient(loss, model.trainable_variables)]


def require_equal(model, closure, fresh):
    for got, expected in zip(
        [*loss_and_gradients(closure, model), model.elbo(), *model.predict_f(XNEW)],
        [*loss_and_gradients(fresh.training_loss, fresh), fresh.elbo(), *fresh.predict_f(XNEW)],
        strict=True,
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("build", "compiled"),
    [(build, True) for build in BUILDERS.values()] + [(BUILDERS["solvegpr"], False)],
    ids=[*BUILDERS, "eager"],
)
def test_assigned_rows_count_at_the_next_evaluation(build, compiled):
    """Another number of rows: value, gradient and predictions of a model built on those."""
    held = variables(OLD)
    model = build(held)
    closure = model.training_loss_closure(compile=compiled)
    require_equal(model, closure, build(OLD))
    for data in (NEW, OLD):
        assign(held, data)
        require_equal(model, closure, build(data))


def with_nan(data):
    X = data[0].copy()
    X[1, 0] = np.nan
    return X, data[1]


WRONG = {
    "nan": (with_nan(NEW), "X must be finite", "finite"),
    "rows": ((NEW[0], NEW[1][:-1]), "same number of rows, got 29 and 28", "same number of rows"),
    "empty": ((NEW[0][:0], NEW[1][:0]), "X is empty", "at least one row"),
    "size": ((1e200 * NEW[0], NEW[1]), "X must be smaller", "squares"),
}


@pytest.mark.parametrize("name", ["solvegpr coupled", "grief"])
@pytest.mark.parametrize(("data", "message", "in_graph"), WRONG.values(), ids=list(WRONG))
def test_assigned_rows_are_checked(name, data, message, in_graph):
    held = variables(OLD)
    model = BUILDERS[name](held)
    compiled, late = (model.training_loss_closure() for _ in range(2))
    compiled()
    assign(held, data)
    for call in (model.elbo, model.training_loss, lambda: model.predict_f(XNEW), late):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(tf.errors.InvalidArgumentError, match=in_graph):
        compiled()


def test_bounds_over_pairs_count_the_assigned_rows():
    held = variables(OLD)
    model = solvegpr(held, "coupled")
    compiled = model.training_loss_closure()
    compiled()
    assign(held, rows(20_001, 1))
    with pytest.raises(ValueError, match=r"takes at most 20000 rows.*data has 20001"):
        model.elbo()
    with pytest.raises(tf.errors.InvalidArgumentError, match="takes at most 20000 rows"):
        compiled()


@pytest.mark.parametrize(
    ("kind", "reweighted"),
    [
        ("variables", "original"),
        ("variables", "rotated"),
        ("arrays", "rotated"),
        ("saved", "rotated"),
    ],
)
def test_fixed_sums_are_refused_once_the_rows_have_changed(reweighted, kind, tmp_path):
    """They are read once; `refresh_basis` reads them again. Also for other arrays."""
    model = grief(OLD if kind == "arrays" else variables(OLD), reweighted=reweighted)
    if kind == "saved":
        gs.save(model, tmp_path / "model")
        model = gs.load(tmp_path / "model")
    compiled = tf.function(model.elbo, autograph=False)
    np.testing.assert_allclose(compiled(), grief(OLD, reweighted=reweighted).elbo(), rtol=1e-10)
    assert not model.refresh_basis()
    if kind == "arrays":
        model.data = tuple(tf.constant(part) for part in NEW)
    else:
        assign(model.data, NEW)
        with pytest.raises(tf.errors.InvalidArgumentError, match="data have been assigned"):
            compiled()
    calls = (model.elbo, lambda: model.predict_f(XNEW), model.training_loss_closure())
    for call in (*calls, lambda: model.sample_posterior(1)):
        with pytest.raises(ValueError, match=r"data have been assigned .* refresh_basis"):
            call()
    assert model.refresh_basis()
    fresh = grief(NEW, reweighted=reweighted)
    np.testing.assert_allclose(model.elbo(), fresh.elbo(), rtol=1e-10)
    np.testing.assert_allclose(model.predict_f(XNEW), fresh.predict_f(XNEW), rtol=1e-8)
    if kind != "arrays":
        np.testing.assert_allclose(compiled(), fresh.elbo(), rtol=1e-10)
