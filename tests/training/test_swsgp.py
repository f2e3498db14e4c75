"""Training of models with neighbors: resumed, guarded, the same wherever neighbors are found."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inducing_variables import NeighborInducingPoints, neighbors
from gpflow_sparse.models import SWSGP
from gpflow_sparse.training import (
    SparseAdam,
    SparseSGD,
    adam,
    fit,
)
from tests.training.test_checkpoints import N, bits, data

M, H = 14, 4
Z = np.random.default_rng(1).uniform(-2.0, 2.0, size=(M, 2))


def swsgp(kernel=None, points=Z, **options):
    return SWSGP(
        gpflow.kernels.Matern52(lengthscales=[1.0, 1.0]) if kernel is None else kernel,
        gpflow.likelihoods.Gaussian(0.3),
        NeighborInducingPoints(points, H, **options.pop("inducing", {})),
        **{"num_data": N, **options},
    )


def fast():
    """Lengthscales move by more than ten per cent in a few steps, so that neighbors change."""
    return SparseAdam(0.05, dense=adam(0.1))


@pytest.fixture
def outside(monkeypatch):
    """Neighbors are found by a tree, as among thousands of points."""
    monkeypatch.setattr(neighbors, "_MAX_IN_GRAPH", 3)


def run(model, source=None, **options):
    options = {"optimizer": fast(), "num_steps": 10, "batch_size": 16, **options}
    options = {"deterministic": True, **options}
    history = fit(model, data() if source is None else source, progress=False, **options)
    return bits(model), history.elbo


@pytest.mark.parametrize("num_remembered", [0, 40, None])
def test_where_and_when_neighbors_are_found_changes_nothing(num_remembered, monkeypatch):
    """In the graph; by a tree, a batch ahead; from memory."""
    expected = run(swsgp(start="prior"))
    monkeypatch.setattr(neighbors, "_MAX_IN_GRAPH", 3)
    got = run(swsgp(start="prior", inducing={"num_remembered": num_remembered}))
    assert got[0] == expected[0]
    # the loss alone has been seen to differ, by one unit in its last place
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-13)


def users(X):
    model = swsgp()
    model.count_neighbors(X)
    return model.usage.numpy()


def on_disk(folder, X, Y):
    parts = []
    for name, value in (("X", X), ("Y", Y)):
        part = np.memmap(folder / name, dtype=value.dtype, mode="w+", shape=value.shape)
        part[...] = value
        parts.append(part)
    return tuple(parts)


def test_rows_without_end_cannot_be_counted():
    X, Y = data()
    source = tf.data.Dataset.from_tensor_slices((X, Y)).batch(16).repeat()
    for use in (lambda m: m.count_neighbors(source), lambda m: run(m, source, batch_size=None)):
        with pytest.raises(ValueError, match=r"without end.*count_neighbors\(X\)"):
            use(swsgp())
    hidden = tf.data.Dataset.from_generator(
        lambda: iter(source), output_signature=source.element_spec
    )
    with pytest.raises(ValueError, match=r"more than the 60 rows.*without end"):
        run(swsgp(), hidden, batch_size=None)  # it cannot tell


@pytest.mark.usefixtures("outside")
def test_a_batch_after_the_last_step_is_not_missed(tmp_path):
    """What is wrong with rows that no step takes is not a concern of a run."""
    X, Y = data()
    order = np.random.default_rng([0, 0]).permutation(N)  # as a feed of seed 0 takes them
    Y[order[20]] = np.nan
    assert np.isfinite(run(swsgp(), on_disk(tmp_path, X, Y), num_steps=1)[1]).all()


@pytest.mark.parametrize("kind", ["arrays", "tf.data", "endless"])
def test_training_starts_from_sites_once(kind):
    X, Y = data()
    rows = tf.data.Dataset.from_tensor_slices((X, Y)).batch(16)
    source = {"arrays": (X, Y), "tf.data": rows, "endless": rows.repeat()}[kind]
    expected, model = swsgp(), swsgp()
    expected.start_from_sites((X, Y))
    model.count_neighbors(X)
    fixed = {"optimizer": SparseSGD(0.0), "batch_size": 16 if kind == "arrays" else None}
    run(model, source, num_steps=1, **fixed)
    assert np.abs(model.q_mu).max() > 0.1
    np.testing.assert_allclose(model.q_mu, expected.q_mu, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(model.q_log_scale, expected.q_log_scale, rtol=1e-10)
    np.testing.assert_array_equal(model.usage, users(X))
    model.q_mu.assign(np.full((M, 1), 0.5))
    model.start_training(source)
    np.testing.assert_array_equal(model.q_mu, np.full((M, 1), 0.5))


def test_a_start_that_fails_is_the_prior():
    model, (X, Y) = swsgp(), data()
    Y[7] = np.nan
    with pytest.warns(UserWarning, match="training starts from the prior: Y must be finite"):
        model.start_training((X, Y))
    np.testing.assert_array_equal(model.q_mu, np.zeros((M, 1)))
