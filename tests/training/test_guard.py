"""A step that fails moves nothing, is explained, and is tried again from what was good."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras

from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.models import SOLVEGP
from gpflow_sparse.training import TrainingError, adam, fit

N = 40


def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(N, 1))
    return X, np.sin(3.0 * X) + 0.1 * rng.normal(size=X.shape)


def solvegp(likelihood=None):
    return SOLVEGP(
        gpflow.kernels.SquaredExponential(),
        gpflow.likelihoods.Gaussian(0.5) if likelihood is None else likelihood,
        OrthogonalInducingVariables(np.linspace(-2, 2, 4)[:, None], np.array([[-1.0], [0.1]])),
        num_data=N,
    )


def spoiled(x, factor):
    """``x``, with a gradient multiplied by ``factor``."""

    @tf.custom_gradient
    def identity(x):
        return x, lambda upstream: upstream * factor

    return identity(x)


class Fragile(gpflow.likelihoods.Gaussian):
    """NaN in the evaluations from ``first`` to ``last``, or only in their gradients."""

    def __init__(self, first, last, only_gradients=False):
        super().__init__(0.5)
        counter = tf.Variable(0, trainable=False)
        # out of sight: as a variable of the model it would be put back with it
        self.count = lambda: counter.assign_add(1)
        self.first, self.last, self.only_gradients = first, last, only_gradients

    def _variational_expectations(self, X, Fmu, Fvar, Y):
        number = self.count()
        bad = tf.logical_and(number >= self.first, number <= self.last)
        factor = tf.cast(tf.where(bad, np.nan, 1.0), Fmu.dtype)
        value = super()._variational_expectations(X, Fmu, Fvar, Y)
        return spoiled(value, factor) if self.only_gradients else value * factor


@pytest.mark.parametrize(
    ("gamma", "only_gradients", "text"),
    [
        (0.0, False, r"the objective is nan"),
        (0.5, True, r"the gradient of model\..* is not finite, though the objective is -\d"),
    ],
)
def test_a_passing_failure_goes_back_to_the_snapshot_and_on(gamma, only_gradients, text):
    """Step 8 and its eager diagnosis fail; steps 5 to 8 are taken again."""
    model, seen = solvegp(Fragile(8, 9, only_gradients)), []
    message = rf"step 8: {text}.*the model is back at step 4, and continues with 0\.5 of the step"
    with pytest.warns(match=message):
        history = fit(
            model,
            data(),
            num_steps=20,
            natural_gradients=gamma,
            checkpoint_every=4,
            callbacks=[lambda state: seen.append(state.step)],
        )
    assert len(history.recoveries) == 1
    assert seen == [*range(1, 8), *range(5, 21)]
    assert history.num_steps == 20
    assert np.isfinite(history.elbo).all()


@pytest.mark.nightly
def test_three_failures_in_a_row_end_the_run_at_the_last_good_state():
    model, same = solvegp(Fragile(8, 10**9)), solvegp()
    warning, error = pytest.warns(match="objective is nan"), pytest.raises(TrainingError)
    with warning as warned, error as caught:
        fit(model, data(), num_steps=20, checkpoint_every=4, optimizer=adam(0.0))
    assert len(warned) == 2
    message = str(caught.value)
    assert message.startswith("step 5: the objective is nan")
    assert "back at step 4" in message
    words = "did not help to continue with 0.5 of the step size, then 0.25 of the step size"
    assert words in message
    for value, expected in zip(values(model), values(same), strict=True):
        np.testing.assert_array_equal(value, expected)


def values(model):
    return [variable.numpy() for variable in model.variables]


def test_a_failed_step_moves_neither_parameters_nor_optimizer():
    """At the first step nothing can be tried: no good state, no factorization to help."""
    model, optimizer = solvegp(Fragile(1, 10**9)), adam(0.1)
    before = values(model)
    with pytest.raises(TrainingError, match=r"step 1: .*nothing has moved"):
        fit(model, data(), num_steps=5, optimizer=optimizer, natural_gradients=0.5)
    for value, expected in zip(values(model), before, strict=True):
        np.testing.assert_array_equal(value, expected)
    assert int(optimizer.iterations) == 0
    assert all(np.all(v.numpy() == 0) for v in optimizer.variables[2:])


@pytest.mark.nightly
@pytest.mark.parametrize("gamma", [0.0, 0.4])
def test_the_shortened_step_is_half_as_long(gamma):
    """What step 1 led to fails, and both are taken by half: as with half the rate and gamma."""
    model, same = solvegp(Fragile(2, 3)), solvegp()
    options = {"checkpoint_every": 1, "natural_gradients": gamma, "progress": False}
    with pytest.warns(match=r"continues with 0\.5 of the step size"):
        fit(model, data(), num_steps=2, optimizer=tf_keras.optimizers.SGD(0.01), **options)
    options["natural_gradients"] = 0.5 * gamma
    fit(same, data(), num_steps=2, optimizer=tf_keras.optimizers.SGD(0.005), **options)
    for value, expected in zip(model.trainable_variables, same.trainable_variables, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-9)


class Cliff(gpflow.likelihoods.Gaussian):
    """NaN beyond a noise variance of 0.53."""

    def _variational_expectations(self, X, Fmu, Fvar, Y):
        value = super()._variational_expectations(X, Fmu, Fvar, Y)
        beyond = tf.convert_to_tensor(self.variance) > 0.53
        return tf.where(beyond, tf.constant(np.nan, value.dtype), value)


@pytest.mark.nightly
def test_the_last_step_is_looked_at_too():
    """Nothing comes after it that could fail; its result is evaluated and, here, taken back."""
    model = solvegp(Cliff(0.5))
    with pytest.warns(match=r"step 1: the objective is nan.*back at step 0.*of the step size"):
        history = fit(model, data(), num_steps=1, optimizer=adam(0.1))
    assert history.num_steps == 1
    assert 0.51 < model.likelihood.variance.numpy() <= 0.53
    assert np.isfinite(model.elbo(data()))


class Touchy(gpflow.kernels.SquaredExponential):
    """Positive definite only with a hundred times the usual jitter."""

    def K(self, X, X2=None):
        K = super().K(X, X2)
        return K if X2 is not None else tf.linalg.set_diag(K, tf.linalg.diag_part(K) - self.deficit)

    deficit = 0.0


def test_a_failed_factorization_raises_the_models_jitter_and_keeps_it():
    Z = np.concatenate([np.linspace(-2, 2, 4), np.linspace(-2, 2, 4)])[:, None]  # singular
    kernel = Touchy()
    kernel.deficit = 3e-5
    model = SOLVEGP(
        kernel, gpflow.likelihoods.Gaussian(0.5), OrthogonalInducingVariables(Z), num_data=N
    )
    message = r"step 1: Cholesky factorization of Kuu.* 4 of the 8 inducing points coincide"
    with pytest.warns(match=message) as warned:
        history = fit(model, data(), num_steps=5)
    assert len(warned) == len(history.recoveries) == 2
    assert model.jitter == pytest.approx(1e-4)
    assert np.isfinite(model.elbo(data()))
    assert np.isfinite(model.posterior().predict_f(data()[0])[1]).all()


def batches(X, Y):
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)


def mapped(folder, name, values):
    file = np.memmap(folder / name, dtype=values.dtype, mode="w+", shape=values.shape)
    file[:] = values
    return file


def test_a_bad_row_on_disk_is_named_by_its_number_there(tmp_path):
    X, Y = data()
    Y[27] = np.inf
    model = solvegp()
    source = mapped(tmp_path, "X", X), mapped(tmp_path, "Y", Y)
    message = (
        r"step \d+: in this batch, Y must be finite.* It is row 27 of the arrays; .*step 0|moved"
    )
    with pytest.raises(TrainingError, match=message):
        fit(model, source, num_steps=10, batch_size=8)
    assert np.isfinite(model.elbo(data()))


def test_a_dataset_that_breaks_is_reported_with_the_step():
    def broken():
        yield data()
        raise RuntimeError("the disk is gone")

    spec = tf.TensorSpec([None, 1], tf.float64)
    source = tf.data.Dataset.from_generator(broken, output_signature=(spec, spec))
    with pytest.raises(TrainingError, match=r"step 2: .*data could not be read"):
        fit(solvegp(), source, num_steps=4)


def test_a_covariance_of_the_data_that_fails_is_named():
    X, Y = data()
    X = np.repeat(X[:10], 4, axis=0)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32, jitter=1e-12)):
        pair = X.astype(np.float32), (Y > 0).astype(np.float32)
        kernel, likelihood = gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Bernoulli()
        model = gpflow.models.VGP(pair, kernel, likelihood)
        with pytest.raises(TrainingError, match=r"Kff \(covariance of the data\) failed"):
            fit(model, num_steps=3)
    model = gpflow.models.GPR(data(), gpflow.kernels.SquaredExponential())
    model.kernel.variance.unconstrained_variable.assign(np.nan)
    with pytest.raises(TrainingError, match=r"model\.kernel\.variance is not finite"):
        fit(model, num_steps=3)


def test_a_model_with_nothing_to_train_is_refused():
    model = solvegp()
    gpflow.set_trainable(model, False)
    with pytest.raises(ValueError, match=r"nothing to train"):
        fit(model, data(), num_steps=3)


@pytest.mark.parametrize("make", [lambda: adam(0.1), lambda: tf.optimizers.Adam(0.1)])
def test_an_optimizer_belongs_to_its_variables(make):
    optimizer, model = make(), solvegp()
    fit(model, data(), num_steps=2, optimizer=optimizer)
    fit(model, data(), num_steps=2, optimizer=optimizer)
    with pytest.raises(ValueError, match=r"optimizer has been used for other variables"):
        fit(solvegp(), data(), num_steps=2, optimizer=optimizer)
    with pytest.raises(ValueError, match=r"optimizer has been used for other variables"):
        fit(model, data(), num_steps=2, optimizer=optimizer, natural_gradients=True)


def cause(model, rows=None):
    """What `fit` says of a step that fails."""
    with pytest.raises(TrainingError) as caught:
        fit(model, data() if rows is None else rows, num_steps=1, progress=False)
    return str(caught.value)


@pytest.mark.nightly
def test_rows_that_overflow_are_named():
    X, Y = data()
    Y[11] = 1e200
    message = r"step 2: in this batch, Y must be smaller than.*entry is 1e\+200, at \(3, 0\)"
    with pytest.raises(TrainingError, match=message):
        fit(solvegp(), batches(X, Y), num_steps=3)
    model = solvegp(gpflow.likelihoods.Poisson())
    model.q_mu[0].assign([[1e3], [0.0], [0.0], [0.0]])  # exp(1000) near X = -2
    text = cause(model, (X, np.zeros_like(X)))
    mean = model.predict_f(X)[0].numpy()[:, 0]
    count, first = (mean > 709.0).sum(), np.flatnonzero(mean > 709.0)[0]
    assert f"expected log likelihood of {count} of the 40 rows is not finite" in text
    assert f"the first is row {first} of the batch" in text
    assert f"X column 0 = {X[first, 0]:.4g}" in text
