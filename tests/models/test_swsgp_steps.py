"""What a training step of SWSGP sees and moves, and what it counts before."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_sparse as gs
from gpflow_sparse.models import SWSGP
from tests.models import test_swsgp as base
from tests.models.test_swsgp import H, L, M, N, build, points, rows
from tests.oracles import swsgp as oracle

FORMS = {
    "diag usage": ("diag", "counts", {}),
    "dense paper": ("dense", "paper", {}),
    "diag chain": ("diag", "chain", {}),
    "dense chain": ("dense", "chain", {}),
    "union": ("diag", "counts", {"union": 6}),
}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))


def built(form):
    covariance, weighting, options = form
    return build(covariance, weighting, **options)


@every_form
def test_a_step_has_the_gradient_of_the_loss(form):
    """A plain step of rate one moves all variables by it; rows that it does not touch have none."""
    X, Y = (part[:3] for part in rows())
    model = built(form)
    model.kernel.lengthscales.prior = tfp.distributions.Gamma(*np.array([2.0, 3.0]))
    variables = model.trainable_variables
    tf.random.set_seed(4)  # the same draw of the chain's terms
    with tf.GradientTape() as tape:
        expected = model.training_loss((X, Y))
    gradients = tape.gradient(expected, variables)
    before = [variable.numpy() for variable in variables]
    tf.random.set_seed(4)
    value, pairs = model.step_gradients((X, Y))
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    of_all = dict(zip([v.ref() for v in variables], gradients, strict=True))
    for gradient, variable in pairs[len(model.row_variables) :]:
        np.testing.assert_allclose(gradient, of_all[variable.ref()], rtol=1e-7)
    tf.random.set_seed(4)
    optimizer = gs.training.SparseSGD(1.0, dense=tf.keras.optimizers.SGD(1.0))
    loss, finite = model.sparse_step((X, Y), optimizer)
    assert finite
    np.testing.assert_allclose(loss, expected, rtol=1e-10)
    for variable, old, gradient in zip(variables, before, gradients, strict=True):
        np.testing.assert_allclose(
            old - variable, tf.convert_to_tensor(gradient), rtol=1e-7, atol=1e-9
        )


@every_form
def test_a_compiled_step_moves_what_it_touches(form):
    X, Y = rows()
    model = built(form)
    before = [variable.numpy() for variable in model.row_variables]
    optimizer = gs.training.SparseAdam(0.01)
    step = tf.function(lambda X, Y: model.sparse_step((X, Y), optimizer), autograph=False)
    lengthscales = model.kernel.lengthscales.numpy()
    loss, finite = step(X[:2], Y[:2])
    assert finite
    assert np.isfinite(loss)
    assert np.all(model.kernel.lengthscales.numpy() != lengthscales)
    for variable, old in zip(model.row_variables, before, strict=True):
        moved = np.any((variable.numpy() != old).reshape(M, -1), axis=1)
        assert 0 < moved.sum() < M


def test_users_are_counted():
    X, _ = rows(N=40)
    model = build()
    expected = oracle.usage(base.neighbor_sets(X), M)[:, None]
    dataset = tf.data.Dataset.from_tensor_slices(X).batch(7)
    pairs = tf.data.Dataset.zip((dataset, dataset))
    for inputs in (X, X.tolist(), dataset, pairs):
        model.usage.assign(tf.zeros_like(model.usage))
        model.count_neighbors(inputs)
        np.testing.assert_array_equal(model.usage, expected)
    assert expected.sum() == 40 * H


@pytest.mark.parametrize(("num_rows", "compiled"), [(None, True), (N, False)])
def test_a_batch_of_all_rows_counts_itself(num_rows, compiled):
    """The objective before `fit` and `count_neighbors` is that after them."""
    X, Y = rows()

    def built():
        kernel, likelihood = gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian()
        return SWSGP(kernel, likelihood, points(), num_latent_gps=L, num_data=num_rows)

    fresh, counted = built(), built()
    counted.count_neighbors(X)
    data = tf.constant(X), tf.constant(Y)
    for name in ("elbo", "training_loss"):
        use = getattr(fresh, name)
        value = tf.function(use, autograph=False)(data) if compiled else use(data)
        np.testing.assert_allclose(value, getattr(counted, name)(data), rtol=1e-12)
    loss = fresh.training_loss_closure((X, Y), compile=compiled)
    np.testing.assert_allclose(loss(), counted.training_loss((X, Y)), rtol=1e-12)
    np.testing.assert_allclose(fresh.prior_kl(X), counted.prior_kl(X), rtol=1e-12)
    assert not np.any(fresh.usage)


def test_usage_must_be_counted_before_a_minibatch():
    X, Y = rows()
    kernel, likelihood = gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian()
    model = SWSGP(kernel, likelihood, points(), num_latent_gps=L, num_data=len(X) + 1)
    optimizer = gs.training.SparseAdam(0.1)
    uses = (model.elbo, model.training_loss, model.training_loss_closure)
    for use in (*uses, lambda data: model.sparse_step(data, optimizer)):
        with pytest.raises(ValueError, match=r"have not been counted.*count_neighbors\(X\)"):
            use((X, Y))
    with pytest.raises(ValueError, match="count_neighbors"):
        model.prior_kl(X)
    with pytest.raises(ValueError, match="count_neighbors"):
        tf.function(model.elbo, autograph=False)((tf.constant(X), tf.constant(Y)))
    model.predict_f(X)  # needs none
