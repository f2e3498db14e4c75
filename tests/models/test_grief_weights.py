"""GRIEF with weights of its functions: likelihoods, predictions, gradients, type-I inference."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import SquaredExponential

from tests.models.test_grief import (
    NOISE,
    REWEIGHTED,
    M,
    N,
    assert_close,
    build,
    data,
    inputs,
    reference,
    slope,
    weights,
)
from tests.oracles import grief as oracle

every_family = pytest.mark.parametrize("reweighted", REWEIGHTED)

pytestmark = pytest.mark.filterwarnings("ignore:.*prior variance")


def dense_functions(reweighted, basis, X, Xnew):
    """The functions that the weights belong to: the basis, or it turned by the data's own V."""
    Phi, Phi_new = basis.features(X), basis.features(Xnew)
    if reweighted == "rotated":
        V = np.linalg.eigh(Phi.T @ Phi)[1][:, ::-1]
        Phi, Phi_new = Phi @ V, Phi_new @ V
    return Phi, Phi_new


@every_family
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "graph"])
def test_gradients_of_weights_and_noise_are_the_closed_ones(reweighted, compiled):
    """Sheet 1.7; the rotated form is the same formula with orthogonal functions."""
    X, Y = data()
    y, w = Y[:, 0], weights()
    model = build((X, Y), reweighted=reweighted, objective="likelihood")
    model.weights.assign(w)
    Psi = dense_functions(reweighted, reference(), X, X)[0]
    by_w, by_noise = oracle.lml_gradient(Psi.T @ Psi, Psi.T @ y, y @ y, N, w, NOISE)
    by_w *= 1.0 - np.exp(-w)  # softplus
    by_noise *= 1.0 - np.exp(-(NOISE - 1e-6))  # softplus above GPflow's lower bound
    variables = [
        model.weights.unconstrained_variable,
        model.likelihood.variance.unconstrained_variable,
    ]
    assert {v.ref() for v in model.trainable_variables} == {v.ref() for v in variables}

    def gradients():
        with tf.GradientTape() as tape:
            value = model.log_marginal_likelihood()
        return tape.gradient(value, variables)

    got = (tf.function(gradients, autograph=False) if compiled else gradients)()
    np.testing.assert_allclose(got[0], by_w, rtol=1e-8, atol=1e-8 * np.abs(by_w).max())
    np.testing.assert_allclose(got[1], by_noise, rtol=1e-8)


@every_family
def test_with_weights_the_data_are_read_once(reweighted):
    rows, passes = data(), []

    def batches():
        passes.append(1)
        yield rows

    spec = tuple(tf.TensorSpec([None, part.shape[1]], tf.float64) for part in rows)
    model = build(
        tf.data.Dataset.from_generator(batches, output_signature=spec), reweighted=reweighted
    )
    value, before = float(model.training_loss()), len(passes)
    model.predict_f(inputs(3))
    gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure(), model.trainable_variables, options={"maxiter": 20}
    )
    assert float(model.training_loss()) < value - 1.0
    assert len(passes) == before


@pytest.mark.nightly
@every_family
def test_parameters_that_changed_under_the_statistics_are_refused(reweighted):
    rows = data()
    model = build(rows, reweighted=reweighted, mean_function=slope())
    model.weights.assign(weights())
    calls = {
        "elbo": model.elbo,
        "lml": model.log_marginal_likelihood,
        "loss": model.training_loss,
        "compiled": lambda: tf.function(lambda: model.elbo(), autograph=False)(),
        "predict": lambda: model.predict_f(inputs(3)),
        "posterior": model.posterior,
        "qu": model.compute_qu,
    }
    for part in (model.kernel.lengthscales, model.kernel.variance, model.mean_function.b):
        kept = part.numpy()
        part.assign(kept)  # rounded by the transform there and back
        part.assign(kept + 0.1)
        for call in calls.values():
            with pytest.raises(ValueError, match=r"other parameters than when .* refresh_basis"):
                call()
        part.assign(kept)
        for call in calls.values():
            call()
    model.kernel.lengthscales.assign([0.5, 0.6])
    assert model.refresh_basis() is True
    assert model.refresh_basis() is False
    np.testing.assert_allclose(model.weights, np.ones(M), rtol=1e-15)
    fresh = build(
        rows,
        reweighted=reweighted,
        mean_function=slope(),
        kernel=SquaredExponential(1.7, [0.5, 0.6]),
    )
    np.testing.assert_allclose(model.elbo(), fresh.elbo(), rtol=1e-10)
    assert_close(model.predict_f(inputs(3)), fresh.predict_f(inputs(3)))
