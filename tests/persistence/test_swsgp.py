"""Models with neighbors in files; where a tree finds these, too."""

import pickle

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_sparse as gs
from gpflow_sparse.inducing_variables import neighbors
from gpflow_sparse.models import SWSGP
from tests.persistence import zoo
from tests.persistence.test_softki import attribute, forged

M, H = 9, 3


def swsgp(**options):
    points = gs.inducing_variables.NeighborInducingPoints(
        zoo.inputs(seed=2, rows=M), H, **options.pop("points", {})
    )
    model = SWSGP(
        gpflow.kernels.Matern32(lengthscales=[0.8, 1.2]),
        gpflow.likelihoods.Gaussian(0.2),
        points,
        num_data=zoo.N,
        **options,
    )
    model.update_neighbors(zoo.inputs())
    return zoo.moved(model)


def rows():
    return zoo.inputs(), zoo.outputs()


def round_trip(model, folder):
    gs.save(model, folder / "model.gp")
    return gs.load(folder / "model.gp")


def assert_same(a, b):
    for one, other in zip(a.variables, b.variables, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.trainable == other.trainable
    for one, other in zip(
        zoo.predictions(a, zoo.inputs()), zoo.predictions(b, zoo.inputs()), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert float(a.elbo(rows())) == float(b.elbo(rows()))


OPTIONS = {
    "diag": {"points": {"global_indices": [4, 2], "num_remembered": 5}},
    "dense": {"covariance": "dense", "kl_weighting": "paper"},
    "union": {"union": 6},
}


@pytest.fixture
def outside(monkeypatch):
    """Neighbors are found by a tree, as among thousands of points."""
    monkeypatch.setattr(neighbors, "_MOST_IN_GRAPH", 3)


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_a_loaded_model_is_the_same_and_trains_on_as_if_it_had_not_been_saved(options, tmp_path):
    model = swsgp(**dict(options))
    loaded = round_trip(model, tmp_path)
    assert_same(loaded, model)
    for name in ("covariance", "kl_weighting", "union", "num_data", "jitter"):
        assert getattr(loaded, name) == getattr(model, name)
    for name in ("num_neighbors", "global_indices", "num_remembered"):
        ours, theirs = (getattr(m.inducing_variable, name) for m in (loaded, model))
        assert (type(ours), ours) == (type(theirs), theirs)
    for each in (model, loaded):
        optimizer = gs.training.SparseAdam(0.1)
        for start in (0, 4):
            batch = tuple(part[start : start + 4] for part in rows())
            assert bool(each.sparse_step(batch, optimizer)[1])
    assert_same(loaded, model)


@pytest.mark.usefixtures("outside")
def test_gpflows_utilities_and_checkpoints_take_them(tmp_path):
    model, other = swsgp(), zoo.moved(swsgp(), 0.3)
    frozen = gpflow.utilities.freeze(model)
    np.testing.assert_allclose(frozen.elbo(rows()), model.elbo(rows()), rtol=1e-12)
    assert_same(pickle.loads(pickle.dumps(model)), model)
    assert_same(gpflow.utilities.deepcopy(model), model)
    tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(model=other).read(str(tmp_path / "checkpoint")).assert_consumed()
    assert_same(other, model)


@pytest.mark.nightly
@pytest.mark.usefixtures("outside")
def test_a_search_outside_of_the_graph_is_not_exported_but_can_be_moved_in(tmp_path):
    model = swsgp()
    with pytest.raises(ValueError, match=r"cannot be exported.*set_trainable\(model\.inducing"):
        gs.export(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    gpflow.set_trainable(model.inducing_variable, True)
    gs.export(model, tmp_path / "model")
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    for got, expected in zip(
        loaded.predict_y(zoo.inputs()), model.predict_y(zoo.inputs()), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


FORGERIES = {
    "more neighbors than points": (
        attribute("NeighborInducingPoints", "num_neighbors", M + 1),
        "num_neighbors",
    ),
    "another covariance": (attribute("SWSGP", "covariance", "x"), "covariance"),
    "another weighting": (attribute("SWSGP", "kl_weighting", "x"), "kl_weighting"),
    "a union of too many": (attribute("SWSGP", "union", M + 1), "union"),
    "no points": (attribute("SWSGP", "inducing_variable", None), "inducing_variable"),
    "more outputs": (attribute("SWSGP", "num_latent_gps", 2), "q_mu"),
}


def numbers(name, new):
    """Exchange the numbers of one variable of the model."""

    def change(parts, objects, arrays):
        described = objects[parts["SWSGP"][name]["ref"]]
        arrays[described["data"]] = np.ascontiguousarray(new(arrays[described["data"]]))
        described["shape"] = {"shape": list(arrays[described["data"]].shape)}

    return change


FORGERIES |= {
    f"fewer rows of {name}": (numbers(name, lambda v: v[:-1]), name)
    for name in ("q_mu", "q_log_scale", "usage")
}


@pytest.mark.parametrize(("change", "word"), FORGERIES.values(), ids=list(FORGERIES))
def test_a_model_whose_parts_do_not_fit_is_refused(change, word, tmp_path):
    path = tmp_path / "model.gp"
    gs.save(swsgp(), path)
    with pytest.raises(ValueError, match=f"cannot load .*{word}"):
        gs.load(forged(path, change))
