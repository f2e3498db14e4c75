"""Steps on some rows: against naive NumPy, against Keras on dense gradients, and inside `fit`."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras

from gpflow_sparse.training import SparseAdagrad, SparseAdam, SparseSGD, fit
from tests.battery import MEMBERS
from tests.oracles.sparse_steps import Rows, summed
from tests.training.test_checkpoints import data

M = 7
MAKERS = {
    "sgd": lambda: SparseSGD(0.3),
    "adagrad": lambda: SparseAdagrad(0.3, initial_accumulator=0.05, epsilon=1e-3),
    "adam": lambda: SparseAdam(0.3, beta_1=0.8, beta_2=0.95, epsilon=1e-3),
}
SETTINGS = {"sgd": (), "adagrad": (1e-3,), "adam": (0.8, 0.95, 1e-3)}


def start(rng, shape, name):
    values = rng.normal(size=shape)
    return tf.Variable(values), Rows(values, initial=0.05 if name == "adagrad" else 0.0)


def slices(rng, shape, count=9):
    """A gradient whose indices repeat, as arrays."""
    return rng.integers(0, M - 2, size=count), rng.normal(size=(count, *shape[1:]))


@pytest.mark.parametrize(
    ("name", "shape"),
    [*((name, (M, 2)) for name in MAKERS), ("adam", (M,)), ("adam", (M, 2, 3))],
)
def test_steps_are_those_of_the_oracle(rng, name, shape):
    """Duplicates are summed; rows count their own steps; rows that are not touched keep bits."""
    variable, oracle = start(rng, shape, name)
    before, optimizer = variable.numpy(), MAKERS[name]()
    for step in range(6):
        indices, values = slices(rng, shape)
        gradient = tf.IndexedSlices(tf.constant(values), tf.constant(indices))
        optimizer.apply_gradients([(gradient, variable), (None, tf.Variable(0.0))])
        for i, g in summed(indices, values).items():
            getattr(oracle, name)(i, g, 0.3, *SETTINGS[name])
        assert int(optimizer.iterations) == step + 1
    np.testing.assert_allclose(variable, oracle.values, rtol=0, atol=1e-12)
    assert variable[M - 2 :].numpy().tobytes() == before[M - 2 :].tobytes()
    assert np.abs(variable[: M - 2] - before[: M - 2]).min() > 1e-3


@pytest.mark.parametrize("name", MAKERS)
def test_move_rows_takes_part_of_a_step_and_says_what_it_added(rng, name):
    variable, oracle = start(rng, (M, 2), name)
    optimizer, indices = MAKERS[name](), np.array([5, 0, 3])
    for scale in (1.0, 0.25):
        before, gradient = variable.numpy(), rng.normal(size=(3, 2))
        delta = optimizer.move_rows(variable, tf.constant(indices), tf.constant(gradient), scale)
        full = oracle.values.copy()
        for i, g in zip(indices, gradient, strict=True):
            getattr(oracle, name)(i, g, 0.3, *SETTINGS[name])
        full = (oracle.values - full)[indices]
        np.testing.assert_allclose(delta, scale * full, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(variable.numpy()[indices], before[indices] + delta)
        oracle.values = variable.numpy()
    assert int(optimizer.iterations) == 0  # until advance
    optimizer.advance()
    assert int(optimizer.iterations) == 1


# numbers that float32 holds exactly, for tf_keras rounds its settings to it
RATE, BETA_1, BETA_2, EPSILON = 0.0625, 0.875, 1.0 - 2.0**-9, 2.0**-20
TWINS = {
    "sgd": (lambda: SparseSGD(RATE), lambda: tf_keras.optimizers.SGD(RATE)),
    "keras adagrad": (
        lambda: SparseAdagrad(RATE, initial_accumulator=0.25, epsilon=0.0),
        lambda: tf_keras.optimizers.Adagrad(RATE, initial_accumulator_value=0.25, epsilon=0.0),
    ),
    "v1 adagrad": (
        lambda: SparseAdagrad(RATE, initial_accumulator=0.25, epsilon=0.0),
        lambda: tf.compat.v1.train.AdagradOptimizer(RATE, initial_accumulator_value=0.25),
    ),
    "keras adam": (
        lambda: SparseAdam(RATE, beta_1=BETA_1, beta_2=BETA_2, epsilon=EPSILON),
        lambda: tf_keras.optimizers.Adam(RATE, BETA_1, BETA_2, EPSILON),
    ),
}


@pytest.mark.parametrize("name", TWINS)
def test_dense_gradients_move_as_the_known_optimizers_do(rng, name):
    """A scalar too, as the variance of a kernel is."""
    values = [rng.normal(size=(M, 2)), rng.normal(size=())]
    ours, theirs = ([tf.Variable(value) for value in values] for _ in range(2))
    optimizer, twin = (make() for make in TWINS[name])
    for _ in range(12):
        gradients = [tf.constant(rng.normal(size=value.shape)) for value in values]
        optimizer.apply_gradients(zip(gradients, ours, strict=True))
        twin.apply_gradients(list(zip(gradients, theirs, strict=True)))
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MAKERS)
def test_a_compiled_step_moves_all_or_nothing(rng, name):
    """Rows of two variables and a dense one, in `tf.cond`, as models with sparse steps do it."""
    values = rng.normal(size=(M, 2)), rng.normal(size=M), rng.normal(size=())
    gradients = rng.normal(size=(3, 2)), rng.normal(size=2), np.float64(rng.normal())

    def make():
        a, b, c = (tf.Variable(value) for value in values)
        optimizer = MAKERS[name]()
        optimizer.dense = tf_keras.optimizers.SGD(0.5)
        optimizer.build([a, b], [c])
        return optimizer, a, b, c

    def moves(optimizer, a, b, c):
        optimizer.move_rows(a, tf.constant([4, 1, 2]), tf.constant(gradients[0]), 0.5)
        optimizer.move_rows(b, tf.constant([6, 0]), tf.constant(gradients[1]), 0.5)
        optimizer.move_dense([(tf.constant(gradients[2]), c)], 0.5)
        optimizer.advance()
        return tf.constant(True)

    compiled, eager = make(), make()

    @tf.function(autograph=False)
    def step(move):
        return tf.cond(move, lambda: moves(*compiled), lambda: tf.constant(False))

    for move in (True, False, True):
        assert bool(step(tf.constant(move))) is move
    moves(*eager)
    moves(*eager)
    assert int(compiled[0].iterations) == 2
    for mine, other in zip(compiled[1:], eager[1:], strict=True):
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-15)
    np.testing.assert_allclose(compiled[3], values[2] - 2 * 0.5 * 0.5 * gradients[2], atol=1e-15)
    for mine, other in zip(compiled[0].variables, eager[0].variables, strict=True):
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-15)


RATES = {
    "schedule": tf_keras.optimizers.schedules.ExponentialDecay(0.5, 1, 0.5),
    "function": lambda step: 0.5 * 0.5 ** tf.cast(step, tf.float64),
}


@pytest.mark.parametrize("name", RATES)
def test_the_rate_follows_the_step(name):
    variable, optimizer = tf.Variable(np.zeros(3)), SparseSGD(RATES[name])
    for _ in range(3):
        gradient = tf.IndexedSlices(tf.ones(1, tf.float64), tf.constant([1]))
        optimizer.apply_gradients([(gradient, variable)])
    np.testing.assert_allclose(variable, [0.0, -0.875, 0.0], atol=1e-15)


def test_small_variables_go_to_the_dense_optimizer(rng):
    rows, small = tf.Variable(np.zeros(M)), tf.Variable(np.zeros(2))
    optimizer = SparseAdagrad(0.1, dense=tf_keras.optimizers.SGD(2.0))
    optimizer.build([rows], [small])
    gradient = rng.normal(size=2)
    optimizer.apply_gradients([(tf.ones(M, tf.float64), rows), (tf.constant(gradient), small)])
    np.testing.assert_allclose(small, -2.0 * gradient, atol=1e-15)
    np.testing.assert_allclose(rows, -0.1 * np.ones(M), atol=1e-10)
    dense = {v.ref() for v in optimizer.dense.variables}
    assert dense < {v.ref() for v in optimizer.variables}


def test_build_makes_memory_once_and_for_one_list():
    a, b, c = (tf.Variable(np.zeros(size)) for size in (3, 4, 2))
    optimizer = SparseAdam()
    assert len(optimizer.variables) == 1
    optimizer.build([a, b], [c])
    shapes = [tuple(slot.shape) for slot in optimizer.variables[1:7]]
    assert shapes == [(3,), (3,), (3,), (4,), (4,), (4,)]
    assert {slot.dtype for slot in optimizer.variables[1:7]} == {tf.float64}
    held = optimizer.variables
    optimizer.build([b, a], [c])
    assert [v.ref() for v in optimizer.variables] == [v.ref() for v in held]
    for other in (([a], [c]), ([a, b], []), ([a, b, c], [])):
        with pytest.raises(ValueError, match=r"SparseAdam has been built for other variables"):
            optimizer.build(*other)


def test_settings_are_plain_values():
    config = SparseAdam(0.02, dense=tf_keras.optimizers.SGD(0.5)).get_config()
    assert {k: v for k, v in config.items() if k != "dense"} == {
        "learning_rate": 0.02,
        "beta_1": 0.9,
        "beta_2": 0.999,
        "epsilon": 1e-7,
    }
    assert config["dense"]["kind"] == "SGD"
    assert config["dense"]["learning_rate"] == 0.5
    rate = SparseSGD(RATES["schedule"]).get_config()["learning_rate"]
    assert (rate["kind"], rate["decay_rate"]) == ("ExponentialDecay", 0.5)
    assert "lambda" in SparseSGD(RATES["function"]).get_config()["learning_rate"]["kind"]
    assert SparseAdagrad().get_config()["dense"]["learning_rate"] == pytest.approx(0.001)


def svgp():
    X, _ = data()
    kernel = gpflow.kernels.Matern52(lengthscales=[1.0, 1.0])
    likelihood = gpflow.likelihoods.Gaussian(0.5)
    return gpflow.models.SVGP(kernel, likelihood, X[:5], num_data=len(X))


def test_fit_takes_them_for_any_model():
    """On dense gradients the lazy Adam is Adam."""
    model, twin = svgp(), svgp()
    optimizer = SparseAdam(RATE)
    fit(model, data(), optimizer=optimizer, num_steps=30, progress=False)
    adam = tf_keras.optimizers.legacy.Adam(RATE)  # which rounds no setting to float32
    fit(twin, data(), optimizer=adam, num_steps=30, progress=False)
    for name, value in gpflow.utilities.read_values(twin).items():
        np.testing.assert_allclose(gpflow.utilities.read_values(model)[name], value, atol=1e-7)
    with pytest.raises(ValueError, match="optimizer has been used for other variables"):
        fit(svgp(), data(), optimizer=optimizer, num_steps=1, progress=False)


@pytest.mark.parametrize("name", ["swsgp_dense", "qsgp_chevron", "rvm"])
def test_a_q_that_is_not_trainable_does_not_move(name):
    """Nor do its starting values change; everything else is trained."""
    rows = MEMBERS[name].data
    model = MEMBERS[name].build(num_data=len(rows[0]))
    gpflow.set_trainable(model, False)
    gpflow.set_trainable([model.kernel, model.likelihood], True)
    if name.startswith("swsgp"):
        model.q_mu.assign(tf.zeros_like(model.q_mu))
    before = [variable.numpy() for variable in (*model.row_variables, *model.dense_variables)]
    fit(model, rows, num_steps=3, batch_size=5, progress=False)
    after = [variable.numpy() for variable in (*model.row_variables, *model.dense_variables)]
    moved = [np.any(a != b) for a, b in zip(before, after, strict=True)]
    assert moved == [False] * len(model.row_variables) + [True] * len(model.dense_variables)
