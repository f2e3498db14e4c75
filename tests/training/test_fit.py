"""The training loop: it climbs whatever it is given, repeats itself, and says why it failed."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.monitor import ExecuteCallback, MonitorTaskGroup

from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.models import SOLVEGP
from gpflow_sparse.training import EarlyStopping, TrainingError, adam, fit
from tests.battery import MEMBERS

N = 40


def data():
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-2.0, 2.0, size=(N, 1)), axis=0)
    return X, np.sin(3.0 * X) + 0.1 * rng.normal(size=X.shape)


def solvegp(num_data=None, likelihood=None):
    return SOLVEGP(
        gpflow.kernels.SquaredExponential(),
        likelihood or gpflow.likelihoods.Gaussian(0.5),
        OrthogonalInducingVariables(np.linspace(-2, 2, 4)[:, None], np.array([[-1.0], [0.1]])),
        num_data=num_data,
    )


def stock_svgp(num_data=None):
    return gpflow.models.SVGP(
        gpflow.kernels.SquaredExponential(),
        gpflow.likelihoods.Gaussian(0.5),
        np.linspace(-2, 2, 5)[:, None],
        num_data=num_data,
    )


def batched(X, Y):
    return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(N, seed=0).batch(8)


def test_natural_gradients_move_q_and_leave_the_rest_to_the_optimizer():
    """With a rate of zero only q moves, and by natural gradients of size 0.1 by default."""
    model, same = solvegp(), solvegp()
    lengthscale = model.kernel.lengthscales.numpy()
    fit(model, data(), num_steps=1, natural_gradients=True, optimizer=adam(0.0))
    fit(same, data(), num_steps=1, natural_gradients=0.1, optimizer=adam(0.0))
    assert model.kernel.lengthscales.numpy() == lengthscale
    for (q_mu, q_sqrt), (same_mu, same_sqrt) in zip(
        model.variational_parameters, same.variational_parameters, strict=True
    ):
        assert np.abs(q_mu.numpy()).max() > 0.01
        assert np.abs(q_sqrt.numpy()[0] - np.eye(q_mu.shape[0])).max() > 0.01
        np.testing.assert_array_equal(q_mu, same_mu)
        np.testing.assert_array_equal(q_sqrt, same_sqrt)


@pytest.mark.parametrize(("epochs", "size", "steps"), [(1, 10, 4), (0.5, 10, 2), (1, 12, 4)])
def test_epochs_are_passes_over_the_data(epochs, size, steps):
    history = fit(solvegp(num_data=N), data(), num_epochs=epochs, batch_size=size)
    assert history.num_steps == steps


def test_early_stopping_ends_the_run_and_every_callback_is_still_called():
    """At a rate of zero nothing rises after the first look: 2 steps per look, 1 + 2 looks."""
    steps, monitored = [], []
    task = ExecuteCallback(lambda **_: monitored.append(1))
    history = fit(
        solvegp(),
        data(),
        num_steps=50,
        optimizer=adam(0.0),
        callbacks=[
            EarlyStopping(every=2, patience=2),
            lambda state: steps.append(state.step),
            MonitorTaskGroup(task, period=2),
        ],
    )
    assert history.stopped_early
    assert history.num_steps == 6
    assert steps == [1, 2, 3, 4, 5, 6]
    assert len(monitored) == 3


def test_early_stopping_looks_at_held_out_rows():
    X, Y = data()
    stopper = EarlyStopping(validation=(X[::4], Y[::4]), every=1, patience=1)
    model = solvegp()
    history = fit(model, (X, Y), num_steps=5, optimizer=adam(0.0), callbacks=[stopper])
    assert history.num_steps == 2
    expected = np.mean(model.predict_log_density((X[::4], Y[::4])))
    np.testing.assert_allclose(stopper.best, expected, rtol=1e-12)


REFUSED_OPTIONS = [
    ({}, "exactly one of num_steps and num_epochs"),
    ({"num_steps": 0}, "num_steps must be a positive integer, got 0"),
    ({"num_epochs": 0}, "num_epochs must be one positive number; got 0"),
    ({"num_steps": 1, "batch_size": 0}, "batch_size must be a positive integer, got 0"),
    ({"num_steps": 1, "optimizer": "adam"}, "got 'adam'"),
    ({"num_steps": 1, "batch_size": 41}, "batch_size must be from 1 to N=40, got 41"),
    ({"num_steps": 1, "batch_size": 10}, r"num_data=None.*build it with num_data=40"),
    ({"num_steps": 1, "natural_gradients": -1.0}, r"natural_gradients must be .* got -1\.0"),
    ({"num_steps": 1, "callbacks": [3]}, "callbacks must be callable"),
]


def test_options_that_do_not_fit_are_refused():
    for options, message in REFUSED_OPTIONS:
        with pytest.raises(ValueError, match=message):
            fit(solvegp(), data(), **options)


def test_data_that_do_not_fit_are_refused_before_the_first_step():
    X, Y = data()
    wrong = solvegp(num_data=39)
    with pytest.raises(ValueError, match=r"num_data=39.*build it with num_data=40"):
        fit(wrong, (X, Y), num_steps=1, batch_size=10)
    with pytest.raises(ValueError, match=r"data is needed: SOLVEGP does not hold its data"):
        fit(solvegp(), num_steps=1)
    with pytest.raises(ValueError, match=r"needs num_data, the number of rows behind the dataset"):
        fit(solvegp(), batched(X, Y), num_steps=1)
    with pytest.raises(ValueError, match=r"give num_steps with a tf\.data\.Dataset"):
        fit(solvegp(num_data=N), batched(X, Y), num_epochs=1)
    with pytest.raises(ValueError, match=r"num_epochs needs data"):
        fit(gpflow.models.GPR((X, Y), gpflow.kernels.Matern52()), num_epochs=1)
    for model in (solvegp(), stock_svgp()):
        with pytest.raises(ValueError, match=r"Y must be a matrix.*Use Y\[:, None\]"):
            fit(model, (X, Y[:, 0]), num_steps=1)
        with pytest.raises(ValueError, match=r"same number of rows, got 40 and 1"):
            fit(model, (X, Y[:1]), num_steps=1)
    with pytest.raises(ValueError, match=r"X must have 1 column\(s\)"):
        fit(solvegp(), (np.hstack([X, X]), Y), num_steps=1)
    with pytest.raises(ValueError, match=r"natural gradients need a model with full covariances"):
        fit(
            gpflow.models.GPR((X, Y), gpflow.kernels.Matern52()),
            num_steps=1,
            natural_gradients=True,
        )


class Indefinite(gpflow.kernels.SquaredExponential):
    """Not a covariance: too large off the diagonal, within one set or between sets."""

    def __init__(self, *, within=1.0, between=1.0):
        super().__init__()
        self.within, self.between = within, between

    def K(self, X, X2=None):
        if X2 is not None:
            return self.between * super().K(X, X2)
        same = super().K(X)
        return tf.linalg.set_diag(self.within * same, tf.linalg.diag_part(same))


@pytest.mark.parametrize("build", [solvegp, stock_svgp])
def test_a_parameter_that_is_not_finite_and_a_matrix_that_failed_are_named(build):
    """GPflow lets a failed factorization through as NaN."""
    model = build()
    model.kernel.lengthscales.unconstrained_variable.assign(np.nan)
    message = r"step 1: model\.kernel\.lengthscales is not finite.*learning rate.*nothing has moved"
    with pytest.raises(TrainingError, match=message):
        fit(model, data(), num_steps=3)
    model = stock_svgp()
    model.kernel = Indefinite(within=5.0)
    with pytest.raises(TrainingError, match=r"step 1: Cholesky factorization of Kuu"):
        fit(model, data(), num_steps=3)


@pytest.mark.nightly
def test_gpflows_models_that_mix_outputs_are_trained():
    """Y has a column for each output of the kernel, not for each latent function."""
    member = MEMBERS["stock_svgp_mixed"]
    history = fit(member.build(len(member.data[0])), member.data, num_steps=5, progress=False)
    assert history.elbo[-1] > history.elbo[0]
