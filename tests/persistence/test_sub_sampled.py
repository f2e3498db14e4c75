"""Models that see some of their functions in a step, saved before, between and after steps."""

import pickle

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_sparse as gs
from tests.persistence import zoo

SUPPORT = 5


def kernel():
    return gpflow.kernels.Matern32(lengthscales=[0.8, 1.2])


def qsgp(basis, likelihood=None, **options):
    options = {"num_data": zoo.N, "basis_batch_size": 2, "num_support": SUPPORT, **options}
    likelihood = gpflow.likelihoods.Gaussian(0.3) if likelihood is None else likelihood
    return gs.models.QSGP(basis, likelihood, **options)


def fourier():
    return gs.bases.RandomFourier(kernel(), 8, seed=2)


BUILDERS = {
    "hybrid": lambda: qsgp(gs.bases.Hybrid(kernel(), zoo.inputs(seed=2, rows=3), 8, seed=2)),
    "chevron": lambda: qsgp(fourier(), covariance="chevron", num_dense_columns=2),
    "none": lambda: qsgp(fourier(), variance_reduction="none", support=zoo.inputs(rows=3)),
    "logit": lambda: qsgp(fourier(), gs.likelihoods.BernoulliLogit()),
    "dictionary": lambda: qsgp(
        gs.bases.KernelDictionary(kernel(), zoo.inputs()), augmentation=zoo.inputs()
    ),
    "rvm": lambda: gs.models.RVM(
        zoo.inputs(), kernel(), num_data=zoo.N, basis_batch_size=2, num_support=SUPPORT
    ),
}


def stepped(model, steps, first=0):
    """The same draws in every call."""
    tf.random.set_seed(3)
    optimizer = gs.training.SparseAdagrad(0.1, dense=gs.training.adam(0.1))
    Y = (zoo.outputs() > 0.0).astype(float)
    for step in range(first, first + steps):
        model.prepare_step(step, lambda: (zoo.inputs(), Y))
        assert bool(model.sparse_step((zoo.inputs(), Y), optimizer)[1])
    return model


def round_trip(model, folder):
    gs.save(model, folder / "model.gp")
    return gs.load(folder / "model.gp")


def assert_equal(a, b):
    assert type(a) is type(b)
    for one, other in zip(a.variables, b.variables, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.trainable == other.trainable
        assert one.shape.as_list() == other.shape.as_list()


@pytest.mark.parametrize("name", BUILDERS)
def test_a_saved_model_predicts_and_trains_on_as_if_it_had_not_been_saved(name, tmp_path):
    model = BUILDERS[name]()
    loaded = round_trip(model, tmp_path)  # before there are support rows
    assert_equal(stepped(loaded, 2), stepped(model, 2))
    loaded = round_trip(model, tmp_path)
    for a, b in zip(
        zoo.predictions(loaded, zoo.inputs()), zoo.predictions(model, zoo.inputs()), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    # the next steps go on from the anchors that were saved
    assert_equal(stepped(loaded, 2, first=3), stepped(model, 2, first=3))
    if name == "rvm":
        np.testing.assert_array_equal(loaded.relevance_vectors(), model.relevance_vectors())


@pytest.mark.nightly
def test_gpflows_utilities_and_checkpoints_take_them(tmp_path, capsys):
    model = stepped(BUILDERS["hybrid"](), 2)
    expected = zoo.predictions(model, zoo.inputs())
    gpflow.utilities.print_summary(model)
    assert "q_log_scale" in capsys.readouterr().out
    values = gpflow.utilities.read_values(model)
    frozen = gpflow.utilities.freeze(model)
    copy = gpflow.utilities.deepcopy(model)
    other = BUILDERS["hybrid"]()
    other.predict_f(zoo.inputs())
    tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(model=other).read(str(tmp_path / "checkpoint")).assert_consumed()
    for again in (frozen, copy, other):
        for a, b in zip(zoo.predictions(again, zoo.inputs()), expected, strict=True):
            np.testing.assert_array_equal(a, b)
    stepped(model, 1)
    gpflow.utilities.multiple_assign(model, values)
    for one, other in zip(model.variables, copy.variables, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
        assert one.shape.as_list() == other.shape.as_list()
    untouched = gpflow.utilities.deepcopy(BUILDERS["hybrid"]())
    assert_equal(stepped(untouched, 2), stepped(BUILDERS["hybrid"](), 2))
    pickled = pickle.loads(pickle.dumps(copy))
    assert_equal(stepped(pickled, 2), stepped(copy, 2))
    assert pickled.anchors.X.numpy().shape == (SUPPORT, 2)


@pytest.mark.parametrize("part", ["q_mu", "q_block", "anchors", "basis_batch_size"])
def test_a_model_that_lost_a_part_is_not_saved(part, tmp_path):
    model = BUILDERS["hybrid"]()
    setattr(model, part, 0 if part == "basis_batch_size" else None)
    with pytest.raises(ValueError, match="cannot be saved"):
        gs.save(model, tmp_path / "model.gp")
