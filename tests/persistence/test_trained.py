"""Models of every method saved, copied and loaded in the middle of training go on as they were."""

import pickle

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_sparse as gs
from gpflow_sparse.inducing_variables import neighbors
from tests.persistence import zoo
from tests.training.replicated import MODELS, N, data, kernel, qsgp, softki, swsgp

# Models with a state of their own; others are like them, and GPflow's.
MADE = {name: make for name, make in MODELS.items() if name not in ("svgp", "log_bound")}
BUILDERS = {name: lambda make=make: make(gs)[0] for name, make in MADE.items()} | {
    "softki_exact": lambda: softki(gs, "exact")[0],
    "qsgp_none": lambda: qsgp(gs, variance_reduction="none", support=data()[0][:3])[0],
    "qsgp_dictionary": lambda: gs.models.QSGP(
        gs.bases.KernelDictionary(kernel(), data()[0][:6]),
        gpflow.likelihoods.Gaussian(0.3),
        num_data=N,
        basis_batch_size=2,
        augmentation=data()[0][:6],
    ),
}
# The copies and files of each are traced again: the quickest of the methods whose steps move rows.
every_method = pytest.mark.parametrize(
    "name",
    [
        name if name == "swsgp" else pytest.param(name, marks=pytest.mark.nightly)
        for name in BUILDERS
    ],
)


@pytest.fixture(autouse=True)
def outside(monkeypatch):
    """Neighbors are found by a tree, as among thousands of points."""
    monkeypatch.setattr(neighbors, "_MAX_IN_GRAPH", 3)


def trained(model, num_steps=2):
    """The same draws in every call."""
    options = {"batch_size": 10, "progress": False, "deterministic": True}
    gs.training.fit(model, data(), num_steps=num_steps, **options)
    return model


def outcome(model):
    """All variables, and what the model predicts."""
    if isinstance(model, gs.models.SoftKI):
        model.fit_posterior(data(), refit_noise=False)
    return [v.numpy() for v in model.variables] + zoo.predictions(model, data()[0][:4])


def assert_same(a, b, **tolerance):
    for one, other in zip(outcome(a), outcome(b), strict=True):
        np.testing.assert_allclose(one, other, **tolerance or {"rtol": 0.0})
    assert [v.trainable for v in a.variables] == [v.trainable for v in b.variables]


def settings(model):
    """Attributes that are plain values."""
    kinds = bool | int | float | str | type(None)
    return {name: value for name, value in vars(model).items() if isinstance(value, kinds)}


@every_method
def test_a_saved_model_trains_on_as_if_it_had_not_been_saved(name, tmp_path):
    model = BUILDERS[name]()
    for _ in range(2):  # before the first step, and after
        gs.save(model, tmp_path / "model.gp")
        loaded = gs.load(tmp_path / "model.gp")
        assert type(loaded) is type(model)
        assert {k: v for k, v in settings(loaded).items() if not k.startswith("_")} == {
            k: v for k, v in settings(model).items() if not k.startswith("_")
        }
        assert_same(trained(loaded), trained(model))


@pytest.mark.nightly
@every_method
def test_copies_are_equal_and_train_on(name, tmp_path):
    model, other = trained(BUILDERS[name]()), BUILDERS[name]()
    tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(model=other).read(str(tmp_path / "checkpoint")).assert_consumed()
    copies = (other, gpflow.utilities.deepcopy(model), pickle.loads(pickle.dumps(model)))
    if not isinstance(model, gs.models.SoftKI):  # whose noise is a parameter
        frozen = gpflow.utilities.freeze(model)
        expected = outcome(model)[len(model.variables) :]
        for got, wanted in zip(outcome(frozen)[len(frozen.variables) :], expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-12)
    for copy in copies:
        assert_same(copy, model)
    trained(model)
    for copy in copies[2:]:
        assert_same(trained(copy), model)


@pytest.mark.nightly
def test_a_search_outside_of_the_graph_is_not_exported_but_can_be_moved_in(tmp_path):
    model, X = trained(swsgp(gs)[0]), data()[0]
    with pytest.raises(ValueError, match=r"cannot be exported.*set_trainable\(model\.inducing"):
        gs.export(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    gpflow.set_trainable(model.inducing_variable, True)
    gs.export(model, tmp_path / "model")
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    for got, expected in zip(loaded.predict_y(X), model.predict_y(X), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("part", ["q_mu", "q_log_scale", "anchors", "basis_batch_size"])
def test_a_model_that_lost_a_part_is_not_saved(part, tmp_path):
    model = qsgp(gs)[0]
    setattr(model, part, 0 if part == "basis_batch_size" else None)
    with pytest.raises(ValueError, match="cannot be saved"):
        gs.save(model, tmp_path / "model.gp")
