"""Signal and noise of hidden layers: naive NumPy, limits, advice, and the record of training."""

import json

import gpflow
import numpy as np
import pytest

import gpflow_sparse as gs
from gpflow_sparse.models import SOLVEGP, DeepGP, GPLayer
from gpflow_sparse.training import FitState, LayerSignals
from tests.models.test_deep import N, convolutions, frozen, fully_connected, gaussian
from tests.oracles import deep

S = 3


def layer_signals(model, X):
    return gs.diagnostics(model, (X, np.zeros((len(X), 1))))["layers"]


@pytest.mark.parametrize(
    ("build", "columns", "outputs", "widths"),
    [(fully_connected, 2, (3, 2), (3, 2)), (convolutions, 20, (24, 8), (2, 2))],
    ids=["rows", "images"],
)
def test_signal_and_noise_are_those_of_naive_numpy(rng, build, columns, outputs, widths):
    layers, oracles = build(rng)
    X, model = rng.normal(size=(N, columns)), gaussian(layers, num_prediction_samples=S, seed=1)
    eps = [draw[:, 0] for draw in frozen(model, S, outputs)]
    found = layer_signals(model, X)
    expected = deep.layer_signals(oracles, X, eps, widths)
    assert [entry["layer"] for entry in found] == [1, 2]
    for entry, (signal, noise) in zip(found, expected, strict=True):
        assert min(signal.min(), noise.min()) > 1e-3
        for name, want in (("signal", signal), ("noise", noise), ("ratio", signal / noise)):
            got = [channel[name] for channel in entry["channels"]]
            np.testing.assert_allclose(got, want, rtol=1e-6)
        np.testing.assert_allclose(entry["signal"], signal.mean(), rtol=1e-6)
        np.testing.assert_allclose(entry["ratio"], signal.mean() / noise.mean(), rtol=1e-6)


def at_prior(rng, G=2, mean_function=None):
    kernel = gpflow.kernels.Matern52(1.7)
    Z = rng.normal(size=(6, 3))
    hidden = GPLayer(kernel, Z, num_latent_gps=G, mean_function=mean_function)
    between = GPLayer(gpflow.kernels.Matern52(0.6), Z[:, :G], num_latent_gps=G)
    last = GPLayer(gpflow.kernels.Matern52(), Z[:, :G])
    return DeepGP([hidden, between, last], gpflow.likelihoods.Gaussian())


def solvegp(Z):
    sets = gs.inducing_variables.OrthogonalInducingVariables(Z)
    return SOLVEGP(gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(), sets)


def test_the_prior_without_mean_is_noise_alone(rng):
    found = layer_signals(at_prior(rng), rng.normal(size=(20, 3)))
    assert [entry["signal"] for entry in found] == [0.0, 0.0]
    assert [entry["ratio"] for entry in found] == [0.0, 0.0]
    assert [entry["input_fraction"] for entry in found] == [None, None]
    np.testing.assert_allclose([entry["noise"] for entry in found], [1.7, 0.6], rtol=1e-5)


def test_a_model_without_hidden_layers_or_one_row_has_a_note(rng):
    Z = rng.normal(size=(4, 3))
    shallow = solvegp(Z)
    one = DeepGP([GPLayer(gpflow.kernels.Matern52(), Z)], gpflow.likelihoods.Gaussian())
    data = Z, Z[:, :1]
    for model, name in ((shallow, "SOLVEGP"), (one, "DeepGP")):
        found = gs.diagnostics(model, data)
        assert found["layers"] is None
        assert found["notes"]["layers"] == f"{name} has no hidden layers."
    found = gs.diagnostics(at_prior(rng), (Z[:1], Z[:1, :1]))
    assert found["notes"]["layers"] == "the variance over rows needs two rows at least."


def test_advice_is_given_where_there_is_more_noise_than_signal(rng):
    X = rng.normal(size=(20, 3))
    for mean, variance, count in ((None, 1.7, 2), (gs.mean_functions.pca(X, 2), 0.1, 1)):
        model = at_prior(rng, mean_function=mean)
        model.layers[0].kernel.variance.assign(variance)
        advice = gs.diagnostics(model, (X, X[:, :1]))["advice"]
        found = [text for text in advice if "more noise than signal" in text]
        assert len(found) == count
        assert found[-1].startswith("Hidden layer 2 passes on more noise than signal")


@pytest.mark.nightly
def test_ratios_are_recorded_at_their_steps_and_after_a_resumption(rng, tmp_path):
    X, model = rng.normal(size=(20, 3)), at_prior(rng)
    data, options = (X, X[:, :1]), {"seed": 0, "progress": False, "batch_size": 20}
    record = LayerSignals(X[:9], every=2)
    gs.training.fit(model, data, num_steps=4, callbacks=[record], **options)
    ratios = [entry["ratio"] for entry in layer_signals(model, X[:9])]
    assert [step for step, _ in record.history] == [2, 4]
    np.testing.assert_allclose(record.history[-1][1], ratios, rtol=1e-12)
    assert 0.0 < record.history[0][1][0] != ratios[0]
    options |= {"checkpoint_dir": tmp_path, "resume": True}
    model, first, second = at_prior(rng), LayerSignals(X, every=2), LayerSignals(X, every=2)
    gs.training.fit(model, data, num_steps=4, callbacks=[first], **options)
    gs.training.fit(model, data, num_steps=6, callbacks=[second], **options)
    assert [step for step, _ in second.history] == [2, 4, 6]
    assert second.history[:2] == first.history


def test_a_state_is_restored_and_any_other_refused():
    record, other = LayerSignals(np.eye(3)), LayerSignals(np.eye(3))
    record.history = [(100, [0.5, None]), (200, [0.7, 2.0])]
    other.set_state(json.loads(json.dumps(record.get_state())))
    assert other.history == record.history
    for state in ({}, {"steps": [1], "ratios": [["a"]]}, {"steps": [0.5], "ratios": [[1.0]]}):
        with pytest.raises(ValueError, match="the state of LayerSignals"):
            other.set_state(state)


def test_wrong_inputs_and_models_are_refused(rng):
    for X, message in (([[1.0]], "two rows"), ([1.0, 2.0], r"X\[:, None\]"), ([[np.nan]], "X")):
        with pytest.raises(ValueError, match=message):
            LayerSignals(X)
    with pytest.raises(ValueError, match="every must be"):
        LayerSignals(np.eye(3), every=0)
    shallow = solvegp(np.eye(3))
    with pytest.raises(ValueError, match="needs a DeepGP with hidden layers, got SOLVEGP"):
        LayerSignals(np.eye(3))(FitState(1, 0.0, shallow))
    with pytest.raises(ValueError, match=r"X must have 3 column\(s\)"):
        LayerSignals(np.eye(2), every=1)(FitState(1, 0.0, at_prior(rng)))
