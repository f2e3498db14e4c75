"""Training of models that move some rows in a step: resumed, guarded, and what they refuse."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_sparse.bases import RandomFourier
from gpflow_sparse.models import QSGP, RVM
from gpflow_sparse.training import SparseAdagrad, TrainingError, adam, fit
from tests.training.replicated import N, data

M, K = 12, 3


def kernel():
    return gpflow.kernels.Matern32(lengthscales=[0.8, 1.2])


def qsgp(**options):
    options = {"num_data": N, "basis_batch_size": K, "num_control_rows": 8, **options}
    return QSGP(RandomFourier(kernel(), M, seed=1), gpflow.likelihoods.Gaussian(0.3), **options)


def rvm():
    return RVM(data()[0], kernel(), num_data=N, basis_batch_size=5, num_control_rows=8)


def adagrad():
    """Hyperparameters move fast, so that what the anchors know has to be computed again."""
    return SparseAdagrad(0.1, dense=adam(0.1))


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


def test_gradients_of_a_step_are_of_rows_and_failures_are_named():
    model = qsgp(basis_batch_size=2)
    model.prepare_step(0, data)
    loss, pairs = model.step_gradients(data())
    assert np.isfinite(loss)
    sizes = {id(variable): gradient.shape for gradient, variable in pairs}
    for variable in model.row_variables:
        assert sizes[id(variable)][0] <= 4 < variable.shape[0]
    model.q_mu.assign(np.full((M, 1), 1e160))
    with pytest.raises(TrainingError, match=r"objective is nan\. The expected log likelihood"):
        fit(model, data(), num_steps=1, progress=False)


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
    assert not held & {v.ref() for v in model.dense_variables}
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
        assert model.basis.log_precision.ref() not in {v.ref() for v in model.row_variables}


def build_like(model):
    """A model around the parts of another, priors included."""
    options = {"num_data": N, "basis_batch_size": K, "num_control_rows": 8}
    if isinstance(model, RVM):
        return RVM(data()[0], model.basis.kernel, **options)
    return QSGP(model.basis, model.likelihood, **options)


def test_only_a_loss_without_draws_has_a_closure():
    with pytest.raises(ValueError, match=r"basis_batch_size=3 .*gs\.training\.fit"):
        qsgp().training_loss_closure(data())
    model = qsgp(basis_batch_size=M)
    before = float(model.exact_elbo(data()))
    closure, options = model.training_loss_closure(data(), compile=False), {"maxiter": 3}
    gpflow.optimizers.Scipy().minimize(
        closure, model.trainable_variables, compile=False, options=options
    )
    assert float(model.exact_elbo(data())) > before + 1.0
