"""Training of models that move some rows in a step: resumed, guarded, and what they refuse."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_sparse.bases import RandomFourier
from gpflow_sparse.models import QSGP, RVM
from gpflow_sparse.models.qsgp import step as qsgp_step
from gpflow_sparse.training import SparseAdagrad, SparseAdam, SparseSGD, TrainingError, adam, fit
from gpflow_sparse.training.guard import diagnose
from gpflow_sparse.training.state import named_variables
from tests.training.test_checkpoints import bits, stopped_and_resumed, undisturbed

N, M, K = 40, 12, 3


def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(N, 2))
    return X, np.sin(3.0 * X[:, :1]) + 0.1 * rng.normal(size=(N, 1))


def kernel():
    return gpflow.kernels.Matern32(lengthscales=[0.8, 1.2])


def qsgp(**options):
    options = {"num_data": N, "basis_batch_size": K, "num_support": 8, **options}
    return QSGP(RandomFourier(kernel(), M, seed=1), gpflow.likelihoods.Gaussian(0.3), **options)


def rvm():
    return RVM(data()[0], kernel(), num_data=N, basis_batch_size=5, num_support=8)


def adagrad():
    """Hyperparameters move fast, so that what the anchors know has to be computed again."""
    return SparseAdagrad(0.1, dense=adam(0.1))


MODELS = {
    "anchored": qsgp,
    "chevron": lambda: qsgp(covariance="chevron", num_dense_columns=2),
    "rvm": rvm,
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", MODELS)
def test_a_killed_run_ends_with_the_same_bits(name, tmp_path, monkeypatch):
    monkeypatch.setattr(qsgp_step, "_LOOK_EVERY", 2)
    optimizer = adagrad if name != "chevron" else lambda: SparseAdam(0.05)
    options = {"optimizer": optimizer, "batch_size": 16, "checkpoint_every": 6}
    options |= {"deterministic": True, "progress": False}
    model, history = undisturbed(MODELS[name], data(), tmp_path / "a", 14, **options)
    again, resumed = stopped_and_resumed(MODELS[name], data(), tmp_path / "b", 14, [9], **options)
    assert bits(again) == bits(model)
    np.testing.assert_array_equal(resumed.elbo, history.elbo)
    start = MODELS[name]()
    start.prepare_step(0, data)
    if name == "anchored":  # refreshed on the way
        then, now = (m.anchors.basis.kernel.lengthscales.numpy() for m in (start, model))
        assert np.abs(now / then - 1.0).max() > 0.05
    finished, same = undisturbed(MODELS[name], data(), tmp_path / "a", 14, **options)
    assert bits(finished) == bits(model)
    np.testing.assert_array_equal(same.elbo, history.elbo)


@pytest.mark.nightly
@pytest.mark.parametrize("build", [qsgp, rvm])
def test_a_run_that_cannot_be_cured_moves_nothing(build):
    model = build()
    before = {
        name: v.numpy() for name, v in named_variables(model).items() if "anchors" not in name
    }
    with pytest.warns(UserWarning, match="of the step size"):  # noqa: SIM117
        with pytest.raises(TrainingError, match=r"the objective is -inf|is not finite") as error:
            fit(model, data(), optimizer=SparseSGD(1e200), num_steps=3, progress=False)
    assert "jitter" not in str(error.value)
    after = named_variables(model)
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)


def test_a_bad_batch_is_named_and_the_last_good_state_kept():
    X, Y = data()
    bad = Y.copy()
    bad[3] = np.nan

    def batches():
        yield from [(X, Y), (X, Y), (X, bad)]

    spec = (tf.TensorSpec([N, 2], tf.float64), tf.TensorSpec([N, 1], tf.float64))
    source = tf.data.Dataset.from_generator(batches, output_signature=spec)
    model = qsgp()
    with pytest.raises(TrainingError, match="step 3: in this batch, Y must be finite"):
        fit(model, source, num_steps=3, progress=False)
    assert np.isfinite(model.exact_elbo((X, Y)))


def test_diagnoses_look_at_rows_and_never_at_whole_variables():
    model = qsgp(basis_batch_size=2)
    model.prepare_step(0, data)
    loss, pairs = model.step_gradients(data())
    assert np.isfinite(loss)
    sizes = {id(variable): gradient.shape for gradient, variable in pairs}
    for variable in model.long_variables:
        assert sizes[id(variable)][0] <= 4 < variable.shape[0]
    found = diagnose(model, data())
    assert "choose the functions of a step" in found.text
    assert not found.jitter_helps
    model.q_mu.assign(np.full((M, 1), 1e160))
    assert "the objective is nan. The expected log likelihood" in diagnose(model, data()).text
    model.q_mu.assign(np.full((M, 1), np.nan))
    assert "model.q_mu is not finite" in diagnose(model, data()).text


@pytest.mark.parametrize("build", [qsgp, rvm])
def test_what_is_held_fixed_stays_fixed_when_all_is_set_trainable(build):
    model = build()
    prior = tfp.distributions.LogNormal(np.float64(0.0), np.float64(1.0))
    model.basis.kernel.variance.prior = prior
    model = build_like(model)
    expected = float(model.log_prior_density())
    gpflow.set_trainable(model, True)
    assert float(model.log_prior_density()) == expected
    held = {v.ref() for v in model.anchors.variables}
    assert not held & {v.ref() for v in model.small_variables}
    model.prepare_step(0, data)
    before = [v.numpy() for v in model.anchors.basis.kernel.trainable_variables]
    factor = model.anchors.factor.numpy()
    optimizer = adagrad()
    for _ in range(3):
        assert bool(model.sparse_step(data(), optimizer)[1])
    for old, variable in zip(before, model.anchors.basis.kernel.trainable_variables, strict=True):
        np.testing.assert_array_equal(variable, old)
    np.testing.assert_array_equal(model.anchors.factor, factor)
    if build is rvm:  # closed forms alone move them
        assert model.basis.log_precision.ref() not in {v.ref() for v in model.long_variables}


def build_like(model):
    """A model around the parts of another, priors included."""
    options = {"num_data": N, "basis_batch_size": K, "num_support": 8}
    if isinstance(model, RVM):
        return RVM(data()[0], model.basis.kernel, **options)
    return QSGP(model.basis, model.likelihood, **options)


def test_only_a_loss_without_draws_has_a_closure():
    with pytest.raises(ValueError, match=r"basis_batch_size=3 .*gs\.training\.fit"):
        qsgp().training_loss_closure(data())
    model = qsgp(basis_batch_size=M)
    before = float(model.exact_elbo(data()))
    gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure(data()), model.trainable_variables, options={"maxiter": 3}
    )
    assert float(model.exact_elbo(data())) > before + 1.0
