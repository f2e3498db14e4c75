"""DualGPR against exact GP regression in dense NumPy."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_sparse as gs
from gpflow_sparse.models import DualGPR, DualOptions
from tests.oracles import dual as oracle

N, D, P, NOISE = 300, 2, 2, 0.05
EXACT = DualOptions(block_size=80, tolerance=1e-9)
ROUGH = DualOptions(block_size=80, tolerance=1e-4)


def make_data(rows=N, outputs=P, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, D))
    return X, np.sin(2.0 * X[:, :1]) + 0.2 * rng.normal(size=(rows, outputs))


XNEW = np.random.default_rng(5).normal(size=(25, D))


def kernel():
    return gpflow.kernels.Matern32(variance=1.3, lengthscales=[0.8, 1.2])


def linear(outputs=P):
    return gpflow.functions.Linear(np.full((D, outputs), 0.2), np.full(outputs, 0.5))


def build(outputs=P, options=EXACT, **arguments):
    arguments = {"noise_variance": NOISE, "mean_function": linear(outputs), **arguments}
    model = DualGPR(make_data(outputs=outputs), kernel(), **arguments)
    model.solve(options)
    return model


def expected_moments(outputs=P, row_noise=0.0):
    (X, Y), k, mean = make_data(outputs=outputs), kernel(), linear(outputs)
    noise = np.full(N, NOISE) + row_noise
    covariances = k(X).numpy(), k(X, XNEW).numpy(), k(XNEW).numpy()
    found, cov = oracle.posterior(*covariances, noise, Y - mean(X).numpy())
    return found + mean(XNEW).numpy(), cov


def test_the_mean_is_exact_and_variances_are_within_their_standard_errors():
    model = build(num_paths=300, num_features=256)
    mean, var = model.predict_f(XNEW)
    expected, cov = expected_moments()
    np.testing.assert_allclose(mean, expected, atol=1e-6)
    error = np.sqrt(2.0 / (300 * P))
    ratios = var.numpy() / np.diag(cov)[:, None] - 1.0
    assert np.abs(ratios).max() < 3.0 * error
    assert 0.3 * error < np.sqrt(np.mean(ratios**2)) < 1.5 * error  # an estimate it is
    joint = model.predict_f(XNEW, full_cov=True)[1].numpy()
    np.testing.assert_allclose(np.diagonal(joint, axis1=1, axis2=2).T, var, rtol=1e-10)
    width = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / (300 * P))
    assert (np.abs(joint - cov) < 4.0 * width).all()
    noisy = model.predict_y(XNEW)[1]
    np.testing.assert_allclose(noisy, var + NOISE, rtol=1e-12)


def test_noise_of_rows_is_part_of_the_posterior():
    row_noise = np.linspace(0.0, 1.0, N)
    model = build(row_noise=row_noise, num_paths=300, num_features=256)
    mean, var = model.predict_f(XNEW)
    expected, cov = expected_moments(row_noise=row_noise)
    np.testing.assert_allclose(mean, expected, atol=1e-6)
    assert np.abs(var.numpy() / np.diag(cov)[:, None] - 1.0).max() < 3.0 * np.sqrt(1 / 300)
    with pytest.raises(ValueError, match=r"row_noise must have shape \(300,\)"):
        build(row_noise=row_noise[:5])
    with pytest.raises(ValueError, match=r"row_noise must have shape .* at least 0"):
        build(row_noise=-row_noise)


@pytest.mark.nightly
def test_direct_predictions_are_exact_and_a_rough_solve_only_widens_them():
    model = build(num_paths=4)
    expected, cov = expected_moments()
    mean, var = model.predict_f_directly(XNEW, options=EXACT)
    np.testing.assert_allclose(mean, expected, atol=1e-6)
    np.testing.assert_allclose(var, np.repeat(np.diag(cov)[:, None], P, 1), rtol=1e-6)
    joint = model.predict_f_directly(XNEW, full_cov=True, options=EXACT)[1]
    np.testing.assert_allclose(joint, np.broadcast_to(cov, joint.shape), atol=1e-7)
    rough = DualOptions(block_size=80, tolerance=1e-2)
    wider = model.predict_f_directly(XNEW, options=rough)[1].numpy()[:, 0] - np.diag(cov)
    assert (wider > -1e-9).all()
    assert 1e-4 < wider.max() < 2e-3


def test_functions_are_the_draws_that_variances_come_from():
    model = build(outputs=1, options=ROUGH, num_paths=40)
    mean, var = model.predict_f(XNEW)
    posterior = model.posterior()
    draws = posterior.sample_functions(40, seed=1)(XNEW)
    squares = np.mean((draws.numpy() - mean) ** 2, axis=0)
    np.testing.assert_allclose(squares, var, rtol=1e-9)
    few = posterior.sample_functions(7, seed=2)(XNEW).numpy()
    assert all(np.isclose(draw, draws).all(axis=(1, 2)).sum() == 1 for draw in few)
    np.testing.assert_array_equal(posterior.sample_functions(7, seed=2)(XNEW), few)
    with pytest.raises(ValueError, match="num_samples must be at most num_paths=40"):
        posterior.sample_functions(41)
    with pytest.raises(ValueError, match="num_features must be 1024"):
        posterior.sample_functions(4, num_features=512)
    X, Y = make_data(outputs=1, seed=3)
    factor = gs.calibrate(model, (X, 5.0 * Y)).function
    assert factor > 1.1
    wide = model.posterior().sample_functions(40, seed=1)(XNEW)
    np.testing.assert_allclose(wide - mean, np.sqrt(factor) * (draws - mean), atol=1e-9)
    np.testing.assert_allclose(model.predict_f(XNEW)[1], factor * var, rtol=1e-9)


@pytest.mark.nightly
@pytest.mark.parametrize("what", ["kernel.variance", "likelihood.variance", "mean_function.b"])
def test_weights_belong_to_their_parameters(what):
    few = {"num_paths": 4, "num_features": 64}
    model = DualGPR(make_data(), kernel(), noise_variance=NOISE, mean_function=linear(), **few)
    with pytest.raises(ValueError, match=r"no weights yet: call solve\(\)"):
        model.predict_f(XNEW)
    model.solve(ROUGH)
    compiled = tf.function(model.predict_f, autograph=False)
    np.testing.assert_allclose(compiled(XNEW), model.predict_f(XNEW), atol=1e-10)
    parameter = gpflow.utilities.parameter_dict(model)[f".{what}"]
    parameter.assign(parameter + 0.1)
    with pytest.raises(ValueError, match=r"changed since solve\(\)"):
        model.predict_f(XNEW)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"changed since solve\(\)"):
        compiled(XNEW)
    model.solve(EXACT)
    fresh = DualGPR(
        make_data(), model.kernel, noise_variance=NOISE, mean_function=model.mean_function, **few
    )
    fresh.likelihood.variance.assign(model.likelihood.variance)
    fresh.solve(EXACT)
    np.testing.assert_allclose(model.predict_f(XNEW), fresh.predict_f(XNEW), atol=1e-6)


def test_rows_that_are_added_need_another_solve():
    X, Y = (tf.Variable(part, shape=[None, part.shape[1]]) for part in make_data(outputs=1))
    model = DualGPR((X, Y), kernel(), noise_variance=NOISE, num_paths=4)
    model.solve(EXACT)
    more = make_data(rows=N + 40, outputs=1, seed=9)
    X.assign(more[0])
    Y.assign(more[1])
    with pytest.raises(ValueError, match=r"parameters or data of the model have changed"):
        model.predict_f(XNEW)
    model.solve(EXACT)
    reference = gpflow.models.GPR(more, kernel(), noise_variance=NOISE)
    np.testing.assert_allclose(model.predict_f(XNEW)[0], reference.predict_f(XNEW)[0], atol=1e-6)


def test_a_second_solve_starts_from_the_first_and_a_state_continues_to_the_last_bit():
    model = build(num_paths=4, options=ROUGH)
    assert model.solve(ROUGH).state.num_passes == 0
    states = []
    other = DualGPR(make_data(), kernel(), noise_variance=NOISE, num_paths=4)
    expected = other.solve(ROUGH, callback=states.append)
    again = DualGPR(make_data(), kernel(), noise_variance=NOISE, num_paths=4)
    found = again.solve(ROUGH, state=states[1])
    np.testing.assert_array_equal(found.state.weights, expected.state.weights)
    np.testing.assert_array_equal(again.predict_f(XNEW), other.predict_f(XNEW))
    fresh = DualGPR(make_data(), kernel(), noise_variance=NOISE, num_paths=4)
    with pytest.warns(UserWarning, match=r"after 1 passes, above the tolerance of 0\.001"):
        fresh.solve(DualOptions(block_size=80, max_passes=1))


@pytest.mark.parametrize("name", ["values", "phases"])
def test_a_file_with_weights_that_do_not_fit_is_refused(name, tmp_path):
    model = build(num_paths=4, options=ROUGH)
    value = getattr(model.weights, name).numpy()
    for wrong in (np.nan * value, value[:1]):
        setattr(model.weights, name, tf.Variable(wrong))
        with pytest.raises(ValueError, match=rf"weights\.{name} must be a float64 variable"):
            gs.save(model, tmp_path / "model.npz")  # which reads what it is to write


def test_after_an_interruption_the_model_has_the_weights_of_all_complete_passes():
    model = DualGPR(make_data(), kernel(), noise_variance=NOISE, num_paths=4)
    states = []

    def stop(state):
        states.append(state)
        if state.num_passes == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.solve(ROUGH, callback=stop)
    np.testing.assert_array_equal(model.weights.values, states[-1].weights)
    assert np.isfinite(model.predict_f(XNEW)[0]).all()
    whole = DualGPR(make_data(), kernel(), noise_variance=NOISE, num_paths=4)
    whole.solve(ROUGH)
    model.solve(ROUGH, state=states[-1])
    np.testing.assert_array_equal(model.weights.values, whole.weights.values)


def test_float32_is_near_float64():
    expected = build(num_paths=16).predict_f(XNEW)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        k = gpflow.kernels.Matern32(variance=1.3, lengthscales=[0.8, 1.2])
        b = np.full(P, 0.5, np.float32)
        mean = gpflow.functions.Linear(np.full((D, P), 0.2, np.float32), b)
        data = tuple(part.astype(np.float32) for part in make_data())
        model = DualGPR(data, k, noise_variance=NOISE, mean_function=mean, num_paths=16)
        model.solve(ROUGH)
        found = model.predict_f(XNEW.astype(np.float32))
    assert found[0].dtype == tf.float32
    np.testing.assert_allclose(found[0], expected[0], atol=1e-3)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-2)


def test_what_the_model_does_not_have_is_refused_clearly():
    model = build(num_paths=4, options=ROUGH)
    for call in (model.training_loss, model.maximum_log_likelihood_objective, model.elbo):
        with pytest.raises(ValueError, match=r"DualGPR has no objective.*local_hyperparameters"):
            call()
    with pytest.raises(ValueError, match="no objective"):
        gs.training.fit(model, num_steps=2, progress=False)
    with pytest.raises(ValueError, match="no KL divergence"):
        model.posterior().prior_kl()
    with pytest.raises(ValueError, match=r"options must be a gs\.models\.DualOptions, got dict"):
        model.solve({"tolerance": 0.1})
    with pytest.raises(ValueError, match=r"kernel must be .*Polynomial"):
        DualGPR(make_data(), gpflow.kernels.Polynomial(), noise_variance=1.0)
